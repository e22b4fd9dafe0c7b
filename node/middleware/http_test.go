package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/middleware"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// limiter decides by hand.
type limiter func(*rules.Request) ([]counters.Decision, error)

func (l limiter) Decide(
	_ context.Context, req *rules.Request, layers []counters.Decision,
) ([]counters.Decision, error) {
	said, err := l(req)
	return append(layers, said...), err
}

var shop = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "shop") })

func ask(t *testing.T, l limiter, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	return askWith(t, l, middleware.Options{}, r)
}

func askWith(t *testing.T, l limiter, opt middleware.Options, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	opt.Logger = slog.New(slog.DiscardHandler)
	wrap, err := middleware.HTTP(l, opt)
	testkit.Must(t, err)
	w := httptest.NewRecorder()
	wrap(shop).ServeHTTP(w, r)
	return w
}

func TestHTTP(t *testing.T) {
	allowed := counters.Decision{
		Allowed: true, Rule: "q", Limit: 3, Remaining: 2, Window: time.Minute, ResetAfter: time.Second,
	}
	denied := counters.Decision{
		Rule: "q", Limit: 3, Window: time.Minute, RetryAfter: 10 * time.Second, ResetAfter: time.Minute,
	}
	tests := []struct {
		name   string
		said   []counters.Decision
		err    error
		status int
		limit  string // of RateLimit
	}{
		{"allowed", []counters.Decision{allowed}, nil, 200, `"q";r=2;t=1`},
		{"denied", []counters.Decision{denied}, nil, 429, `"q";r=0;t=10`},
		{"one layer denies", []counters.Decision{allowed, denied}, nil, 429, `"q";r=0;t=10`},
		{"no rule", []counters.Decision{{Allowed: true}}, nil, 200, ""},
		{"no decision", nil, errors.New("broken"), 200, ""},
	}
	for _, tt := range tests {
		var asked string
		w := ask(t, func(req *rules.Request) ([]counters.Decision, error) {
			asked = fmt.Sprint(*req)
			return tt.said, tt.err
		}, httptest.NewRequest("GET", "/", nil))
		served := w.Body.String() == "shop"
		if w.Code != tt.status || served != (tt.status == 200) || w.Header().Get("RateLimit") != tt.limit {
			t.Errorf("%s: %d %v %s", tt.name, w.Code, w.Header(), w.Body)
		}
		if denied := tt.status == 429; denied != (w.Header().Get("Retry-After") != "") ||
			denied != strings.Contains(w.Body.String(), "quota-exceeded") {
			t.Errorf("%s: %v %s", tt.name, w.Header(), w.Body)
		}
		client := rules.Entry{Key: "remote_address", Value: "192.0.2.1"}
		want := fmt.Sprint(rules.Request{Domain: "edge", Descriptors: [][]rules.Entry{{client}, {{Key: "path",
			Value: "/"}, client}}, Client: netip.MustParseAddr("192.0.2.1"),
			TargetBytes: 2*len("/") + len("example.com")})
		if asked != want {
			t.Errorf("%s: asked %s, want %s", tt.name, asked, want)
		}
	}
}

// The option says what happens to requests without a decision, and goes to the node with each request.
func TestHTTPOnFailure(t *testing.T) {
	for on, want := range map[rules.Failure]int{
		rules.FailUnset: 200, rules.FailLocal: 200, rules.FailOpen: 200, rules.FailClosed: 429,
	} {
		var asked rules.Failure
		w := askWith(t, func(req *rules.Request) ([]counters.Decision, error) {
			asked = req.OnFailure
			return nil, errors.New("broken")
		}, middleware.Options{OnFailure: on}, httptest.NewRequest("GET", "/", nil))
		if served := w.Body.String() == "shop"; w.Code != want || served != (want == 200) || asked != on {
			t.Errorf("%v: %d %s, asked with %v", on, w.Code, w.Body, asked)
		}
		if denied := want == 429; denied != (w.Header().Get("Retry-After") != "") ||
			denied != strings.Contains(w.Body.String(), "cannot be decided now") {
			t.Errorf("%v: %v %s", on, w.Header(), w.Body)
		}
	}
}

