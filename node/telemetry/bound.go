package telemetry

import (
	"maps"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// bounds keeps two figures of each limit, by the meter's rule, both as a part of it and about the cluster and the same
// keys, those that this node admits or denies: the over-admission bound of the last window or, where that is longer, of
// the time in which a bucket fills; and from below what of it the counts show that have arrived. The bound holds what
// the counts show (gossip.Replica.Found), so it is never below them.
//
// Both are kept as costs and compared with the limit in force: what was too much for a limit is none for one that has
// been raised since.
type bounds struct {
	mu     sync.Mutex
	peaks  map[string]*gossip.Peak // of the most that may have been used, where that was above the limit
	shown  map[string]uint64
	at     time.Time // when shown was measured
	limits map[string]*counters.Limit
}

// showEvery is how often the keys are looked up that a node denies.
const showEvery = 500 * time.Millisecond

// isDue reports whether to measure anew what the counts show.
func (b *bounds) isDue(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return now.Before(b.at) || now.Sub(b.at) >= showEvery
}

// read takes the excess of the last gossip interval, in cost, and where found is not nil, what the keys have used that
// this node denies.
func (b *bounds) read(limits map[string]*counters.Limit, found map[string]uint64, excess map[string]float64,
	now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found != nil {
		b.at = now
		clear(b.shown)
		maps.Copy(b.shown, found)
	}
	b.limits = limits
	for rule, l := range limits {
		p := b.peaks[rule]
		if p == nil {
			if excess[rule] == 0 {
				continue
			}
			p = &gossip.Peak{}
			b.peaks[rule] = p
		}
		used := 0.0
		if excess[rule] > 0 {
			used = float64(l.Largest()) + excess[rule]
		}
		p.Raise(used, max(l.Meter().Window, l.Lasts()), now.UnixNano())
	}
	gone := func(rule string) bool { return limits[rule] == nil }
	maps.DeleteFunc(b.peaks, func(rule string, _ *gossip.Peak) bool { return gone(rule) })
	maps.DeleteFunc(b.shown, func(rule string, _ uint64) bool { return gone(rule) })
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
	return bound, part(float64(b.shown[rule]), l.Max())
}
