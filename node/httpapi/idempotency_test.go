package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
)

// counting admits all requests, and says how many came.
func counting() *fake {
	var asked atomic.Uint64
	return &fake{answer: func(*rules.Request) ([]counters.Decision, error) {
		n := asked.Add(1)
		return []counters.Decision{{Allowed: true, Rule: "q", Limit: 9, Remaining: n}}, nil
	}}
}

// clocked returns an API whose clock is the test's.
func clocked(l answer.Limiter) (h http.Handler, now *time.Time) {
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
		once := post(h, first, body).Body.String()
		if again := post(h, first, body).Body.String(); again != once || len(l.asked) != 1 {
			t.Errorf("%s sent again: %s after %s, %d charged", first, again, once, len(l.asked))
		}
		detail := wantProblem(t, post(h, second, body), http.StatusConflict)
		if !strings.Contains(detail, "report's") || len(l.asked) != 1 {
			t.Errorf("%s after %s: %q, %d charged", second, first, detail, len(l.asked))
		}
	}
}

func TestRequestIDIsChargedOnce(t *testing.T) {
	l := counting()
	h, now := clocked(l)
	check := func(body string) string { return post(h, "/v1/check", body).Body.String() }
	first := check(`{"rule":"q","identity":"x","request_id":"a"}`)
	*now = now.Add(cachedFor)
	if again := check(`{ "request_id":"a", "identity":"x","rule":"q" }`); again != first || len(l.asked) != 1 {
		t.Errorf("sent again: %s after %s, %d decided", again, first, len(l.asked))
	}
	batch := post(h, "/v1/check/batch", `{"checks":[{"rule":"q","identity":"x","request_id":"a"}]}`)
	if batch.Body.String() != `{"results":[`+first[:len(first)-1]+"]}\n" {
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
	*now = now.Add(2 * cachedFor)
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
		`"rule":"q","identity":"x"`, `"rule":"q","identity":"y"`, `"rule":"qx","identity":""`,
		`"rule":"q","identity":"x","cost":2`, `"rule":"q","identity":"x","peek":true`,
		`"domain":"d","rule":"q","identity":"x"`, `"domain":"d","descriptors":[[{"key":"q","value":"x"}]]`,
		`"domain":"d","descriptors":[[{"key":"q"},{"key":"x"}]]`,
		`"domain":"d","descriptors":[[{"key":"q"}],[{"key":"x"}]]`,
		`"domain":"d","descriptors":[[],[{"key":"q","value":"x"}]]`,
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

// A denied request_id asks again only for what was not charged, and denials alone do not make entries last or the order
// grow. Once it is admitted, it stays so for a minute.
func TestADeniedRequestIDChargesTheRest(t *testing.T) {
	deny, charged := true, []bool{false, true, false}
	l := &fake{answer: func(r *rules.Request) ([]counters.Decision, error) {
		ds := make([]counters.Decision, 3)
		for i := range ds {
			charges := r.Asks == nil || r.Asks[i].Cost > 0
			ds[i] = counters.Decision{Allowed: !deny || i != 0, Rule: "q", Limit: 9,
				Charged: charged[i] && deny && charges}
		}
		return ds, nil
	}}
	h, now := clocked(l)
	cache := h.(*api).seen
	check := func(want string) {
		t.Helper()
		body := `{"domain":"d","descriptors":[[{"key":"a"}],[{"key":"b"}],[{"key":"c"}]],"cost":7,"request_id":"a"}`
		if got := post(h, "/v1/check", body).Body.String(); !strings.Contains(got, want) {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	asked := func(want []rules.Ask) {
		t.Helper()
		if got := l.asked[len(l.asked)-1]; !slices.Equal(got.Asks, want) || got.Peek || got.Cost != 7 {
			t.Fatalf("asked %+v, want %+v", got, want)
		}
	}
	check(`"allowed":false`)
	asked(nil)
	for range 50 {
		*now = now.Add(time.Second)
		check(`"allowed":false`)
		asked([]rules.Ask{{Cost: 7}, {}, {Cost: 7}})
	}
	charged[2] = true
	check(`"allowed":false`)
	check(`"allowed":false`)
	asked([]rules.Ask{{Cost: 7}, {}, {}})
	*now = now.Add(55 * time.Second)
	deny = false
	check(`"allowed":true`)
	asked([]rules.Ask{{Cost: 7}, {}, {}})
	decided := len(l.asked)
	*now = now.Add(cachedFor)
	if check(`"allowed":true`); len(l.asked) != decided {
		t.Error("what was admitted is decided again within a minute")
	}
	if e := (cached{layers: make([]counters.Decision, 3)}); len(cache.order) != 1 || len(cache.entries) != 1 ||
		cache.bytes != e.bytes() {
		t.Errorf("%d in order, %d entries of %d bytes", len(cache.order), len(cache.entries), cache.bytes)
	}
	*now = now.Add(1)
	if check(`"allowed":true`); len(l.asked) != decided+1 {
		t.Error("what was admitted is remembered for more than a minute")
	}
}

// A report whose layers are full is charged once, and says afresh what is left.
func TestARepeatedReportPeeks(t *testing.T) {
	l := always(deniedBurst)
	h := reporting(l)
	for range 3 {
		post(h, "/v1/report", `{"rule":"q","identity":"x","cost":7,"request_id":"a","response":{"status":200}}`)
	}
	if l.reported != 1 || len(l.asked) != 3 || !l.asked[2].Peek || l.asked[2].Response != nil {
		t.Errorf("%d are charged of %+v", l.reported, l.asked)
	}
}

// TestRequestIDsTogether: of retries that race only one is charged.
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

// TestRequestIDsAreBounded: however many come, what is remembered has a bound, the newest are, and what went early is
// counted and logged.
func TestRequestIDsAreBounded(t *testing.T) {
	l := counting()
	var forgotten atomic.Uint64
	var log strings.Builder
	at := time.Unix(1_700_000_000, 0)
	opt := Options{Forgotten: &forgotten, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Now: func() time.Time { return at }}
	h := New(l, opt)
	cache := h.(*api).seen
	one := cached{layers: make([]counters.Decision, 1)}
	cache.maxBytes = 100 * one.bytes()
	check := func(id int) {
		post(h, "/v1/check", fmt.Sprintf(`{"rule":"q","identity":"x","request_id":"%d"}`, id))
	}
	for id := range 300 {
		check(id)
		check(id)
		if len(l.asked) != id+1 {
			t.Fatalf("%d is forgotten at once", id)
		}
		if len(cache.entries) > 101 || len(cache.entries) != len(cache.order) || cap(cache.order) > 1000 {
			t.Fatalf("%d are remembered, %d in order", len(cache.entries), len(cache.order))
		}
	}
	if forgotten.Load() != 200 && forgotten.Load() != 199 || strings.Count(log.String(), "\n") != 1 ||
		!strings.Contains(log.String(), "request_id") {
		t.Errorf("%d were forgotten early, logged %s", forgotten.Load(), log.String())
	}
	before := forgotten.Load()
	at = at.Add(cachedFor + 1)
	check(1000)
	if len(cache.entries) != 1 || forgotten.Load() != before {
		t.Errorf("after a minute %d are remembered, %d were forgotten early", len(cache.entries), forgotten.Load())
	}
}

// TestRequestIDsOfAMinute: the cache holds a minute of 1,000 requests a second with two layers each.
func TestRequestIDsOfAMinute(t *testing.T) {
	c, at := newIdempotencyCache(), time.Unix(1_700_000_000, 0)
	for id := range uint64(60_000) {
		at = at.Add(time.Millisecond)
		if n := c.evict(at); n > 0 {
			t.Fatalf("%d are forgotten after %d", n, id)
		}
		c.add(id, cached{id, make([]counters.Decision, 2), at})
	}
	if got, ok := c.entries[0]; !ok || got.request != 0 {
		t.Error("the first is forgotten within its minute")
	}
	c.evict(at.Add(2 * time.Second))
	if _, ok := c.entries[0]; ok || len(c.entries) < 57_000 {
		t.Errorf("%d are remembered after it", len(c.entries))
	}
}
