package gossip_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// mesh is replicas with real tables on a fake network in virtual time. It uses only what a Replica exports, so that its
// tests hold for any way to repair.
type mesh struct {
	t        testing.TB
	rand     *rand.Rand
	now      int64
	interval time.Duration
	memory   int // of a table, in bytes
	limit    *counters.Limit
	nodes    []*meshNode
	boots    uint64
	home     map[counters.Origin]*meshNode
	underWay []underWay
	cuts     map[[2]int]bool // from, to
	loss     float64         // share of the packets
	broken   bool            // no stream arrives
	admitted map[counters.Key]uint64
}

// meshNode is a place at which one boot of a node after the other runs.
type meshNode struct {
	place     int
	boot      uint64
	up        bool
	suspended bool // it does nothing, and what comes is lost
	origin    counters.Origin
	table     *counters.Table
	replica   *gossip.Replica
	tickAt    int64
	received  int // bytes
	sent      int // messages
}

type underWay struct {
	from, to *meshNode
	boot     uint64 // of the node that it is for
	m        gossip.Message
}

const (
	// meshStep is how long every message takes, and the step in which time passes.
	meshStep  = 5 * time.Millisecond
	meshStart = int64(1_800_000_000 * time.Second)
)

// newMesh returns nodes that have met. What they admit counts for all of a test.
func newMesh(t testing.TB, nodes int, interval time.Duration) *mesh {
	l, err := counters.NewLimit(counters.NewMeter("edge", counters.SlidingWindow, time.Hour), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	w := &mesh{
		t: t, rand: rand.New(rand.NewPCG(1, 1)), now: meshStart, interval: interval, memory: 16 << 20, limit: l,
		home: make(map[counters.Origin]*meshNode), cuts: make(map[[2]int]bool),
		admitted: make(map[counters.Key]uint64),
	}
	for range nodes {
		w.add()
	}
	w.run(max(2*time.Second, 3*interval))
	return w
}

// add boots one more node. It and those that run learn of each other at once.
func (w *mesh) add() *meshNode {
	n := &meshNode{place: len(w.nodes)}
	w.nodes = append(w.nodes, n)
	w.start(n)
	return n
}

func (w *mesh) start(n *meshNode) {
	w.boots++
	n.boot, n.up, n.received = w.boots, true, 0
	n.origin = gossip.NewOrigin(fmt.Sprint("node-", n.place), n.boot)
	n.table = counters.NewTable(counters.Config{Origin: n.origin, Memory: w.memory})
	n.table.Know([]*counters.Limit{w.limit})
	n.replica = gossip.NewReplica(n.origin, w.interval, n.table)
	n.tickAt = w.now + int64(w.interval)*int64(n.place%8+1)/8
	w.home[n.origin] = n
	w.meet(n, n)
	for _, other := range w.others(n) {
		w.meet(n, other)
		w.meet(other, n)
	}
}

// meet has a node learn of another one, or of itself.
func (w *mesh) meet(n, other *meshNode) {
	n.replica.Join(other.origin, w.now)
	n.replica.Describe(other.origin, gossip.Node{Region: "here", Name: fmt.Sprint("node-", other.place)})
}

// others returns those that run beside a node.
func (w *mesh) others(n *meshNode) (others []*meshNode) {
	for _, other := range w.nodes {
		if other != n && other.up {
			others = append(others, other)
		}
	}
	return others
}

// forget has all others take a node for gone.
func (w *mesh) forget(n *meshNode, graceful bool) {
	for _, other := range w.others(n) {
		other.replica.Leave(n.origin, graceful)
	}
}

// stop ends a node as its process does: it waits until all have what it admitted, says goodbye, and leaves.
func (w *mesh) stop(n *meshNode) {
	n.replica.ResendEveryTick()
	w.until(5*time.Second, "a node that stops is acknowledged", func() bool { return n.replica.FullyAcked(w.now) })
	w.post(n, n.replica.Goodbye(w.now))
	n.up = false
	w.run(2 * meshStep)
	w.forget(n, true)
}

// kill ends a node of whose last frames one other node alone gets any.
func (w *mesh) kill(n, gets *meshNode) {
	for _, m := range n.replica.Tick(n.table.DrainDirty(w.now), w.now) {
		if m.To == gets.origin {
			w.deliver(gets, m.Data)
		}
	}
	n.up = false
}

// take has a node admit a cost.
func (w *mesh) take(n *meshNode, key counters.Key, cost uint64) {
	if n.table.Take(w.limit, key, cost, w.now).Allowed {
		w.admitted[key] += cost
	}
}

// takeAll has nodes admit something of every key up to a last one.
func (w *mesh) takeAll(last counters.Key, nodes ...*meshNode) {
	for key := counters.Key(1); key <= last; key++ {
		for _, n := range nodes {
			w.take(n, key, 1+uint64(key)%5)
		}
	}
}

// run lets time pass.
func (w *mesh) run(d time.Duration) {
	for end := w.now + int64(d); w.now < end; {
		w.now += int64(meshStep)
		due := w.underWay
		w.underWay = nil
		for _, p := range due {
			w.arrive(p)
		}
		for _, n := range w.nodes {
			if n.up && !n.suspended && w.now >= n.tickAt {
				n.tickAt = max(n.tickAt+int64(w.interval), w.now)
				w.post(n, n.replica.Tick(n.table.DrainDirty(w.now), w.now))
			}
		}
	}
}

// post sends messages.
func (w *mesh) post(from *meshNode, messages []gossip.Message) {
	for _, m := range messages {
		from.sent++
		to := w.home[m.To]
		w.underWay = append(w.underWay, underWay{from, to, to.boot, m})
	}
}

// arrive ends the way of a message. A stream takes answers, too, and is of one boot; a packet is for the place.
func (w *mesh) arrive(p underWay) {
	lost := w.cuts[[2]int{p.from.place, p.to.place}]
	if p.m.Reliable {
		lost = lost || w.broken || p.boot != p.to.boot || w.cuts[[2]int{p.to.place, p.from.place}]
		if lost {
			p.from.replica.SnapshotFailed(p.m.To)
		}
	} else {
		lost = lost || w.rand.Float64() < w.loss
	}
	if !lost {
		w.deliver(p.to, p.m.Data)
	}
}

func (w *mesh) deliver(to *meshNode, data []byte) {
	if !to.up || to.suspended {
		return
	}
	to.received += len(data)
	if err := to.replica.Receive(slices.Clone(data), w.now); err != nil {
		w.t.Errorf("node %d: %v", to.place, err)
	}
}

// cutOff cuts every way from others to a node and back.
func (w *mesh) cutOff(n *meshNode) {
	for place := range w.nodes {
		w.cuts[[2]int{place, n.place}], w.cuts[[2]int{n.place, place}] = true, true
	}
}

func (w *mesh) heal() { clear(w.cuts) }

// until lets time pass until something holds, and returns how long that took.
func (w *mesh) until(within time.Duration, what string, holds func() bool) time.Duration {
	w.t.Helper()
	start := w.now
	for !holds() {
		if w.now-start >= int64(within) {
			w.t.Fatalf("%s: not within %v", what, within)
		}
		w.run(meshStep)
	}
	return time.Duration(w.now - start)
}

// knows reports whether a node counts all that was admitted.
func (w *mesh) knows(n *meshNode) bool {
	for key, want := range w.admitted {
		if n.table.View(w.limit, key, w.now) != want {
			return false
		}
	}
	return true
}

// agreed lets time pass until all that run count all that was admitted, and returns how long that took.
func (w *mesh) agreed(within time.Duration) time.Duration {
	w.t.Helper()
	return w.until(within, "all know all", func() bool {
		return !slices.ContainsFunc(w.nodes, func(n *meshNode) bool { return n.up && !w.knows(n) })
	})
}

// wantRest checks that once all know all, nobody sends more than its beacons, one a second to each other one, and what
// acknowledges.
func (w *mesh) wantRest() {
	w.t.Helper()
	before := make(map[*meshNode]int)
	for _, n := range w.nodes {
		before[n] = n.sent
	}
	const rest = 12
	w.run(rest * time.Second)
	for _, n := range w.nodes {
		if most := (rest + 1) * (len(w.others(n))); n.up && n.sent-before[n] > most {
			w.t.Errorf("node %d sends %d messages at rest, at most %d are needed", n.place, n.sent-before[n], most)
		}
	}
}
