package answer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// The families of rate-limit headers.
const (
	// Draft11 is RateLimit-Policy and RateLimit as in draft-ietf-httpapi-ratelimit-headers-11.
	Draft11 = "draft11"
	// LegacyDelta is X-RateLimit-Limit, -Remaining and -Reset of the governing layer, and X-RateLimit-Retry-After in
	// denials. The reset is when the whole limit is available again, in seconds from now, as Envoy and Kong have it.
	LegacyDelta = "legacy-delta"
	// LegacyEpoch is the same with the reset in Unix seconds, as GitHub has it.
	LegacyEpoch = "legacy-epoch"
	// HeadersOff stands alone and means none of the above.
	HeadersOff = "off"
)

// DefaultHeaders returns the families that are written unless others are named.
func DefaultHeaders() []string { return []string{Draft11, LegacyDelta} }

const (
	// maxJitter is the largest part by which Retry-After exceeds the wait.
	maxJitter = 0.03
	// maxField is the length of a list in bytes beyond which only its first policy is certain to be named: proxies
	// often have 4 or 8 KiB for all headers together.
	maxField = 2048
	// maxInteger is the largest Integer of RFC 9651.
	maxInteger = 999_999_999_999_999
)

// Headers writes decisions as response headers. It is immutable and safe for concurrent use.
type Headers struct {
	draft11 bool
	legacy  string // LegacyDelta, LegacyEpoch or none
	now     func() time.Time
	jitter  func() float64
}

// NewHeaders returns the writer of the named families; none means DefaultHeaders. now is the wall clock of LegacyEpoch,
// nil means time.Now. jitter returns numbers in [0, 1), nil means math/rand/v2. The error lists all invalid names.
func NewHeaders(families []string, now func() time.Time, jitter func() float64) (*Headers, error) {
	if len(families) == 0 {
		families = DefaultHeaders()
	}
	h := &Headers{now: now, jitter: jitter}
	if h.now == nil {
		h.now = time.Now
	}
	if h.jitter == nil {
		h.jitter = rand.Float64
	}
	var errs []error
	for i, name := range families {
		switch {
		case slices.Contains(families[:i], name):
			errs = append(errs, fmt.Errorf("headers: %s is named twice: name it once", name))
		case name == Draft11:
			h.draft11 = true
		case name == LegacyDelta || name == LegacyEpoch:
			if h.legacy != "" {
				errs = append(errs, fmt.Errorf("headers: %s and %s use the same fields: choose one", h.legacy, name))
			}
			h.legacy = name
		case name == HeadersOff && len(families) > 1:
			errs = append(errs, fmt.Errorf("headers: %s stands alone: drop it or the others", name))
		case name != HeadersOff:
			errs = append(errs, fmt.Errorf("headers: %q is unknown: use %s, %s, %s or %s", name, Draft11, LegacyDelta,
				LegacyEpoch, HeadersOff))
		}
	}
	return h, errors.Join(errs...)
}

// Write sets the headers of one request's decisions. Layers without a rule are left out. A denial sets Retry-After and
// Cache-Control whatever the families. layers are neither kept nor changed.
//
// It returns the seconds of Retry-After: the governing wait and 0 to 3 % more, rounded up; 0 if the request is allowed;
// -1 if no wait helps, and then there is no Retry-After.
func (h *Headers) Write(dst http.Header, layers []counters.Decision) int64 {
	var room [maxFields]Field
	fields, retryAfter := h.Append(room[:0], layers)
	values := make([]string, len(fields))
	for i, f := range fields {
		values[i] = f.Value
		dst[f.Name] = values[i : i+1 : i+1]
	}
	return retryAfter
}

// Field is a header field.
type Field struct{ Name, Value string }

// Append appends to dst the fields that Write sets, for protocols with headers of their own. Its second result is that
// of Write.
func (h *Headers) Append(dst []Field, layers []counters.Decision) ([]Field, int64) {
	i := counters.Governing(layers)
	if i < 0 {
		return dst, 0
	}
	var (
		room [512]byte
		f    fields
	)
	text, g, retryAfter := room[:0], &layers[i], int64(0)
	if h.draft11 {
		text = f.addDraft11(text, layers)
	}
	if h.legacy != "" {
		text = f.end(strconv.AppendUint(text, g.Limit, 10), "X-Ratelimit-Limit")
		text = f.end(strconv.AppendUint(text, g.Remaining, 10), "X-Ratelimit-Remaining")
		text = f.end(strconv.AppendInt(text, h.reset(g), 10), "X-Ratelimit-Reset")
	}
	if !g.Allowed {
		text = f.end(append(text, "no-store"...), "Cache-Control")
		retryAfter = -1
		if g.RetryAfter != counters.Never {
			retryAfter = RoundUp(h.Spread(g.RetryAfter), time.Second) // rounded last: never before the t of RateLimit
		}
	}
	if retryAfter > 0 {
		text = f.end(strconv.AppendInt(text, retryAfter, 10), "Retry-After")
		if h.legacy != "" {
			text = f.end(strconv.AppendInt(text, retryAfter, 10), "X-Ratelimit-Retry-After")
		}
	}
	all, start := string(text), 0
	for i, name := range f.names[:f.n] {
		dst = append(dst, Field{name, all[start:f.ends[i]]})
		start = f.ends[i]
	}
	return dst, retryAfter
}

