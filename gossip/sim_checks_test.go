package gossip

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// What must hold in the simulated world, whatever happens.

// violate notes the first violation of an invariant.
func (w *world) violate(invariant, format string, args ...any) {
	if w.wrong[invariant] == nil {
		at := time.Duration(w.now % (1000 * second))
		w.wrong[invariant] = fmt.Errorf("%s, at %v: "+format, append([]any{invariant, at}, args...)...)
	}
}

// truth is what was admitted everywhere.
type truth map[admitted]uint64

type admitted struct {
	window time.Duration // the world's limits have different ones
	key    counters.Key
	index  int64
}

func (y truth) admit(l *counters.Limit, key counters.Key, cost uint64, now int64) {
	m := l.Meter()
	y[admitted{m.Window, key, m.Index(now)}] += cost
}

// view is what a node that knew everything would count in the window that ends now: the whole sub-windows, and of the oldest
// the part that still overlaps, rounded up.
func (y truth) view(l *counters.Limit, key counters.Key, now int64) uint64 {
	m := l.Meter()
	last, sub := m.Index(now), uint64(m.Sub)
	oldest := last - int64(m.SubWindows())
	var sum uint64
	for index := oldest + 1; index <= last; index++ {
		sum += y[admitted{m.Window, key, index}]
	}
	left := sub - uint64(now)%sub
	hi, lo := bits.Mul64(y[admitted{m.Window, key, oldest}], left)
	part, rest := bits.Div64(hi, lo, sub)
	if rest > 0 {
		part++
	}
	return sum + part
}

// checkViews: no view exceeds what was admitted.
func (w *world) checkViews(n *simNode) {
	now := n.clock(w)
	for _, l := range w.limits {
		for key := counters.Key(1); key <= counters.Key(w.keys); key++ {
			if seen, most := n.table.View(l, key, now), w.truth.view(l, key, now); seen > most {
				w.violate("truth", "node %d counts %d for key %d of %s, but %d were admitted", n.place, seen, key, l.Meter().Rule, most)
			}
		}
	}
}

// slotID is a slot without its count.
type slotID struct {
	limit  int // of the world's limits
	key    counters.Key
	index  int64
	origin counters.Origin
	birth  uint32
}

func (w *world) slots(n *simNode, now int64) map[slotID]uint64 {
	slots := make(map[slotID]uint64)
	for _, s := range n.counts.Snapshot(now, math.MaxInt) {
		id := slotID{w.limitOf(s.Meter), s.Key, s.Index, s.Origin, s.Birth}
		if _, twice := slots[id]; twice {
			w.violate("I2", "node %d has two counts for %+v", n.place, id)
		}
		slots[id] = s.Count
	}
	return slots
}

func (w *world) limitOf(m *counters.Meter) int {
	for i, l := range w.limits {
		if l.Meter() == *m {
			return i
		}
	}
	w.violate("meter", "a meter out of nowhere: %+v", *m)
	return -1
}

// live reports whether the slot still counts in the window that ends now.
func (w *world) live(id slotID, now int64) bool {
	m := w.limits[id.limit].Meter()
	return id.index >= m.Index(now)-int64(m.SubWindows())
}

// checkSlots (I2): no slot decreases at a node, or is lost, while it counts.
func (w *world) checkSlots(n *simNode) {
	now := n.clock(w)
	slots := w.slots(n, now)
	for id, before := range n.seen {
		if after := slots[id]; after < before && w.live(id, now) {
			w.violate("I2", "node %d: %+v fell from %d to %d", n.place, id, before, after)
		}
	}
	n.seen = slots
}

