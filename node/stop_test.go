package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// everywhere is a configuration with every socket that there is.
func everywhere(t *testing.T) Config {
	cfg := withGRPC(withListeners(quiet(perClient)))
	cfg.RESP = "127.0.0.1:0"
	cfg.Gossip.LAN, cfg.Gossip.WAN = testkit.FreeAddr(t), testkit.FreeAddr(t)
	cfg.Redis.URL = "redis://127.0.0.1:1"
	return cfg
}

// free fails unless everything that the node listened on is free again.
func free(t *testing.T, addrs map[string]string) {
	t.Helper()
	for name, addr := range addrs {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Errorf("%s is taken still: %v", name, err)
			continue
		}
		_ = l.Close()
	}
}

func addrs(n *Node) map[string]string {
	all := make(map[string]string)
	for _, name := range []string{"http", "grpc", "resp", "health", "lan", "wan"} {
		all[name] = n.Addr(name)
	}
	return all
}

// Close closes the sockets of a node that never ran; then it does not run any more. That no goroutine is left is for
// TestMain to see.
func TestCloseWithoutRun(t *testing.T) {
	n, err := New(everywhere(t))
	testkit.Must(t, err)
	opened := addrs(n)
	for range 2 {
		if err := n.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	free(t, opened)
	if err := n.Run(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Run after Close: %v", err)
	}
}

// Close stops a node that runs, in order, from several places at once; its Run returns nil.
func TestCloseStopsRun(t *testing.T) {
	n, err := New(everywhere(t))
	testkit.Must(t, err)
	opened := addrs(n)
	ended := make(chan error, 1)
	go func() { ended <- n.Run(context.Background()) }()
	testkit.Eventually(t, "ready", func() bool { return n.Ready() == nil })
	if err := n.Run(t.Context()); !errors.Is(err, errRanBefore) {
		t.Errorf("a second Run: %v", err)
	}
	var closing sync.WaitGroup
	for range 3 {
		closing.Go(func() {
			if err := n.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	closing.Wait()
	if err := <-ended; err != nil {
		t.Errorf("Run that was closed: %v", err)
	}
	free(t, opened)
	if err := n.Close(); err != nil || n.Ready() == nil {
		t.Errorf("Close after the end: %v, ready: %v", err, n.Ready())
	}
}

// Close while Run begins is either before it or after.
func TestCloseAsRunBegins(t *testing.T) {
	for range 20 {
		n, err := New(withListeners(quiet(perClient)))
		testkit.Must(t, err)
		ended := make(chan error, 1)
		go func() { ended <- n.Run(t.Context()) }()
		if err := n.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-ended; err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("Run: %v", err)
		}
	}
}

// An address for a protocol that the program was built without is an error that says what to do; /json is not there
// then.
func TestWithoutEnvoy(t *testing.T) {
	cfg := withGRPC(quiet(perClient))
	cfg.Envoy = nil
	err := cfg.Validate()
	if err == nil || !strings.Contains(err.Error(), "grpc: ") ||
		!strings.Contains(err.Error(), "Config.Envoy = envoy.Service") {
		t.Errorf("grpc without Envoy: %v", err)
	}
	cfg = withListeners(quiet(perClient))
	cfg.Envoy = nil
	n := launch(t, cfg).ready(t)
	if status, body := post(t, n.Addr("http"), "/json", `{"domain":"test"}`); status != 404 {
		t.Errorf("/json: %d %s", status, body)
	}
	if _, series := scrape(t, n.Addr("health")); series["edgelimit_rls_overrides"] != 0 {
		t.Errorf("%v", series)
	}
}

func TestStopClosesEverything(t *testing.T) {
	defer testkit.NoLeaks(t)()
	cfg := withListeners(quiet(perClient))
	cfg.Gossip.LAN, cfg.Gossip.WAN = testkit.FreeAddr(t), testkit.FreeAddr(t)
	n := launch(t, cfg).ready(t)
	addrs := []string{n.Addr("http"), n.Addr("health"), cfg.Gossip.LAN, cfg.Gossip.WAN}
	for _, addr := range addrs {
		if testkit.IsFree(addr) {
			t.Errorf("nobody listens at %s", addr)
		}
	}
	if err := n.stop(); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if n.Ready() == nil {
		t.Error("it is ready after it has stopped")
	}
	for _, addr := range addrs {
		if !testkit.IsFree(addr) {
			t.Errorf("somebody still listens at %s", addr)
		}
	}
}

// While requests in flight end, probes are told that the node goes, and Run waits for them.
func TestStopDrains(t *testing.T) {
	n := launch(t, withListeners(quiet(perClient))).ready(t)
	conn, err := net.Dial("tcp", n.Addr("http"))
	testkit.Must(t, err)
	defer conn.Close()
	const body = `{"rule":"per_client","identity":"x"}`
	fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		len(body))
	answer := make([]byte, 4096)
	if k, err := conn.Read(answer); err != nil || !strings.HasPrefix(string(answer[:k]), "HTTP/1.1 100") {
		t.Fatalf("the request did not begin: %s, %v", answer[:k], err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- n.stop() }()
	testkit.Eventually(t, "unready", func() bool { return n.Ready() != nil })
	if status, body := get(t, n.Addr("health"), "/readyz"); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "stopping") {
		t.Errorf("while it drains: %d %s", status, body)
	}
	select {
	case <-stopped:
		t.Fatal("it stopped with a request in flight")
	default:
	}
	fmt.Fprint(conn, body)
	if k, err := conn.Read(answer); err != nil || !strings.Contains(string(answer[:k]), `"allowed":true`) {
		t.Errorf("the request in flight was answered %q, %v", answer[:k], err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// A client that never ends its request does not keep the node from stopping: the listener itself would give its body 5
// s. A machine that stands still meanwhile may be asked again.
func TestDrainIsBounded(t *testing.T) {
	var took time.Duration
	for range 10 {
		if took = drainBesideABody(t); took <= 3*time.Second {
			return
		}
	}
	t.Errorf("it took %v to stop", took)
}

func drainBesideABody(t *testing.T) time.Duration {
	t.Helper()
	cfg := withListeners(quiet(perClient))
	cfg.Drain = 50 * time.Millisecond
	n := launch(t, cfg).ready(t)
	conn, err := net.Dial("tcp", n.Addr("http"))
	testkit.Must(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
	if _, err := conn.Read(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := n.stop(); err != nil {
		t.Errorf("Run returned %v", err)
	}
	return time.Since(began)
}

// A part that fails ends Run with its error.
func TestRunReportsWhatFailed(t *testing.T) {
	cfg := withListeners(quiet(perClient))
	cfg.Linger = 5 * time.Minute // not for a node that failed
	n, err := New(cfg)
	testkit.Must(t, err)
	_ = n.listeners["http"].Close()
	if err := n.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "http: ") {
		t.Errorf("Run returned %v", err)
	}
	if !testkit.IsFree(n.Addr("health")) {
		t.Error("the health listener was left open")
	}
}

// However a context ends, it is a stop that was asked for.
func TestRunReturnsNilWhenAsked(t *testing.T) {
	for _, test := range []struct {
		name string
		ctx  func(context.Context) (context.Context, func())
	}{
		{"cancelled", func(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) }},
		{"cancelled with a cause", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(errors.New("evicted from this machine")) }
		}},
		{"deadline", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			return ctx, func() { time.Sleep(2 * time.Minute); cancel() }
		}},
		{"over before it began", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, func() {}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				n, err := New(quiet(perClient))
				testkit.Must(t, err)
				ctx, end := test.ctx(t.Context())
				ended := make(chan error)
				go func() { ended <- n.Run(ctx) }()
				synctest.Wait()
				end()
				if err := <-ended; err != nil {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// keptConn is a client's connection to the HTTP listener that it uses for one request after the other.
type keptConn struct {
	net.Conn
	answers *bufio.Reader
}

func keep(t *testing.T, n *running) *keptConn {
	t.Helper()
	conn, err := net.Dial("tcp", n.Addr("http"))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &keptConn{conn, bufio.NewReader(conn)}
}

// check asks for a decision, and reports whether the answer ends the connection.
func (k *keptConn) check(t *testing.T) (closes bool) {
	t.Helper()
	const body = `{"rule":"per_client","identity":"x"}`
	fmt.Fprintf(k, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	resp, err := http.ReadResponse(k.answers, nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if status, body := slurp(t, resp); status != http.StatusOK || !strings.Contains(body, `"allowed":true`) {
		t.Fatalf("%d %s", status, body)
	}
	return resp.Close
}

// A node that lingers is unready for who polls it, over HTTP and gRPC, and serves old and new connections as before.
func TestLingerServes(t *testing.T) {
	book := new(testkit.Log)
	cfg := withGRPC(withListeners(quiet(perClient)))
	cfg.Linger, cfg.Logger = 5*time.Minute, book.Logger()
	n := launch(t, cfg).ready(t)
	conn, err := grpc.NewClient(n.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	testkit.Must(t, err)
	defer conn.Close()
	serving := func() grpc_health_v1.HealthCheckResponse_ServingStatus {
		resp, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), new(grpc_health_v1.HealthCheckRequest))
		testkit.Must(t, err)
		return resp.Status
	}
	old := keep(t, n)
	if old.check(t) || serving() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatal("a node that runs is about to end")
	}

	stopped := make(chan error, 1)
	go func() { stopped <- n.stop() }()
	testkit.Eventually(t, "it logs its linger", func() bool { return book.HasLine("msg=stopping", "linger=5m0s") })
	if status, _ := get(t, n.Addr("health"), "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d", status)
	}
	if status, _ := get(t, n.Addr("health"), "/livez"); status != http.StatusOK {
		t.Errorf("/livez: %d", status)
	}
	if got := serving(); got != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("the health of gRPC: %v", got)
	}
	for _, c := range []*keptConn{old, old, keep(t, n)} {
		if c.check(t) {
			t.Error("a connection is ended during the linger")
		}
	}
	select {
	case err := <-stopped:
		t.Fatalf("it stopped, %v", err)
	default:
	}

	n.EndLinger()
	n.EndLinger()
	if err := <-stopped; err != nil {
		t.Errorf("Run returned %v", err)
	}
	if !book.HasLine("linger was cut short") {
		t.Errorf("it does not log that the linger was cut short:\n%s", book)
	}
}

// A linger takes its time, and none where nobody can have been sent here: at a node that is to stop before it is ready.
func TestLingerLasts(t *testing.T) {
	for _, test := range []struct {
		name string
		stop func(t *testing.T, n *Node, cancel func())
		want time.Duration
	}{
		{"asked to stop", func(_ *testing.T, _ *Node, cancel func()) { cancel() }, time.Minute},
		{"cut short", func(t *testing.T, n *Node, cancel func()) {
			cancel()
			time.Sleep(10 * time.Second)
			n.EndLinger()
		}, 10 * time.Second},
		{"taken away before", func(_ *testing.T, n *Node, cancel func()) {
			n.EndLinger()
			cancel()
		}, 0},
		{"asked before it was ready", nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				cfg := quiet(perClient)
				cfg.Linger = time.Minute
				took := stopTime(t, cfg, test.stop)
				if took < test.want || took > test.want+5*time.Second {
					t.Errorf("it stopped after %v, want %v and some", took, test.want)
				}
			})
		})
	}
}

// stopTime is how long a node runs from when it is ready. Without a stop, it is to stop before it starts.
func stopTime(t *testing.T, cfg Config, stop func(t *testing.T, n *Node, cancel func())) time.Duration {
	t.Helper()
	n, err := New(cfg)
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	began := time.Now()
	if stop == nil {
		cancel()
	}
	go func() { ended <- n.Run(ctx) }()
	if stop != nil {
		synctest.Wait()
		began = time.Now()
		stop(t, n, cancel)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
	return time.Since(began)
}