// reset returns the value of X-RateLimit-Reset.
func (h *Headers) reset(g *counters.Decision) int64 {
	if h.legacy == LegacyEpoch {
		return UnixUp(h.now().Add(g.ResetAfter))
	}
	return RoundUp(g.ResetAfter, time.Second)
}

// Spread returns a wait, which is not counters.Never, plus 0 to 3 %, so that clients that were denied together do not
// retry together.
func (h *Headers) Spread(wait time.Duration) time.Duration {
	return wait + time.Duration(float64(wait)*maxJitter*h.jitter())
}

// Pushback returns the value of grpc-retry-pushback-ms for a denial's RetryAfter: how many milliseconds the retry
// policy of a client of gRPC is to wait; -1: for ever.
// (https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback)
func (h *Headers) Pushback(wait time.Duration) int64 {
	if wait == counters.Never {
		return -1
	}
	return RoundUp(h.Spread(wait), time.Millisecond)
}

// maxFields is how many fields there may be.
const maxFields = 8

// fields says which parts of one text are the values of which header fields, so that all together cost one allocation.
// Names are in the canonical form of net/http, which Header.Get needs.
type fields struct {
	names [maxFields]string
	ends  [maxFields]int // where the value of each name ends in the text
	n     int
}

// end makes the part of text since the last call the value of name. It returns text, which would escape to the heap if
// it were in the struct.
func (f *fields) end(text []byte, name string) []byte {
	f.names[f.n], f.ends[f.n] = name, len(text)
	f.n++
	return text
}

// addDraft11 adds the two lists, tightest policy first. Of several layers under one rule only the tightest is
// named: without a partition key no client could tell them apart.
func (f *fields) addDraft11(text []byte, layers []counters.Decision) []byte {
	if len(layers) == 1 {
		text = f.end(appendPolicy(text, &layers[0]), "Ratelimit-Policy")
		return f.end(appendLimit(text, &layers[0]), "Ratelimit")
	}
	var (
		restRoom               [4]counters.Decision
		policyRoom, limitRoom  [256]byte
		rest, policies, limits = append(restRoom[:0], layers...), policyRoom[:0], limitRoom[:0]
	)
	for i := counters.Governing(rest); i >= 0; i = counters.Governing(rest) {
		d := rest[i]
		policiesEnd, limitsEnd := len(policies), len(limits)
		if policiesEnd > 0 {
			policies, limits = append(policies, ", "...), append(limits, ", "...)
		}
		policies, limits = appendPolicy(policies, &d), appendLimit(limits, &d)
		if policiesEnd > 0 && max(len(policies), len(limits)) > maxField {
			policies, limits = policies[:policiesEnd], limits[:limitsEnd]
			break
		}
		rest = slices.DeleteFunc(rest, func(o counters.Decision) bool { return o.Rule == d.Rule })
	}
	text = f.end(append(text, policies...), "Ratelimit-Policy")
	return f.end(append(text, limits...), "Ratelimit")
}

// appendPolicy appends a Quota Policy Item: "burst";q=100;w=60. A window in fractions of a second has no form there.
func appendPolicy(b []byte, d *counters.Decision) []byte {
	b = appendItem(b, d.Rule)
	b = strconv.AppendUint(append(b, ";q="...), min(d.Limit, maxInteger), 10)
	if d.Window > 0 && d.Window%time.Second == 0 {
		b = strconv.AppendInt(append(b, ";w="...), int64(d.Window/time.Second), 10)
	}
	return b
}

// appendLimit appends a Service Limit Item: "burst";r=45;t=30.
func appendLimit(b []byte, d *counters.Decision) []byte {
	t := d.ResetAfter
	if !d.Allowed && d.RetryAfter != counters.Never {
		t = d.RetryAfter
	}
	b = appendItem(b, d.Rule)
	b = strconv.AppendUint(append(b, ";r="...), min(d.Remaining, maxInteger), 10)
	return strconv.AppendInt(append(b, ";t="...), RoundUp(t, time.Second), 10)
}

// appendItem appends name as a String (RFC 9651, section 3.3.3), which holds printable ASCII. Other bytes and the
// percent sign are percent-encoded, so that no two names look alike.
func appendItem(b []byte, name string) []byte {
	const hex = "0123456789ABCDEF"
	b = append(b, '"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~' || c == '%':
			b = append(b, '%', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
