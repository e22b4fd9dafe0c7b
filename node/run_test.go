package node

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestNewRefuses(t *testing.T) {
	defer testkit.NoLeaks(t)()
	for _, test := range []struct {
		name   string
		change func(*testing.T, *Config)
		want   []string
	}{
		{"gossip beyond loopback without a key", func(_ *testing.T, c *Config) { c.Gossip.LAN = "0.0.0.0:0" },
			[]string{"0.0.0.0:0", "key", "keygen"}},
		{"WAN beyond loopback without a key", func(_ *testing.T, c *Config) { c.Gossip.WAN = ":0" }, []string{"key"}},
		{"no such key file", func(_ *testing.T, c *Config) { c.Gossip.KeyFile = "no/such/key" },
			[]string{"no/such/key"}},
		{"a key file of nothing", func(t *testing.T, c *Config) { c.Gossip.KeyFile = write(t, "k", "") },
			[]string{"keygen"}},
		{"no such rules", func(_ *testing.T, c *Config) { c.Rules = []string{"no/such/rules.yaml"} },
			[]string{"no/such/rules.yaml"}},
		{"broken rules", func(t *testing.T, c *Config) {
			c.Rules = []string{write(t, "r.yaml",
				"domain: x\nbogus: 1\n")}
		}, []string{"r.yaml:2:1", "bogus"}},
		{"an advertised address that does not resolve", func(_ *testing.T, c *Config) {
			c.Gossip.LAN, c.Gossip.AdvertiseLAN = "127.0.0.1:0", "no-such-host.invalid:7946"
		}, []string{"advertised address", "no-such-host.invalid"}},
		{"no interval", func(_ *testing.T, c *Config) { c.Gossip.Interval = 0 }, []string{"interval"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := quiet("")
			cfg.HTTP = testkit.FreeAddr(t)
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
			if !testkit.IsFree(cfg.HTTP) {
				t.Error("the HTTP listener was left open")
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

func (s *slowStore) Load(ctx context.Context, now int64, page func([]counters.Slot)) error {
	s.asked <- struct{}{}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.answer:
		return s.Store.Load(ctx, now, page)
	}
}

func TestReadiness(t *testing.T) {
	store := newSlowStore()
	cfg := withListeners(quiet(perClient))
	cfg.Store = store
	n := launch(t, cfg)
	<-store.asked
	if status, body := get(t, n.Addr("health"), "/readyz"); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "starting") {
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

// A store that never answers delays the start, and no more.
func TestStartsWithoutTheStore(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		var book testkit.Log
		cfg := quiet(perClient)
		cfg.Store, cfg.Logger = newSlowStore(), book.Logger()
		began := time.Now()
		n := launch(t, cfg).ready(t)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it was ready after %v", took)
		}
		if !book.HasLine("WARN", "store could not be read", "deadline exceeded") {
			t.Errorf("the log does not say why:\n%s", book.String())
		}
		if takeSome(t, n.Node, "per_client", "x", 1001) != 1000 {
			t.Error("it does not limit")
		}
	})
}

// A node that starts again finds what it had counted in the store of its region.
func TestRestartKeepsCounts(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		cfg := quiet(perClient)
		cfg.Store = regions.NewEmbedded(0, time.Now)
		n := launch(t, cfg).ready(t)
		takeSome(t, n.Node, "per_client", "x", 250)
		testkit.Must(t, n.stop())
		time.Sleep(time.Second)
		if got := spent(t, launch(t, cfg).ready(t).Node, "per_client", "x"); got != 250 {
			t.Errorf("of 250 requests before the restart, %d count", got)
		}
	})
}

func TestLogNamesTheNode(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		var book testkit.Log
		cfg := quiet(perClient)
		cfg.Logger = book.Logger()
		testkit.Must(t, launch(t, cfg).ready(t).stop())
		for _, msg := range []string{"ready", "stopping"} {
			if !book.HasLine("msg="+msg, "node=a", "region=here") {
				t.Errorf("no line %q of node a in:\n%s", msg, book.String())
			}
		}
	})
}

// Without a logger the node uses the default one.
func TestDefaultLogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	testkit.VirtualTime(t, func(t *testing.T) {
		var book testkit.Log
		slog.SetDefault(book.Logger())
		cfg := quiet(perClient)
		cfg.Logger = nil
		testkit.Must(t, launch(t, cfg).ready(t).stop())
		if !book.HasLine("msg=ready", "node=a") {
			t.Errorf("nothing in the default log:\n%s", book.String())
		}
	})
}
