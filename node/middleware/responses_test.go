package middleware_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/middleware"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// What a handler answers is charged, however it ends: ten wrong passwords, and then nobody is let through.
func TestResponsesAreCharged(t *testing.T) {
	const rule = `domain: edge
descriptors: [{key: remote_address, rate_limit: {name: r, unit: hour, requests_per_unit: 10, `
	login := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Rl-Cost", "5")
		switch r.URL.Path {
		case "/wrong":
			w.WriteHeader(http.StatusUnauthorized)
		case "/hangs-up":
			w.WriteHeader(http.StatusUnauthorized)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/breaks":
			panic(http.ErrAbortHandler)
		default:
			_, _ = io.WriteString(w, "ok")
		}
	}
	for _, tt := range []struct {
		after string // how responses are charged
		path  string
		pass  int // of fifteen requests
	}{
		{"charge_on: {status: [401]}", "/right", 15},
		{"charge_on: {status: [401]}", "/wrong", 10},
		{"charge_on: {status: [401]}", "/hangs-up", 10},
		{"charge_on: {status: [5xx]}", "/breaks", 10},
		{"charge_on: {status: [2xx]}", "/breaks", 15},
		{"cost_from: response_bytes", "/right", 5},
		{"cost_from: header X-RL-Cost", "/right", 2},
		{"cost_from: header X-RL-Cost, charge_on: {status: [401]}", "/right", 15},
	} {
		set, err := rulefile.Parse("rules.yaml", []byte(rule+tt.after+"}}]\n"))
		testkit.Must(t, err)
		cfg := node.DefaultConfig()
		cfg.HTTP, cfg.Health, cfg.Admin, cfg.RuleSet = "", "", "", set
		cfg.Logger = slog.New(slog.DiscardHandler)
		n, err := node.New(cfg)
		testkit.Must(t, err)
		wrap, err := middleware.HTTP(n, middleware.Options{Logger: cfg.Logger})
		testkit.Must(t, err)
		h, passed := wrap(http.HandlerFunc(login)), 0
		for range 15 {
			w := httptest.NewRecorder()
			func() {
				defer func() { _ = recover() }()
				h.ServeHTTP(w, httptest.NewRequest("GET", tt.path, nil))
			}()
			if w.Code != http.StatusTooManyRequests {
				passed++
			} else if w.Header().Get("Retry-After") == "" {
				t.Errorf("%s: a denial without Retry-After", tt.after)
			}
		}
		if passed != tt.pass {
			t.Errorf("%s, %s: %d of 15 pass, want %d", tt.after, tt.path, passed, tt.pass)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The header with the cost is for the node alone: no client sees it, whichever way the response is written.
func TestCostsAreNotShown(t *testing.T) {
	for name, write := range map[string]func(w http.ResponseWriter){
		"nothing": func(http.ResponseWriter) {},
		"status":  func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"body":    func(w http.ResponseWriter) { _, _ = w.Write([]byte("ok")) },
		"flush":   func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
		"copy":    func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("ok")) },
		"hints": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, "ok")
		},
	} {
		l := &costly{}
		wrap, err := middleware.HTTP(l, middleware.Options{})
		testkit.Must(t, err)
		s := httptest.NewServer(wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Rl-Cost", "5")
			w.Header().Set("X-Other", "6")
			write(w)
		})))
		resp, err := s.Client().Get(s.URL)
		testkit.Must(t, err)
		_ = resp.Body.Close()
		s.Close() // after the handler
		if resp.Header.Get("X-Rl-Cost") != "" || resp.Header.Get("X-Other") != "6" || l.cost != "5" {
			t.Errorf("%s: the client sees %v, the node a cost of %q", name, resp.Header, l.cost)
		}
	}
}

// costly is a limiter with a rule that takes costs from X-Rl-Cost, and its only request.
type costly struct{ cost string }

func (*costly) Decide(_ context.Context, _ *rules.Request, layers []node.Decision) ([]node.Decision, error) {
	return layers, nil
}

func (c *costly) Begin(
	_ context.Context, _ *rules.Request, layers []node.Decision,
) ([]node.Decision, answer.Pending, error) {
	return layers, c, nil
}

func (*costly) Wait(context.Context) (bool, error) { return true, nil }

func (*costly) CostHeaders() []string { return []string{"X-Rl-Cost"} }

func (*costly) NeedsBody() bool { return false }

func (c *costly) End(_ context.Context, resp *rules.Response, layers []node.Decision) []node.Decision {
	c.cost = http.Header(resp.Header).Get("X-Rl-Cost")
	return layers
}

// A limiter that charges requests only is asked as ever, and what no rule charges later is served as it comes.
func TestResponsesOfOthers(t *testing.T) {
	var served http.ResponseWriter
	wrap, err := middleware.HTTP(limiter(func(*rules.Request) ([]node.Decision, error) {
		return []node.Decision{{Allowed: true}}, nil
	}), middleware.Options{})
	testkit.Must(t, err)
	w := httptest.NewRecorder()
	wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served = w
		_, _ = io.Copy(w, strings.NewReader("ok"))
	})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if served != http.ResponseWriter(w) || w.Body.String() != "ok" {
		t.Errorf("served %T: %s", served, w.Body)
	}
}
