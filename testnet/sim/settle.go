package sim

import "time"

// healing is the end of a partition.
type healing struct {
	at   int64
	took time.Duration // until every node knew all of every other again; 0: not yet
}

const (
	settlesWithin = 20 * time.Second // after the last request and the last fault; a rejoin may be among it
	lookEvery     = 10 * time.Millisecond
)

// watchHeals looks whether the nodes know each other again since a partition ended.
func (w *world) watchHeals() {
	for _, h := range w.heals {
		w.after(time.Duration(h.at-w.now), func() { w.lookAtHeal(h) })
	}
}

func (w *world) lookAtHeal(h *healing) {
	switch {
	case w.knownSince(h.at):
		h.took = max(time.Duration(w.now-h.at), 1)
	case w.now < h.at+int64(healsWithin):
		w.after(lookEvery, func() { w.lookAtHeal(h) })
	}
}

const healsWithin = time.Minute

// knownSince reports whether every node knows of every other one all that it had at a time.
func (w *world) knownSince(since int64) bool {
	for _, n := range w.nodes {
		if !n.up {
			continue
		}
		known := 0
		for _, p := range n.replica.Peers(w.clock(n)) {
			other := w.home[p.Origin]
			if !other.up || other.origin != p.Origin {
				continue
			}
			if known++; !p.Member || p.AsOf < since+other.skew {
				return false
			}
		}
		if known != w.running()-1 {
			return false
		}
	}
	return true
}

func (w *world) running() (up int) {
	for _, n := range w.nodes {
		if n.up {
			up++
		}
	}
	return up
}

// healed is when the last partition has ended.
func (w *world) healed() int64 {
	healed := w.start0
	for _, p := range w.opt.Partitions {
		healed = max(healed, w.start0+int64(p.Until))
	}
	return healed
}

// calm is when the last request has come and the last fault has ended.
func (w *world) calm() int64 {
	calm := max(w.end, w.healed())
	for _, list := range [][]Outage{w.opt.Pauses, w.opt.Crashes} {
		for _, f := range list {
			calm = max(calm, w.start0+int64(f.Until))
		}
	}
	for _, f := range w.opt.StoreFaults {
		calm = max(calm, w.start0+int64(f.Until))
	}
	return calm
}

// settle lets the world go on without requests until all nodes agree, and returns how long after the last one that was; -1 if they never
// did. Nodes whose counts have all left the window agree.
func (w *world) settle() time.Duration {
	calm := w.calm()
	w.runTo(calm)
	for w.now < calm+int64(settlesWithin) {
		if w.agree() {
			return time.Duration(w.now - w.end)
		}
		w.runTo(w.now + int64(lookEvery))
	}
	return -1
}

// agree reports whether all nodes hold the same counts of those origins that live. Where clocks differ, it is about the sub-windows that
// are in the window of all.
func (w *world) agree() bool {
	var first uint64
	began := false
	from := w.oldest()
	for _, n := range w.nodes {
		if !n.up {
			continue
		}
		if sum := w.held(n, from); !began {
			first, began = sum, true
		} else if sum != first {
			return false
		}
	}
	return true
}

// oldest is the oldest sub-window that counts at every node.
func (w *world) oldest() (index int64) {
	meter := w.limit.Meter()
	for _, n := range w.nodes {
		if n.up {
			index = max(index, meter.Index(w.clock(n))-int64(meter.SubWindows()))
		}
	}
	return index
}

// held folds the counts that a node holds into a number that does not depend on their order.
func (w *world) held(n *node, from int64) (sum uint64) {
	for _, s := range n.table.Snapshot(w.clock(n), 1<<40) {
		if h := w.home[s.Origin]; s.Index >= from && h.up && h.origin == s.Origin {
			var d digest
			d.add(uint64(s.Key), uint64(s.Index), uint64(s.Origin), uint64(s.Birth), s.Count)
			sum += uint64(d)
		}
	}
	return sum
}
