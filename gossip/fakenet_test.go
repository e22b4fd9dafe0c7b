package gossip

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// fakeNet is replicas with real tables on a network that loses only what a test cuts off, on virtual time. It is for
// tests of what a replica keeps; testnet/sim plays the protocol under random faults.
type fakeNet struct {
	t        *testing.T
	rand     *rand.Rand
	now      int64
	interval time.Duration
	limits   []*counters.Limit
	nodes    []*fakeNode
	boots    int
	home     map[counters.Origin]*fakeNode
	inFlight []inFlight
	cuts     map[[2]int]bool // from, to
	broken   bool            // no stream arrives
	received [][]byte
}

// fakeNode is a place where one boot of a node after the other runs.
type fakeNode struct {
	place, boot int
	up          bool
	origin      counters.Origin
	table       *counters.Table
	replica     *Replica
	tickAt      int64
}

type inFlight struct {
	from, to *fakeNode
	boot     int // of the node that it is for
	m        Message
}

// netDelay is how long every message takes, and the step in which time passes.
const netDelay = 5 * time.Millisecond

// newFakeNet returns a network of nodes that have met.
func newFakeNet(t *testing.T, nodes int, interval time.Duration) *fakeNet {
	w := &fakeNet{
		t: t, rand: rand.New(rand.NewPCG(1, 1)), now: frameTime, interval: interval,
		home: make(map[counters.Origin]*fakeNode), cuts: make(map[[2]int]bool),
	}
	for _, window := range []time.Duration{10 * time.Second, time.Minute} {
		l, err := counters.NewLimit(counters.NewMeter("edge/"+window.String(), counters.SlidingWindow, window), 2000)
		if err != nil {
			panic(err)
		}
		w.limits = append(w.limits, l)
	}
	for place := range nodes {
		w.nodes = append(w.nodes, &fakeNode{place: place})
		w.start(w.nodes[place])
	}
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			w.join(a, b.origin)
		}
	}
	w.run(max(2*time.Second, 3*interval))
	return w
}

// start boots a node: a new origin, an empty table, nobody known.
func (w *fakeNet) start(n *fakeNode) {
	w.boots++
	n.boot, n.up = w.boots, true
	n.origin = NewOrigin(fmt.Sprint("node-", n.place), uint64(w.boots))
	n.table = counters.NewTable(counters.Config{Origin: n.origin, Memory: counters.MinMemory})
	n.replica = NewReplica(n.origin, w.interval, n.table)
	n.tickAt = w.now + int64(w.interval)*int64(n.place+1)/8
	w.home[n.origin] = n
}

// restart boots a node again; it and the others know of each other at once.
func (w *fakeNet) restart(n *fakeNode) {
	old := n.origin
	w.start(n)
	for _, other := range w.nodes {
		if other != n {
			w.join(n, other.origin)
			w.leave(other, old, true)
			w.join(other, n.origin)
		}
	}
}

// kill ends a node whose last frames only one other gets.
func (w *fakeNet) kill(n, knows *fakeNode) {
	for _, m := range n.replica.Tick(n.table.DrainDirty(w.now), w.now) {
		if m.To == knows.origin {
			w.deliver(knows, m.Data)
		}
	}
	n.up = false
}

func (w *fakeNet) join(n *fakeNode, o counters.Origin) { n.replica.Join(o, w.now) }

func (w *fakeNet) leave(n *fakeNode, o counters.Origin, graceful bool) { n.replica.Leave(o, graceful) }

func (w *fakeNet) take(n *fakeNode, key counters.Key, cost uint64, l *counters.Limit) {
	n.table.Take(l, key, cost, w.now)
}

