package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// slow is a limiter that waits for the test where the identity is slow.
type slow struct {
	began, resume chan struct{}
	decided       atomic.Int64
}

func (s *slow) Decide(_ context.Context, req *rules.Request, layers []counters.Decision) ([]counters.Decision, error) {
	s.decided.Add(1)
	if req.Identity == "slow" {
		s.began <- struct{}{}
		<-s.resume
	}
	return append(layers, counters.Decision{Allowed: true, Rule: "r", Limit: 1}), nil
}

// While a request_id is decided on, others do not wait for it, and those with the same one do.
func TestRequestIDsDoNotWaitForEachOther(t *testing.T) {
	s := &slow{began: make(chan struct{}), resume: make(chan struct{})}
	api := New(s, Options{})
	check := func(identity, id string) int {
		body := `{"rule":"r","identity":"` + identity + `","request_id":"` + id + `"}`
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/check", strings.NewReader(body))
		api.ServeHTTP(w, r)
		return w.Code
	}
	codes := make(chan int)
	go func() { codes <- check("slow", "1") }()
	<-s.began
	if code := check("fast", "2"); code != http.StatusOK {
		t.Errorf("another request_id: %d", code)
	}
	go func() { codes <- check("slow", "1") }()
	close(s.resume)
	for range 2 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("the same request_id: %d", code)
		}
	}
	if n := s.decided.Load(); n != 2 {
		t.Errorf("%d decisions, want 2", n)
	}
}
