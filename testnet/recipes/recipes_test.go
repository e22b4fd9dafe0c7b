package recipes

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/actions"
)

// patience is how long a program may take to listen on a busy machine.
const patience = 60 * time.Second

// lan is what a recipe's addresses stand on in a test: 127.0.0.1 is one of 2^24 addresses of the machine itself, so that its ports are free
// on another.
type lan struct {
	t    *testing.T
	host string
	dir  string
}

func newLAN(t *testing.T) *lan {
	return &lan{t: t, host: fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(99), rand.IntN(256), 1+rand.IntN(254)), dir: t.TempDir()}
}

func (l *lan) at(port int) string { return fmt.Sprintf("%s:%d", l.host, port) }

// recipe copies a file to where the program runs, with this test's addresses in it, and with the patience that a busy machine needs.
func (l *lan) recipe(name string) string {
	l.t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		l.t.Fatal(err)
	}
	to := filepath.Join(l.dir, name)
	text := strings.NewReplacer("127.0.0.1", l.host, " 250ms;", " 60s;", "patience = 250 ", "patience = 60000 ").Replace(string(b))
	if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return to
}

// start runs a program until the test ends, and returns when it listens.
func (l *lan) start(name string, args ...string) {
	l.t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		l.t.Fatalf("%s is not installed; these tests need nginx, haproxy and caddy: apt-get install nginx haproxy caddy", name)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = l.dir
	cmd.Env = append(os.Environ(), "HOME="+l.dir, "XDG_DATA_HOME="+l.dir, "XDG_CONFIG_HOME="+l.dir)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	l.t.Cleanup(func() {
		cancel()
		<-ended
		if l.t.Failed() {
			l.t.Logf("%s said: %s", name, said.String())
		}
	})
	until := time.After(patience)
	for tick := time.Tick(20 * time.Millisecond); ; {
		conn, err := net.Dial("tcp", l.at(8088))
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-ended:
			l.t.Fatalf("%s ended: %s", name, said.String())
		case <-until:
			l.t.Fatalf("%s does not listen: %v", name, err)
		case <-tick:
		}
	}
}

// node runs edgelimit: 3 requests an hour for each address, 1 for each X-Api-Key, none for /blocked. The function that it returns ends it; the
// test does if it was not called.
func (l *lan) node(set func(*lan, *node.Config)) (stop func()) {
	l.t.Helper()
	cfg := node.DefaultConfig()
	cfg.NodeID, cfg.HTTP, cfg.Health, cfg.Memory, cfg.Logger = "recipe", l.at(8080), "", counters.MinMemory, slog.New(slog.DiscardHandler)
	cfg.Rules = []string{l.recipe("rules.yaml")}
	cfg.Requests.TrustedProxies = []string{"127.0.0.1", l.host}
	cfg.Requests.Descriptors = append(cfg.Requests.Descriptors,
		actions.Descriptor{{Key: "path", Source: "path"}}, actions.Descriptor{{Key: "api_key", Source: "header X-Api-Key"}})
	if set != nil {
		set(l, &cfg)
	}
	n, err := node.New(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
	})
	l.t.Cleanup(stop)
	return stop
}

// serve runs an HTTP server until the test ends.
func (l *lan) serve(addr string, handle http.HandlerFunc) {
	l.t.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		l.t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handle)
	_ = s.Listener.Close()
	s.Listener = listener
	s.Start()
	l.t.Cleanup(s.Close)
}

