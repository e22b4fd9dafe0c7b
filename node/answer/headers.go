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
		case (name == LegacyDelta || name == LegacyEpoch) && h.legacy == "":
			h.legacy = name
		case name == LegacyDelta || name == LegacyEpoch:
			errs = append(errs, fmt.Errorf("headers: %s and %s use the same fields: choose one", h.legacy, name))
		case name == HeadersOff && len(families) > 1:
			errs = append(errs, fmt.Errorf("headers: %s stands alone: drop it or the others", name))
		case name != HeadersOff:
			errs = append(errs, fmt.Errorf("headers: %q is unknown: use %s, %s, %s or %s", name, Draft11, LegacyDelta,
				LegacyEpoch, HeadersOff))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return h, nil
}

// Write sets the headers of one request's decisions. Layers without a rule are left out. A denial sets Retry-After and
// Cache-Control whatever the families. layers are neither kept nor changed.
//
// It returns the seconds of Retry-After: the governing wait and 0 to 3 % more, rounded up; 0 if the request is allowed;
// -1 if no wait helps, and then there is no Retry-After.
func (h *Headers) Write(dst http.Header, layers []counters.Decision) int64 {
	var (
		room [512]byte
		f    fields
	)
	composed, retryAfter := h.compose(&f, room[:0], layers)
	if f.n == 0 {
		return retryAfter
	}
	text, values, start := string(composed), make([]string, f.n), 0
	for i := range f.n {
		values[i] = text[start:f.ends[i]]
		dst[f.names[i]] = values[i : i+1 : i+1]
		start = f.ends[i]
	}
	return retryAfter
}

// Field is a header field.
type Field struct{ Name, Value string }

// Append appends to dst the fields that Write sets, for protocols with headers of their own. Its second result is that
// of Write.
func (h *Headers) Append(dst []Field, layers []counters.Decision) ([]Field, int64) {
	var (
		room [512]byte
		f    fields
	)
	composed, retryAfter := h.compose(&f, room[:0], layers)
	text, start := string(composed), 0
	for i := range f.n {
		dst = append(dst, Field{f.names[i], text[start:f.ends[i]]})
		start = f.ends[i]
	}
	return dst, retryAfter
}

// compose appends the values of the fields to text, one after the other, and notes their names and ends in f, which is
// zero.
func (h *Headers) compose(f *fields, text []byte, layers []counters.Decision) ([]byte, int64) {
	i := counters.Governing(layers)
	if i < 0 {
		return text, 0
	}
	governing, retryAfter := &layers[i], int64(0)
	if h.draft11 {
		text = f.appendDraft11(text, layers)
	}
	if h.legacy != "" {
		text = f.appendLegacy(text, governing, h.reset(governing))
	}
	if !governing.Allowed {
		text = f.end(append(text, "no-store"...), "Cache-Control")
		retryAfter = -1
		if wait := governing.RetryAfter; wait != counters.Never {
			retryAfter = RoundUp(h.Spread(wait), time.Second) // rounded last: never earlier than the t of RateLimit
		}
	}
	if retryAfter > 0 {
		text = f.end(strconv.AppendInt(text, retryAfter, 10), "Retry-After")
	}
	if retryAfter > 0 && h.legacy != "" {
		text = f.end(strconv.AppendInt(text, retryAfter, 10), "X-Ratelimit-Retry-After")
	}
	return text, retryAfter
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

// fields says which parts of one text are the values of which headers, so that all headers together cost two
// allocations. Names are in the canonical form of net/http, which Header.Get needs.
type fields struct {
	names [8]string
	ends  [8]int // where the value of each name ends in the text
	n     int
}

// end makes the part of text since the last call the value of name. It returns text.
func (f *fields) end(text []byte, name string) []byte {
	f.names[f.n], f.ends[f.n] = name, len(text)
	f.n++
	return text
}

func (f *fields) appendLegacy(b []byte, g *counters.Decision, reset int64) []byte {
	b = f.end(strconv.AppendUint(b, g.Limit, 10), "X-Ratelimit-Limit")
	b = f.end(strconv.AppendUint(b, g.Remaining, 10), "X-Ratelimit-Remaining")
	return f.end(strconv.AppendInt(b, reset, 10), "X-Ratelimit-Reset")
}

// appendDraft11 appends the two lists, tightest policy first. Of several layers under one rule only the tightest is
// named: without a partition key no client could tell them apart.
func (f *fields) appendDraft11(b []byte, layers []counters.Decision) []byte {
	if len(layers) == 1 {
		b = f.end(appendPolicy(b, &layers[0]), "Ratelimit-Policy")
		return f.end(appendLimit(b, &layers[0]), "Ratelimit")
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
	b = f.end(append(b, policies...), "Ratelimit-Policy")
	return f.end(append(b, limits...), "Ratelimit")
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
