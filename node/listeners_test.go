package node

import (
	"bufio"
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Each listener has so many clients at a time, says to the next in its protocol that there are too many, and lets
// another in when one leaves.
func TestListenersAreFull(t *testing.T) {
	const most = 3
	cfg := withRESP(withListeners(quiet(perClient)))
	cfg.MaxConnections = most
	log := new(testkit.Log)
	cfg.Logger = log.Logger()
	n := launch(t, cfg).ready(t)
	for _, listener := range []struct{ name, ask, answer, refusal string }{
		{"http", "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 400 Bad Request\r\n",
			"HTTP/1.1 503 Service Unavailable\r\n"},
		{"resp", "PING\r\n", "+PONG\r\n", "-ERR max number of clients reached\r\n"},
	} {
		var in []net.Conn
		ask := func(conn net.Conn) string {
			t.Helper()
			_, _ = io.WriteString(conn, listener.ask)
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %v after %q", listener.name, err, line)
			}
			return line
		}
		for range most {
			conn := testkit.Dial(t, n.Addr(listener.name))
			if got := ask(conn); got != listener.answer {
				t.Errorf("%s: %q", listener.name, got)
			}
			in = append(in, conn)
		}
		for range 2 {
			if got := ask(testkit.Dial(t, n.Addr(listener.name))); got != listener.refusal {
				t.Errorf("%s: when full it says %q", listener.name, got)
			}
		}
		_ = in[1].Close()
		testkit.Eventually(t, "one has left", func() bool {
			_, series := scrape(t, n.Addr("health"))
			return series["edgelimit_connections door="+listener.name] == most-1
		})
		if got := ask(testkit.Dial(t, n.Addr(listener.name))); got != listener.answer {
			t.Errorf("%s: after one has left it says %q", listener.name, got)
		}
		_, series := scrape(t, n.Addr("health"))
		for id, want := range map[string]float64{"connections": most, "accepted_connections_total": most + 1,
			"refused_connections_total reason=full": 2, "refused_connections_total reason=source": 0,
			"evicted_connections_total": 0} {
			metric, reason, _ := strings.Cut(id, " ")
			if got, ok := series[strings.TrimSpace("edgelimit_"+metric+" door="+listener.name+" "+reason)]; !ok ||
				got != want {
				t.Errorf("%s of %s: %v (there: %v), want %v", id, listener.name, got, ok, want)
			}
		}
		if !log.HasLine("level=WARN", "connections are refused", "door="+listener.name, "reason=full",
			"source=127.0.0.1") ||
			strings.Count(log.String(), "connections are refused") > 2 {
			t.Errorf("the log says\n%s", log)
		}
	}
	if got := n.Connections(); got < 2*most {
		t.Errorf("%d connections", got)
	}
	if err := n.stop(); err != nil {
		t.Error(err)
	}
	if got := n.Connections(); got != 0 {
		t.Errorf("%d connections after the end", got)
	}
}

func TestIdleTimeoutOfHTTP(t *testing.T) {
	cfg := withListeners(quiet(perClient))
	for idle, want := range map[time.Duration]time.Duration{0: 2 * time.Minute, 90 * time.Second: 90 * time.Second} {
		cfg.IdleTimeout = idle
		n := launch(t, cfg)
		if got := n.listeners["http"].Server.(*http.Server).IdleTimeout; got != want {
			t.Errorf("%v: %v over HTTP", idle, got)
		}
		if got := n.listeners["health"].Server.(*http.Server).IdleTimeout; got != 5*time.Second {
			t.Errorf("%v: %v for probes", idle, got)
		}
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	}
}

