package telemetry

import (
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// bounds keeps the over-admission bound of each limit: the most cost by which an admission of this node may have gone
// over the limit, as a part of the limit, within the last window or, where that is longer, the time in which a bucket
// fills.
type bounds struct {
	mu    sync.Mutex
	peaks map[string]*gossip.Peak // by the meter's rule
}

// read takes the excess of the last gossip interval, in cost.
func (b *bounds) read(limits map[string]*counters.Limit, excess map[string]float64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for rule, l := range limits {
		p := b.peaks[rule]
		if p == nil {
			if excess[rule] == 0 {
				continue
			}
			p = &gossip.Peak{}
			b.peaks[rule] = p
		}
		p.Raise(excess[rule]/float64(max(1, l.Max())), max(l.Meter().Window, l.Lasts()), now.UnixNano())
	}
	for rule := range b.peaks {
		if limits[rule] == nil {
			delete(b.peaks, rule)
		}
	}
}

// Bound returns the over-admission bound of a limit, by its meter's rule, as a part of the limit.
func (b *bounds) Bound(rule string) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.peaks[rule]; p != nil {
		return p.Value()
	}
	return 0
}
