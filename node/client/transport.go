package client

import (
	"cmp"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/answer"
)

// What a Transport does unless it is told otherwise.
const (
	DefaultAttempts = 4
	DefaultLongest  = 30 * time.Second
	firstBackoff    = 100 * time.Millisecond
	drained         = 64 << 10 // bytes of an answer that are read so that its connection can be used again
)

// Transport is an http.RoundTripper that tries again what a server had no room for. It is safe for concurrent use; its
// fields are not to be changed after its first use.
//
//   - 429 means that the request was not looked at: it is sent again, whatever its method.
//   - 502, 503, 504 and broken connections leave that open: only what may be done twice is sent again (GET, HEAD,
//     OPTIONS, TRACE, PUT, DELETE, or with an Idempotency-Key).
//
// A request whose body cannot be had again (http.Request.GetBody) is sent once.
type Transport struct {
	// Base sends the requests; nil: http.DefaultTransport.
	Base http.RoundTripper
	// Attempts is how often a request is sent at most; 0: DefaultAttempts.
	Attempts int
	// Longest is the longest wait between two attempts. If a server asks for more, its answer is what the caller gets.
	// 0: DefaultLongest.
	Longest time.Duration

	random func() float64 // in [0, 1); nil: math/rand
}

// RoundTrip implements http.RoundTripper. The answer is that of the last attempt. Where the request's context ends
// before the next attempt, it returns at once.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := cmp.Or(t.Base, http.DefaultTransport)
	again := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
	for attempt := 1; ; attempt++ {
		resp, err := base.RoundTrip(r)
		if !again || attempt >= cmp.Or(t.Attempts, DefaultAttempts) || !worthAnother(r, resp, err) ||
			r.Context().Err() != nil {
			return resp, err
		}
		wait, ok := t.pause(resp, attempt)
		if end, limited := r.Context().Deadline(); !ok || limited && time.Until(end) <= wait {
			return resp, err
		}
		if r, ok = repeated(r); !ok {
			return resp, err
		}
		if resp != nil {
			_, _ = io.CopyN(io.Discard, resp.Body, drained)
			_ = resp.Body.Close()
		}
		if err := answer.Wait(r.Context(), wait); err != nil {
			return nil, err
		}
	}
}

// worthAnother reports whether what came of an attempt may be another time, and may be done twice.
func worthAnother(r *http.Request, resp *http.Response, err error) bool {
	if err == nil {
		switch resp.StatusCode {
		case http.StatusTooManyRequests:
			return true
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		default:
			return false
		}
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != ""
}

// repeated returns the request for another attempt.
func repeated(r *http.Request) (*http.Request, bool) {
	other := r.Clone(r.Context())
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, false
		}
		other.Body = body
	}
	return other, true
}

// pause is how long to wait after an attempt; not ok if that is longer than the caller wants to wait.
func (t *Transport) pause(resp *http.Response, attempt int) (wait time.Duration, ok bool) {
	longest := cmp.Or(t.Longest, DefaultLongest)
	random := t.random
	if random == nil {
		random = rand.Float64
	}
	jitter := time.Duration(random() * float64(backoff(attempt, longest)))
	named, present := retryAfter(resp)
	if !present {
		return jitter, true
	}
	if named > longest {
		return 0, false
	}
	return named + min(jitter, named/8+firstBackoff), true
}

// backoff is the longest wait that nobody named after an attempt, counted from 1.
func backoff(attempt int, longest time.Duration) time.Duration {
	return min(longest, firstBackoff<<min(attempt-1, 20))
}

// retryAfter returns the wait that the Retry-After header of an answer asks for, if it is present.
func retryAfter(resp *http.Response) (wait time.Duration, present bool) {
	if resp == nil {
		return 0, false
	}
	text := strings.TrimSpace(resp.Header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(math.MaxInt64/time.Second))) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(resp.Header.Get("Date")) // the server's clock, so that ours does not matter
	if err != nil {
		now = time.Now()
	}
	return max(0, at.Sub(now)), true
}
