package parsers

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/evasion"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// start runs a node until the test ends, with the layer alone, where a limit of 0 denies the plain request.
func (l layer) start(t *testing.T, upstream string) *node.Node {
	t.Helper()
	set, err := rulefile.Parse("rules.yaml", fmt.Appendf(nil, "domain: edge\ndescriptors:\n"+
		"- {key: %s, value: %s, rate_limit: {unit: hour, requests_per_unit: 0}}\n", l.key, l.value))
	testkit.Must(t, err)
	cfg := node.DefaultConfig()
	cfg.NodeID, cfg.HTTP, cfg.Health = "parsers", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Memory, cfg.Logger, cfg.RuleSet = counters.MinMemory, slog.New(slog.DiscardHandler), set
	cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", []string{upstream}
	cfg.Requests = evasion.Requests("127.0.0.1")
	for _, d := range cfg.Requests.Descriptors {
		if d[0].Key == l.key {
			cfg.Requests.Descriptors = []actions.Descriptor{d}
		}
	}
	n, err := node.New(cfg)
	testkit.Must(t, err)
	testkit.Background(t, n.Run)
	return n
}

// doors are the ways to a node. Proxies ask over HTTP/1.1.
func doors(n *node.Node) map[string]func(evasion.Variation) (int, error) {
	api, proxy := n.Addr("http"), n.Addr("proxy")
	return map[string]func(evasion.Variation) (int, error){
		"/v1/auth": func(v evasion.Variation) (int, error) { return evasion.Send(api, v.Asked("/v1/auth")) },
		"proxy":    func(v evasion.Variation) (int, error) { return evasion.Send(proxy, v.Direct()) },
		"proxy over HTTP/2": func(v evasion.Variation) (int, error) {
			return evasion.HTTP2{Fields: v.Fields()}.Send(nil, proxy)
		},
	}
}

// TestDoors: with a limit of 0, no form passes that a real server reads as the plain request.
func TestDoors(t *testing.T) {
	recorded, err := Recording()
	testkit.Must(t, err)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "shop")
	}))
	t.Cleanup(upstream.Close)
	for _, l := range layers {
		t.Run(l.key, func(t *testing.T) {
			t.Parallel()
			n := l.start(t, upstream.URL)
			other := evasion.Plain()
			other.Target, other.Lines = "/x", nil
			for door, send := range doors(n) {
				if status, err := send(other); err != nil || status != http.StatusOK {
					t.Errorf("%s: another request gets %d, %v", door, status, err)
				}
			}
			read, passed := 0, 0
			for _, r := range testkit.Some(recorded) {
				if r.Source != l.source || !slices.ContainsFunc(r.Read, l.reads) {
					continue
				}
				read++
				for door, send := range doors(n) {
					if status, err := send(r.Variation()); err == nil && status < http.StatusBadRequest {
						passed++
						t.Errorf("%s: %s passes, which servers read as plain (%s)", door, r.Form, r.Read)
					}
				}
			}
			if t.Logf("%d forms, %d pass", read, passed); read == 0 {
				t.Error("no server reads any form as plain")
			}
		})
	}
}

// TestProxiedServers: nor does a real server behind the proxy ever get to see it.
func TestProxiedServers(t *testing.T) {
	recorded, err := Recording()
	testkit.Must(t, err)
	for i := range Servers {
		s := &Servers[i]
		if !s.Installed() {
			t.Logf("%s is not installed", s.Name)
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			addr := s.Start(t)
			for _, l := range layers {
				if s.Name == "lighttpd" && l.key != "path" && l.key != "api_key" {
					continue
				}
				n := l.start(t, "http://"+addr)
				for _, r := range testkit.Some(recorded) {
					if r.Source != l.source {
						continue
					}
					got, ok, err := read(n.Addr("proxy"), r.Variation().Direct())
					if err != nil {
						t.Fatal(err)
					}
					if l.reads(r.signOf(got, ok)) {
						t.Errorf("%s passes: %+v", r.Form, got)
					}
				}
			}
		})
	}
}
