package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// network is what happens to messages on their way between regions.
type network struct {
	opt     *Options
	blocked [][]int   // [from][to]: how many partitions are in force
	lost    [][]int64 // [from][to]: since when the two cannot reach each other by any way; 0: they can

	loss, twice, held, delays, streams *rand.Rand
}

const (
	heldBack    = time.Second            // the most that a packet that is overtaken is held back
	retransmits = 200 * time.Millisecond // what a lost packet costs a stream
)

func newNetwork(o *Options) *network {
	n := &network{
		opt: o, loss: o.stream(drawLoss), twice: o.stream(drawDuplicate), held: o.stream(drawReorder),
		delays: o.stream(drawDelay), streams: o.stream(drawStreams),
	}
	for range o.Regions {
		n.blocked, n.lost = append(n.blocked, make([]int, o.Regions)), append(n.lost, make([]int64, o.Regions))
	}
	return n
}

func (n *network) blocks(from, to int) bool { return n.blocked[from][to] > 0 }

// both reports whether frames pass between two regions in both directions.
func (n *network) both(a, b int) bool { return !n.blocks(a, b) && !n.blocks(b, a) }

// reach reports whether two regions can see that the other is alive: memberlist asks third parties to try as well.
func (n *network) reach(a, b int) bool {
	for c := range n.blocked {
		if n.both(a, c) && n.both(c, b) {
			return true
		}
	}
	return false
}

func (n *network) delay(from, to int, r *rand.Rand) int64 {
	d := n.opt.WANDelay
	if from == to {
		d = n.opt.LANDelay
	}
	return int64(float64(d) * (1 + n.opt.Jitter*(2*r.Float64()-1)))
}

// packet calls arrives for each copy of a packet, with how long it is under way.
func (n *network) packet(from, to int, arrives func(after int64)) {
	delay := n.delay(from, to, n.delays)
	if n.blocks(from, to) || chance(n.loss, n.opt.Loss) {
		return
	}
	if chance(n.held, n.opt.Reorder) {
		delay += n.held.Int64N(int64(heldBack))
	}
	arrives(delay)
	if chance(n.twice, n.opt.Duplicate) {
		arrives(delay + n.twice.Int64N(int64(heldBack)))
	}
}

// stream is how long a message takes over a stream that is opened for it, and whether it can be: a handshake, and what
// was lost again.
func (n *network) stream(from, to int) (time int64, ok bool) {
	for range 3 {
		time += n.delay(from, to, n.streams)
		for chance(n.streams, min(n.opt.Loss, 0.5)) {
			time += int64(retransmits)
		}
	}
	return time, n.both(from, to)
}

// The model of memberlist and of the rejoin loop around it.

const (
	lanProbe, wanProbe         = time.Second, 5 * time.Second // memberlist's ProbeInterval
	lanSuspicion, wanSuspicion = 4, 6                         // its SuspicionMult
	rejoinEvery                = 10 * time.Second             // gossip's rejoin loop
	spreadsWithin              = 2 * time.Second              // news of a member
)

// failureTimeout is how long a member has to be out of reach until it counts as failed: a probe, and the suspicion
// after it, which others confirm. Where owners add up, only gateways are in the pool of all regions.
func (c *cluster) failureTimeout(sameRegion bool) time.Duration {
	scale := func(members int) float64 { return max(1, math.Log10(float64(members))) }
	if sameRegion {
		return lanProbe + time.Duration(lanSuspicion*scale(c.opt.Nodes)*float64(lanProbe))
	}
	wan := c.opt.Total()
	if c.opt.hasOwners() {
		wan = c.opt.Regions * min(gatewaysPerRegion, c.opt.Nodes)
	}
	return wanProbe + time.Duration(wanSuspicion*scale(wan)*float64(wanProbe))
}

// join makes two nodes members of each other.
func (c *cluster) join(a, b *node) {
	if a == b || !a.up || !b.up || !c.net.reach(a.region, b.region) || c.apart(a, b) {
		return
	}
	c.addMember(a, b.origin)
	c.addMember(b, a.origin)
	a.met[b.region], b.met[a.region] = true, true
}

// addMember has a node learn of another one, whose earlier boots are over then.
func (c *cluster) addMember(n *node, o counters.Origin) {
	for _, earlier := range c.home[o].earlier {
		if n.members[earlier] {
			c.leave(n, earlier, true)
		}
	}
	n.members[o] = true
	n.replica.Join(o, c.clock(n))
	n.replica.Describe(o, c.home[o].describes)
}

