package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/netem"
)

// testCluster is a cluster of real nodes on a network in memory. Make it inside a synctest bubble: its time is virtual.
type testCluster struct {
	t       *testing.T
	links   *netem.Links
	network *netem.Network
	limit   *counters.Limit
	nodes   map[string]*testNode
	seeds   map[string]string // of each pool: that of a region, and "wan"
	boots   uint64
}

// testNode is one boot of a node.
type testNode struct {
	*Cluster
	table    *counters.Table
	lan, wan *netem.Transport
	logs     *logbook
	cancel   context.CancelFunc
	done     chan error
}

const testKey = counters.Key(7)

// newTestCluster returns a lab whose links are those of regions some way apart, with a little loss.
func newTestCluster(t *testing.T) *testCluster {
	l := &testCluster{t: t, links: netem.NewLinks(1), nodes: make(map[string]*testNode),
		seeds: make(map[string]string)}
	l.network = netem.NewNetwork(l.links)
	l.loss(0.01)
	limit, err := counters.NewLimit(counters.NewMeter("edge/lab", counters.SlidingWindow, time.Minute), 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	l.limit = limit
	t.Cleanup(func() {
		l.stopAll()
		time.Sleep(time.Minute) // for memberlist's probes to run out: the bubble fails if anything is left running then
	})
	return l
}

// loss sets how many packets are lost, come twice and are held back.
func (l *testCluster) loss(p float64) {
	near := netem.Link{Latency: time.Millisecond, Loss: p, Duplicate: p, Reorder: p}
	far := near
	far.Latency, far.Jitter = 40*time.Millisecond, 10*time.Millisecond
	l.links.SetDefaults(near, far)
}

// change alters the configuration of a node before it starts.
type change func(*Config)

// start boots the node "region/id" at an address that follows from both.
func (l *testCluster) start(name string, changes ...change) *testNode {
	l.t.Helper()
	region, id, _ := strings.Cut(name, "/")
	return l.startAt(region, id, fmt.Sprintf("10.%d.%%d.%s:7946", region[0], strings.TrimLeft(id, "n")), changes...)
}

// startAt boots a node at addresses of the pattern given, which lacks the number of the pool.
func (l *testCluster) startAt(region, id, pattern string, changes ...change) *testNode {
	l.t.Helper()
	l.boots++
	n := &testNode{
		table: counters.NewTable(
			counters.Config{Origin: NewOrigin(id, l.boots), Region: region, Memory: counters.MinMemory},
		),
		logs: &logbook{}, done: make(chan error, 1),
	}
	lanAddr, wanAddr := fmt.Sprintf(pattern, 1), fmt.Sprintf(pattern, 2)
	n.lan, n.wan = l.transport(lanAddr, region), l.transport(wanAddr, region)
	cfg := Config{
		NodeID: id, Region: region, Incarnation: l.boots, Interval: DefaultInterval, Label: DefaultLabel,
		LAN:    &PoolConfig{Transport: n.lan, Seeds: l.seedsOf(region, lanAddr)},
		WAN:    &PoolConfig{Transport: n.wan, Seeds: l.seedsOf("wan", wanAddr)},
		Logger: slog.New(n.logs),
	}
	for _, c := range changes {
		c(&cfg)
	}
	var err error
	if n.Cluster, err = NewCluster(cfg, n.table); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go func() { n.done <- n.Run(ctx) }()
	l.nodes[region+"/"+id] = n
	return n
}

func (l *testCluster) transport(addr, region string) *netem.Transport {
	l.t.Helper()
	tr, err := l.network.NewTransport(addr, region)
	if err != nil {
		l.t.Fatal(err)
	}
	return tr
}

// seedsOf returns the seeds of a pool: the first node to start in it.
func (l *testCluster) seedsOf(pool, self string) []string {
	if l.seeds[pool] == "" {
		l.seeds[pool] = self
	}
	return []string{l.seeds[pool]}
}

// stop ends a node as a service manager does, and waits until it is gone.
func (l *testCluster) stop(name string) {
	l.t.Helper()
	n := l.nodes[name]
	delete(l.nodes, name)
	n.cancel()
	started := time.Now()
	if err := <-n.done; err != nil {
		l.t.Errorf("%s: %v", name, err)
	}
	if took := time.Since(started); took > 10*time.Second {
		l.t.Errorf("%s took %v to stop, at most 10s are allowed", name, took)
	}
}

// kill ends a node without a word: nothing that it sends from then on gets out.
func (l *testCluster) kill(name string) {
	l.t.Helper()
	n := l.nodes[name]
	delete(l.nodes, name)
	_ = n.lan.Shutdown()
	_ = n.wan.Shutdown()
	n.cancel()
	<-n.done
}

func (l *testCluster) stopAll() {
	var all sync.WaitGroup
	for name, n := range l.nodes {
		all.Go(func() {
			n.cancel()
			if err := <-n.done; err != nil {
				l.t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
	clear(l.nodes)
}

// take admits cost for the lab's key at a node.
func (l *testCluster) take(name string, cost uint64) {
	l.t.Helper()
	if d := l.nodes[name].table.Take(l.limit, testKey, cost, time.Now().UnixNano()); !d.Allowed {
		l.t.Fatalf("%s: denied: %+v", name, d)
	}
}

func (l *testCluster) view(name string) uint64 {
	return l.nodes[name].table.View(l.limit, testKey, time.Now().UnixNano())
}

// within waits until the condition holds and returns how long that took. The condition says what is missing, or
// nothing.
func (l *testCluster) within(largest time.Duration, what string, missing func() string) time.Duration {
	l.t.Helper()
	start := time.Now()
	for {
		m := missing()
		took := time.Since(start)
		if m == "" {
			return took
		}
		if took >= largest {
			l.t.Fatalf("%s: not within %v: %s", what, largest, m)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// sees says whom of the names given each of the nodes misses in its membership, or has too many. Boots are kept apart.
func (l *testCluster) sees(names ...string) func() string {
	return func() string {
		for _, name := range names {
			var others, want []string
			for _, m := range l.nodes[name].Members() {
				others = append(others, fmt.Sprintf("%s/%s#%d", m.Region, m.NodeID, m.Incarnation))
			}
			for _, other := range names {
				if m := l.nodes[other].Self(); other != name {
					want = append(want, fmt.Sprintf("%s/%s#%d", m.Region, m.NodeID, m.Incarnation))
				}
			}
			slices.Sort(others)
			if slices.Sort(want); !slices.Equal(others, want) {
				return fmt.Sprintf("%s sees %v, want %v", name, others, want)
			}
		}
		return ""
	}
}

func (l *testCluster) all() []string { return slices.Sorted(maps.Keys(l.nodes)) }

// counts says which of the nodes does not count want yet.
func (l *testCluster) counts(want uint64, names ...string) func() string {
	return func() string {
		for _, name := range names {
			if got := l.view(name); got != want {
				return fmt.Sprintf("%s counts %d, want %d", name, got, want)
			}
		}
		return ""
	}
}

// logbook is a slog.Handler that keeps what is logged at Warn and above.
type logbook struct {
	mu    sync.Mutex
	lines []string
}

func (b *logbook) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (b *logbook) WithAttrs([]slog.Attr) slog.Handler               { return b }
func (b *logbook) WithGroup(string) slog.Handler                    { return b }

func (b *logbook) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
	return nil
}

// about returns the lines that contain the text.
func (b *logbook) about(text string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		if strings.Contains(l, text) {
			found = append(found, l)
		}
	}
	return found
}