// application is what stands behind the proxy. It answers with the request's method and path and with the RateLimit that the request had, and
// forbids /forbidden.
func (l *lan) application() {
	l.t.Helper()
	l.serve(l.at(8000), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Told", strings.Join(r.Header.Values("RateLimit"), " and "))
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = fmt.Fprintf(w, "application: %s %s", r.Method, r.URL.Path)
	})
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request through the proxy, from an address of the machine's own. Each has a connection to itself.
func (l *lan) ask(from, method, path string, lines ...string) answer {
	l.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	client := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}, Timeout: patience}
	r, err := http.NewRequest(method, "http://"+l.at(8088)+path, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	for i := 0; i < len(lines); i += 2 {
		r.Header.Add(lines[i], lines[i+1])
	}
	resp, err := client.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

func TestRecipes(t *testing.T) {
	tests := []struct {
		proxy   string
		start   func(*lan)
		set     func(*lan, *node.Config) // the node's settings that the recipe asks for
		headers bool                     // the proxy puts RateLimit on what passes
		told    bool                     // the application gets it
		keys    bool                     // edgelimit gets X-Api-Key
		limit   string                   // the X-RateLimit-Limit of what passes
		without int                      // what the proxy answers without edgelimit
	}{
		{
			proxy: "nginx", headers: true, keys: true, without: 200,
			set: func(_ *lan, cfg *node.Config) { cfg.Requests.OriginalHeaders = "x-original" },
			start: func(l *lan) {
				c := l.recipe("nginx.conf")
				l.start("nginx", "-p", filepath.Dir(c), "-c", c, "-e", "stderr", "-g", "daemon off; pid nginx.pid;")
			},
		},
		{
			proxy: "haproxy", headers: true, without: 200,
			start: func(l *lan) {
				l.recipe("haproxy.lua")
				l.start("haproxy", "-db", "-f", l.recipe("haproxy.cfg"))
			},
		},
		{
			proxy: "caddy", keys: true, without: 502,
			start: func(l *lan) { l.start("caddy", "run", "--config", l.recipe("Caddyfile"), "--adapter", "caddyfile") },
		},
		{proxy: "traefik", start: (*lan).traefik, told: true, keys: true, without: 500},
		{proxy: "apisix", start: (*lan).apisix, told: true, keys: true, without: 200},
		{
			proxy: "envoy", start: (*lan).envoy, headers: true, keys: true, limit: `3, 3;w=3600;name="per_ip"`, without: 200,
			set: func(l *lan, cfg *node.Config) { cfg.GRPC, cfg.Headers = l.at(8081), []string{"draft11"} },
		},
	}
	for _, tt := range tests {
		t.Run(tt.proxy, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t)
			l.application()
			stop := l.node(tt.set)
			tt.start(l)

			for i := range 3 {
				a := l.ask("127.100.0.1", "POST", "/a?b=c", "RateLimit", `"per_ip";r=99`)
				if a.status != 200 || a.body != "application: POST /a" {
					t.Fatalf("request %d: %+v", i+1, a)
				}
				want := fmt.Sprintf(`"per_ip";r=%d;`, 2-i)
				if tt.headers && !strings.Contains(a.header.Get("RateLimit"), want) {
					t.Errorf("request %d: %v, want RateLimit with %s", i+1, a.header, want)
				}
				if got := a.header.Get("X-RateLimit-Limit"); got != tt.limit {
					t.Errorf("request %d: X-RateLimit-Limit %q, want %q", i+1, got, tt.limit)
				}
				if tt.told && !strings.HasPrefix(a.header.Get("X-Told"), want) {
					t.Errorf("request %d: the application is told %q, want %s", i+1, a.header.Get("X-Told"), want)
				}
			}
			a := l.ask("127.100.0.1", "GET", "/a")
			if a.status != 429 || strings.Contains(a.body, "application") || !strings.Contains(a.body, "quota-exceeded") ||
				!strings.HasPrefix(a.header.Get("Content-Type"), "application/problem+json") || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("over the limit: %+v", a)
			}
			if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || seconds < 3500 || seconds > 3720 {
				t.Errorf("over the limit: Retry-After %q", a.header.Get("Retry-After"))
			}
			for name, values := range a.header {
				if len(values) > 1 {
					t.Errorf("over the limit: %s is there %d times: %q", name, len(values), values)
				}
			}
			// Whatever a client says of itself, it stays itself, and what it asks for.
			a = l.ask("127.100.0.1", "GET", "/a", "X-Forwarded-For", "198.51.100.1", "X-Real-Ip", "198.51.100.1", "Forwarded", "for=198.51.100.1",
				"X-Forwarded-Uri", "/free", "X-Original-Uri", "/free", "X-Original-Url", "/free", "X-RL-Decision", "allow")
			if a.status != 429 {
				t.Errorf("a client that calls itself another: %+v", a)
			}
			a = l.ask("127.100.0.2", "GET", "/blocked", "X-Forwarded-Uri", "/free", "X-Original-Uri", "/free", "X-Forwarded-Method", "HEAD")
			if a.status != 429 {
				t.Errorf("a path without any requests: %+v", a)
			}
			if a := l.ask("127.100.0.2", "GET", "/x/..//blocked?free"); a.status != 429 {
				t.Errorf("another spelling of the path: %+v", a)
			}
			if a := l.ask("127.100.0.3", "GET", "/forbidden"); a.status != 403 || a.body != "application: GET /forbidden" {
				t.Errorf("what the application forbids: %+v", a)
			}
			if a := l.ask("127.100.0.4", "GET", "/a", "X-Api-Key", "k1"); a.status != 200 {
				t.Errorf("the first request with a key: %+v", a)
			}
			if a := l.ask("127.100.0.5", "GET", "/a", "X-Api-Key", "k1"); tt.keys && a.status != 429 {
				t.Errorf("the second request with a key, from another address: %+v", a)
			}
			if a := l.ask("127.100.0.5", "GET", "/a", "X-Api-Key", "k2"); a.status != 200 {
				t.Errorf("a request with another key: %+v", a)
			}
			stop()
			if a := l.ask("127.100.0.1", "GET", "/a"); a.status != tt.without {
				t.Errorf("without edgelimit: %+v, want %d", a, tt.without)
			}
		})
	}
}
