package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// stage is a cluster on a network in memory whose nodes' messages are recorded, to be played again by a stranger.
type stage struct {
	t       *testing.T
	network *netem.Network
	limit   *counters.Limit
	nodes   map[string]*actor
	boots   uint64

	mu      sync.Mutex
	at      string // the phase of what is being recorded
	kept    map[string]int
	records []record
	back    int // bytes that the nodes sent back to the stranger
}

// record is a message as it was sent, encrypted by the gossip key.
type record struct {
	pool, region, phase string
	stream              bool
	data                []byte
}

// actor is a node, with what watches it.
type actor struct {
	*gossip.Cluster
	*Monitor
	table *counters.Table
	addrs map[string]string // by pool
	stop  func()
	ended chan struct{}
}

// maxRecorded is how many packets are kept of one node, phase and pool.
const maxRecorded = 25

func newStage(t *testing.T) *stage {
	links := netem.NewLinks(1)
	links.SetDefaults(netem.Link{Latency: time.Millisecond}, netem.Link{Latency: 40 * time.Millisecond})
	limit, err := counters.NewLimit(counters.NewMeter("edge/staged", counters.SlidingWindow, time.Minute), 1000)
	testkit.Must(t, err)
	s := &stage{t: t, network: netem.NewNetwork(links), limit: limit, nodes: make(map[string]*actor),
		kept: make(map[string]int), at: "start"}
	t.Cleanup(func() {
		for name := range s.nodes {
			s.stop(name)
		}
		time.Sleep(time.Minute) // for memberlist's probes to run out
	})
	return s
}

// start boots a node; what it sends is recorded if it is to be.
func (s *stage) start(name string, recorded bool) *actor {
	s.t.Helper()
	region, id, _ := strings.Cut(name, "/")
	s.boots++
	n := &actor{addrs: make(map[string]string), ended: make(chan struct{})}
	n.table = counters.NewTable(
		counters.Config{Origin: gossip.NewOrigin(id, s.boots), Region: region, Memory: 64 << 20},
	)
	n.table.Know([]*counters.Limit{s.limit})
	open := func(pool, seed string) *gossip.PoolConfig {
		addr := s.addr(name, pool)
		t, err := s.network.NewTransport(addr, region)
		testkit.Must(s.t, err)
		n.addrs[pool] = addr
		return &gossip.PoolConfig{Transport: t, Seeds: []string{s.addr(seed, pool)}}
	}
	cfg := gossip.Config{NodeID: id, Region: region, Incarnation: s.boots, Interval: gossip.DefaultInterval,
		LAN: open("lan", region+"/n1"), WAN: open("wan", "east/n1"), Label: gossip.DefaultLabel,
		Keys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Logger: slog.New(slog.DiscardHandler)}
	if recorded {
		cfg.WrapTransport = func(pool string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
			return tap{t, s, name, region, pool}
		}
	}
	var err error
	n.Cluster, err = gossip.NewCluster(cfg, n.table)
	testkit.Must(s.t, err)
	n.Monitor = NewMonitor(slog.New(slog.DiscardHandler), "", time.Minute)
	sources := Sources{Cluster: n.Cluster, Table: n.table, Rules: func() *rules.Set { return ruleSet(loginRules) },
		Limits: func(time.Time) map[string]*counters.Limit {
			return map[string]*counters.Limit{"edge/staged": s.limit}
		},
		Found: func(time.Time) map[string]uint64 { return nil }, Now: func() int64 { return time.Now().UnixNano() },
		Interval: gossip.DefaultInterval}
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	var running sync.WaitGroup
	running.Go(func() { _ = n.Cluster.Run(ctx) })
	if !recorded {
		running.Go(func() { n.Monitor.Run(ctx, sources) })
	}
	go func() { running.Wait(); close(n.ended) }()
	s.nodes[name] = n
	return n
}

func (s *stage) addr(name, pool string) string {
	region, id, _ := strings.Cut(name, "/")
	return fmt.Sprintf("10.%d.%d.%s:7946", region[0], pool[0], id[1:])
}

func (s *stage) stop(name string) {
	n := s.nodes[name]
	delete(s.nodes, name)
	n.stop()
	<-n.ended
}

func (s *stage) phase(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = name
}

// keep keeps the messages of a node's phases: all streams, and some packets.
func (s *stage) keep(node string, r record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.phase = s.at
	class := fmt.Sprint(node, r.pool, r.phase, r.stream)
	if s.kept[class]++; r.stream || s.kept[class] <= maxRecorded {
		r.data = bytes.Clone(r.data)
		s.records = append(s.records, r)
	}
}

// tap records what goes out by a transport.
type tap struct {
	memberlist.NodeAwareTransport
	stage              *stage
	node, region, pool string
}

func (t tap) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	t.stage.keep(t.node, record{pool: t.pool, region: t.region, data: b})
	return t.NodeAwareTransport.WriteToAddress(b, a)
}

func (t tap) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	c, err := t.NodeAwareTransport.DialAddressTimeout(a, timeout)
	if err != nil {
		return nil, err
	}
	return &tappedStream{Conn: c, tap: t}, nil
}

type tappedStream struct {
	net.Conn
	tap  tap
	sent []byte
}

func (c *tappedStream) Write(b []byte) (int, error) {
	c.sent = append(c.sent, b...)
	return c.Conn.Write(b)
}

