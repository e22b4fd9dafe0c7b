package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// silentAfter is the age of what is known of a peer from which the node says that its decisions are degraded: well past the second
// between the beacons of an idle peer.
const silentAfter = 3 * time.Second

// audit keeps, for each rule, the over-admission bound: the most cost by which an admission of this node may have gone over the limit in
// the last window, or where that is longer in the time in which a bucket comes back. That shows for as long as the admission counts, and so
// does the bound.
type audit struct {
	cluster *gossip.Cluster

	mu    sync.Mutex
	peaks map[string]*gossip.Peak // by the meter's rule
}

func newAudit(c *gossip.Cluster) *audit {
	return &audit{cluster: c, peaks: make(map[string]*gossip.Peak)}
}

// watch takes a reading every gossip interval.
func (n *Node) watch(ctx context.Context) {
	ticker := time.NewTicker(n.cfg.Gossip.Interval)
	defer ticker.Stop()
	evictions, lies := evictionAlarm{log: n.log, budget: n.cfg.Memory}, lieAlarm{log: n.log}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			n.audit.read(n.limitsAt(now), now)
			members := n.cluster.Members()
			n.latencies.peers(members)
			n.lookAtClocks(members)
			totals := n.table.Stats()
			evictions.look(totals, now)
			lies.look(totals, n.table.Doubted(), members, now)
			n.degraded.all.Store(n.skew.own.on || n.misses(n.cluster.Staleness()))
			n.degraded.region.Store(n.skew.own.on || n.misses(n.cluster.RegionStaleness()))
		}
	}
}

// degradation says whether somebody cannot be heard who keeps limits with the node, or the node's own clock is off.
type degradation struct{ all, region atomic.Bool }

// in says so of those who keep limits of a scope. What a node keeps alone is never degraded.
func (d *degradation) in(s counters.Scope) bool {
	return s == counters.Global && d.all.Load() || s == counters.Region && d.region.Load()
}

// misses reports whether a staleness means that somebody cannot be heard.
func (n *Node) misses(age time.Duration, whole bool) bool {
	return !whole || age > max(silentAfter, 5*n.cfg.Gossip.Interval)
}

func (n *Node) lookAtClocks(members []gossip.MemberStatus) {
	var store time.Duration
	known := false
	if n.reconciler != nil {
		store, known = n.reconciler.ClockAhead()
	}
	n.skew.look(members, store, known, n.clock.Now())
}

func (a *audit) read(limits map[string]*counters.Limit, now time.Time) {
	excess := a.cluster.Audit(limits)
	a.mu.Lock()
	defer a.mu.Unlock()
	for rule, l := range limits {
		p := a.peaks[rule]
		if p == nil {
			if excess[rule] == 0 {
				continue
			}
			p = &gossip.Peak{}
			a.peaks[rule] = p
		}
		p.Raise(excess[rule]/float64(max(1, l.Max())), max(l.Meter().Window, l.Lasts()), now.UnixNano())
	}
	for rule := range a.peaks {
		if limits[rule] == nil {
			delete(a.peaks, rule)
		}
	}
}

// bound is that of a limit, by its meter's rule.
func (a *audit) bound(rule string) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peaks[rule]; p != nil {
		return p.Value()
	}
	return 0
}