// run lets time pass.
func (w *fakeNet) run(d time.Duration) {
	for end := w.now + int64(d); w.now < end; {
		w.now += int64(netDelay)
		due := w.inFlight
		w.inFlight = nil
		for _, p := range due {
			back := p.m.Reliable && (w.broken || p.boot != p.to.boot || w.cuts[[2]int{p.to.place, p.from.place}])
			if !back && !w.cuts[[2]int{p.from.place, p.to.place}] {
				w.deliver(p.to, p.m.Data)
			} else if p.m.Reliable {
				p.from.replica.SnapshotFailed(p.m.To)
			}
		}
		for _, n := range w.nodes {
			if n.up && w.now >= n.tickAt {
				n.tickAt += int64(w.interval)
				for _, m := range n.replica.Tick(n.table.DrainDirty(w.now), w.now) {
					to := w.home[m.To]
					w.inFlight = append(w.inFlight, inFlight{n, to, to.boot, m})
				}
			}
		}
	}
}

// deliver hands a message to whoever runs at the place now.
func (w *fakeNet) deliver(to *fakeNode, data []byte) {
	if !to.up {
		return
	}
	w.received = append(w.received, data)
	if err := to.replica.Receive(slices.Clone(data), w.now); err != nil {
		w.t.Errorf("node %d: %v", to.place, err)
	}
}

// cutAll cuts every way from one of the nodes to another, or all that lead to one place.
func (w *fakeNet) cutAll(to ...int) {
	for a := range w.nodes {
		for b := range w.nodes {
			if len(to) == 0 || b == to[0] {
				w.cuts[[2]int{a, b}] = true
			}
		}
	}
}

func (w *fakeNet) heal() { clear(w.cuts) }

// agree reports whether all that run hold the same slots.
func (w *fakeNet) agree() bool {
	type slot struct {
		rule   string
		key    counters.Key
		index  int64
		origin counters.Origin
		birth  uint32
	}
	var first map[slot]uint64
	for _, n := range w.nodes {
		if !n.up {
			continue
		}
		slots := make(map[slot]uint64)
		for _, s := range n.table.Snapshot(w.now, math.MaxInt) {
			slots[slot{s.Meter.Rule, s.Key, s.Index, s.Origin, s.Birth}] = s.Count
		}
		if first == nil {
			first = slots
		}
		if len(slots) != len(first) {
			return false
		}
		for id, count := range slots {
			if first[id] != count {
				return false
			}
		}
	}
	return true
}

// agreed runs the network until all nodes count the same, and returns how long that took.
func (w *fakeNet) agreed(t *testing.T, within time.Duration) time.Duration {
	t.Helper()
	for d := time.Duration(0); d <= within; d += 2 * netDelay {
		if w.agree() {
			return d
		}
		w.run(2 * netDelay)
	}
	t.Fatalf("no agreement within %v", within)
	return 0
}

// wantViews checks what every node counts for key 1 of the long limit.
func (w *fakeNet) wantViews(t *testing.T, want uint64) {
	t.Helper()
	for _, n := range w.nodes {
		if got := n.table.View(w.limits[1], 1, w.now); n.up && got != want {
			t.Errorf("node %d counts %d, want %d", n.place, got, want)
		}
	}
}

// checkRest checks that once everything has arrived, nobody sends anything again, nor remembers what needs no
// remembering.
func (w *fakeNet) checkRest() {
	w.t.Helper()
	for _, n := range w.nodes {
		if !n.up {
			continue
		}
		for o, p := range n.replica.peers {
			if p.acked.cumulative != n.replica.log.last() || len(p.resent) > 0 {
				w.t.Errorf("node %d: %x acknowledged %d of %d ticks, %d of them are being repaired",
					n.place, uint64(o), p.acked.cumulative, n.replica.log.last(), len(p.resent))
			}
		}
		for o, h := range n.replica.inbound {
			if to := w.home[o]; len(h.beyond) > 0 && to.up && to.origin == o {
				w.t.Errorf("node %d waits for ticks of %x beyond %d", n.place, uint64(o), h.cumulative)
			}
		}
		for _, p := range n.replica.Peers(w.now) {
			to, maxAge := w.home[p.Origin], idleBeacon+2*w.interval+2*time.Second
			if to.up && to.origin == p.Origin && p.Age > maxAge {
				w.t.Errorf("node %d knows %x as it was %v ago, which is more than %v", n.place, uint64(p.Origin), p.Age,
					maxAge)
			}
		}
	}
}
