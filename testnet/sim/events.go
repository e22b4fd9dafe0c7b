package sim

import (
	"container/heap"
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"time"
)

// event is something that will happen to a node: kind says what.
type event struct {
	at     int64
	number uint64 // events at one moment happen in the order in which they were scheduled
	kind   eventKind
	node   int32
	from   int32  // who sent a message
	boot   int32  // of the node that it is for; 0: of any
	data   []byte // a message
	do     func() // what is rare
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

// queue is the events to come. Its heap is container/heap's.
type queue struct {
	heap  eventHeap
	count uint64
}

func (q *queue) push(at int64, e event) {
	q.count++
	e.at, e.number = at, q.count
	heap.Push(&q.heap, &e)
}

func (q *queue) pop() *event { return heap.Pop(&q.heap).(*event) }

// next is when the next event happens; ok is false if there is none.
func (q *queue) next() (at int64, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

type eventHeap []*event

func (h eventHeap) Len() int      { return len(h) }
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(e any)   { *h = append(*h, e.(*event)) }

func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].number < h[j].number
}

func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}

// process is what a node does that takes simulated time. While it sleeps the world goes on; it is a coroutine, so that
// one thing happens after the other all the same. A node has one at a time.
type process struct {
	sleep func(time.Duration) bool // lets time pass; false if the node is gone by then
	next  func() (time.Duration, bool)
	stop  func() // ends it, where it sleeps
}

// spawn starts a process of the node.
func (c *cluster) spawn(n *node, do func()) {
	n.next, n.stop = iter.Pull(func(yield func(time.Duration) bool) {
		n.sleep = yield
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
