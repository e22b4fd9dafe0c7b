package httpapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// What a buffer for bodies begins with, and the largest one that is kept for the next request, in bytes.
const (
	firstRead = 1 << 10
	maxKept   = 64<<10 + 1
)

// maxDepth is how deep a body may be nested. A batch needs six levels; the rest lets a stray value be named for what it is.
const maxDepth = 32

// freeBody is the longest body that counts nothing against what all may take together, in bytes.
const freeBody = 4 << 10

// allowance is what the bodies of all requests under way may take together. What is left may be below zero: see owe. It is safe for
// concurrent use.
type allowance struct{ left atomic.Int64 }

// take takes so many bytes of it, or none and returns false where fewer are left.
func (a *allowance) take(n int64) bool {
	if a.left.Add(-n) >= 0 {
		return true
	}
	a.left.Add(n)
	return false
}

// scratch is the memory of one request, used again by later ones. Strings never outlive their request in it.
type scratch struct {
	buf     []byte
	body    string // what buf read: valid JSON in UTF-8; the decoded strings are parts of it
	req     rules.Request
	entries []rules.Entry // what req.Descriptors point into
	// requestID is what a check calls itself, so that it is charged once.
	requestID string
	report    bool // it is to be charged, not to be decided
	layers    []counters.Decision
	out       []byte
	held      int64 // of the allowance
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func takeScratch() *scratch { return scratches.Get().(*scratch) }

// giveBack ends the use of the scratch, and gives back to the allowance what it held.
func (s *scratch) giveBack(a *allowance) {
	if s.held > 0 {
		a.left.Add(s.held)
		s.held = 0
	}
	s.forget()
	clear(s.layers)
	s.report, s.body, s.buf, s.layers, s.out = false, "", s.buf[:0], s.layers[:0], s.out[:0]
	if cap(s.buf) <= maxKept && cap(s.out) <= maxKept {
		scratches.Put(s)
	}
}

// forget makes the request empty again and keeps its memory.
func (s *scratch) forget() {
	clear(s.entries)
	clear(s.req.Descriptors)
	s.entries = s.entries[:0]
	s.req, s.requestID = rules.Request{Descriptors: s.req.Descriptors[:0]}, ""
}

// owe holds the answer against the allowance, if it is long: a client may be slow to take it. It is too late to refuse it.
func (s *scratch) owe(a *allowance) {
	if n := int64(cap(s.out)); n > freeBody {
		a.left.Add(-n)
		s.held += n
	}
}

// read reads the body, of at most limit bytes, and makes sure that it is JSON.
func (s *scratch) read(w http.ResponseWriter, r *http.Request, limit int64, a *allowance) error {
	// A client that says how much it is going to send is stopped before it does.
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	if err := s.fill(http.MaxBytesReader(w, r.Body, limit), limit, a); err != nil {
		if errors.Is(err, errCrowded) {
			return crowded(w)
		}
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return tooLarge(limit)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return refuse(http.StatusRequestTimeout, "the body did not arrive in time: send it at once")
		}
		return refuse(http.StatusBadRequest, "the body broke off: send as much as Content-Length says")
	}
	b := s.buf
	if len(b) == 0 {
		return refuse(http.StatusBadRequest, "the body is empty: send a JSON object")
	}
	// Replacing what is not UTF-8, as encoding/json does, would make one identity of many.
	if !utf8.Valid(b) {
		return refuse(http.StatusBadRequest, "the body is not UTF-8: send JSON in UTF-8, with other bytes encoded in some way")
	}
	if depth(b) > maxDepth {
		return refuse(http.StatusBadRequest, "the body is nested more than %d deep: send a check as documented", maxDepth)
	}
	if !json.Valid(b) {
		return badJSON(b)
	}
	s.body = string(b)
	return nil
}

// fill reads r, which holds at most limit bytes, to its end. The buffer grows with what has arrived, not with what was
// announced, and never beyond the limit. So does what is taken of the allowance: twice that, for the text that is made of it.
func (s *scratch) fill(r io.Reader, limit int64, a *allowance) error {
	covered := freeBody + 1 // the one shows the end of a body of just that length
	for {
		if len(s.buf) == covered {
			if !a.take(2 * int64(covered)) {
				return errCrowded
			}
			s.held += 2 * int64(covered)
			covered *= 2
		}
		if len(s.buf) == cap(s.buf) {
			size := max(2*cap(s.buf), firstRead)
			if int64(size) >= limit {
				size = int(limit) + 1 // the one shows the end of a body of just that length
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

var errCrowded = errors.New("the bodies of other requests leave no room")

// crowded refuses a request whose body there is no room for. The rest of it is not waited for.
func crowded(w http.ResponseWriter) error {
	w.Header().Set("Connection", "close")
	return refuse(http.StatusServiceUnavailable, "the node has too many long requests under way: try again in a second, or send fewer checks at once")
}

func tooLarge(limit int64) error {
	return refuse(http.StatusRequestEntityTooLarge, "the body is longer than %d bytes: send less at once", limit)
}

// depth is how deep b is nested if it is JSON. encoding/json would remember every level of a body of open brackets.
func depth(b []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// badJSON says where b ceases to be JSON.
func badJSON(b []byte) error {
	var whole json.RawMessage
	err := json.Unmarshal(b, &whole)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return refuse(http.StatusBadRequest, "the body is not JSON: %v at byte %d: send one JSON object", err, syntax.Offset)
	}
	return refuse(http.StatusBadRequest, "the body is not JSON: send one JSON object")
}
