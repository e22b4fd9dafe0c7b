package gossip

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func goodConfig() Config {
	return Config{NodeID: "n1", Region: "eu", Incarnation: 1, Interval: DefaultInterval, Label: DefaultLabel,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func TestConfigValidate(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	for name, test := range map[string]struct {
		change func(*Config)
		wrong  string // part of the error; empty: nothing is wrong
	}{
		"good":                   {func(*Config) {}, ""},
		"loopback without a key": {func(c *Config) { c.LAN = &PoolConfig{Bind: "127.0.0.1:0"} }, ""},
		"IPv6 loopback":          {func(c *Config) { c.LAN = &PoolConfig{Bind: "[::1]:0"} }, ""},
		"localhost":              {func(c *Config) { c.WAN = &PoolConfig{Bind: "localhost:0"} }, ""},
		"beyond loopback": {func(c *Config) {
			c.LAN = &PoolConfig{Bind: "0.0.0.0:7946"}
			c.Keys = [][]byte{key}
		}, ""},
		"beyond, without a key":     {func(c *Config) { c.LAN = &PoolConfig{Bind: "0.0.0.0:7946"} }, "keygen"},
		"everywhere, without a key": {func(c *Config) { c.WAN = &PoolConfig{Bind: ":7946"} }, "keygen"},
		"a name, without a key":     {func(c *Config) { c.WAN = &PoolConfig{Bind: "example.org:7946"} }, "keygen"},
		"no port":                   {func(c *Config) { c.LAN = &PoolConfig{Bind: "127.0.0.1"} }, "address"},
		"short key":                 {func(c *Config) { c.Keys = [][]byte{key, key[:16]} }, "key 2 has 16 bytes"},
		"no id":                     {func(c *Config) { c.NodeID = "" }, "node id"},
		"long id":                   {func(c *Config) { c.NodeID = strings.Repeat("n", MaxNodeID+1) }, "node id"},
		"no region":                 {func(c *Config) { c.Region = "" }, "region"},
		"long region":               {func(c *Config) { c.Region = strings.Repeat("r", MaxRegion+1) }, "region"},
		"no interval":               {func(c *Config) { c.Interval = 0 }, "interval"},
		"interval too long":         {func(c *Config) { c.Interval = 11 * time.Second }, "interval"},
	} {
		t.Run(name, func(t *testing.T) {
			c := goodConfig()
			test.change(&c)
			err := c.Validate()
			if test.wrong == "" && err != nil {
				t.Error(err)
			}
			if test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)) {
				t.Errorf("%v, want an error about %q", err, test.wrong)
			}
			if err != nil {
				if _, err := NewCluster(c, counters.NewTable(counters.Config{Origin: 1,
					Memory: counters.MinMemory})); err == nil {
					t.Error("NewCluster takes it all the same")
				}
			}
		})
	}
	all := (&Config{Keys: [][]byte{nil}, LAN: &PoolConfig{Bind: "x"}}).Validate()
	if lines := strings.Count(all.Error(), "\n") + 1; lines != 5 {
		t.Errorf("%d problems reported, want all 5:\n%v", lines, all)
	}
}

// A node that cannot open leaves nothing open.
func TestNewClusterClosesWhatItOpened(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, pools := range map[string]func(free string) (lan, wan *PoolConfig){
		"the second pool's port is taken": func(free string) (lan, wan *PoolConfig) {
			return &PoolConfig{Bind: free}, &PoolConfig{Bind: taken.Addr().String()}
		},
		"an advertised address without a port": func(free string) (lan, wan *PoolConfig) {
			return &PoolConfig{Bind: free, Advertise: "127.0.0.1"}, nil
		},
		"an advertised port beyond 65535": func(free string) (lan, wan *PoolConfig) {
			return &PoolConfig{Bind: free, Advertise: "127.0.0.1:65536"}, nil
		},
		"a label that is too long": func(free string) (lan, wan *PoolConfig) {
			return &PoolConfig{Bind: free}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			free := testkit.FreeAddr(t)
			c := goodConfig()
			c.LAN, c.WAN = pools(free)
			if strings.Contains(name, "label") {
				c.Label = strings.Repeat("l", 300)
			}
			if _, err := NewCluster(c, counters.NewTable(counters.Config{Origin: c.self(),
				Memory: counters.MinMemory})); err == nil {
				t.Fatal("it opens")
			} else {
				t.Log(err)
			}
			again, err := net.Listen("tcp", free)
			if err != nil {
				t.Fatal("still open: ", err)
			}
			_ = again.Close()
		})
	}
}