// Every listener can be a path.
func TestListenersOnPaths(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	cfg := quiet(perClient)
	cfg.HTTP, cfg.RESP, cfg.Health = "unix:"+at("http"), "unix:"+at("resp"), "unix:"+at("health")
	n := launch(t, cfg).ready(t)
	for _, name := range []string{"http", "resp", "health"} {
		if got := n.Addr(name); got != at(name) {
			t.Errorf("%s is at %q", name, got)
		}
	}
	unix := &http.Client{Timeout: testkit.Patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(addr)
			return net.Dial("unix", at(host))
		}}}
	for url, want := range map[string]string{"http://health/livez": "ok", "http://http/v1/check": "POST"} {
		resp, err := unix.Get(url)
		testkit.Must(t, err)
		if _, body := slurp(t, resp); !strings.Contains(body, want) {
			t.Errorf("%s: %s", url, body)
		}
	}
	conn, err := net.Dial("unix", at("resp"))
	testkit.Must(t, err)
	defer conn.Close()
	_, _ = io.WriteString(conn, "PING\r\nQUIT\r\n")
	if b, err := io.ReadAll(conn); err != nil || string(b) != "+PONG\r\n+OK\r\n" {
		t.Errorf("resp: %q, %v", b, err)
	}
	testkit.Must(t, n.stop())
	if left, err := filepath.Glob(at("*")); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}

// The gossip pool that cannot be opened is named by its setting.
func TestGossipInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer taken.Close()
	cfg := quiet(perClient)
	cfg.Gossip.LAN, cfg.Gossip.WAN = "127.0.0.1:0", taken.Addr().String()
	_, err = New(cfg)
	if err == nil || !strings.HasPrefix(err.Error(), "gossip.wan: "+taken.Addr().String()+" is in use") ||
		!strings.Contains(err.Error(), "with --gossip-wan, 127.0.0.1:0 for any port") {
		t.Errorf("%v", err)
	}
}

// A panic in a request is answered with 500 and a problem document, and counted; the next request is served.
func TestAPanicOverHTTP(t *testing.T) {
	log := new(testkit.Log)
	cfg := withListeners(quiet(perClient))
	requests, err := actions.New(cfg.Requests)
	testkit.Must(t, err)
	n := &Node{cfg: cfg, log: log.Logger(), listeners: make(map[string]*listen.Listener), requests: requests}
	if err := n.serveHTTP("http", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("RateLimit", "stale")
		if r.URL.Path == "/panic" {
			panic("a bug")
		}
	})); err != nil {
		t.Fatal(err)
	}
	l := n.listeners["http"]
	l.Start(func(string, error) {})
	defer l.Stop(0, testkit.Patience)
	for path, want := range map[string]int{"/panic": 500, "/": 200} {
		resp, err := web.Get("http://" + l.Addr().String() + path)
		testkit.Must(t, err)
		status, body := slurp(t, resp)
		problem := resp.Header.Get("Content-Type") == "application/problem+json" &&
			resp.Header.Get("RateLimit") == "" && !strings.Contains(body, "bug")
		if status != want || problem != (want == 500) {
			t.Errorf("%s: %d %v %s", path, status, resp.Header, body)
		}
	}
	if l.Panics() != 1 || !log.HasLine("a bug", "listeners_test.go") {
		t.Errorf("%d panics, or no log of them", l.Panics())
	}
}

// keptAlive opens a connection to an HTTP listener that has had one answer and stays open.
func keptAlive(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn := testkit.Dial(t, addr)
	_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	testkit.Must(t, err)
	slurp(t, resp)
	return conn
}

// Whoever keeps all connections of the health listener does not keep probes and scrapes out: idle ones are closed in
// their favor.
func TestProbesBesideIdleConnections(t *testing.T) {
	n := launch(t, withListeners(quiet(perClient))).ready(t)
	for range 2 * listen.ProbeLimits().Max {
		keptAlive(t, n.Addr("health"))
	}
	for range 3 {
		for _, path := range []string{"/livez", "/readyz", "/metrics"} {
			begun := time.Now()
			if status, body := get(t, n.Addr("health"), path); status != http.StatusOK {
				t.Fatalf("%s: %d %s", path, status, body)
			}
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%s took %v", path, took)
			}
		}
	}
}

