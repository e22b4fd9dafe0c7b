package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

const (
	healsWithin   = time.Minute
	settlesWithin = 20 * time.Second // after the last request and the last fault; a rejoin may be among it
	lookEvery     = 10 * time.Millisecond

	never time.Duration = -1
)

// awaitHeal notes how long after its end, which is now, every node knows all of every other again: where owners add up,
// every node that is observed, of what it is asked for.
func (c *cluster) awaitHeal(partition int) {
	ended := c.now
	var look func()
	look = func() {
		switch {
		case c.opt.hasOwners() && c.knowsAll(ended), !c.opt.hasOwners() && c.knownSince(ended):
			c.heals[partition] = time.Duration(c.now - ended)
		case c.now < ended+int64(healsWithin):
			c.after(lookEvery, look)
		}
	}
	look()
}

// up is the nodes that run.
func (c *cluster) up() []*node {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return !n.up })
}

// knownSince reports whether every node knows of every other one all that it had at a time.
func (c *cluster) knownSince(since int64) bool {
	up := c.up()
	for _, n := range up {
		known := 0
		for _, p := range n.replica.Peers(c.clock(n)) {
			other := c.home[p.Origin]
			if !other.up || other.origin != p.Origin {
				continue
			}
			if known++; !p.Member || p.CompleteThrough < since+other.skew {
				return false
			}
		}
		if known != len(up)-1 {
			return false
		}
	}
	return true
}

// healed is when the last partition has ended.
func (c *cluster) healed() int64 {
	healed := c.startAt
	for _, p := range c.opt.Partitions {
		healed = max(healed, c.startAt+int64(p.Until))
	}
	return healed
}

// faultsEnd is when the last request has come and the last fault has ended.
func (c *cluster) faultsEnd() int64 {
	end := max(c.endAt, c.healed(), c.startAt+int64(c.opt.faultsOfNodes()))
	for _, f := range c.opt.StoreFaults {
		end = max(end, c.startAt+int64(f.Until))
	}
	return end
}

// settle lets the world go on without requests until all nodes agree, and returns how long after the last one that was,
// or never. Nodes whose counts have all left the window agree.
func (c *cluster) settle() time.Duration {
	quiet := c.faultsEnd()
	c.runTo(quiet)
	agree := c.agreement()
	for c.now < quiet+int64(settlesWithin) {
		if agree() {
			return time.Duration(c.now - c.endAt)
		}
		c.runTo(c.now + int64(lookEvery))
	}
	return never
}

// agreement returns a function that reports whether all nodes agree on what was admitted until now.
func (c *cluster) agreement() func() bool {
	if c.opt.hasOwners() {
		return c.viewAgreement()
	}
	return c.slotsAgree
}

// slotsAgree reports whether all nodes hold the same counts of those origins that live. Where clocks differ, it is
// about the sub-windows that are in the window of all.
func (c *cluster) slotsAgree() bool {
	meter, up, oldest := c.limit.Meter(), c.up(), int64(0)
	for _, n := range up {
		oldest = max(oldest, meter.Index(c.clock(n))-int64(meter.SubWindows()))
	}
	first := c.held(up[0], oldest)
	return !slices.ContainsFunc(up[1:], func(n *node) bool { return c.held(n, oldest) != first })
}

// viewAgreement returns a function that reports whether all nodes that counted a client in the window see no less of it
// than all that live counted until now; and the same, where none crashed. What a member counted that crashed before the
// owner did is known to those whom that owner sent sums.
func (c *cluster) viewAgreement() func() bool {
	truth, up := newTable(&c.opt, 0, c.opt.Total()), c.up()
	for _, n := range up {
		truth.Merge(n.table.Own(c.clock(n)), c.now)
	}
	lagging := make([]*node, len(c.keys)) // by client: who disagreed last, and so is asked first
	return func() bool {
		for i, key := range c.keys {
			want, first, asked := truth.View(c.limit, key, c.now), uint64(0), up
			if n := lagging[i]; n != nil {
				asked = append([]*node{n}, up...)
			}
			for _, n := range asked {
				if !c.hasCounted(n, key) {
					continue
				}
				view := n.table.View(c.limit, key, c.now)
				if first = cmp.Or(first, view); view < want || view != first && !c.anyCrashed {
					lagging[i] = n
					return false
				}
			}
		}
		return true
	}
}

// hasCounted reports whether the node itself counted a client in the window.
func (c *cluster) hasCounted(n *node, key counters.Key) bool {
	return slices.ContainsFunc(n.table.Slots(c.limit, key, c.now),
		func(s counters.Slot) bool { return s.Origin == n.origin && s.Count > 0 })
}

// held folds the counts that a node holds into a number that does not depend on their order.
func (c *cluster) held(n *node, from int64) (sum uint64) {
	for _, s := range n.table.Snapshot(c.clock(n), 1<<40) {
		if h := c.home[s.Origin]; s.Index >= from && h.up && h.origin == s.Origin {
			var d digest
			d.add(uint64(s.Key), uint64(s.Index), uint64(s.Origin), uint64(s.Birth), s.Count)
			sum += uint64(d)
		}
	}
	return sum
}