// memberlist listens on all addresses when it is given a name. The one name that needs no key must not have that
// effect.
func TestLocalhostIsLoopback(t *testing.T) {
	c := goodConfig()
	c.LAN = &PoolConfig{Bind: "localhost:0"}
	n, err := NewCluster(c, counters.NewTable(counters.Config{Origin: c.self(), Memory: counters.MinMemory}))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	host, port, err := net.SplitHostPort(n.Addr("lan"))
	if err != nil || !net.ParseIP(host).IsLoopback() {
		t.Errorf("the node is known at %s, want loopback: %v", n.Addr("lan"), err)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.IsLoopback() || ip.IP.To4() == nil {
			continue
		}
		// An address of this very machine: nothing leaves it.
		if conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip.IP.String(), port), time.Second); err == nil {
			_ = conn.Close()
			t.Errorf("it listens at %s, beyond loopback, without a key", ip.IP)
		}
	}
}

func (c *Config) self() counters.Origin { return NewOrigin(c.NodeID, c.Incarnation) }

// Two nodes on real sockets, through the transports that the configuration wraps.
func TestClusterOnSockets(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	limit, err := counters.NewLimit(counters.NewMeter("r", counters.SlidingWindow, time.Hour), 1000)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*Cluster
	var tables []*counters.Table
	done := make(chan error)
	wrapped := make(map[string]int)
	for i := range 2 {
		c := goodConfig()
		c.NodeID, c.Interval = fmt.Sprint("n", i), 20*time.Millisecond
		c.Keys = [][]byte{bytes.Repeat([]byte{1}, 32)}
		c.LAN, c.WAN = &PoolConfig{Bind: "127.0.0.1:0"}, &PoolConfig{Bind: "127.0.0.1:0", Advertise: ""}
		if i == 1 {
			c.LAN.Seeds, c.WAN.Seeds = []string{nodes[0].Addr("lan")}, []string{nodes[0].Addr("wan")}
		}
		c.WrapTransport = func(pool string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
			wrapped[pool]++
			return t
		}
		table := counters.NewTable(counters.Config{Origin: c.self(), Memory: counters.MinMemory})
		n, err := NewCluster(c, table)
		if err != nil {
			t.Fatal(err)
		}
		if _, port, err := net.SplitHostPort(n.Addr("lan")); err != nil || port == "0" ||
			n.Addr("lan") == n.Addr("wan") ||
			n.Addr("other") != "" {
			t.Errorf("addresses %q and %q", n.Addr("lan"), n.Addr("wan"))
		}
		nodes, tables = append(nodes, n), append(tables, table)
		go func() { done <- n.Run(ctx) }()
	}
	if wrapped["lan"] != 2 || wrapped["wan"] != 2 {
		t.Errorf("wrapped %v", wrapped)
	}
	tables[0].Take(limit, 1, 5, time.Now().UnixNano())
	every := time.NewTicker(5 * time.Millisecond)
	defer every.Stop()
	for tables[1].View(limit, 1, time.Now().UnixNano()) != 5 || len(nodes[0].Members()) != 1 ||
		len(nodes[1].Members()) != 1 {
		select {
		case <-every.C:
		case <-ctx.Done():
			t.Fatal("the count did not arrive")
		}
	}
	if m := nodes[1].Members()[0]; m.NodeID != "n0" || m.Region != "eu" || m.Pool != "lan" ||
		m.Addr != nodes[0].Addr("lan") {
		t.Errorf("member %+v", m)
	}
	cancel()
	for range nodes {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
