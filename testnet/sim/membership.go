package sim

import (
	"math"
	"slices"
	"time"
)

// The model of memberlist and of the rejoin loop around it. All here is of the nodes' replicas: who is told of whom.

const (
	lanProbe, wanProbe         = time.Second, 5 * time.Second // memberlist's ProbeInterval
	lanSuspicion, wanSuspicion = 4, 6                         // its SuspicionMult
	rejoinEvery                = 10 * time.Second             // gossip's rejoin loop
	spreadsWithin              = 2 * time.Second              // news of a member
)

// givesUp is how long a member has to be out of reach until it counts as failed: a probe, and the suspicion after it, which others confirm.
func (w *world) givesUp(sameRegion bool) time.Duration {
	scale := func(members int) float64 { return max(1, math.Log10(float64(members))) }
	if sameRegion {
		return lanProbe + time.Duration(lanSuspicion*scale(w.opt.Nodes)*float64(lanProbe))
	}
	return wanProbe + time.Duration(wanSuspicion*scale(w.opt.Total())*float64(wanProbe))
}

// meet makes two nodes members of each other.
func (w *world) meet(a, b *node) {
	if a == b || !a.up || !b.up || !w.net.reach(a.region, b.region) {
		return
	}
	a.replica.Join(b.origin, w.clock(a))
	b.replica.Join(a.origin, w.clock(b))
	a.met[b.region], b.met[a.region] = true, true
}

// blind reports whether there is a region of which the node has met nobody since it started: seeds that do not answer; see
// gossip.Cluster.Audit.
func (w *world) blind(n *node) bool {
	for region, met := range n.met {
		if !met && (region != n.region || w.opt.Nodes > 1) {
			return true
		}
	}
	return false
}

// meetAll has a node meet all others, within a time.
func (w *world) meetAll(n *node, within time.Duration) {
	for _, other := range w.nodes {
		w.meetLater(n, other, time.Duration(w.members.Int64N(int64(within))))
	}
}

func (w *world) meetLater(a, b *node, in time.Duration) {
	bootA, bootB := a.boot, b.boot
	w.after(in, func() {
		if a.boot == bootA && b.boot == bootB {
			w.meet(a, b)
		}
	})
}

// loseNode has the others give a node up that is gone or stands still, if it goes on like that.
func (w *world) loseNode(n *node) {
	boot, origin := n.boot, n.origin
	for _, other := range w.nodes {
		if other == n {
			continue
		}
		notice := w.givesUp(other.region == n.region)
		w.after(notice, func() {
			if gone := n.boot != boot || !n.up || n.paused(w.now); gone && other.up {
				other.replica.Leave(origin, false)
			}
		})
	}
}

// partition begins or ends a partition.
func (w *world) partition(p Partition, change int) {
	w.net.set(p, change)
	for a := range w.net.lost {
		for b := range a {
			lost := w.net.lost[a][b] != 0
			switch reach := w.net.reach(a, b); {
			case !reach && !lost:
				w.loseRegions(a, b)
			case reach && lost:
				w.findRegions(a, b)
			}
		}
	}
}

// partitioned reports whether a partition is in force.
func (w *world) partitioned() bool {
	return slices.ContainsFunc(w.opt.Partitions, func(p Partition) bool {
		return w.now >= w.start0+int64(p.From) && w.now < w.start0+int64(p.Until)
	})
}

// loseRegions has the nodes of two regions give each other up, if they stay out of reach for long enough.
func (w *world) loseRegions(a, b int) {
	w.net.lost[a][b] = w.now
	since := w.now
	w.after(w.givesUp(false), func() {
		if w.net.lost[a][b] == since {
			w.eachPair(a, b, func(x, y *node) {
				x.replica.Leave(y.origin, false)
				y.replica.Leave(x.origin, false)
			})
		}
	})
}

// findRegions has the nodes of two regions find each other again where they gave each other up, or never met because one started in the
// meantime: one of them tries first, and its news spreads. Those that did not lose each other stay as they are.
func (w *world) findRegions(a, b int) {
	w.net.lost[a][b] = 0
	own := make(map[*node]time.Duration)
	first := rejoinEvery
	for _, n := range w.nodes {
		if n.region == a || n.region == b {
			own[n] = time.Duration(w.members.Int64N(int64(rejoinEvery)))
			first = min(first, own[n])
		}
	}
	w.eachPair(a, b, func(x, y *node) {
		spread := first + time.Duration(w.members.Int64N(int64(spreadsWithin)))
		w.meetLater(x, y, min(own[x], own[y], spread))
	})
}

func (w *world) eachPair(a, b int, f func(x, y *node)) {
	for _, x := range w.nodes {
		for _, y := range w.nodes {
			if x.region == a && y.region == b && x.up && y.up {
				f(x, y)
			}
		}
	}
}