func TestListenersAnswer(t *testing.T) {
	cfg := withListeners(quiet(perClient))
	cfg.Gossip.LAN, cfg.Gossip.WAN = "127.0.0.1:0", "127.0.0.1:0"
	n := launch(t, cfg).ready(t)
	for _, name := range []string{"http", "health", "lan", "wan"} {
		if _, port, err := net.SplitHostPort(n.Addr(name)); err != nil || port == "0" {
			t.Errorf("address of %s is %q", name, n.Addr(name))
		}
	}
	if addr := n.Addr("grpc"); addr != "" {
		t.Errorf("there is no gRPC listener, but it is at %q", addr)
	}
	for path, want := range map[string]string{"/livez": "ok\n", "/readyz": "ok\n", "/metrics": "edgelimit_rules 1\n"} {
		if status, body := get(t, n.Addr("health"), path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.200q", path, status, body)
		}
	}
	status, body := post(t, n.Addr("http"), "/v1/check", `{"rule":"per_client","identity":"x"}`)
	if status != http.StatusOK || !strings.Contains(body, `"remaining":999`) {
		t.Errorf("/v1/check: %d %s", status, body)
	}
	if status, _ := get(t, n.Addr("http"), "/metrics"); status != http.StatusNotFound {
		t.Errorf("the HTTP listener serves metrics: %d", status)
	}
	if status, _ := post(t, n.Addr("health"), "/v1/check",
		`{"rule":"per_client","identity":"x"}`); status != http.StatusNotFound {
		t.Errorf("the health listener takes requests: %d", status)
	}
}

// What cannot be opened is named, and what was opened before it is closed again.
func TestAddressInUse(t *testing.T) {
	for _, what := range []string{"http", "resp", "health", "lan", "wan"} {
		t.Run(what, func(t *testing.T) {
			defer testkit.NoLeaks(t)()
			taken, err := net.Listen("tcp", "127.0.0.1:0")
			testkit.Must(t, err)
			defer taken.Close()
			cfg := quiet(perClient)
			listeners := map[string]*string{
				"http":   &cfg.HTTP,
				"resp":   &cfg.RESP,
				"health": &cfg.Health,
				"lan":    &cfg.Gossip.LAN,
				"wan":    &cfg.Gossip.WAN,
			}
			for _, addr := range listeners {
				*addr = testkit.FreeAddr(t)
			}
			*listeners[what] = taken.Addr().String()
			n, err := New(cfg)
			if err == nil {
				stopped, stop := context.WithCancel(t.Context())
				stop()
				_ = n.Run(stopped)
				t.Fatal("New opened an address that is in use")
			}
			for _, part := range []string{what, taken.Addr().String(), "in use"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			for name, addr := range listeners {
				if name != what && !testkit.IsFree(*addr) {
					t.Errorf("%s at %s was left open", name, *addr)
				}
			}
		})
	}
}

// One source has its share of the connections. A proxy in front, this machine and Unix sockets have no share.
func TestSourcesHaveAShare(t *testing.T) {
	cfg := quiet("")
	cfg.HTTP, cfg.MaxConnections = "127.0.0.1:0", 40
	cfg.Requests.TrustedProxies = []string{"10.0.0.0/8", "2001:db8:ff::1", "unix"}
	requests, err := actions.New(cfg.Requests)
	testkit.Must(t, err)
	n := &Node{cfg: cfg, log: slog.New(slog.DiscardHandler), requests: requests}
	limits := n.listenLimits("http")
	if limits.Max != 40 || limits.PerSource != 10 {
		t.Errorf("%+v, want 10 of 40 connections for a source", limits)
	}
	for source, want := range map[string]bool{
		"192.0.2.1": false, "2001:db8::1": false, "2001:db8:ff::2": false,
		"10.1.2.3": true, "2001:db8:ff::1": true, "127.0.0.1": true, "::1": true,
	} {
		if got := limits.Exempt(netip.MustParseAddr(source)); got != want {
			t.Errorf("%s is exempt: %v", source, got)
		}
	}
	n.cfg.MaxConnectionsPerSource = 3
	if got := n.listenLimits("http").PerSource; got != 3 {
		t.Errorf("%d per source, 3 are configured", got)
	}
	n.cfg.MaxConnections, n.cfg.MaxConnectionsPerSource = 1, 0
	if got := n.listenLimits("http").PerSource; got != 1 {
		t.Errorf("%d per source of one connection", got)
	}
}

// Operators lift bans at a listener of their own; clients find nothing of the kind at theirs.
func TestAdminListener(t *testing.T) {
	log := &testkit.Log{}
	cfg := withListeners(quiet(bansFile))
	cfg.Admin, cfg.Logger = "127.0.0.1:0", log.Logger()
	n := launch(t, cfg).ready(t)
	takeSome(t, n.Node, "login", "192.0.2.77", 4)
	const body = `{"rule":"login","identity":"192.0.2.77"}`
	for _, listener := range []string{"http", "health"} {
		if status, _ := post(t, n.Addr(listener), "/api/bans/remove", body); status != 404 {
			t.Errorf("%s answers %d", listener, status)
		}
	}
	if !take(t, n.Node, Request{Rule: "login", Identity: "192.0.2.77"}).Banned {
		t.Fatal("it is not banned")
	}
	status, answer := post(t, n.Addr("admin"), "/api/bans/remove", body)
	if status != 200 ||
		!strings.Contains(answer, `{"lifted":1,"rules":[{"rule":"login","scope":"global","banned_ms":`) {
		t.Errorf("%d %s", status, answer)
	}
	if take(t, n.Node, Request{Rule: "login", Identity: "192.0.2.77", Peek: true}).Banned {
		t.Error("it is banned")
	}
	if !log.HasLine("a ban was lifted", "by=\"admin 127.0.0.1\"") {
		t.Errorf("the log says\n%s", log)
	}
	status, answer = post(t, n.Addr("admin"), "/api/bans/remove", `{"rule":"logni","identity":"x"}`)
	if status != 404 ||
		!strings.Contains(answer, `did you mean \"login\"`) {
		t.Errorf("%d %s", status, answer)
	}
}

// A Unix socket is for the node's user alone.
func TestAdminSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin")
	cfg := quiet(bansFile)
	cfg.Admin = "unix:" + path
	launch(t, cfg).ready(t)
	if info, err := os.Stat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	unix := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	resp, err := unix.Post("http://localhost/api/bans/remove", "application/json",
		strings.NewReader(`{"rule":"login","identity":"x"}`))
	testkit.Must(t, err)
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
		t.Errorf("%s: %s, %v", resp.Status, b, err)
	}
}

