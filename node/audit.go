package node

import (
	"context"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// silentAfter is the age of what is known of a peer from which the node says that its decisions are degraded: well past the second
// between the beacons of an idle peer.
const silentAfter = 3 * time.Second

// audit keeps, for each rule, the over-admission bound: the most cost that was unseen at any moment of the last window, or where that is
// longer of the time in which a bucket comes back. What an admission may have gone over the limit shows for as long as the admission
// counts, and so does the bound.
type audit struct {
	cluster *gossip.Cluster

	mu    sync.Mutex
	peaks map[string]*gossip.Peak
}

func newAudit(c *gossip.Cluster) *audit {
	return &audit{cluster: c, peaks: make(map[string]*gossip.Peak)}
}

// watch takes a reading every gossip interval.
func (n *Node) watch(ctx context.Context) {
	ticker := time.NewTicker(n.cfg.Gossip.Interval)
	defer ticker.Stop()
	evictions := evictionAlarm{log: n.log, budget: n.cfg.Memory}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			n.audit.read(n.policy.Load().limits, now)
			n.latencies.peers(n.cluster.Members())
			age, whole := n.cluster.Staleness()
			evictions.look(n.table.Stats(), now)
			n.degraded.Store(!whole || age > max(silentAfter, 5*n.cfg.Gossip.Interval))
		}
	}
}

func (a *audit) read(limits map[string]*counters.Limit, now time.Time) {
	unseen := a.cluster.Audit(limits)
	a.mu.Lock()
	defer a.mu.Unlock()
	for rule, l := range limits {
		p := a.peaks[rule]
		if p == nil {
			if unseen[rule] == 0 {
				continue
			}
			p = &gossip.Peak{}
			a.peaks[rule] = p
		}
		p.Raise(unseen[rule]/float64(max(1, l.Max())), max(l.Meter().Window, l.Lasts()), now.UnixNano())
	}
	for rule := range a.peaks {
		if limits[rule] == nil {
			delete(a.peaks, rule)
		}
	}
}

func (a *audit) bound(rule string) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peaks[rule]; p != nil {
		return p.Value()
	}
	return 0
}