// checkAgreement (I1): every node has every slot that any of them has, of the origins given.
func (w *world) checkAgreement(of func(counters.Origin) bool) error {
	type holder struct {
		node  *simNode
		slots map[slotID]uint64
	}
	var holders []holder
	all := make(map[slotID]uint64)
	for _, n := range w.up() {
		h := holder{n, w.slots(n, w.now)}
		for id, count := range h.slots {
			all[id] = max(all[id], count)
		}
		holders = append(holders, h)
	}
	for _, h := range holders {
		for id, count := range all {
			if of(id.origin) && h.slots[id] != count {
				return fmt.Errorf("node %d: %+v is %d, elsewhere %d", h.node.place, id, h.slots[id], count)
			}
		}
	}
	return nil
}

func (w *world) isUp(o counters.Origin) bool {
	n := w.nodes[w.home[o]]
	return n.up && n.origin == o
}

func anyOrigin(counters.Origin) bool { return true }

// viewsOf returns what every node but one counts for each limit and key, now.
func (w *world) viewsOf(but *simNode) []uint64 {
	var views []uint64
	for _, n := range w.nodes {
		for _, l := range w.limits {
			for key := counters.Key(1); n != but && n.up && key <= counters.Key(w.keys); key++ {
				views = append(views, n.table.View(l, key, n.clock(w)))
			}
		}
	}
	return views
}

// checkRestart (I7): a restart decreases no other node's view.
func (w *world) checkRestart(restarted *simNode, before []uint64) {
	for i, after := range w.viewsOf(restarted) {
		if after < before[i] {
			w.violate("I7", "a view fell from %d to %d when node %d started again", before[i], after, restarted.place)
		}
	}
	for _, n := range w.up() {
		w.checkSlots(n)
	}
}

// checkComplete: where nobody crashed, nothing is lost, so that all count exactly what was admitted.
func (w *world) checkComplete() {
	if w.crashes > 0 {
		return
	}
	for _, n := range w.up() {
		for _, l := range w.limits {
			for key := counters.Key(1); key <= counters.Key(w.keys); key++ {
				if seen, want := n.table.View(l, key, w.now), w.truth.view(l, key, w.now); seen != want {
					w.violate("complete", "node %d counts %d for key %d of %s, admitted were %d", n.place, seen, key, l.Meter().Rule, want)
				}
			}
		}
	}
}

// checkRest: once everything has arrived, nobody sends anything again, and nobody remembers what needs no remembering.
func (w *world) checkRest() {
	for _, n := range w.up() {
		for o, p := range n.replica.peers {
			if p.acked.cumulative != n.replica.log.last() || len(p.resent) > 0 {
				w.violate("rest", "node %d: %x acknowledged %d of %d ticks, %d of them are being repaired",
					n.place, uint64(o), p.acked.cumulative, n.replica.log.last(), len(p.resent))
			}
		}
		for o, h := range n.replica.heard {
			if len(h.beyond) > 0 && w.isUp(o) {
				w.violate("rest", "node %d waits for ticks of %x beyond %d", n.place, uint64(o), h.cumulative)
			}
		}
		for _, p := range n.replica.Peers(n.clock(w)) {
			if most := idleBeacon + 2*w.interval + 2*time.Second; w.isUp(p.Origin) && p.Age > most {
				w.violate("rest", "node %d knows %x as it was %v ago, which is more than %v", n.place, uint64(p.Origin), p.Age, most)
			}
		}
	}
}

// checkReplays (I3): messages that come again, in any order, change nothing.
func (w *world) checkReplays() {
	var before [][]byte
	for _, n := range w.up() {
		before = append(before, n.replica.Snapshot(w.now))
	}
	for range 200 {
		d := w.delivered[w.rand.IntN(len(w.delivered))]
		to := w.nodes[d.to]
		if !to.up || to.boot != d.boot {
			continue // what only the dead knew may be news
		}
		if w.rand.IntN(4) == 0 {
			to = w.up()[w.rand.IntN(len(w.up()))] // astray
		}
		w.receive(to, d.data)
	}
	for i, n := range w.up() {
		if !bytes.Equal(before[i], n.replica.Snapshot(w.now)) {
			w.violate("I3", "node %d: replays changed what it knows", n.place)
		}
	}
}
