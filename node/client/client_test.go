package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/node/rules"
)

// limiter decides by hand.
type limiter func(*rules.Request) counters.Decision

func (l limiter) Decide(
	_ context.Context, req *rules.Request, layers []counters.Decision,
) ([]counters.Decision, error) {
	if req.Rule == "unknown" {
		return nil, rules.ErrUnknownRule
	}
	return append(layers, l(req)), nil
}

// reporter charges by hand.
type reporter func(*rules.Request) counters.Decision

func (r reporter) Report(
	_ context.Context, req *rules.Request, layers []counters.Decision,
) ([]counters.Decision, error) {
	return append(layers, r(req)), nil
}

// direct has a door answer without a network.
type direct struct{ door http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.door.ServeHTTP(w, r)
	return w.Result(), nil
}

func clientOf(l limiter) *client.Client {
	door := httpapi.New(l, httpapi.Options{Logger: slog.New(slog.DiscardHandler)})
	return client.New("node.example/", &http.Client{Transport: direct{door}})
}

// TestCheck: what the node decides is what the caller gets, and what the caller asks is what the node is asked.
func TestCheck(t *testing.T) {
	var asked string
	c := clientOf(func(req *rules.Request) counters.Decision {
		asked = fmt.Sprint(*req)
		return counters.Decision{
			Allowed: true, Rule: "q", Limit: 10, Remaining: 4, ResetAfter: 1500*time.Millisecond - 1,
			Delay: 250 * time.Millisecond, Mode: counters.Soft, Degraded: true,
		}
	})
	req := rules.Request{
		Domain:      "edge",
		Descriptors: [][]rules.Entry{{{Key: "path", Value: "/ä\"\n"}, {Key: "b"}}, {{Key: "c", Value: "d"}}},
		Cost:        7,
		Peek:        false,
	}
	a, err := c.Check(t.Context(), req)
	want := client.Answer{
		Allowed: true, Rule: "q", Limit: 10, Remaining: 4, ResetAfter: 1500 * time.Millisecond,
		Delay: 250 * time.Millisecond, Mode: "soft", Degraded: true,
	}
	if err != nil || a != want {
		t.Errorf("%+v, %v; want %+v", a, err, want)
	}
	if want := fmt.Sprint(req); asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}
	var again client.Answer
	if b, err := json.Marshal(a); err != nil || json.Unmarshal(b, &again) != nil || again != a {
		t.Errorf("as JSON and back: %+v, %v", again, err)
	}
}

// TestReport: what the caller reports is what the node is told to charge, and the answer what is left.
func TestReport(t *testing.T) {
	var charged string
	l := limiter(func(*rules.Request) counters.Decision { panic("nobody asked for a decision") })
	door := httpapi.New(
		l,
		httpapi.Options{
			Logger: slog.New(slog.DiscardHandler),
			Reporter: reporter(func(req *rules.Request) counters.Decision {
				charged = fmt.Sprint(*req)
				return counters.Decision{Rule: "q", Limit: 10, RetryAfter: time.Second}
			}),
		},
	)
	req := rules.Request{Rule: "q", Identity: "x", Cost: 250}
	a, err := client.New("node.example", &http.Client{Transport: direct{door}}).Report(t.Context(), req)
	if want := (client.Answer{Rule: "q", Limit: 10, RetryAfter: time.Second, Mode: "enforce"}); err != nil ||
		a != want ||
		charged != fmt.Sprint(req) {
		t.Errorf("%+v, %v; charged %s", a, err, charged)
	}
	if a, err := clientOf(nil).Report(t.Context(), req); err == nil {
		t.Errorf("a node that takes no reports: %+v", a)
	}
}

func TestCheckFails(t *testing.T) {
	c := clientOf(nil)
	if a, err := c.Check(t.Context(), rules.Request{Rule: "unknown"}); err == nil || a.Allowed {
		t.Errorf("an unknown rule: %+v, %v", a, err)
	}
	stranger := client.New("http://x.example", &http.Client{Transport: direct{http.NotFoundHandler()}})
	if a, err := stranger.Check(t.Context(), rules.Request{Rule: "r"}); err == nil || a.Allowed {
		t.Errorf("another server: %+v, %v", a, err)
	}
}

// TestWait: a caller waits as long as it is told, and a little more, until it is its turn.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		attempts := 0
		c := clientOf(func(*rules.Request) counters.Decision {
			if attempts++; attempts < 3 {
				return counters.Decision{Rule: "q", Limit: 1, RetryAfter: 8 * time.Second}
			}
			return counters.Decision{Allowed: true, Rule: "q", Limit: 1, Delay: time.Second}
		})
		if err := c.Wait(t.Context(), rules.Request{Rule: "q", Identity: "x"}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); attempts != 3 || took < 17*time.Second || took > 19*time.Second {
			t.Errorf("%d attempts in %v", attempts, took)
		}
	})
}

func TestWaitGivesUp(t *testing.T) {
	never := clientOf(func(*rules.Request) counters.Decision {
		return counters.Decision{Rule: "q", Limit: 1, RetryAfter: counters.Never}
	})
	if err := never.Wait(t.Context(), rules.Request{Rule: "q", Cost: 2}); !errors.Is(err, client.ErrNever) {
		t.Errorf("more than the limit: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	full := clientOf(func(*rules.Request) counters.Decision {
		cancel()
		return counters.Decision{Rule: "q", Limit: 1, RetryAfter: time.Hour}
	})
	if err := full.Wait(ctx, rules.Request{Rule: "q"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who has gone: %v", err)
	}
}

func ExampleTransport() {
	attempts := 0
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if attempts++; attempts == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer shop.Close()

	c := http.Client{Transport: &client.Transport{}}
	resp, err := c.Get(shop.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "after", attempts, "attempts")
	// Output: 200 after 2 attempts
}
