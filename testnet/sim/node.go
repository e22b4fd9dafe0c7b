package sim

import (
	"context"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/regions"
)

// node is a place where one boot of a node after the other runs.
type node struct {
	place, region int
	describes     gossip.Node // what replicas know of it
	skew          int64
	boot          int32             // number of the boot; 0: none yet
	earlier       []counters.Origin // of earlier boots
	up            bool
	ready         bool  // it serves requests
	stopping      bool  // it serves none any more
	pausedUntil   int64 // it stands still until then

	origin     counters.Origin
	table      *counters.Table
	replica    *gossip.Replica
	reconciler *regions.Reconciler // nil without a store
	repair     *repair             // what it owes the store; nil: nothing
	bound      gossip.Peak
	bootedAt   int64
	owned      counters.PartitionSet // of keys
	met        []bool                // by region: this boot has met somebody of it
	members    map[counters.Origin]bool
	inbox      []event // what comes while it stands still
	process
}

const (
	maxInbox = 1024 // what memberlist's receive queue holds
	// estimatedKeys is of how many clients a node looks up the counts: as many as it denies most.
	estimatedKeys = 16

	warmAfter = 3 * time.Second // how long a node that starts waits for its peers before it serves without them
)

func (c *cluster) clock(n *node) int64 { return c.now + n.skew }

func (n *node) paused(now int64) bool { return now < n.pausedUntil }

// start boots a node: a new origin, an empty table, nobody known.
func (c *cluster) start(n *node) {
	c.boots++
	n.boot, n.up, n.ready, n.stopping, n.bootedAt = c.boots, true, false, false, c.now
	if n.origin != 0 {
		n.earlier = append(n.earlier, n.origin)
	}
	n.origin = gossip.NewOrigin(n.describes.Name, uint64(n.boot))
	n.table = newTable(&c.opt, n.origin, c.opt.origins())
	n.table.Know(append([]*counters.Limit{c.limit}, c.opt.extraLimits...))
	counts := gossip.Counts(ownership{c.hooks.counts(n), n})
	if c.opt.Strategy == Plain {
		counts = alone{counts}
	}
	n.replica = gossip.NewReplica(n.origin, c.opt.Interval, counts)
	n.replica.Describe(n.origin, n.describes)
	n.bound, n.repair, n.inbox, n.pausedUntil = gossip.Peak{}, nil, nil, 0
	n.owned = counters.PartitionSet{}
	n.met, n.members = make([]bool, c.opt.Regions), make(map[counters.Origin]bool)
	c.home[n.origin] = n
	phase := func() time.Duration { return time.Duration(c.phases.Int64N(int64(c.opt.Interval))) }
	c.later(phase(), event{kind: tick, node: int32(n.place), boot: n.boot})
	c.later(phase(), event{kind: audit, node: int32(n.place), boot: n.boot})
	if c.opt.hasStores() {
		c.startReconciler(n)
	}
}

// tick is the end of an interval: what changed goes to the peers, and to the store.
func (c *cluster) tick(n *node) {
	now := c.clock(n)
	c.replicate(n, n.table.DrainDirty(now), n.replica.Tick, now)
	n.ready = !n.stopping && (n.ready || c.warm(n))
	c.hooks.ticked(n)
	c.later(c.opt.Interval+c.hooks.late(), event{kind: tick, node: int32(n.place), boot: n.boot})
}

// flushEarly is an early flush.
func (c *cluster) flushEarly(n *node) {
	now := c.clock(n)
	c.replicate(n, n.table.DrainEarly(now), n.replica.Flush, now)
}

// replicate has what changed go to the store, and to the peers in the messages that the replica makes of it.
func (c *cluster) replicate(
	n *node, drained counters.Drained, messages func(counters.Drained, int64) []gossip.Message, now int64,
) {
	c.hooks.drained(n, &drained)
	if n.reconciler != nil {
		n.reconciler.Enqueue(drained.Slots)
	}
	for _, m := range messages(drained, now) {
		c.send(n, m)
	}
}

// warm reports whether the node has received from all members it knows, or has waited long enough.
func (c *cluster) warm(n *node) bool {
	if c.now-n.bootedAt >= int64(warmAfter) {
		return true
	}
	if c.blind(n) {
		return false
	}
	return n.replica.Informed()
}

