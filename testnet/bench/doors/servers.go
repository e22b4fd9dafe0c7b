package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/envoy"
	"github.com/edgelimit/edgelimit/node/proxy"
	"github.com/edgelimit/edgelimit/node/respapi"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

const ruleFile = `
domain: edge
descriptors:
  - {key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100000000}}
  - {key: api_key, rate_limit: {name: per_key, unit: minute, requests_per_unit: 200000000}}
  - {key: path, rate_limit: {name: per_path, unit: hour, requests_per_unit: 1000000000}}
`

// serveNode serves a node with rules that deny nobody: one for each request, and three for the proxy's path /three.
func serveNode(ctx context.Context, upstream string) (addrs, func() error, error) {
	set, err := rulefile.Parse("doors.yaml", []byte(ruleFile))
	if err != nil {
		return nil, nil, err
	}
	cfg := node.DefaultConfig()
	cfg.NodeID, cfg.Health, cfg.RuleSet = "bench", "", set
	cfg.HTTP, cfg.GRPC, cfg.RESP = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Envoy, cfg.Logger = envoy.Service, slog.New(slog.DiscardHandler)
	cfg.Requests = actions.Config{
		Domain:      "edge",
		Descriptors: []actions.Descriptor{{{Key: "remote_address", Source: "header X-Client"}}},
	}
	cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", []string{"http://" + upstream}
	cfg.Proxy.Routes = []proxy.Route{{Path: "/three", Descriptors: []actions.Descriptor{
		{{Key: "remote_address", Source: "header X-Client"}}, {{Key: "api_key", Source: "header X-Key"}},
		{{Key: "path", Source: "path"}}}}}
	n, err := node.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	for n.Ready() != nil {
		time.Sleep(time.Millisecond)
	}
	stop := func() error { cancel(); return <-ended }
	return addrs{"http": n.Addr("http"), "grpc": n.Addr("grpc"), "resp": n.Addr("resp"), "proxy": n.Addr("proxy")},
		stop, nil
}

// serveBare serves the same protocols. It decodes each request and returns a constant answer.
func serveBare(_ context.Context, upstream string) (addrs, func() error, error) {
	g, all := bareGRPC(), addrs{}
	h := &http.Server{
		Handler: bareHTTP(), ReadHeaderTimeout: 2 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: 10 * time.Second,
	}
	r := respapi.New(bareLimiter{}, respapi.Options{Logger: slog.New(slog.DiscardHandler)})
	p := &http.Server{Handler: bareProxy(upstream), ReadHeaderTimeout: 2 * time.Second}
	servers := map[string]func(net.Listener) error{"http": h.Serve, "grpc": g.Serve, "resp": r.Serve, "proxy": p.Serve}
	ended := make(chan error, len(servers))
	for name, serve := range servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		all[name] = l.Addr().String()
		go func() { ended <- serve(l) }()
	}
	stop := func() error {
		g.Stop()
		err := errors.Join(h.Close(), r.Close(), p.Close())
		for range servers {
			if e := <-ended; !errors.Is(e, http.ErrServerClosed) && !errors.Is(e, net.ErrClosed) {
				err = errors.Join(err, e)
			}
		}
		return err
	}
	return all, stop, nil
}

// bareProxy is a plain reverse proxy that keeps as many connections as its clients need.
func bareProxy(upstream string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: upstream})
			r.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}
}

// serveUpstream serves what the proxies are in front of: a page of 100 bytes.
func serveUpstream(context.Context, string) (addrs, func() error, error) {
	page := make([]byte, 100)
	s := &http.Server{ReadHeaderTimeout: 2 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write(page)
		})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	go func() { _ = s.Serve(l) }()
	return addrs{"http": l.Addr().String()}, s.Close, nil
}

// checkBody and checkAnswer are the bodies of /v1/check.
type checkBody struct {
	Domain      string         `json:"domain"`
	Descriptors [][]checkEntry `json:"descriptors"`
	Cost        uint64         `json:"cost"`
	Peek        bool           `json:"peek"`
}

type checkEntry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type checkAnswer struct {
	Allowed    bool   `json:"allowed"`
	Rule       string `json:"rule"`
	Limit      uint64 `json:"limit"`
	Remaining  uint64 `json:"remaining"`
	ResetAfter int64  `json:"reset_after_ms"`
	RetryAfter int64  `json:"retry_after_ms"`
	Delay      int64  `json:"delay_ms"`
	Mode       string `json:"mode"`
	Degraded   bool   `json:"degraded"`
}

// bareHTTP is a plain server with net/http and encoding/json.
func bareHTTP() http.Handler {
	mux := http.NewServeMux()
	setHeaders := func(h http.Header) {
		h.Set("RateLimit-Policy", `"per_ip";q=100000000;w=60`)
		h.Set("RateLimit", `"per_ip";r=99999958;t=60`)
		h.Set("X-RateLimit-Limit", "100000000")
		h.Set("X-RateLimit-Remaining", "99999958")
		h.Set("X-RateLimit-Reset", "60")
	}
	mux.HandleFunc("POST /v1/check", func(w http.ResponseWriter, r *http.Request) {
		var request checkBody
		b, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(b, &request)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		setHeaders(w.Header())
		w.Header().Set("Content-Type", "application/json")
		b, _ = json.Marshal(checkAnswer{
			Allowed: true, Rule: "per_ip", Limit: 100000000, Remaining: 99999958, ResetAfter: 60000, Mode: "enforce",
		})
		_, _ = w.Write(b)
	})
	mux.HandleFunc("/v1/auth", func(w http.ResponseWriter, _ *http.Request) {
		setHeaders(w.Header())
		w.Header().Set("X-RL-Decision", "allow")
	})
	return mux
}

// bareLimiter admits every request.
type bareLimiter struct{}

func (bareLimiter) TakeDebt(_ []byte, _, _ time.Duration) counters.Decision {
	return counters.Decision{Allowed: true, ResetAfter: time.Second}
}

func (bareLimiter) GiveBack(_ []byte, _, _ time.Duration) (time.Duration, bool) { return 0, true }