func (c *tappedStream) Close() error {
	if len(c.sent) > 0 {
		c.tap.stage.keep(c.tap.node, record{pool: c.tap.pool, region: c.tap.region, stream: true, data: c.sent})
		c.sent = nil
	}
	return c.Conn.Close()
}

// replay has a stranger send all that was recorded to every node that reads it, at once. It returns how many streams
// that were.
func (s *stage) replay() (streams int) {
	s.t.Helper()
	stranger, err := s.network.NewTransport("203.0.113.9:9", "stranger")
	testkit.Must(s.t, err)
	defer stranger.Shutdown()
	var all sync.WaitGroup
	for _, r := range s.records {
		for name, n := range s.nodes {
			if r.pool == "lan" && !strings.HasPrefix(name, r.region+"/") {
				continue
			}
			if !r.stream {
				_, _ = stranger.WriteTo(r.data, n.addrs[r.pool])
				continue
			}
			streams++
			all.Go(func() {
				c, err := stranger.DialTimeout(n.addrs[r.pool], 5*time.Second)
				if err != nil {
					return
				}
				defer c.Close()
				_, _ = c.Write(r.data)
				_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
				got, _ := io.Copy(io.Discard, c)
				s.mu.Lock()
				s.back += int(got)
				s.mu.Unlock()
			})
		}
	}
	all.Wait()
	return streams
}

// trouble says what is wrong at the nodes that stayed; nothing if all is well.
func (s *stage) trouble() string {
	for name, n := range s.nodes {
		var peers, want []string
		for _, p := range n.Peers() {
			peers = append(peers, p.Region+"/"+p.NodeID)
		}
		for other := range s.nodes {
			if other != name {
				want = append(want, other)
			}
		}
		slices.Sort(peers)
		slices.Sort(want)
		switch {
		case !slices.Equal(peers, want):
			return fmt.Sprintf("%s has the peers %v, want %v", name, peers, want)
		case n.Outage(counters.Global) != rules.Whole || n.Outage(counters.Region) != rules.Whole:
			return fmt.Sprintf("%s: outage %d, in its region %d", name, n.Outage(counters.Global),
				n.Outage(counters.Region))
		case n.AddsUp():
			return name + " has owners add up"
		case len(n.Degraded()) > 0:
			return fmt.Sprintf("%s is degraded: %q", name, n.Degraded())
		}
	}
	return ""
}

// settled waits until nothing is wrong.
func (s *stage) settled(within time.Duration) {
	s.t.Helper()
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		trouble := s.trouble()
		if trouble == "" {
			return
		}
		if time.Since(begun) > within {
			s.t.Fatalf("not within %v: %s", within, trouble)
		}
	}
}

// heap is how many bytes live.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// What was recorded of nodes that have left, and is played again by somebody without the key, changes nothing: the
// others miss nobody, deny nothing and admit no more than the limit, and send next to nothing back.
func TestRecordingsChangeNothing(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		s := newStage(t)
		stay := []string{"east/n1", "east/n2", "west/n1"}
		for i := range 11 {
			for _, region := range []string{"east", "west"} {
				name := fmt.Sprintf("%s/n%d", region, i+1)
				s.start(name, !slices.Contains(stay, name))
			}
		}
		time.Sleep(3 * time.Second)
		s.phase("steady")
		time.Sleep(30 * time.Second)
		for i, name := range stay {
			for k := range 10_000 {
				s.nodes[name].table.Take(s.limit, counters.Key(1_000_000*i+k), 1, time.Now().UnixNano())
			}
		}
		time.Sleep(10 * time.Second)
		s.phase("stop")
		for name := range s.nodes {
			if !slices.Contains(stay, name) {
				s.stop(name)
			}
		}
		time.Sleep(3 * time.Second)
		s.settled(5 * time.Second)
		t.Logf("recorded %d messages", len(s.records))
		before := heap()
		for round, wait := range []time.Duration{0, 35 * time.Second, 60 * time.Second} {
			time.Sleep(wait)
			s.back = 0
			streams := s.replay()
			if most := 20 << 10 * streams; s.back > most {
				t.Errorf("%d streams brought %d bytes back, at most %d are allowed", streams, s.back, most)
			}
			s.offer(counters.Key(round + 1))
			if after := heap(); after > 1.2*before {
				t.Errorf("the heap has grown from %.0f MB to %.0f", before/1e6, after/1e6)
			}
		}
		s.stop("east/n2")
		s.start("east/n2", false)
		time.Sleep(500 * time.Millisecond)
		s.replay()
		s.settled(10 * time.Second)
		s.offer(counters.Key(9))
	})
}

// offer asks all nodes for more than the limit of a key, and now and then for one that is far below it.
func (s *stage) offer(key counters.Key) {
	s.t.Helper()
	admitted := 0
	for i := range 400 {
		for _, n := range s.nodes {
			for range 5 {
				if n.table.Take(s.limit, key, 1, time.Now().UnixNano()).Allowed {
					admitted++
				}
			}
			if i%10 == 0 && !n.table.Take(s.limit, key+100, 1, time.Now().UnixNano()).Allowed {
				s.t.Fatal("a key far below its limit is denied")
			}
		}
		time.Sleep(50 * time.Millisecond)
		if trouble := s.trouble(); trouble != "" {
			s.t.Fatalf("%v after the replay: %s", time.Duration(i+1)*50*time.Millisecond, trouble)
		}
	}
	if limit := int(s.limit.Max()); admitted > limit*11/10 || admitted < limit*9/10 {
		s.t.Errorf("%d were admitted of %d", admitted, limit)
	}
}
