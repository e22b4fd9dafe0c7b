package telemetry

import (
	"maps"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// bounds keeps two figures of each limit, by the meter's rule, both as a part of it and of the last window or, where
// that is longer, of the time in which a bucket fills. Both are about the cluster and the same keys, those that this
// node admits or denies: the over-admission bound, and as an estimate what of it the counts show that have arrived. The
// bound holds what the counts show (gossip.Replica.Found), so it is never below them.
//
// Both are kept as costs and compared with the limit in force: what was too much for a limit is none for one that has
// been raised since.
type bounds struct {
	mu     sync.Mutex
	peaks  map[string]*gossip.Peak // of the most that may have been used, where that was above the limit
	shown  map[string]*gossip.Peak // of the most that was used as the counts show
	limits map[string]*counters.Limit
}

func newBounds() bounds {
	return bounds{peaks: make(map[string]*gossip.Peak), shown: make(map[string]*gossip.Peak)}
}

// read takes the excess of the last gossip interval, in cost, and what the keys have used that this node denies, where
// they were looked up.
func (b *bounds) read(limits map[string]*counters.Limit, found map[string]uint64, excess map[string]float64,
	now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limits = limits
	for rule, l := range limits {
		var most float64
		if excess[rule] > 0 {
			most = float64(l.Largest()) + excess[rule]
		}
		raise(b.peaks, rule, most, l, now)
		raise(b.shown, rule, float64(found[rule]), l, now)
	}
	gone := func(rule string, _ *gossip.Peak) bool { return limits[rule] == nil }
	maps.DeleteFunc(b.peaks, gone)
	maps.DeleteFunc(b.shown, gone)
}

// raise takes in the largest value of a rule.
func raise(peaks map[string]*gossip.Peak, rule string, v float64, l *counters.Limit, now time.Time) {
	p := peaks[rule]
	if p == nil {
		if v == 0 {
			return
		}
		p = &gossip.Peak{}
		peaks[rule] = p
	}
	p.Raise(v, max(l.Meter().Window, l.Lasts()), now.UnixNano())
}

// Bound returns the over-admission bound of a limit, by its meter's rule.
func (b *bounds) Bound(rule string) float64 {
	bound, _ := b.Excess(rule)
	return bound
}

// Excess returns the over-admission bound of a limit, and what of it the counts show that have arrived.
func (b *bounds) Excess(rule string) (bound, shown float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limits[rule]
	if l == nil {
		return 0, 0
	}
	part := func(used float64, limit uint64) float64 {
		return max(0, used-float64(limit)) / float64(max(1, l.Max()))
	}
	if p := b.peaks[rule]; p != nil {
		bound = part(p.Value(), l.Largest())
	}
	if p := b.shown[rule]; p != nil {
		shown = part(p.Value(), l.Max())
	}
	return bound, shown
}
