package sim

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"time"
)

// event is something that will happen to a node: kind says what. The order of two events at one moment is that in which
// they were scheduled.
type event struct {
	kind eventKind
	node int32
	from int32  // who sent a message
	boot int32  // of the node that it is for; 0: of any
	data []byte // a message
	do   func() // what is rare
}

type eventKind uint8

const (
	call eventKind = iota
	tick
	audit
	flush
	earlyFlush
	resume
	packet
	stream
)

// queue is the events to come. What is moved about in its heap is small; events wait in slots that are used again.
type queue struct {
	heap  []entry
	slots []event
	free  []int32
	count uint64
}

type entry struct {
	at     int64
	number uint64
	slot   int32
}

func (e entry) before(f entry) bool { return e.at < f.at || e.at == f.at && e.number < f.number }

func (q *queue) push(at int64, e event) {
	var slot int32
	if n := len(q.free); n > 0 {
		slot = q.free[n-1]
		q.free = q.free[:n-1]
		q.slots[slot] = e
	} else {
		slot = int32(len(q.slots))
		q.slots = append(q.slots, e)
	}
	q.count++
	x := entry{at, q.count, slot}
	q.heap = append(q.heap, x)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !x.before(q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = x
}

// next is when the next event happens; ok is false if there is none.
func (q *queue) next() (at int64, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

func (q *queue) pop() event {
	slot := q.heap[0].slot
	last := len(q.heap) - 1
	x := q.heap[last]
	q.heap = q.heap[:last]
	for i := 0; i < last; {
		least := 4*i + 1
		if least >= last {
			q.heap[i] = x
			break
		}
		for c := least + 1; c < min(4*i+5, last); c++ {
			if q.heap[c].before(q.heap[least]) {
				least = c
			}
		}
		if !q.heap[least].before(x) {
			q.heap[i] = x
			break
		}
		q.heap[i] = q.heap[least]
		i = least
	}
	e := q.slots[slot]
	q.slots[slot] = event{}
	q.free = append(q.free, slot)
	return e
}

// process is what a node does that takes simulated time. Where it sleeps, the world goes on; it is a coroutine, so that
// one thing happens after the other all the same. A node has one at a time.
type process struct {
	yield func(time.Duration) bool
	next  func() (time.Duration, bool)
	stop  func() // ends it, where it sleeps
}

// sleep lets time pass. It returns false if the node is gone by then.
func (p *process) sleep(d time.Duration) bool { return p.yield(d) }

// spawn starts a process of the node.
func (c *cluster) spawn(n *node, do func()) {
	n.next, n.stop = iter.Pull(func(yield func(time.Duration) bool) {
		n.yield = yield
		do()
	})
	c.resume(n)
}

// resume lets the node's process go on until it sleeps or ends.
func (c *cluster) resume(n *node) {
	if d, ok := n.next(); ok {
		c.later(d, event{kind: resume, node: int32(n.place), boot: n.boot})
	}
}

// close ends what sleeps.
func (c *cluster) close() {
	for _, n := range c.nodes {
		if n.stop != nil {
			n.stop()
		}
	}
}

// concern is what something random is drawn for. Each has a stream of its own.
type concern uint64

const (
	drawGaps concern = 1 + iota
	drawClients
	drawPlaces
	drawHotspot
	drawStart
	drawPhases
	drawSkew
	drawLoss
	drawDuplicate
	drawReorder
	drawDelay
	drawStreams
	drawMembership
	drawFlush
	drawCompliant
	drawRecord
	drawStore // of region r: drawStore + r<<32
)

func (o *Options) stream(c concern) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, uint64(c))) }

// chance reports true with the probability p. It draws nothing where that is certain.
func chance(r *rand.Rand, p float64) bool { return p > 0 && r.Float64() < p }

// digest folds all events of a run into a number: two runs with the same one went the same way.
type digest uint64

func (d *digest) add(words ...uint64) {
	h := uint64(*d)
	for _, w := range words {
		h = (h ^ w) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	*d = digest(h)
}

func (d *digest) addBytes(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		d.add(binary.LittleEndian.Uint64(b))
	}
	last := uint64(len(b))
	for _, c := range b {
		last = last<<8 | uint64(c)
	}
	d.add(last)
}