func (c *cluster) leave(n *node, o counters.Origin, graceful bool) {
	delete(n.members, o)
	n.replica.Leave(o, graceful)
}

// blind reports whether there is a region of which the node has met nobody since it started: seeds that do not answer;
// see gossip.Cluster.Audit.
func (c *cluster) blind(n *node) bool {
	for region, met := range n.met {
		if !met && (region != n.region || c.opt.Nodes > 1) {
			return true
		}
	}
	return false
}

// joinAll has a node meet all others, within a time.
func (c *cluster) joinAll(n *node, within time.Duration) {
	for _, other := range c.nodes {
		c.joinLater(n, other, time.Duration(c.members.Int64N(int64(within))))
	}
}

func (c *cluster) joinLater(a, b *node, in time.Duration) {
	bootA, bootB := a.boot, b.boot
	c.after(in, func() {
		if a.boot == bootA && b.boot == bootB {
			c.join(a, b)
		}
	})
}

// failLater has the others give a node up that is gone or stands still, if it goes on like that.
func (c *cluster) failLater(n *node) {
	boot, origin := n.boot, n.origin
	for _, other := range c.nodes {
		c.after(c.noticedAfter(n, other), func() {
			gone := n.boot != boot || !n.up || n.paused(c.now)
			if gone && other.up && other != n && !c.apart(n, other) && other.members[origin] {
				c.leave(other, origin, false)
			}
		})
	}
}

// noticedAfter is how long after a node fails another one gives it up. Where owners add up, members of other regions
// learn it from gateways of the region.
func (c *cluster) noticedAfter(failed, by *node) time.Duration {
	if near := failed.region == by.region; near || !c.opt.hasOwners() {
		return c.failureTimeout(near)
	}
	return c.failureTimeout(true) + time.Duration(c.members.Int64N(int64(spreadsWithin)))
}

// partition begins or ends a partition.
func (c *cluster) partition(p Partition, change int) {
	for a := range c.net.blocked {
		for b := range c.net.blocked {
			if p.blocks(a, b) {
				c.net.blocked[a][b] += change
			}
		}
	}
	for a := range c.net.lost {
		for b := range a {
			lost := c.net.lost[a][b] != 0
			switch reach := c.net.reach(a, b); {
			case !reach && !lost:
				c.failRegions(a, b)
			case reach && lost:
				c.rejoinRegions(a, b)
			}
		}
	}
}

// partitioned reports whether a partition is in force.
func (c *cluster) partitioned() bool {
	return slices.ContainsFunc(c.opt.Partitions, func(p Partition) bool {
		return c.now >= c.startAt+int64(p.From) && c.now < c.startAt+int64(p.Until)
	})
}

// failRegions has the nodes of two regions give each other up, if they stay out of reach for long enough.
func (c *cluster) failRegions(a, b int) {
	c.net.lost[a][b] = c.now
	since := c.now
	c.after(c.failureTimeout(false), func() {
		if c.net.lost[a][b] == since {
			c.eachPair(a, b, func(x, y *node) {
				c.leave(x, y.origin, false)
				c.leave(y, x.origin, false)
			})
		}
	})
}

// rejoinRegions has the nodes of two regions find each other again where they gave each other up, or never met because
// one started in the meantime: one of them tries first, and its news spreads. Those that did not lose each other stay
// as they are.
func (c *cluster) rejoinRegions(a, b int) {
	c.net.lost[a][b] = 0
	own := make(map[*node]time.Duration)
	first := rejoinEvery
	for _, n := range c.nodes {
		if n.region == a || n.region == b {
			own[n] = time.Duration(c.members.Int64N(int64(rejoinEvery)))
			first = min(first, own[n])
		}
	}
	c.eachPair(a, b, func(x, y *node) {
		spread := first + time.Duration(c.members.Int64N(int64(spreadsWithin)))
		c.joinLater(x, y, min(own[x], own[y], spread))
	})
}

func (c *cluster) eachPair(a, b int, f func(x, y *node)) {
	for _, x := range c.up() {
		for _, y := range c.up() {
			if x.region == a && y.region == b {
				f(x, y)
			}
		}
	}
}
