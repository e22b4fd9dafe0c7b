package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// NodeFault is something that befalls nodes of a region, or of every region.
type NodeFault struct {
	Kind        NodeFaultKind
	Region      int // numbered from 1; 0 is every one
	From, Until time.Duration
}

// NodeFaultKind is what befalls nodes.
type NodeFaultKind string

// All of them last, from From until Until.
const (
	// OwnerDown: the owner of the first client's key ends without a word, and starts again with only what others send
	// it. Where every node sends to every other one, it is the region's first node.
	OwnerDown NodeFaultKind = "owner"
	// TwoOwners: half of the other nodes do not have that owner among their members, and so take another for it.
	TwoOwners NodeFaultKind = "two-owners"
	// GatewaysDown: the region's gateways crash, and until they start again other regions learn nothing new of its
	// members, nor it of theirs.
	GatewaysDown NodeFaultKind = "gateways"
	// Rolling: the nodes stop and start again, one after the other.
	Rolling NodeFaultKind = "rolling"
)

// NodeFaultKinds are all of them.
var NodeFaultKinds = []NodeFaultKind{OwnerDown, TwoOwners, GatewaysDown, Rolling}

// ParseNodeFault reads a fault as the command line has it, from the start of the run on:
//
//	owner/2@10s-20s      region 2 is without the owner of the first client's key from 10 s to 20 s
//	two-owners@10s-20s   half of the nodes of every region take another node for that owner
//	gateways/1@10s-20s   region 1 is without its gateways
//	rolling@10s-60s      all nodes restart, in each region one after the other
func ParseNodeFault(s string) (NodeFault, error) {
	what, from, until, lasts, problem := parseTime(s)
	kind, region, ofOne := strings.Cut(what, "/")
	f := NodeFault{Kind: NodeFaultKind(kind), From: from, Until: until}
	if ofOne {
		f.Region, _ = parseRegion(region)
	}
	switch {
	case problem != "":
	case !slices.Contains(NodeFaultKinds, f.Kind):
		problem = fmt.Sprintf("%q is none of %v", kind, NodeFaultKinds)
	case ofOne && f.Region == 0:
		problem = "the region is no number"
	case !lasts:
		problem = kind + " has no end of the time"
	default:
		return f, nil
	}
	return f, fmt.Errorf("fault of nodes %q: %s; want e.g. owner/2@10s-20s, two-owners@10s-20s or rolling@10s-60s", s,
		problem)
}

// String is what ParseNodeFault reads.
func (f NodeFault) String() string {
	if f.Region > 0 {
		return fmt.Sprintf("%s/%d@%v-%v", f.Kind, f.Region, f.From, f.Until)
	}
	return fmt.Sprintf("%s@%v-%v", f.Kind, f.From, f.Until)
}

func (f NodeFault) validate(regions int) error {
	return errors.Join(
		require(slices.Contains(NodeFaultKinds, f.Kind), "fault of nodes %v: want one of %v", f, NodeFaultKinds),
		require(f.Region >= 0 && f.Region <= regions, "fault of nodes %v: there are %d regions", f, regions),
		require(f.From >= 0 && f.Until > f.From && f.Until <= maxDuration,
			"fault of nodes %v: want an end after its beginning, at most %v after the start", f, maxDuration))
}

// scheduleNodeFault enters a fault. at has something happen so long after the start.
func (c *cluster) scheduleNodeFault(f NodeFault, at func(time.Duration, func())) {
	for region := range c.opt.Regions {
		if f.Region != 0 && f.Region != region+1 {
			continue
		}
		switch nodes := c.nodes[region*c.opt.Nodes:][:c.opt.Nodes]; f.Kind {
		case OwnerDown:
			at(f.From, func() {
				owner := c.owner(nodes)
				c.crash(owner)
				c.after(f.Until-f.From, func() { c.restart(owner) })
			})
		case TwoOwners:
			at(f.From, func() { c.divide(nodes, c.now+int64(f.Until-f.From)) })
		case GatewaysDown:
			gateways := nodes[:min(gatewaysPerRegion, len(nodes))]
			at(f.From, func() { c.frozen[region]++; each(gateways, c.crash) })
			at(f.Until, func() { each(gateways, c.restart); c.frozen[region]--; c.exchangeMembers(region) })
		case Rolling:
			for i, n := range nodes {
				at(f.From+f.step(&c.opt)*time.Duration(i), func() { c.replace(n) })
			}
		}
	}
}

// gatewaysPerRegion is how many nodes of a region hand on who its members are.
const gatewaysPerRegion = 3

