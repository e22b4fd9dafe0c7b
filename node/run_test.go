package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/bubble"
	"github.com/edgelimit/edgelimit/testnet/leaks"
)

const perClient = `
domain: test
descriptors: [{key: client, rate_limit: {name: per_client, window: 1m, requests_per_unit: 1000}}]
`

func withDoors(cfg Config) Config {
	cfg.HTTP, cfg.Health = "127.0.0.1:0", "127.0.0.1:0"
	return cfg
}

func TestDoorsAnswer(t *testing.T) {
	cfg := withDoors(quiet(perClient))
	cfg.Gossip.LAN, cfg.Gossip.WAN = "127.0.0.1:0", "127.0.0.1:0"
	n := launch(t, cfg).ready(t)
	for _, name := range []string{"http", "health", "lan", "wan"} {
		if _, port, err := net.SplitHostPort(n.Addr(name)); err != nil || port == "0" {
			t.Errorf("address of %s is %q", name, n.Addr(name))
		}
	}
	if addr := n.Addr("grpc"); addr != "" {
		t.Errorf("there is no gRPC door, but it is at %q", addr)
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
		t.Errorf("the HTTP door serves metrics: %d", status)
	}
	if status, _ := post(t, n.Addr("health"), "/v1/check", `{"rule":"per_client","identity":"x"}`); status != http.StatusNotFound {
		t.Errorf("the health door takes requests: %d", status)
	}
}

