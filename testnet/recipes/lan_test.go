package recipes

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const patience = testkit.Patience

// site is what a recipe's addresses stand on in a test: 127.0.0.1 is one of 2^24 addresses of the machine itself, so
// that its ports are free on another.
type site struct {
	t              *testing.T
	host           string // the proxy's
	service        string // edgelimit's and the application's
	dir            string
	recipeTimeouts bool // the recipe's timeouts hold; otherwise they are those of a busy machine
}

func newSite(t *testing.T) *site {
	host := randomHost()
	return &site{t: t, host: host, service: host, dir: t.TempDir()}
}

// sibling is where another proxy in front of the same edgelimit and application stands.
func (l *site) sibling() *site {
	return &site{t: l.t, host: randomHost(), service: l.service, dir: l.t.TempDir(), recipeTimeouts: l.recipeTimeouts}
}

func randomHost() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(99), rand.IntN(256), 1+rand.IntN(254))
}

// Ports of the recipes.
const (
	portProxy       = 8088
	portHTTP2       = 8089 // of the proxy, see withHTTP2
	portApplication = 8000
	portEdgelimit   = 8080
	portHealth      = 7948
)

func (l *site) proxy() string      { return fmt.Sprintf("%s:%d", l.host, portProxy) }
func (l *site) at(port int) string { return fmt.Sprintf("%s:%d", l.service, port) }

// milliseconds are the recipes' timeouts.
var milliseconds = regexp.MustCompile(`\b[0-9]+ms\b`)

// recipe copies a file to where the program runs, with this test's addresses in it, and with the patience that a busy
// machine needs unless the test is hasty. Each change is a text of the file, which is there once, and what takes its
// place.
func (l *site) recipe(name string, changes ...string) string {
	l.t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		l.t.Fatal(err)
	}
	text := string(b)
	for i := 0; i < len(changes); i += 2 {
		if n := strings.Count(text, changes[i]); n != 1 {
			l.t.Fatalf("%s has %q %d times, want once", name, changes[i], n)
		}
		text = strings.Replace(text, changes[i], changes[i+1], 1)
	}
	if !l.recipeTimeouts {
		text = milliseconds.ReplaceAllString(text, "60s")
		text = strings.Replace(text, "patience = 1000 ", "patience = 180000 ", 1)
	}
	addresses := []string{"/var/log/nginx/access.log", "/dev/stdout",
		// From there proxies connect to any address of loopback.
		"trusted_proxies: [127.0.0.1]", "trusted_proxies: [127.0.0.1]"}
	for _, port := range []int{portApplication, portEdgelimit, portHealth, 8081} {
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port), l.at(port))
	}
	text = strings.NewReplacer(append(addresses, "127.0.0.1", l.host)...).Replace(text)
	to := filepath.Join(l.dir, name)
	if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return to
}

// start runs a proxy until the test ends, and returns its log once it listens.
func (l *site) start(name string, args ...string) *testkit.Log {
	l.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = l.dir
	cmd.Env = append(os.Environ(), "HOME="+l.dir, "XDG_DATA_HOME="+l.dir, "XDG_CONFIG_HOME="+l.dir)
	p := testkit.Start(l.t, cmd)
	l.t.Cleanup(func() { // SIGKILL would leave its workers
		p.Signal(syscall.SIGINT)
		_ = p.Wait()
	})
	p.Await(name+" listens", func() bool {
		conn, err := net.Dial("tcp", l.proxy())
		return err == nil && conn.Close() == nil
	})
	return p.Log
}

// serve runs an HTTP server until the test ends, or the returned function is called.
func (l *site) serve(addr string, handle http.HandlerFunc) (stop func()) {
	l.t.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		l.t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handle)
	_ = s.Listener.Close()
	s.Listener = listener
	s.Start()
	stop = sync.OnceFunc(s.Close)
	l.t.Cleanup(stop)
	return stop
}

// spoofed are headers by which clients try to be another or to ask for something else. None of their values reaches the
// application.
var spoofed = map[string]string{
	"X-Forwarded-For": "198.51.100.1", "X-Real-Ip": "198.51.100.1", "Forwarded": "for=198.51.100.1",
	"X-Forwarded-Host": "free.example", "X-Forwarded-Method": "FREE", "X-Forwarded-Uri": "/free",
	"X-Original-Method": "FREE", "X-Original-Host": "free.example",
	"X-Original-Uri": "/free", "X-Original-Url": "/free", "X-Rl-Decision": "free",
}

// application is what stands behind the proxy. It answers with the request's method, path and body, with the RateLimit
// and X-RL-Decision that the request had, and with what is spoofed of it. It forbids /forbidden.
func (l *site) application() {
	l.t.Helper()
	l.serve(l.at(portApplication), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Got-RateLimit", strings.Join(r.Header.Values("RateLimit"), " and "))
		w.Header().Set("X-Got-Decision", strings.Join(r.Header.Values("X-RL-Decision"), " and "))
		for name, value := range spoofed {
			if strings.Contains(strings.Join(r.Header.Values(name), ","), value) {
				w.Header().Add("X-Got-Spoofed", name)
			}
		}
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = fmt.Fprintf(w, "application: %s %s%s", r.Method, r.URL.Path, body)
	})
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	took   time.Duration
}

// passed reports whether the application answered.
func (a *answer) passed() bool { return strings.HasPrefix(a.body, "application: ") }

// ask sends a request through the proxy, from an address of the machine's own. Each has a connection to itself. POST
// has a body.
func (l *site) ask(from, method, path string, headers ...string) answer {
	l.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	client := http.Client{Transport: transport, Timeout: patience}
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(" with a body")
	}
	r, err := http.NewRequest(method, "http://"+l.proxy()+path, body)
	if err != nil {
		l.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	r.Host = r.Header.Get("Host")
	r.Header.Del("Host")
	began := time.Now()
	resp, err := client.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text), time.Since(began)}
}