// audit is what a node does every interval to keep the bound that it exports; see node.audit.
func (c *cluster) audit(n *node) {
	now := c.clock(n)
	excess := n.replica.Audit(c.limits, now)[c.limit.Meter().Rule]
	if c.blind(n) {
		excess += float64(c.opt.Limit)
	}
	n.bound.Raise(excess/float64(c.opt.Limit), c.opt.Window, now)
	if n.ready {
		c.recorder.exported(c.now, n.bound.Value())
		c.estimate(n, now)
	}
	c.later(c.opt.Interval, event{kind: audit, node: int32(n.place), boot: n.boot})
}

// estimate is what a node shows beside the bound: by how much those are above the limit whom it denies, as far as it
// has received counts; see node.found.
func (c *cluster) estimate(n *node, now int64) {
	var used uint64
	for _, key := range c.keys[:min(c.opt.Keys, estimatedKeys)] {
		used = max(used, n.table.View(c.limit, key, now))
	}
	c.recorder.estimated(c.now, float64(used-min(used, c.opt.Limit))/float64(c.opt.Limit))
}

// receive takes in a message, or keeps it while the node stands still.
func (c *cluster) receive(n *node, e event) {
	switch {
	case !n.up || !c.hooks.arrives(n, e):
	case n.paused(c.now):
		if len(n.inbox) < maxInbox {
			n.inbox = append(n.inbox, e)
		}
	default:
		c.hooks.received(n, e.data, n.replica.Receive(c.hooks.packet(e.data), c.clock(n)))
		c.flushSoon(n) // an owner passes on what rose by much
	}
}

// pause makes a node stand still. Peers that wait for it for long give it up, and find it again soon after.
func (c *cluster) pause(n *node, length time.Duration) {
	if !n.up {
		return
	}
	n.pausedUntil = max(n.pausedUntil, c.now+int64(length))
	boot := n.boot
	c.failLater(n)
	c.after(length, func() {
		if n.boot != boot || !n.up || n.paused(c.now) {
			return
		}
		for _, e := range n.inbox {
			c.receive(n, e)
		}
		n.inbox = nil
		c.joinAll(n, time.Second)
	})
}

// crash ends a node without a word.
func (c *cluster) crash(n *node) {
	if !n.up {
		return
	}
	c.hooks.crashed(n)
	c.anyCrashed = true
	n.up, n.inbox, n.pausedUntil = false, nil, 0
	if n.stop != nil {
		n.stop()
	}
	c.failLater(n)
}

// restart boots a node that crashed. It finds the others at once, and they learn its address.
func (c *cluster) restart(n *node) {
	if n.up {
		return
	}
	c.hooks.restarting(n)
	c.start(n)
	for _, other := range c.up() {
		if other != n && c.net.reach(n.region, other.region) && !c.apart(n, other) {
			c.join(n, other)
		}
	}
	c.hooks.restarted(n)
}

// startReconciler has the node read the store of its region, and reconcile with it from then on.
func (c *cluster) startReconciler(n *node) {
	c.tables[n.origin] = n.table
	cfg := regions.DefaultConfig()
	cfg.Timeout = time.Hour // by the real clock
	cfg.Now = func() time.Time { return time.Unix(0, c.clock(n)) }
	cfg.Elapsed = func() time.Duration { return time.Duration(c.now) }
	var err error
	if n.reconciler, err = regions.NewReconciler(cfg, c.hooks.store(&client{c.stores[n.region], n}),
		n.table); err != nil {
		panic(err) // it is the default
	}
	c.spawn(n, func() {
		_ = n.reconciler.Warm(context.Background())
		c.laterFlush(n, cfg.Interval)
	})
}

func (c *cluster) laterFlush(n *node, pause time.Duration) {
	c.later(pause-time.Duration(c.flushes.Int64N(int64(pause/10))),
		event{kind: flush, node: int32(n.place), boot: n.boot})
}

func (c *cluster) flush(n *node) {
	c.spawn(n, func() {
		began, pause := c.now, regions.DefaultConfig().Interval
		if err := n.reconciler.Flush(context.Background()); err != nil {
			pause = regions.DefaultConfig().Cooldown
		}
		c.digest.add(uint64(c.now), n.reconciler.Stats().Flushed)
		c.stores[n.region].flushed(n, began)
		c.laterFlush(n, pause)
	})
}