func each(nodes []*node, do func(*node)) {
	for _, n := range nodes {
		do(n)
	}
}

// owner is the node among those of a region that owns the first client's key, or else the first one that is up.
func (c *cluster) owner(nodes []*node) *node {
	up := slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return !n.up })
	partition := c.keys[0].Partition()
	if i := slices.IndexFunc(up, func(n *node) bool { return n.owned.Has(partition) }); i >= 0 {
		return up[i]
	}
	return append(up, nodes[0])[0]
}

// divide has half of the nodes lose the owner of the first client's key as a member until a time: the half with the
// node that then takes itself for the owner. The others would forward to the right one.
func (c *cluster) divide(nodes []*node, until int64) {
	owner := c.owner(nodes)
	half := func(odd int) (half []*node) {
		for i, n := range nodes {
			if i%2 == odd && n != owner && n.members[owner.origin] {
				half = append(half, n)
			}
		}
		return half
	}
	lose := func(half []*node) { each(half, func(n *node) { c.leave(n, owner.origin, false) }) }
	find := func(half []*node) { each(half, func(n *node) { c.join(n, owner) }) }
	first, second := half(1), half(0)
	lose(first)
	c.after(2*c.opt.Interval, func() {
		owns := func(n *node) bool { return n.owned.Has(c.keys[0].Partition()) }
		if c.now < until && !slices.ContainsFunc(first, owns) {
			find(first)
			lose(second)
		}
	})
	c.after(time.Duration(until-c.now), func() { find(first); find(second) })
}

// A node that stops answers nobody any more, and has so many intervals to replicate what it counted. Then it is away
// for a while.
const (
	stopTakes = 5 // intervals
	awayFor   = time.Second
)

// replace has a node stop, and start again.
func (c *cluster) replace(n *node) {
	if !n.up || n.stopping {
		return
	}
	boot := n.boot
	n.ready, n.stopping = false, true
	n.replica.ResendEveryTick()
	c.after(stopTakes*c.opt.Interval, func() {
		if n.boot != boot || !n.up {
			return
		}
		for _, m := range n.replica.Goodbye(c.clock(n)) {
			c.send(n, m)
		}
		n.up, n.inbox, n.pausedUntil = false, nil, 0
		if n.stop != nil {
			n.stop()
		}
		c.after(awayFor, func() { c.restart(n) })
	})
}

// step is how long after one node of a rolling restart the next one stops: when the one before has come back, at the
// earliest.
func (f *NodeFault) step(o *Options) time.Duration {
	return max((f.Until-f.From)/time.Duration(o.Nodes), 2*stopTakes*o.Interval+awayFor)
}

// apart reports whether two nodes get no news of each other, because a region of theirs has no gateway.
func (c *cluster) apart(a, b *node) bool {
	return a.region != b.region && c.frozen[a.region]+c.frozen[b.region] > 0
}

// exchangeMembers has a region and the others learn within spreadsWithin what they missed of each other's members.
func (c *cluster) exchangeMembers(region int) {
	for _, n := range c.up() {
		for _, o := range slices.Sorted(maps.Keys(n.members)) {
			other := c.home[o]
			if (n.region == region) == (other.region == region) || other.up && other.origin == o {
				continue
			}
			boot := n.boot
			c.after(time.Duration(c.members.Int64N(int64(spreadsWithin))), func() {
				if n.up && n.boot == boot {
					c.leave(n, o, other.up)
				}
			})
		}
		for _, other := range c.up() {
			if n.region == region && other.region != region {
				c.joinLater(n, other, time.Duration(c.members.Int64N(int64(spreadsWithin))))
			}
		}
	}
}

// faultsOfNodes is when the last fault of a node has ended, after the start.
func (o *Options) faultsOfNodes() (end time.Duration) {
	for _, f := range slices.Concat(o.Pauses, o.Crashes) {
		end = max(end, f.Until)
	}
	for _, f := range o.NodeFaults {
		end = max(end, f.Until)
		if f.Kind == Rolling {
			end = max(end, f.From+f.step(o)*time.Duration(o.Nodes))
		}
	}
	return end
}

// ownership keeps what a node owns, as its replica finds it.
type ownership struct {
	gossip.Counts
	node *node
}

// SetOwners implements gossip.Counts.
func (o ownership) SetOwners(owners *counters.Owners) {
	o.node.owned = counters.PartitionSet{}
	if owners != nil {
		o.node.owned = owners.Owned
	}
	o.Counts.SetOwners(owners)
}
