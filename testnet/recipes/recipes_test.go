package recipes

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// recipe is a proxy with what its recipe does.
type recipe struct {
	proxy   string
	config  string // edgelimit's; empty: edgelimit.yaml
	start   func(*site)
	headers bool   // the proxy puts RateLimit on what passes
	handsOn bool   // the application gets it
	open    bool   // requests pass without edgelimit, and otherwise
	without int    // this is the answer
	limit   string // the X-RateLimit-Limit of what passes
	real    bool   // the real program, with a recipe that hands X-RL-Decision on
	sources bool   // edgelimit sees the method, the host, cookies and tokens
	waits   bool   // the proxy has requests wait for their turn
}

var recipes = []recipe{
	{
		proxy: "nginx", start: func(l *site) { l.nginx() },
		headers: true, open: true, without: 200, real: true, sources: true,
	},
	{
		proxy: "haproxy", start: func(l *site) { l.haproxy() }, waits: true,
		headers: true, open: true, without: 200, real: true, sources: true,
	},
	{proxy: "caddy", start: func(l *site) { l.caddy() }, open: true, without: 200, real: true, sources: true},
	{proxy: "traefik", start: (*site).traefik, handsOn: true, without: 500, sources: true},
	{proxy: "apisix", start: (*site).apisix, handsOn: true, open: true, without: 200, sources: true},
	{
		proxy: "envoy", config: "edgelimit-envoy.yaml", start: (*site).envoy, headers: true, open: true, without: 200,
		limit: `3, 3;w=3600;name="per_ip"`,
	},
}

func TestRecipes(t *testing.T) {
	for _, r := range recipes {
		t.Run(r.proxy, func(t *testing.T) {
			t.Parallel()
			l := newSite(t)
			l.application()
			config := "edgelimit.yaml"
			if r.config != "" {
				config = r.config
			}
			e := l.edgelimit(config, 0)
			r.start(l)
			r.checkLimit(l)
			r.checkSpoofing(l)
			r.checkLayers(l)
			if r.real {
				checkHuge(l)
			}
			if r.waits {
				checkQueue(l)
			}
			if a := l.ask("127.100.0.3", "GET", "/forbidden"); a.status != 403 ||
				a.body != "application: GET /forbidden" {
				t.Errorf("what the application forbids: %+v", a)
			}
			e.Kill()
			if a := l.ask("127.100.0.1", "GET", "/a"); a.status != r.without || a.passed() != r.open {
				t.Errorf("without edgelimit: %+v, want %d", a, r.without)
			}
		})
	}
}

// checkLimit uses the limit of an address up.
func (r *recipe) checkLimit(l *site) {
	l.t.Helper()
	for i := range 3 {
		a := l.ask("127.100.0.1", "POST", "/a?b=c", "RateLimit", `"per_ip";r=99`)
		if a.status != 200 || a.body != "application: POST /a with a body" {
			l.t.Fatalf("request %d: %+v", i+1, a)
		}
		want := fmt.Sprintf(`"per_ip";r=%d;`, 2-i)
		if r.headers && !strings.Contains(a.header.Get("RateLimit"), want) {
			l.t.Errorf("request %d: %v, want RateLimit with %s", i+1, a.header, want)
		}
		if got := a.header.Get("X-RateLimit-Limit"); got != r.limit {
			l.t.Errorf("request %d: X-RateLimit-Limit %q, want %q", i+1, got, r.limit)
		}
		if got := a.header.Get("X-Got-RateLimit"); r.handsOn && !strings.HasPrefix(got, want) {
			l.t.Errorf("request %d: the application gets %q, want %s", i+1, got, want)
		}
		if got := a.header.Get("X-Got-Decision"); r.real && got != "allow" {
			l.t.Errorf("request %d: the application gets X-RL-Decision %q", i+1, got)
		}
	}
	a := l.ask("127.100.0.1", "GET", "/a")
	if a.status != 429 || a.passed() || !strings.Contains(a.body, "quota-exceeded") ||
		!strings.HasPrefix(a.header.Get("Content-Type"), "application/problem+json") ||
		a.header.Get("Cache-Control") != "no-store" {
		l.t.Errorf("over the limit: %+v", a)
	}
	if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || seconds < 3500 || seconds > 3720 {
		l.t.Errorf("over the limit: Retry-After %q", a.header.Get("Retry-After"))
	}
	for name, values := range a.header {
		if len(values) > 1 {
			l.t.Errorf("over the limit: %s is there %d times: %q", name, len(values), values)
		}
	}
}

