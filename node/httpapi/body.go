package httpapi

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Sizes in bytes.
const (
	maxBody      = 64 << 10 // the longest body of a single check
	maxBatchBody = 1 << 20
	// maxBodies caps the memory of all bodies in flight: a body longer than freeBody counts up to four times its
	// length, and so does a long response until it is sent.
	maxBodies = 64 << 20
	freeBody  = 4 << 10

	minBuffer = 1 << 10    // a new buffer for bodies
	maxPooled = 64<<10 + 1 // the largest buffer that is kept for later requests
)

// scratch is the memory of one request, reused by later ones. Strings never outlive their request in it.
type scratch struct {
	buf  []byte
	body string // a copy of buf, UTF-8; decoded strings are parts of it
	json jsonReader

	req       rules.Request
	entries   []rules.Entry // what req.Descriptors point into
	requestID string        // the check's idempotency key
	report    bool          // charge, do not decide
	cost      cost          // the check's

	layers []counters.Decision
	out    []byte
	bodies *limits.Budget // api.bodies
	source netip.Addr     // of the client
	held   int64          // bytes of bodies
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (a *api) takeScratch(r *http.Request) *scratch {
	s := scratches.Get().(*scratch)
	s.bodies, s.source = a.bodies, limits.SourceOfContext(r.Context())
	return s
}

// release ends the use of the scratch, and returns to the budget what it held.
func (s *scratch) release() {
	if s.held > 0 {
		s.bodies.Give(s.source, s.held)
	}
	s.reset()
	clear(s.layers)
	s.report, s.body, s.buf, s.layers, s.out = false, "", s.buf[:0], s.layers[:0], s.out[:0]
	s.json.text, s.bodies, s.held = "", nil, 0
	if cap(s.buf) <= maxPooled && cap(s.out) <= maxPooled {
		scratches.Put(s)
	}
}

// reset empties the request and keeps its memory.
func (s *scratch) reset() {
	clear(s.entries)
	clear(s.req.Descriptors)
	s.entries = s.entries[:0]
	s.req, s.requestID = rules.Request{Descriptors: s.req.Descriptors[:0]}, ""
}

// hold takes n bytes of the budget for bodies. It returns false, and takes none, where fewer are left for the source.
func (s *scratch) hold(n int) bool {
	if s.bodies.Take(s.source, int64(n)) != "" {
		return false
	}
	s.held += int64(n)
	return true
}

// holdOut holds a long response against the budget, because the client may be slow to read it. It may overdraw the
// budget: the checks are charged already.
func (s *scratch) holdOut() {
	if n := int64(cap(s.out)); n > freeBody {
		s.bodies.Overdraw(s.source, n)
		s.held += n
	}
}

// read reads the body, of at most limit bytes of UTF-8.
func (s *scratch) read(w http.ResponseWriter, r *http.Request, limit int64) error {
	tooLarge := r.ContentLength > limit // a client that announces its length is stopped before it sends
	if !tooLarge {
		err := s.fill(http.MaxBytesReader(w, r.Body, limit), limit)
		_, tooLarge = errors.AsType[*http.MaxBytesError](err)
		switch {
		case err == nil, tooLarge:
		case errors.Is(err, errBudget):
			w.Header()["Connection"] = closing // the rest of the body is not read
			return refusef(http.StatusServiceUnavailable, "the node has too many long requests under way: "+
				"try again in a second, or send fewer checks at once")
		case errors.Is(err, os.ErrDeadlineExceeded):
			return refusef(http.StatusRequestTimeout, "the body did not arrive in time: send it at once")
		default:
			return badRequest("the body broke off: send as much as Content-Length says")
		}
	}
	switch {
	case tooLarge:
		return refusef(http.StatusRequestEntityTooLarge, "the body is longer than %d bytes: send less at once", limit)
	case len(s.buf) == 0:
		return badRequest("the body is empty: send a JSON object")
	case !utf8.Valid(s.buf): // to replace other bytes, as encoding/json does, would make one identity of many
		return badRequest("the body is not UTF-8: send JSON in UTF-8, with other bytes encoded in some way")
	}
	s.body = string(s.buf)
	return nil
}

var errBudget = errors.New("the bodies of other requests leave no room")

// fill reads r, which holds at most limit bytes, to its end. The buffer grows with what has arrived, not with what was
// announced, and never beyond limit+1 bytes: the one shows the end of a body of just that length. The budget is charged
// in the same steps: two bytes for each, as the body is copied to a string.
func (s *scratch) fill(r io.Reader, limit int64) error {
	covered := freeBody + 1
	for {
		if len(s.buf) == covered {
			if !s.hold(2 * covered) {
				return errBudget
			}
			covered *= 2
		}
		if len(s.buf) == cap(s.buf) {
			size := max(2*cap(s.buf), minBuffer)
			if int64(size) >= limit {
				size = int(limit) + 1
			}
			s.buf = append(make([]byte, 0, size), s.buf...)
		}
		n, err := r.Read(s.buf[len(s.buf):min(cap(s.buf), covered)])
		s.buf = s.buf[:len(s.buf)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// maxChecks is the most checks that one batch may hold.
const maxChecks = 1000

// maxRequestID is the longest request_id, in bytes.
const maxRequestID = 128

// span is where a check stands in a body.
type span struct{ begin, end int }

// complete is the span of a body that is one check.
func (s *scratch) complete() span { return span{0, len(s.body)} }

// decode reads the part of the body at a span: one object.
func (s *scratch) decode(at span, what string, fields ...field) error {
	s.json.reset(s.buf[at.begin:at.end], s.body[at.begin:at.end])
	if err := s.json.object(what, fields...); err != nil {
		return err
	}
	return s.json.end()
}

// decodeCheck reads a check of /v1/check into the scratch.
func (s *scratch) decodeCheck(at span) error {
	s.reset()
	r := &s.req
	s.cost = 1
	err := s.decode(at, "a check", field{"domain", &r.Domain}, field{"descriptors", s.decodeDescriptors},
		field{"rule", &r.Rule}, field{"identity", &r.Identity}, field{"cost", &s.cost}, field{"peek", &r.Peek},
		field{"request_id", s.decodeRequestID}, field{"response", s.decodeResponse})
	r.SetCost(uint64(s.cost))
	if r.Response != nil {
		r.Response.Cost = r.EffectiveCost()
	}
	return err
}

// decodeResponse decodes the response of a report. The report's cost is what a header of the response would say.
func (s *scratch) decodeResponse() error {
	if !s.report {
		return badRequest("a check comes before the response: give it to /v1/report")
	}
	var status, bytes, milliseconds uint64
	err := s.json.object("a response", field{"status", &status}, field{"bytes", &bytes},
		field{"duration_ms", &milliseconds})
	if err != nil {
		return err
	}
	if status < 100 || status > 599 {
		return badRequest("the response's status is %d: give one of 100 to 599", status)
	}
	s.req.Response = &rules.Response{Status: int(status), Bytes: bytes,
		Duration: time.Duration(min(milliseconds, maxMilliseconds)) * time.Millisecond}
	return nil
}

// maxMilliseconds is the longest duration of a response, over a century.
const maxMilliseconds = 1 << 42

func (s *scratch) decodeRequestID() error {
	if err := s.json.value("request_id", &s.requestID); err != nil {
		return err
	}
	if n := len(s.requestID); n == 0 || n > maxRequestID {
		return badRequest("request_id has %d bytes: give 1 to %d", n, maxRequestID)
	}
	return nil
}

// decodeDescriptors stops at what rules accept, so that a body of empty brackets does not cost many times its length.
func (s *scratch) decodeDescriptors() error {
	return s.json.array("descriptors", func() error {
		if len(s.req.Descriptors) == rules.MaxDescriptors {
			return badRequest("a check has more than %d descriptors: send fewer", rules.MaxDescriptors)
		}
		first := len(s.entries)
		err := s.json.array("a descriptor", func() error {
			if len(s.entries)-first == rules.MaxEntries {
				return badRequest("a descriptor has more than %d entries: send fewer", rules.MaxEntries)
			}
			s.entries = append(s.entries, rules.Entry{})
			e := &s.entries[len(s.entries)-1]
			return s.json.object("an entry", field{"key", &e.Key}, field{"value", &e.Value})
		})
		s.req.Descriptors = append(s.req.Descriptors, s.entries[first:len(s.entries):len(s.entries)])
		return err
	})
}

// splitBatch returns the checks of a batch without decoding them: an error in one does not concern the others.
func (s *scratch) splitBatch() (checks []span, err error) {
	found := false
	err = s.decode(s.complete(), "a batch", field{"checks", func() error {
		found = true
		return s.json.array("checks", func() error {
			if len(checks) == maxChecks {
				return badRequest("a batch has more than %d checks: send them in several", maxChecks)
			}
			at, err := s.json.skip()
			checks = append(checks, at)
			return err
		})
	}})
	if err == nil && !found {
		err = badRequest(`a batch has no checks: send {"checks":[...]}`)
	}
	return checks, err
}
