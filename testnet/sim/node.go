package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/regions"
)

// node is a place where one boot of a node after the other runs.
type node struct {
	place, region int
	skew          int64
	boot          int32 // number of the boot; 0: none yet
	up            bool
	ready         bool  // it serves requests
	pausedUntil   int64 // it stands still until then

	origin     counters.Origin
	table      *counters.Table
	replica    *gossip.Replica
	reconciler *regions.Reconciler // nil without a store
	bound      gossip.Peak
	began      int64
	met        []bool  // by region: this boot has met somebody of it
	inbox      []event // what comes while it stands still
	process
}

const (
	maxInbox  = 1024            // what memberlist's receive queue holds
	warmAfter = 3 * time.Second // how long a node that starts waits for its peers before it serves without them
)

func (w *world) clock(n *node) int64 { return w.now + n.skew }

func (n *node) paused(now int64) bool { return now < n.pausedUntil }

// start boots a node: a new origin, an empty table, nobody known.
func (w *world) start(n *node) {
	w.boots++
	n.boot, n.up, n.ready, n.began = w.boots, true, false, w.now
	n.origin = gossip.NewOrigin(fmt.Sprint("node-", n.place), uint64(n.boot))
	n.table = newTable(&w.opt, n.origin)
	n.table.Know([]*counters.Limit{w.limit})
	n.replica = gossip.NewReplica(n.origin, w.opt.Interval, w.opt.Strategy.counts(w.hooks.counts(n.table)))
	n.bound, n.inbox, n.pausedUntil = gossip.Peak{}, nil, 0
	n.met = make([]bool, w.opt.Regions)
	w.home[n.origin] = n
	phase := func() time.Duration { return time.Duration(w.phases.Int64N(int64(w.opt.Interval))) }
	w.later(phase(), event{kind: tick, node: int32(n.place), boot: n.boot})
	w.later(phase(), event{kind: audit, node: int32(n.place), boot: n.boot})
	if w.opt.hasStores() {
		w.startReconciler(n)
	}
}

// tick is the end of an interval: what changed goes to the peers, and to the store.
func (w *world) tick(n *node) {
	now := w.clock(n)
	w.tell(n, n.table.DrainDirty(now), n.replica.Tick, now)
	n.ready = n.ready || w.warm(n)
	w.hooks.ticked(n)
	w.later(w.opt.Interval, event{kind: tick, node: int32(n.place), boot: n.boot})
}

// tellEarly is an early flush.
func (w *world) tellEarly(n *node) {
	now := w.clock(n)
	w.tell(n, n.table.DrainUrgent(now), n.replica.Flush, now)
}

// tell has what changed go to the store, and to the peers in the messages that the replica makes of it.
func (w *world) tell(n *node, drained counters.Drained, messages func(counters.Drained, int64) []gossip.Message, now int64) {
	w.hooks.drained(&drained)
	if n.reconciler != nil {
		n.reconciler.Offer(drained.Slots)
	}
	for _, m := range messages(drained, now) {
		w.send(n, m)
	}
}

// warm reports whether the node has heard all whom it knows, or has waited for them long enough.
func (w *world) warm(n *node) bool {
	if w.now-n.began >= int64(warmAfter) {
		return true
	}
	if w.blind(n) {
		return false
	}
	for _, p := range n.replica.Peers(w.clock(n)) {
		if p.Member && p.AsOf == 0 {
			return false
		}
	}
	return true
}

// audit is what a node does every interval to keep the bound that it exports; see node.audit.
func (w *world) audit(n *node) {
	now := w.clock(n)
	excess := n.replica.Audit(w.limits, now)[w.rule]
	if w.blind(n) {
		excess += float64(w.opt.Limit)
	}
	n.bound.Raise(excess/float64(w.opt.Limit), w.opt.Window, now)
	if n.ready {
		w.book.exported(w.now, n.bound.Value())
	}
	w.later(w.opt.Interval, event{kind: audit, node: int32(n.place), boot: n.boot})
}

// receive takes in a message, or keeps it while the node stands still.
func (w *world) receive(n *node, e event) {
	switch {
	case !n.up || !w.hooks.arrives(n, e.data):
	case n.paused(w.now):
		if len(n.inbox) < maxInbox {
			n.inbox = append(n.inbox, e)
		}
	default:
		if err := n.replica.Receive(e.data, w.clock(n)); err != nil {
			w.hooks.undecoded(n, err)
		}
		w.hooks.received(n, e.data)
	}
}

// pause makes a node stand still. Peers that wait for it for long give it up, and find it again soon after.
func (w *world) pause(n *node, length time.Duration) {
	if !n.up {
		return
	}
	n.pausedUntil = max(n.pausedUntil, w.now+int64(length))
	boot := n.boot
	w.loseNode(n)
	w.after(length, func() {
		if n.boot != boot || !n.up || n.paused(w.now) {
			return
		}
		for _, e := range n.inbox {
			w.receive(n, e)
		}
		n.inbox = nil
		w.meetAll(n, time.Second)
	})
}

// crash ends a node without a word.
func (w *world) crash(n *node) {
	if !n.up {
		return
	}
	w.hooks.crashed(n)
	n.up, n.inbox, n.pausedUntil = false, nil, 0
	if n.stop != nil {
		n.stop()
	}
	w.loseNode(n)
}

// restart boots a node that crashed. It finds the others at once, and they hear of it.
func (w *world) restart(n *node) {
	if n.up {
		return
	}
	w.hooks.restarting(n)
	old := n.origin
	w.start(n)
	for _, other := range w.nodes {
		if other != n && other.up && w.net.reach(n.region, other.region) {
			other.replica.Leave(old, true)
			w.meet(n, other)
		}
	}
	w.hooks.restarted(n)
}

// startReconciler has the node read the store of its region, and reconcile with it from then on.
func (w *world) startReconciler(n *node) {
	w.tables[n.origin] = n.table
	cfg := regions.DefaultConfig()
	cfg.Timeout = time.Hour // by the real clock
	cfg.Now = func() time.Time { return time.Unix(0, w.clock(n)) }
	var err error
	if n.reconciler, err = regions.NewReconciler(cfg, w.hooks.store(&client{w.stores[n.region], n}), n.table); err != nil {
		panic(err) // it is the default
	}
	w.begin(n, func() {
		_ = n.reconciler.Warm(context.Background())
		w.laterFlush(n, cfg.Interval)
	})
}

func (w *world) laterFlush(n *node, pause time.Duration) {
	w.later(pause-time.Duration(w.flushes.Int64N(int64(pause/10))), event{kind: flush, node: int32(n.place), boot: n.boot})
}

func (w *world) flush(n *node) {
	w.begin(n, func() {
		began, pause := w.now, regions.DefaultConfig().Interval
		if err := n.reconciler.Flush(context.Background()); err != nil {
			pause = regions.DefaultConfig().Cooldown
		}
		w.digest.add(uint64(w.now), n.reconciler.Stats().Flushed)
		w.stores[n.region].flushed(n, began)
		w.laterFlush(n, pause)
	})
}
