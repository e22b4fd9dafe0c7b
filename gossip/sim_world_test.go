package gossip

import (
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math/rand/v2"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// The simulated world: replicas with real tables, on virtual time, in one goroutine. All that happens follows from the seed.

// world is what a seed makes of the replicas.
type world struct {
	seed      uint64
	rand      *rand.Rand
	now       int64
	queue     events
	scheduled int
	interval  time.Duration
	limits    []*counters.Limit
	keys      int
	rate      float64 // requests per second and node; 0: traffic has stopped

	nodes    []*simNode
	boots    int
	home     map[counters.Origin]int // where an origin lives or lived
	weather  weather
	calmed   bool // the faults are over
	sabotage sabotage

	truth     truth
	thorough  bool // look at every table after every event, not now and then
	crashes   int
	trace     hash.Hash
	messages  int
	delivered []delivered
	wrong     map[string]error // the first violation of each invariant
}

// sabotage is what the tests of the checker break on purpose.
type sabotage struct {
	counts  func(*counters.Table) Counts        // stands before each table
	swallow func(to *simNode, data []byte) bool // a message on its way
	left    func(n *simNode)                    // follows when a member has left
}

// simNode is a place where one boot of a node after the other runs.
type simNode struct {
	place   int
	up      bool
	boot    int
	origin  counters.Origin
	skew    int64
	table   *counters.Table
	counts  Counts
	replica *Replica
	members map[counters.Origin]bool
	seen    map[slotID]uint64 // what its table held when it was looked at last
}

// delivered is a message that reached a node, to be replayed.
type delivered struct {
	to, boot int
	data     []byte
}

const second = int64(time.Second)

// newWorld draws a world: its size, pace, traffic, weather and clocks.
func newWorld(seed uint64, s sabotage) *world {
	r := rand.New(rand.NewPCG(seed, 0x676f73736970))
	pace := []time.Duration{50, 100, 100, 100, 100, 200, 200, 1000}[r.IntN(8)] * time.Millisecond
	w := emptyWorld(r, pace)
	w.seed, w.sabotage, w.thorough = seed, s, seed%25 == 0
	w.keys = 2 + r.IntN(3)
	w.rate = 0.5 + 6*r.Float64()
	w.weather = newWeather(r)
	skew := int64(r.IntN(2)) * 100e6 // in half of the worlds the clocks differ
	w.populate(3+r.IntN(5), skew)
	return w
}

// emptyWorld has no nodes, no traffic and perfect weather.
func emptyWorld(r *rand.Rand, interval time.Duration) *world {
	w := &world{
		rand: r, interval: interval, keys: 1,
		now:     1_800_000_000*second + r.Int64N(60*second),
		weather: weather{cuts: make(map[way]int)},
		home:    make(map[counters.Origin]int),
		truth:   make(truth),
		trace:   sha256.New(),
		wrong:   make(map[string]error),
	}
	for i, window := range []time.Duration{10 * time.Second, time.Minute} {
		m := counters.NewMeter(fmt.Sprintf("edge/%d", i), counters.SlidingWindow, window)
		l, err := counters.NewLimit(m, uint64(20+r.IntN(2000)))
		if err != nil {
			panic(err)
		}
		w.limits = append(w.limits, l)
	}
	return w
}

// populate starts nodes that know each other, with clocks that differ by at most skew.
func (w *world) populate(nodes int, skew int64) {
	for place := range nodes {
		n := &simNode{place: place}
		if skew > 0 {
			n.skew = w.rand.Int64N(skew) - skew/2
		}
		w.nodes = append(w.nodes, n)
		w.start(n)
	}
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			w.join(a, b.origin)
		}
	}
}

// start boots a node: a new origin, an empty table, nobody known.
func (w *world) start(n *simNode) {
	w.boots++
	n.boot, n.up = w.boots, true
	n.origin = NewOrigin(fmt.Sprint("node-", n.place), uint64(w.boots))
	n.table = counters.NewTable(counters.Config{Origin: n.origin, Memory: counters.MinMemory})
	n.counts = n.table
	if w.sabotage.counts != nil {
		n.counts = w.sabotage.counts(n.table)
	}
	n.replica = NewReplica(n.origin, w.interval, n.counts)
	n.members = make(map[counters.Origin]bool)
	n.seen = make(map[slotID]uint64)
	w.home[n.origin] = n.place
	w.tickLater(n, time.Duration(w.rand.Int64N(int64(w.interval))))
	w.requestLater(n)
}

// join tells a node of a member: of one that is down only while faults last.
func (w *world) join(n *simNode, o counters.Origin) {
	if n.up && o != n.origin && (!w.calmed || w.isUp(o)) {
		n.members[o] = true
		n.replica.Join(o, n.clock(w))
	}
}

func (w *world) leave(n *simNode, o counters.Origin, graceful bool) {
	if n.up {
		delete(n.members, o)
		n.replica.Leave(o, graceful)
		if w.sabotage.left != nil {
			w.sabotage.left(n)
		}
	}
}

func (n *simNode) clock(w *world) int64 { return w.now + n.skew }

// tickLater schedules the node's next interval. Now and then a node is late, as when its process was not scheduled.
func (w *world) tickLater(n *simNode, in time.Duration) {
	boot := n.boot
	w.after(in, func() {
		if !n.up || n.boot != boot {
			return
		}
		w.tick(n)
		next := w.interval
		if w.rand.IntN(50) == 0 {
			next += time.Duration(w.rand.Int64N(int64(w.interval)))
		}
		w.tickLater(n, next)
	})
}

