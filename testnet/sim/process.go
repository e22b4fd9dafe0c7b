package sim

import (
	"iter"
	"time"
)

// process is what a node does that takes simulated time. Where it sleeps, the world goes on; it is a coroutine, so that one thing happens
// after the other all the same. A node has one at a time.
type process struct {
	yield func(time.Duration) bool
	next  func() (time.Duration, bool)
	stop  func() // ends it, where it sleeps
}

// sleep lets time pass. It returns false if the node is gone by then.
func (p *process) sleep(d time.Duration) bool { return p.yield(d) }

// begin starts a process of the node.
func (w *world) begin(n *node, do func()) {
	n.next, n.stop = iter.Pull(func(yield func(time.Duration) bool) {
		n.yield = yield
		do()
	})
	w.proceed(n)
}

// proceed lets the node's process go on until it sleeps or ends.
func (w *world) proceed(n *node) {
	if d, ok := n.next(); ok {
		w.later(d, event{kind: wake, node: int32(n.place), boot: n.boot})
	}
}

// close ends what sleeps.
func (w *world) close() {
	for _, n := range w.nodes {
		if n.stop != nil {
			n.stop()
		}
	}
}
