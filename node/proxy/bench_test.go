package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// BenchmarkProxy compares the proxy with a bare one, without network: what is left is what both do themselves.
func BenchmarkProxy(b *testing.B) {
	cfg := DefaultConfig()
	cfg.Listen, cfg.Upstreams = "127.0.0.1:0", []string{"http://127.0.0.1:1"}
	p, err := New(admitting{}, cfg, Options{Requests: actions.DefaultConfig()})
	testkit.Must(b, err)
	target, _ := url.Parse("http://127.0.0.1:1")
	bare := &httputil.ReverseProxy{Transport: answering{}, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.SetXForwarded()
	}}
	p.upstreams[0].transport = answering{}
	for name, h := range map[string]http.Handler{"edgelimit": p, "bare": bare} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("GET", "/buy", nil)
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}

// admitting is a limiter that admits everything.
type admitting struct{}

func (admitting) Decide(_ context.Context, _ *rules.Request, layers []counters.Decision) ([]counters.Decision, error) {
	return append(layers, plenty), nil
}

// answering is an upstream in the same goroutine.
type answering struct{}

func (answering) CloseIdleConnections() {}

func (answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"text/plain"}, "Date": {"x"}}, Body: io.NopCloser(http.NoBody)}, nil
}
