package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// counting decides each request by how many came before it.
func counting() *fake {
	n := uint64(0)
	return &fake{answer: func(*rules.Request) ([]counters.Decision, error) {
		n++
		return []counters.Decision{{Allowed: n < 3, Rule: "q", Limit: 9, Remaining: n, RetryAfter: time.Second}}, nil
	}}
}

// clocked is a door whose clock is the test's.
func clocked(l Limiter) (h http.Handler, now *time.Time) {
	at := time.Unix(1_700_000_000, 0)
	opt := quiet()
	opt.Now = func() time.Time { return at }
	return New(l, opt), &at
}

// TestRequestIDOfAReport: it is charged once, and an id is of a check or of a report.
func TestRequestIDOfAReport(t *testing.T) {
	const body = `{"rule":"q","identity":"x","request_id":"a"}`
	for first, second := range map[string]string{"/v1/report": "/v1/check", "/v1/check": "/v1/report"} {
		l := counting()
		h := reporting(l)
		said := post(h, first, body).Body.String()
		if again := post(h, first, body).Body.String(); again != said || len(l.asked) != 1 {
			t.Errorf("%s sent again: %s after %s, %d charged", first, again, said, len(l.asked))
		}
		if detail := wantProblem(t, post(h, second, body), http.StatusConflict); !strings.Contains(detail, "report's") || len(l.asked) != 1 {
			t.Errorf("%s after %s: %q, %d charged", second, first, detail, len(l.asked))
		}
	}
}

func TestRequestIDIsChargedOnce(t *testing.T) {
	l := counting()
	h, now := clocked(l)
	check := func(body string) string { return post(h, "/v1/check", body).Body.String() }
	first := check(`{"rule":"q","identity":"x","request_id":"a"}`)
	*now = now.Add(saidFor)
	if again := check(`{ "request_id":"a", "identity":"x","rule":"q" }`); again != first || len(l.asked) != 1 {
		t.Errorf("sent again: %s after %s, %d decided", again, first, len(l.asked))
	}
	if batch := post(h, "/v1/check/batch", `{"checks":[{"rule":"q","identity":"x","request_id":"a"}]}`); batch.Body.String() != `{"results":[`+first[:len(first)-1]+"]}\n" {
		t.Errorf("sent again in a batch: %s after %s", batch.Body, first)
	}
	if other := check(`{"rule":"q","identity":"x","request_id":"b"}`); other == first || len(l.asked) != 2 {
		t.Errorf("another id: %s, %d decided", other, len(l.asked))
	}
	for _, body := range []string{`{"rule":"q","identity":"x"}`, `{"rule":"q","identity":"x"}`} {
		check(body)
	}
	if len(l.asked) != 4 {
		t.Errorf("without an id %d were decided, want each", len(l.asked))
	}
	*now = now.Add(2 * saidFor)
	if later := check(`{"rule":"q","identity":"x","request_id":"a"}`); later == first || len(l.asked) != 5 {
		t.Errorf("minutes later: %s, %d decided", later, len(l.asked))
	}
	*now = now.Add(-time.Hour)
	if back := check(`{"rule":"q","identity":"x","request_id":"a"}`); back == "" || len(l.asked) != 6 {
		t.Errorf("when the clock was set back: %s, %d decided", back, len(l.asked))
	}
}

// TestRequestIDOfAnotherCheck: an answer is never given to another question.
func TestRequestIDOfAnotherCheck(t *testing.T) {
	bodies := []string{
		`"rule":"q","identity":"x"`, `"rule":"q","identity":"y"`, `"rule":"qx","identity":""`, `"rule":"q","identity":"x","cost":2`, `"rule":"q","identity":"x","peek":true`,
		`"domain":"d","rule":"q","identity":"x"`, `"domain":"d","descriptors":[[{"key":"q","value":"x"}]]`, `"domain":"d","descriptors":[[{"key":"q"},{"key":"x"}]]`,
		`"domain":"d","descriptors":[[{"key":"q"}],[{"key":"x"}]]`, `"domain":"d","descriptors":[[],[{"key":"q","value":"x"}]]`,
	}
	for i, first := range bodies {
		for j, second := range bodies {
			l := counting()
			h := New(l, quiet())
			post(h, "/v1/check", `{"request_id":"a",`+first+`}`)
			w := post(h, "/v1/check", `{"request_id":"a",`+second+`}`)
			if i != j {
				wantProblem(t, w, http.StatusConflict)
			} else if w.Code != 200 {
				t.Errorf("%s twice: %d %s", first, w.Code, w.Body)
			}
			if len(l.asked) != 1 {
				t.Errorf("%s and %s: %d decided", first, second, len(l.asked))
			}
		}
	}
}

// TestRequestIDsTogether: of retries that race only one is charged, also where it is denied.
func TestRequestIDsTogether(t *testing.T) {
	l := counting()
	h := New(l, quiet())
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() { post(h, "/v1/check", fmt.Sprintf(`{"rule":"q","identity":"x","request_id":"%d"}`, i%4)) })
	}
	all.Wait()
	if len(l.asked) != 4 {
		t.Errorf("%d decided, want 4", len(l.asked))
	}
}

// TestRequestIDWithoutADecision: an error is no answer, and is not remembered.
func TestRequestIDWithoutADecision(t *testing.T) {
	broken := true
	l := &fake{answer: func(*rules.Request) ([]counters.Decision, error) {
		if broken {
			return nil, errors.New("broken")
		}
		return []counters.Decision{{Allowed: true}}, nil
	}}
	h := New(l, quiet())
	wantProblem(t, post(h, "/v1/check", `{"rule":"q","request_id":"a"}`), 500)
	broken = false
	if w := post(h, "/v1/check", `{"rule":"q","request_id":"a"}`); w.Code != 200 {
		t.Errorf("after an error: %d %s", w.Code, w.Body)
	}
}

// TestRequestIDsAreBounded: however many come, what is remembered has a bound, and the newest are.
func TestRequestIDsAreBounded(t *testing.T) {
	s := newSaid()
	at := time.Unix(1_700_000_000, 0)
	layers := make([]counters.Decision, 32)
	for id := range uint64(3 * maxSaid / 32) {
		s.turn(at)
		s.note(id, told{id, layers})
		if got, ok := s.find(id); !ok || got.question != id {
			t.Fatalf("%d is forgotten at once", id)
		}
		if n := len(s.now) + len(s.before); n > 2*(maxSaid/32+1) {
			t.Fatalf("%d are remembered", n)
		}
	}
}
