package evasion

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/edgelimit/edgelimit/node"
)

// upstream is a server behind edgelimit's proxy. It records the headers of requests.
type upstream struct {
	mu   sync.Mutex
	last http.Header // nil: none came
}

func (u *upstream) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = r.Header.Clone()
}

// outcome sends a request through the proxy, and returns what came of it.
func (u *upstream) outcome(send func() (int, error)) (Outcome, error) {
	u.mu.Lock()
	u.last = nil
	u.mu.Unlock()
	status, err := send()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil && (err != nil || status >= http.StatusBadRequest) {
		return Outcome{Status: http.StatusBadRequest}, nil
	}
	out := Outcome{Status: status}
	for layer, name := range map[string]string{"api_key": "xapikey", "session": "cookie", "sub": "authorization"} {
		if !hasField(u.last, name) {
			out.Removed = append(out.Removed, layer)
		}
	}
	return out, err
}

// hasField reports whether there is a field with a value whose name is the given one without its symbols.
func hasField(h http.Header, bare string) bool {
	for name, values := range h {
		name = strings.Map(func(r rune) rune {
			if strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789", r) {
				return r
			}
			return -1
		}, strings.ToLower(name))
		if name == bare && strings.Join(values, "") != "" {
			return true
		}
	}
	return false
}

// TestProxy: no form of a request evades a layer of edgelimit's own proxy, over either version of HTTP.
func TestProxy(t *testing.T) {
	up := new(upstream)
	server := httptest.NewServer(up)
	t.Cleanup(server.Close)
	n := startWith(t, func(cfg *node.Config) {
		cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", []string{server.URL}
	})
	m := MeterAt(t.Context(), n.Addr("http"), n.Addr("health"), Client)
	for version, send := range map[string]func(Variation) (int, error){
		"HTTP/1.1": func(v Variation) (int, error) { return Send(n.Addr("proxy"), v.Direct()) },
		"HTTP/2":   func(v Variation) (int, error) { return HTTP2{Fields: v.Fields()}.Send(nil, n.Addr("proxy")) },
	} {
		t.Run(version, func(t *testing.T) {
			CheckBehind(t, m, Variations(), func(v Variation) (Outcome, error) {
				v.Lines = append(v.Lines[:len(v.Lines):len(v.Lines)], "X-Forwarded-For: "+Client)
				return up.outcome(func() (int, error) { return send(v) })
			})
		})
	}
}
