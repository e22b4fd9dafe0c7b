package recipes

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const (
	// within is how soon clients have their answers, as the recipes say.
	within = 300 * time.Millisecond
	// slack is what a busy machine may add to one answer, and quickSlack to the quickest of a fault's four.
	slack      = time.Second
	quickSlack = 150 * time.Millisecond
)

// realProxies are the proxies that the tests run: how they are started, the line that makes their recipes fail-closed,
// and what they log.
var realProxies = map[string]struct {
	start                func(l *site, changes ...string) *testkit.Log
	closed               [2]string
	status               func(status int) string // the proxy's log of an answer of edgelimit's
	killed, frozen, gone string                  // what it logs then
}{
	"nginx": {
		start: (*site).nginx, closed: [2]string{"unavailable application;", "unavailable closed;"},
		status: func(s int) string { return fmt.Sprintf("auth=%d", s) },
		killed: "auth=502", frozen: "auth=504", gone: "auth=504",
	},
	"haproxy": {
		start: (*site).haproxy, closed: [2]string{"allow shadow-deny unavailable }", "allow shadow-deny }"},
		status: func(s int) string { return fmt.Sprintf("rl=unavailable/%d", s) },
		killed: "rl=unavailable/503", frozen: "rl=unavailable/50", gone: "rl=unavailable/503",
	},
	"caddy": {
		start: (*site).caddy, closed: [2]string{"#respond `", "respond `"},
		status: func(s int) string { return fmt.Sprintf(`"status":%d,`, s) }, killed: "connection refused",
		frozen: "timeout awaiting response headers", gone: "i/o timeout",
	},
}

func (l *site) nginx(changes ...string) *testkit.Log {
	return l.start("nginx", "-p", l.dir, "-c", l.recipe("nginx.conf", changes...),
		"-e", "stderr", "-g", "daemon off; pid nginx.pid;")
}

func (l *site) haproxy(changes ...string) *testkit.Log {
	l.recipe("haproxy.lua")
	return l.start("haproxy", "-db", "-f", l.recipe("haproxy.cfg", changes...))
}

func (l *site) caddy(changes ...string) *testkit.Log {
	return l.start("caddy", "run", "--config", l.recipe("Caddyfile", changes...), "--adapter", "caddyfile")
}

// pair are two proxies in front of one edgelimit: one that is fail-open, and one that is fail-closed.
type pair struct {
	t            *testing.T
	open, closed *site
	log          *testkit.Log // of the one that is open
}

// client has its limit used up.
const client = "127.100.0.9"

// limited waits until both proxies deny the client what it asks for beyond its limit.
func (p *pair) limited(when string) {
	p.t.Helper()
	for _, l := range []*site{p.open, p.closed} {
		testkit.Eventually(p.t, when+" limits hold", func() bool {
			return l.ask(client, "GET",
				"/limited").status == 429
		})
	}
}

// unlimited holds what clients get while edgelimit does not decide, and that the proxy logs why.
func (p *pair) unlimited(fault, logged string) {
	p.t.Helper()
	path := "/" + fault
	quickest := within + slack
	for _, method := range []string{"GET", "POST"} {
		a := p.open.ask(client, method, path)
		if a.status != 200 || !a.passed() || a.header.Get("X-Got-Decision") != "unavailable" || a.took > within+slack {
			p.t.Errorf("%s, fail-open: %s %+v", fault, method, a)
		}
		quickest = min(quickest, a.took)
		if want := "application: POST " + path + " with a body"; method == "POST" && a.body != want {
			p.t.Errorf("%s, fail-open: the application got %q, want %q", fault, a.body, want)
		}
		a = p.closed.ask(client, method, path)
		if a.status != 503 || a.passed() || a.took > within+slack {
			p.t.Errorf("%s, fail-closed: %s %+v", fault, method, a)
		}
		quickest = min(quickest, a.took)
	}
	if quickest > within+quickSlack {
		p.t.Errorf("%s: the quickest answer took %v, want %v", fault, quickest, within)
	}
	p.logs(fault, logged)
}

func (p *pair) logs(fault, logged string) {
	p.t.Helper()
	testkit.Eventually(p.t, fmt.Sprintf("a line of the log with /%s and %s", fault, logged), func() bool {
		return p.log.HasLine("/"+fault, logged)
	})
}

// wrong holds what clients get and the log has where something else answers in edgelimit's place. TestOutcomes has all
// statuses.
func (p *pair) wrong(status func(int) string) {
	p.t.Helper()
	var answer atomic.Int64
	p.open.serve(p.open.at(portHealth), func(http.ResponseWriter, *http.Request) {})
	stop := p.open.serve(p.open.at(portEdgelimit), func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(answer.Load()))
	})
	answer.Store(404)
	testkit.Eventually(p.t, "the other one is asked", func() bool {
		_ = p.open.ask(client, "GET", "/other")
		_ = p.closed.ask(client, "GET", "/other")
		return p.log.HasLine("/other", status(404))
	})
	for _, code := range []int{404, 503} {
		answer.Store(int64(code))
		p.unlimited(fmt.Sprintf("wrong-%d", code), status(code))
	}
	stop()
}

// gone has connections to edgelimit's address hang, as they do where its host is gone: a socket that listens, with no
// room for any more.
func (l *site) gone() {
	l.t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = syscall.Close(socket) })
	to := &syscall.SockaddrInet4{Port: portEdgelimit, Addr: netip.MustParseAddr(l.service).As4()}
	reuse := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err := errors.Join(reuse, syscall.Bind(socket, to), syscall.Listen(socket, 0)); err != nil {
		l.t.Fatal(err)
	}
	for range 10 {
		conn, err := net.DialTimeout("tcp", l.at(portEdgelimit), 200*time.Millisecond)
		if err != nil {
			return
		}
		l.t.Cleanup(func() { _ = conn.Close() })
	}
	l.t.Fatal("a socket without room takes ten connections")
}

// TestFaults holds the table at the top of each recipe: edgelimit is killed, frozen, full and wrong behind the real
// proxies.
func TestFaults(t *testing.T) {
	for name, proxy := range realProxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := newSite(t)
			open.recipeTimeouts = true
			open.application()
			e := open.edgelimit("edgelimit.yaml", fewFiles)
			p := &pair{t: t, open: open, closed: open.sibling()}
			p.log = proxy.start(p.open)
			proxy.start(p.closed, proxy.closed[0], proxy.closed[1])

			p.limited("at first")
			e.Kill()
			p.unlimited("killed", proxy.killed)

			e = open.edgelimit("edgelimit.yaml", fewFiles)
			p.limited("after a restart")
			e.Pause()
			p.unlimited("frozen", proxy.frozen)
			e.Signal(syscall.SIGCONT)
			p.limited("after the thaw")

			e.Kill()
			e = open.edgelimit("edgelimit.yaml", fewFiles) // the proxies have kept no connection to this one
			release := open.fill()
			p.unlimited("full", proxy.status(503))
			release()
			p.limited("when there is room again")

			e.Kill()
			p.wrong(proxy.status)
			open.gone()
			p.unlimited("gone", proxy.gone)
		})
	}
}
