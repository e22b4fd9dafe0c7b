package proxy

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// plenty is a decision that leaves 45 of 100 per minute.
var plenty = counters.Decision{Allowed: true, Rule: "burst", Limit: 100, Remaining: 45, Window: time.Minute,
	ResetAfter: 30 * time.Second}

// exhausted is a denial.
var exhausted = counters.Decision{Rule: "burst", Limit: 100, Window: time.Minute, RetryAfter: 7 * time.Second,
	ResetAfter: time.Minute}

// script is a limiter that answers each request as a function says, and keeps the requests.
type script struct {
	answer func(req *rules.Request) []counters.Decision
	err    error // in place of a decision

	mu       sync.Mutex
	requests []rules.Request
}

func (s *script) Decide(_ context.Context, req *rules.Request, layers []counters.Decision) ([]counters.Decision,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := *req
	kept.Descriptors = nil
	for _, d := range req.Descriptors {
		kept.Descriptors = append(kept.Descriptors, slices.Clone(d))
	}
	s.requests = append(s.requests, kept)
	if s.err != nil {
		return nil, s.err
	}
	return append(layers, s.answer(req)...), nil
}

// seen returns the values of a key in all requests so far.
func (s *script) seen(key string) (values []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, req := range s.requests {
		for _, d := range req.Descriptors {
			for _, e := range d {
				if e.Key == key {
					values = append(values, e.Value)
				}
			}
		}
	}
	return values
}

// always returns a limiter with one decision.
func always(d counters.Decision) *script {
	return &script{answer: func(*rules.Request) []counters.Decision { return []counters.Decision{d} }}
}

// running is a proxy that serves until the test ends.
type running struct {
	*Proxy
	limiter *script
	server  *Server
	addr    string
	url     string
	log     *testkit.Log
	stop    func(drain time.Duration)
}

// open runs a proxy in front of the upstreams.
func open(t *testing.T, limiter *script, change func(*Config, *Options), upstreams ...string) *running {
	t.Helper()
	r := &running{limiter: limiter, log: new(testkit.Log)}
	cfg, opt := DefaultConfig(), Options{Requests: actions.DefaultConfig(), Logger: r.log.Logger()}
	cfg.Listen, cfg.Upstreams = "127.0.0.1:0", upstreams
	if change != nil {
		change(&cfg, &opt)
	}
	var err error
	if r.Proxy, err = New(limiter, cfg, opt); err != nil {
		t.Fatal(err)
	}
	l, err := listen.Open(listen.Setting{Addr: cfg.Listen}, listen.Limits{Max: 1000, PerSource: 1000,
		Budgets: opt.Budgets}, opt.Logger)
	testkit.Must(t, err)
	r.server, r.addr = r.Proxy.Server(), l.Addr().String()
	r.url = "http://" + r.addr
	l.UseHTTP(r.server.Server, 0)
	l.Server = r.server
	l.Start(func(_ string, err error) {
		if err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { r.Run(ctx) })
	var once sync.Once
	r.stop = func(drain time.Duration) {
		once.Do(func() {
			l.Stop(0, drain)
			cancel()
			parts.Wait()
			r.Close()
		})
	}
	t.Cleanup(func() { r.stop(100 * time.Millisecond) })
	return r
}

// backend is an upstream that serves until the test ends, also HTTP/2 without TLS.
func backend(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// clientOf returns a client of HTTP/1.1, or of HTTP/2 without TLS.
func clientOf(t *testing.T, h2 bool) *http.Client {
	tr := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!h2)
	tr.Protocols.SetUnencryptedHTTP2(h2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testkit.Patience}
}

// get returns the response to a GET and its body.
func get(t *testing.T, url string, fields ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	testkit.Must(t, err)
	return do(t, clientOf(t, false), r, fields...)
}

// do sends a request with fields, name and value in turns.
func do(t *testing.T, c *http.Client, r *http.Request, fields ...string) (*http.Response, string) {
	t.Helper()
	for i := 0; i < len(fields); i += 2 {
		if r.Header.Add(fields[i], fields[i+1]); fields[i] == "Host" {
			r.Host = fields[i+1]
		}
	}
	resp, err := c.Do(r)
	testkit.Must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	testkit.Must(t, err)
	return resp, string(b)
}