// checkQueue holds that a proxy that can wait lets requests of a queue pass at its rate, of two a second.
func checkQueue(l *site) {
	l.t.Helper()
	start := time.Now()
	for i := range 3 {
		if a := l.ask(fmt.Sprintf("127.100.1.%d", i+1), "GET", "/queued"); a.status != 200 {
			l.t.Errorf("queued request %d: %+v", i+1, a)
		}
	}
	if took := time.Since(start); took < 950*time.Millisecond {
		l.t.Errorf("three queued requests took %v, want a second", took)
	}
}

// checkSpoofing holds that whatever a client says of itself, it stays itself, and what it asks for.
func (r *recipe) checkSpoofing(l *site) {
	l.t.Helper()
	var made []string
	for name, value := range spoofed {
		made = append(made, name, value)
	}
	if a := l.ask("127.100.0.1", "GET", "/a", made...); a.status != 429 {
		l.t.Errorf("a client that calls itself another: %+v", a)
	}
	if a := l.ask("127.100.0.2", "GET", "/blocked", made...); a.status != 429 {
		l.t.Errorf("a path without any requests: %+v", a)
	}
	if a := l.ask("127.100.0.2", "GET", "/x/..//blocked?free"); a.status != 429 {
		l.t.Errorf("another spelling of the path: %+v", a)
	}
	a := l.ask("127.100.0.2", "GET", "/a", made...)
	if got := a.header.Values("X-Got-Spoofed"); a.status != 200 || len(got) > 0 {
		l.t.Errorf("%d, and the application gets what a client made up of %q", a.status, got)
	}
}

// token is a bearer's token of a user, signed by nobody.
func token(user string) string {
	part := base64.RawURLEncoding.EncodeToString
	return "Bearer " + part(
		[]byte(`{"alg":"none"}`),
	) + "." + part([]byte(`{"sub":"`+user+`"}`)) + "." + part([]byte("x"))
}

// checkLayers holds that each source of edgelimit.yaml is counted, each from another address.
func (r *recipe) checkLayers(l *site) {
	l.t.Helper()
	address := 10
	from := func() string {
		address++
		return fmt.Sprintf("127.100.0.%d", address)
	}
	once := func(what string, header ...string) {
		l.t.Helper()
		if a := l.ask(from(), "GET", "/a", header...); a.status != 200 {
			l.t.Errorf("the first request with %s: %+v", what, a)
		}
		if a := l.ask(from(), "GET", "/a", header...); a.status != 429 {
			l.t.Errorf("the second request with %s, from another address: %+v", what, a)
		}
	}
	once("a key", "X-Api-Key", "k1")
	once("another key", "X-Api-Key", "k2")
	if !r.sources {
		return
	}
	once("a session", "Cookie", "theme=dark; session=s1")
	once("another session", "Cookie", "session=s2")
	once("a user", "Authorization", token("u1"))
	once("another user", "Authorization", token("u2"))
	if a := l.ask(from(), "DELETE", "/a"); a.status != 429 {
		l.t.Errorf("a method without any requests: %+v", a)
	}
	if a := l.ask(from(), "GET", "/a", "Host", "blocked.example"); a.status != 429 {
		l.t.Errorf("a host without any requests: %+v", a)
	}
	if a := l.ask(from(), "GET", "/a", "Host", "free.example"); a.status != 200 {
		l.t.Errorf("another host: %+v", a)
	}
}

// checkHuge holds that nobody gets around a used-up limit by headers that are too long for edgelimit, or for the
// question about them, and not for the proxy.
func checkHuge(l *site) {
	l.t.Helper()
	for size := 12_000; size <= 33_000; size += 300 {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 100, 0, 1)}}).Dial("tcp", l.proxy())
		if err != nil {
			l.t.Fatal(err)
		}
		request := "GET /huge HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		for i := 0; i < size; i += 5000 {
			request += fmt.Sprintf("X-Long-%d: %s\r\n", i, strings.Repeat("a", min(5000, size-i)))
		}
		// The proxy may answer and close before it has read all of that.
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, request+"\r\n")
		text, _ := io.ReadAll(conn)
		_ = conn.Close()
		if strings.Contains(string(text), "application: ") {
			l.t.Fatalf("%d bytes of headers get around a limit: %s", size, text)
		}
	}
}