// TestHTTPWithoutASubject: where nothing is known that a rule could be held against, nobody is asked, and the log says
// so once.
func TestHTTPWithoutASubject(t *testing.T) {
	var log bytes.Buffer
	asked := limiter(func(*rules.Request) ([]counters.Decision, error) { return nil, errors.New("asked") })
	wrap, err := middleware.HTTP(asked, middleware.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	testkit.Must(t, err)
	for range 3 {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "@"
		w := httptest.NewRecorder()
		wrap(shop).ServeHTTP(w, r)
		if w.Code != 200 || w.Body.String() != "shop" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	const hint = "add unix to requests.trusted_proxies"
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, hint) {
		t.Errorf("logged %q", text)
	}
}

// TestHTTPDenies: what the actions deny is answered 400 and not handed on, and so is what cannot be decided because the
// client sent a source in many forms.
func TestHTTPDenies(t *testing.T) {
	describe, err := actions.New(actions.Config{Domain: "d", Descriptors: []actions.Descriptor{
		{{Key: "api_key", Source: "header X-Api-Key"}, {Key: actions.OnMissing, Source: actions.Deny}},
	}})
	testkit.Must(t, err)
	invalid := func(*rules.Request) ([]counters.Decision, error) { return nil, rules.ErrInvalidRequest }
	opt := middleware.Options{Actions: describe, Logger: slog.New(slog.DiscardHandler)}
	wrap, err := middleware.HTTP(limiter(invalid), opt)
	testkit.Must(t, err)
	for name, tt := range map[string]struct {
		values []string
		reason string // of the denial; empty: it is handed on
	}{
		"missing": {nil, actions.DeniedMissing}, "two": {[]string{"a", "b"}, actions.DeniedTooManyValues},
		"one": {[]string{"a"}, ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["X-Api-Key"] = tt.values
		w := httptest.NewRecorder()
		wrap(shop).ServeHTTP(w, r)
		if h := w.Header(); (w.Code == 400) != (tt.reason != "") || h.Get("X-RL-Reason") != tt.reason ||
			(w.Body.String() == "shop") != (tt.reason == "") {
			t.Errorf("%s: %d %v %s", name, w.Code, h, w.Body)
		}
	}
}

func TestHTTPWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queued := func(*rules.Request) ([]counters.Decision, error) {
			return []counters.Decision{
				{Allowed: true, Rule: "q", Delay: time.Second},
				{Allowed: true, Rule: "r", Delay: 3 * time.Second},
			}, nil
		}
		began := time.Now()
		if w := ask(t, queued, httptest.NewRequest("GET", "/", nil)); w.Body.String() != "shop" ||
			time.Since(began) != 3*time.Second {
			t.Errorf("%s after %v", w.Body, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if w := ask(t, queued, httptest.NewRequest("GET", "/", nil).WithContext(ctx)); w.Code != 503 ||
			w.Body.Len() != 0 || time.Since(began) != time.Second {
			t.Errorf("a client who has gone: %s after %v", w.Body, time.Since(began))
		}
	})
}

func TestHTTPOptions(t *testing.T) {
	if _, err := middleware.HTTP(limiter(nil), middleware.Options{Headers: []string{"draft99"}}); err == nil ||
		!strings.Contains(err.Error(), "draft99") {
		t.Errorf("unknown headers: %v", err)
	}
}

func ExampleHTTP() {
	set, err := rulefile.Parse(
		"rules.yaml",
		[]byte(
			"domain: edge\ndescriptors: "+
				"[{key: remote_address, rate_limit: {name: per_ip, unit: hour, requests_per_unit: 2}}]",
		),
	)
	if err != nil {
		panic(err)
	}
	cfg := node.DefaultConfig()
	cfg.HTTP, cfg.Health, cfg.RuleSet = "", "", set // no listeners: the program has its own
	n, err := node.New(cfg)
	if err != nil {
		panic(err)
	}
	limited, err := middleware.HTTP(n, middleware.Options{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- n.Run(ctx) }()

	handler := limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	cancel()
	fmt.Println(<-stopped)
	// Output:
	// 200 1
	// 200 0
	// 429 0
	// <nil>
}
