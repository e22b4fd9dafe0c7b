package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// closedPort is the address of nobody: no program of a test gets this port, as it may one that was closed.
const closedPort = "http://127.0.0.1:1"

// hangingUp is an upstream that closes each connection once it has a request.
func hangingUp(t *testing.T) string {
	return backend(t, func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	})
}

// Requests go to all upstreams in turns, and those that may be repeated around the ones that fail.
func TestRetries(t *testing.T) {
	good := backend(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method) })
	for _, bad := range []string{closedPort, hangingUp(t)} {
		for method, repeated := range map[string]bool{"GET": true, "HEAD": true, "OPTIONS": true, "PUT": true,
			"DELETE": true, "POST": false, "PATCH": false, "REPORT": false} {
			p := open(t, always(plenty), func(c *Config, _ *Options) { c.Health.Interval = 100 * time.Millisecond },
				bad, good)
			failed := 0
			for range 4 {
				r, _ := http.NewRequestWithContext(t.Context(), method, p.url, nil)
				if resp, _ := do(t, clientOf(t, false), r); resp.StatusCode == 502 {
					failed++
				} else if resp.StatusCode != 200 {
					t.Errorf("%s: %s", method, resp.Status)
				}
			}
			s := p.Stats()
			if repeated != (failed == 0) || repeated != (s.Retries > 0) {
				t.Errorf("%s with %s: %d of 4 failed, %+v", method, bad, failed, s)
			}
		}
	}
}

// A body is sent once.
func TestNoRetryWithABody(t *testing.T) {
	p := open(t, always(plenty), nil, hangingUp(t), hangingUp(t))
	r, _ := http.NewRequestWithContext(t.Context(), "PUT", p.url, strings.NewReader("x"))
	if resp, _ := do(t, clientOf(t, false), r); resp.StatusCode != 502 || p.Stats().Retries != 0 {
		t.Errorf("%s, %+v", resp.Status, p.Stats())
	}
}

// No more upstreams are tried than there are, nor than retries allow.
func TestRetriesAreBounded(t *testing.T) {
	for retries, want := range map[int]uint64{0: 0, 1: 1, 2: 2, 10: 2} {
		p := open(t, always(plenty), func(c *Config, _ *Options) { c.Retries = retries }, closedPort, closedPort,
			closedPort)
		if resp, _ := get(t, p.url); resp.StatusCode != 502 || p.Stats().Retries != want {
			t.Errorf("%d retries: %s, %+v", retries, resp.Status, p.Stats())
		}
		for _, u := range p.Stats().Upstreams {
			if u.Up == (u.Requests > 0) || u.Connects != u.Requests {
				t.Errorf("%d retries: %+v", retries, u)
			}
		}
	}
}

// An upstream that refuses a connection gets nothing for an interval, unless nobody else is left.
func TestPassiveEjection(t *testing.T) {
	dead := closedPort
	p := open(t, always(plenty), func(c *Config, _ *Options) { c.Health.Interval = time.Hour }, dead,
		backend(t, func(http.ResponseWriter, *http.Request) {}))
	for range 20 {
		if resp, _ := get(t, p.url); resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	if u := p.Stats().Upstreams[0]; u.Up || u.Connects != 1 {
		t.Errorf("%+v", u)
	}
	alone := open(t, always(plenty), func(c *Config, _ *Options) { c.Health.Interval = time.Hour }, dead)
	for range 3 {
		get(t, alone.url)
	}
	if u := alone.Stats().Upstreams[0]; u.Connects != 3 {
		t.Errorf("alone: %+v", u)
	}
}

// Health checks take an upstream out, and in again, over each protocol.
func TestHealthChecks(t *testing.T) {
	var sick atomic.Bool
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() == "/healthz?x" && sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	for _, scheme := range []string{"http:", "h2c:"} {
		sick.Store(false)
		p := open(t, always(plenty), func(c *Config, _ *Options) {
			c.Health = Health{Path: "/healthz?x", Interval: 100 * time.Millisecond, Timeout: testkit.Patience,
				Healthy:   2,
				Unhealthy: 2}
		}, strings.Replace(up, "http:", scheme, 1), backend(t, func(http.ResponseWriter, *http.Request) {}))
		first := func() UpstreamStats { return p.Stats().Upstreams[0] }
		sick.Store(true)
		testkit.Eventually(t, "it is down", func() bool { return !first().Up })
		before := first().Requests
		for range 10 {
			get(t, p.url)
		}
		if first().Requests != before || !p.log.HasLine("level=WARN", "an upstream is down", "503") {
			t.Errorf("%+v, %s", first(), p.log)
		}
		sick.Store(false)
		testkit.Eventually(t, "it is up", func() bool { return first().Up })
		for range 10 {
			get(t, p.url)
		}
		if first().Requests != before+5 {
			t.Errorf("%+v", first())
		}
	}
}

// An upstream that does not begin its response in time is a 504, and no reason to ask another one.
func TestFirstByte(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	slow := backend(t, func(http.ResponseWriter, *http.Request) { <-end })
	for _, scheme := range []string{"http:", "h2c:"} {
		p := open(t, always(plenty), func(c *Config, _ *Options) { c.Timeouts.FirstByte = 50 * time.Millisecond },
			strings.Replace(slow, "http:", scheme, 1), closedPort)
		p.turn.Store(1)
		resp, body := get(t, p.url)
		if resp.StatusCode != 504 || strings.Contains(body, "127.0.0.1") || p.Stats().Upstreams[0].Timeouts != 1 ||
			p.Stats().Retries != 0 || !p.log.HasLine("no response in time") {
			t.Errorf("%s %s %s, %+v", scheme, resp.Status, body, p.Stats())
		}
	}
}