func (w *world) tick(n *simNode) {
	now := n.clock(w)
	for _, m := range n.replica.Tick(n.table.DrainDirty(now), now) {
		w.send(n, m)
	}
	if w.thorough || w.rand.IntN(4) == 0 {
		w.checkViews(n)
	}
	if w.thorough || w.rand.IntN(16) == 0 {
		w.checkSlots(n)
	}
}

// requestLater schedules the node's next request: at random, as many clients make them.
func (w *world) requestLater(n *simNode) {
	if w.rate == 0 {
		return
	}
	boot := n.boot
	w.after(time.Duration(w.rand.ExpFloat64()/w.rate*float64(time.Second)), func() {
		if n.up && n.boot == boot && w.rate > 0 {
			w.request(n)
			w.requestLater(n)
		}
	})
}

// request takes from one limit or from all of them at once.
func (w *world) request(n *simNode) {
	key, cost := counters.Key(1+w.rand.IntN(w.keys)), uint64(1+w.rand.IntN(3))
	if w.rand.IntN(3) == 0 {
		w.take(n, key, cost, w.limits...)
	} else {
		w.take(n, key, cost, w.limits[w.rand.IntN(len(w.limits))])
	}
}

// take makes a request and enters in the books what was admitted.
func (w *world) take(n *simNode, key counters.Key, cost uint64, limits ...*counters.Limit) {
	var charges []counters.Charge
	for _, l := range limits {
		charges = append(charges, counters.Charge{Limit: l, Key: key, Cost: cost})
	}
	decisions := n.table.TakeAll(charges, n.clock(w), nil)
	if decisions[counters.Governing(decisions)].Allowed {
		for _, l := range limits {
			w.truth.admit(l, key, cost, n.clock(w))
		}
	}
}

// send lets a message go into the weather.
func (w *world) send(n *simNode, m Message) {
	w.note(n, m)
	to := w.nodes[w.home[m.To]]
	if !m.Reliable {
		for _, delay := range w.weather.packet(w.rand, n.place, to.place) {
			w.after(delay, func() {
				if !w.weather.cut(n.place, to.place) {
					w.deliver(to, m.Data)
				}
			})
		}
		return
	}
	delay, ok := w.weather.stream(w.rand, n.place, to.place)
	if !ok {
		return
	}
	boot := to.boot
	w.after(delay, func() {
		broken := w.weather.cut(n.place, to.place) || w.weather.cut(to.place, n.place)
		if !broken && to.boot == boot {
			w.deliver(to, m.Data)
		}
	})
}

// note enters a message in the trace.
func (w *world) note(n *simNode, m Message) {
	var b [32]byte
	binary.LittleEndian.PutUint64(b[0:], uint64(w.now))
	binary.LittleEndian.PutUint64(b[8:], uint64(n.origin))
	binary.LittleEndian.PutUint64(b[16:], uint64(m.To))
	binary.LittleEndian.PutUint64(b[24:], uint64(len(m.Data)))
	w.trace.Write(b[:])
	w.trace.Write(m.Data)
	w.messages++
	if !m.Reliable && len(m.Data) > MaxFrame {
		w.violate("size", "a packet of %d bytes, at most %d are allowed", len(m.Data), MaxFrame)
	}
	if !n.members[m.To] {
		w.violate("membership", "node %d sends to %x, which is no member", n.place, uint64(m.To))
	}
}

// deliver hands a message to whoever runs at the place now: packets know addresses, not boots.
func (w *world) deliver(to *simNode, data []byte) {
	if !to.up || w.sabotage.swallow != nil && w.sabotage.swallow(to, data) {
		return
	}
	w.delivered = append(w.delivered, delivered{to.place, to.boot, data})
	w.receive(to, data)
}

func (w *world) receive(to *simNode, data []byte) {
	b := append([]byte(nil), data...)
	if err := to.replica.Receive(b, to.clock(w)); err != nil {
		w.violate("decoding", "node %d: %w", to.place, err)
	}
	for i := range b {
		b[i] = 0xc1 // the packet's buffer is used again
	}
	if w.thorough {
		w.checkSlots(to)
	}
}

// pushPull is what memberlist does now and then between two of its members: each tells the other all it knows.
func (w *world) pushPull(a, b *simNode) {
	if a == b || !a.up || !b.up || w.weather.cut(a.place, b.place) || w.weather.cut(b.place, a.place) {
		return
	}
	fromA, fromB := a.replica.Snapshot(a.clock(w)), b.replica.Snapshot(b.clock(w))
	w.deliver(b, fromA)
	w.deliver(a, fromB)
}

// up returns the nodes that run.
func (w *world) up() []*simNode {
	var up []*simNode
	for _, n := range w.nodes {
		if n.up {
			up = append(up, n)
		}
	}
	return up
}

// run lets the world go on for so long.
func (w *world) run(d time.Duration) {
	end := w.now + int64(d)
	for len(w.queue) > 0 && w.queue[0].at <= end {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.happen()
	}
	w.now = end
}

// runToHalf lets the world go on to the middle of a second, where all clocks agree on the sub-window.
func (w *world) runToHalf() { w.run(time.Duration(second - (w.now+second/2)%second)) }

func (w *world) after(d time.Duration, happen func()) {
	w.scheduled++
	heap.Push(&w.queue, event{w.now + int64(d), w.scheduled, happen})
}

// event is something that will happen; those of one moment happen in the order in which they were scheduled.
type event struct {
	at     int64
	number int
	happen func()
}

// events is a heap of events, the next one first.
type events []event

func (q events) Len() int      { return len(q) }
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(e any)   { *q = append(*q, e.(event)) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].number < q[j].number
}

func (q *events) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	*q = (*q)[:last]
	return e
}