func TestStopClosesEverything(t *testing.T) {
	defer leaks.Check(t)()
	cfg := withDoors(quiet(perClient))
	cfg.Gossip.LAN, cfg.Gossip.WAN = freeAddr(t), freeAddr(t)
	n := launch(t, cfg).ready(t)
	addrs := []string{n.Addr("http"), n.Addr("health"), cfg.Gossip.LAN, cfg.Gossip.WAN}
	for _, addr := range addrs {
		if isFree(addr) {
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
		if !isFree(addr) {
			t.Errorf("somebody still listens at %s", addr)
		}
	}
}

// What cannot be opened is named, and what was opened before it is closed again.
func TestAddressInUse(t *testing.T) {
	for _, what := range []string{"http", "resp", "health", "lan", "wan"} {
		t.Run(what, func(t *testing.T) {
			defer leaks.Check(t)()
			taken, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Close()
			cfg := quiet(perClient)
			doors := map[string]*string{"http": &cfg.HTTP, "resp": &cfg.RESP, "health": &cfg.Health, "lan": &cfg.Gossip.LAN, "wan": &cfg.Gossip.WAN}
			for _, addr := range doors {
				*addr = freeAddr(t)
			}
			*doors[what] = taken.Addr().String()
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
			for name, addr := range doors {
				if name != what && !isFree(*addr) {
					t.Errorf("%s at %s was left open", name, *addr)
				}
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	defer leaks.Check(t)()
	for _, test := range []struct {
		name   string
		change func(*testing.T, *Config)
		want   []string
	}{
		{"gossip beyond loopback without a key", func(_ *testing.T, c *Config) { c.Gossip.LAN = "0.0.0.0:0" }, []string{"0.0.0.0:0", "key", "keygen"}},
		{"WAN beyond loopback without a key", func(_ *testing.T, c *Config) { c.Gossip.WAN = ":0" }, []string{"key"}},
		{"no such key file", func(_ *testing.T, c *Config) { c.Gossip.KeyFile = "no/such/key" }, []string{"no/such/key"}},
		{"a key file of nothing", func(t *testing.T, c *Config) { c.Gossip.KeyFile = write(t, "k", "") }, []string{"keygen"}},
		{"no such rules", func(_ *testing.T, c *Config) { c.Rules = []string{"no/such/rules.yaml"} }, []string{"no/such/rules.yaml"}},
		{"broken rules", func(t *testing.T, c *Config) { c.Rules = []string{write(t, "r.yaml", "domain: x\nbogus: 1\n")} }, []string{"r.yaml:2:1", "bogus"}},
		{"an advertised address that does not resolve", func(_ *testing.T, c *Config) {
			c.Gossip.LAN, c.Gossip.AdvertiseLAN = "127.0.0.1:0", "no-such-host.invalid:7946"
		}, []string{"advertised address", "no-such-host.invalid"}},
		{"no interval", func(_ *testing.T, c *Config) { c.Gossip.Interval = 0 }, []string{"interval"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := quiet("")
			cfg.HTTP = freeAddr(t)
			test.change(t, &cfg)
			n, err := New(cfg)
			if err == nil {
				stopped, stop := context.WithCancel(t.Context())
				stop()
				_ = n.Run(stopped)
				t.Fatal("New took it")
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if !isFree(cfg.HTTP) {
				t.Error("the HTTP door was left open")
			}
		})
	}
}

// A key file makes it possible to leave loopback.
func TestKeyFileOpensGossip(t *testing.T) {
	cfg := quiet(perClient)
	cfg.Gossip.KeyFile = keyFile(t)
	cfg.Gossip.LAN, cfg.Gossip.AdvertiseLAN = "0.0.0.0:0", "127.0.0.1:7946"
	n := launch(t, cfg).ready(t)
	if got := n.Addr("lan"); got != "127.0.0.1:7946" {
		t.Errorf("it is known at %s, not at what it advertises", got)
	}
}

// slowStore is a regional store that answers Load when it is told to, or when its time is up.
type slowStore struct {
	regions.Store
	asked, answer chan struct{}
}

func newSlowStore() *slowStore {
	return &slowStore{regions.NewEmbedded(0, time.Now), make(chan struct{}, 1), make(chan struct{})}
}

func (s *slowStore) Load(ctx context.Context, page func([]counters.Slot)) error {
	s.asked <- struct{}{}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.answer:
		return s.Store.Load(ctx, page)
	}
}

func TestReadiness(t *testing.T) {
	store := newSlowStore()
	cfg := withDoors(quiet(perClient))
	cfg.Store = store
	n := launch(t, cfg)
	<-store.asked
	if status, body := get(t, n.Addr("health"), "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "starting") {
		t.Errorf("while it warms up: %d %s", status, body)
	}
	if status, _ := get(t, n.Addr("health"), "/livez"); status != http.StatusOK {
		t.Errorf("while it warms up it is not alive: %d", status)
	}
	close(store.answer)
	n.ready(t)
	if status, _ := get(t, n.Addr("health"), "/readyz"); status != http.StatusOK {
		t.Errorf("readyz says %d when it is ready", status)
	}
}

// While requests in flight end, probes are told that the node goes, and Run waits for them.
func TestStopDrains(t *testing.T) {
	n := launch(t, withDoors(quiet(perClient))).ready(t)
	conn, err := net.Dial("tcp", n.Addr("http"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const body = `{"rule":"per_client","identity":"x"}`
	fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	answer := make([]byte, 4096)
	if k, err := conn.Read(answer); err != nil || !strings.HasPrefix(string(answer[:k]), "HTTP/1.1 100") {
		t.Fatalf("the request did not begin: %s, %v", answer[:k], err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- n.stop() }()
	eventually(t, patience, "unready", func() bool { return n.Ready() != nil })
	if status, body := get(t, n.Addr("health"), "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "stopping") {
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

// A client that never ends its request does not keep the node from stopping: the door itself would give its body 5 s. A machine that
// stands still meanwhile may be asked again.
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
	cfg := withDoors(quiet(perClient))
	cfg.Drain = 50 * time.Millisecond
	n := launch(t, cfg).ready(t)
	conn, err := net.Dial("tcp", n.Addr("http"))
	if err != nil {
		t.Fatal(err)
	}
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
	n, err := New(withDoors(quiet(perClient)))
	if err != nil {
		t.Fatal(err)
	}
	_ = n.http.listener.Close()
	if err := n.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "http: ") {
		t.Errorf("Run returned %v", err)
	}
	if !isFree(n.Addr("health")) {
		t.Error("the health door was left open")
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
			bubble.Test(t, func(t *testing.T) {
				n, err := New(quiet(perClient))
				if err != nil {
					t.Fatal(err)
				}
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

// A store that never answers delays the start, and no more.
func TestStartsWithoutTheStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var book logbook
		cfg := quiet(perClient)
		cfg.Store, cfg.Logger = newSlowStore(), book.logger()
		began := time.Now()
		n := launch(t, cfg).ready(t)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it was ready after %v", took)
		}
		if !book.line("WARN", "store could not be read", "deadline exceeded") {
			t.Errorf("the log does not say why:\n%s", book.String())
		}
		if takeSome(t, n.Node, "per_client", "x", 1001) != 1000 {
			t.Error("it does not limit")
		}
	})
}

// A node that starts again finds what it had counted in the store of its region.
func TestRestartKeepsCounts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := quiet(perClient)
		cfg.Store = regions.NewEmbedded(0, time.Now)
		n := launch(t, cfg).ready(t)
		takeSome(t, n.Node, "per_client", "x", 250)
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := spent(t, launch(t, cfg).ready(t).Node, "per_client", "x"); got != 250 {
			t.Errorf("of 250 requests before the restart, %d count", got)
		}
	})
}

func TestLogNamesTheNode(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var book logbook
		cfg := quiet(perClient)
		cfg.Logger = book.logger()
		if err := launch(t, cfg).ready(t).stop(); err != nil {
			t.Fatal(err)
		}
		for _, msg := range []string{"ready", "stopping"} {
			if !book.line("msg="+msg, "node=a", "region=here") {
				t.Errorf("no line %q of node a in:\n%s", msg, book.String())
			}
		}
	})
}

// Without a logger the node uses the default one.
func TestDefaultLogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	bubble.Test(t, func(t *testing.T) {
		var book logbook
		slog.SetDefault(book.logger())
		cfg := quiet(perClient)
		cfg.Logger = nil
		if err := launch(t, cfg).ready(t).stop(); err != nil {
			t.Fatal(err)
		}
		if !book.line("msg=ready", "node=a") {
			t.Errorf("nothing in the default log:\n%s", book.String())
		}
	})
}
