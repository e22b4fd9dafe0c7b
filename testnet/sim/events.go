package sim

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"time"
)

// event is something that will happen to a node: kind says what.
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

// queue is the events to come: a heap of where they wait, with four children to an entry. What happened gives its place
// to another event.
type queue struct {
	heap   []waiting
	events []event
	free   []int32 // places in events
	count  uint64
}

// waiting is when an event happens, and its place.
type waiting struct {
	at     int64
	number uint64 // events at one moment happen in the order in which they were scheduled
	place  int32
}

func (w *waiting) before(other *waiting) bool {
	return w.at < other.at || w.at == other.at && w.number < other.number
}

const children = 4

func (q *queue) push(at int64, e event) {
	q.count++
	w := waiting{at, q.count, int32(len(q.events))}
	if last := len(q.free) - 1; last >= 0 {
		w.place, q.free = q.free[last], q.free[:last]
		q.events[w.place] = e
	} else {
		q.events = append(q.events, e)
	}
	q.heap = append(q.heap, w)
	i := len(q.heap) - 1
	for i > 0 && w.before(&q.heap[(i-1)/children]) {
		q.heap[i] = q.heap[(i-1)/children]
		i = (i - 1) / children
	}
	q.heap[i] = w
}

// pop returns the next event, and when it happens. There must be one.
func (q *queue) pop() (at int64, e event) {
	first, last := q.heap[0], len(q.heap)-1
	w := q.heap[last]
	q.heap = q.heap[:last]
	if last > 0 {
		q.sink(w)
	}
	e = q.events[first.place]
	q.events[first.place] = event{} // it may hold a message
	q.free = append(q.free, first.place)
	return first.at, e
}

// sink puts an entry into the place of the first.
func (q *queue) sink(w waiting) {
	i := 0
	for {
		least, end := &w, min(children*i+children+1, len(q.heap))
		next := i
		for child := children*i + 1; child < end; child++ {
			if q.heap[child].before(least) {
				least, next = &q.heap[child], child
			}
		}
		if next == i {
			break
		}
		q.heap[i] = *least
		i = next
	}
	q.heap[i] = w
}

// next is when the next event happens; ok is false if there is none.
func (q *queue) next() (at int64, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
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
	drawKeys
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