// The second node of a machine does without the listener that it did not ask for, and says so. An address of its own
// has to be free.
func TestAdminInUse(t *testing.T) {
	taken, err := net.Listen("tcp", DefaultAdmin)
	if err == nil { // else another process has it, which is as good
		defer taken.Close()
	}
	log := &testkit.Log{}
	cfg := quiet(bansFile)
	cfg.Admin, cfg.Logger = DefaultAdmin, log.Logger()
	n := launch(t, cfg).ready(t)
	if got := n.Addr("admin"); got != "" || !log.HasLine("level=WARN", "no admin listener", "--admin") {
		t.Errorf("it listens at %q and says\n%s", got, log)
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer other.Close()
	cfg.Admin = other.Addr().String()
	if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), "admin: "+cfg.Admin+" is in use") {
		t.Errorf("%v", err)
	}
}

// What other machines can reach is refused.
func TestAdminIsLocal(t *testing.T) {
	for addr, local := range map[string]bool{
		"127.0.0.1:7949": true, "127.1.2.3:0": true, "[::1]:7949": true, "localhost:7949": true,
		"unix:/run/edgelimit/admin": true, "": true,
		":7949": false, "0.0.0.0:7949": false, "[::]:7949": false, "10.0.0.7:7949": false, "edge-1:7949": false,
		"localhost.example:1": false, "nonsense": false, "127.0.0.1": false, "localhost": false, "::1:7949": false,
		"unix:": false,
	} {
		cfg := DefaultConfig()
		cfg.Admin = addr
		err := cfg.Validate()
		if (err == nil) != local || err != nil && !strings.HasPrefix(err.Error(), "admin: ") {
			t.Errorf("%q: %v", addr, err)
		}
	}
}
