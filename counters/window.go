package counters

import (
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/window"
)

// newWindow is the window of a limit of so much on a meter.
func newWindow(m *Meter, maximum uint64) window.Window {
	return window.Window{Sub: int64(m.Sub), Even: window.Even(maximum, m.SubWindows()),
		Fixed: m.Algorithm != SlidingWindow}
}

// windowView is the count of the window that ends at the instant.
func (l *Limit) windowView(c *cell, at instant) uint64 {
	return l.window.Seen(c.counts(&l.shape), c.inner, at.off)
}

// takeWindow decides on a request that is no peek and fits the limit, and counts it if it is admitted: the steps of a
// plain window in one. RetryAfter and Delay of d are 0.
func (s *shard) takeWindow(l *Limit, c *cell, cost uint64, off int64, d *Decision) {
	seen := c.inner + l.window.Part(*c.word(l.ring), l.sub-off)
	if d.Allowed = seen <= l.max-cost; d.Allowed {
		newest := c.word(l.ring + l.n)
		*newest += cost
		c.inner += cost
		c.noteChange()
		d.Remaining = l.max - seen - cost
		if c.slots == 0 { // no other node counts in the next sub-window
			d.ResetAfter = time.Duration(l.window.Last(l.n, *newest, off))
			return
		}
	}
	ring, ahead := c.counts(&l.shape), s.ahead(c)
	d.ResetAfter = time.Duration(l.window.Reset(ring, c.inner, ahead, off))
	if d.Allowed {
		return
	}
	d.Remaining, d.RetryAfter = l.max-min(seen, l.max), d.ResetAfter
	if cost < l.max {
		d.RetryAfter = time.Duration(l.window.Wait(ring, c.inner, ahead, l.max-cost, off))
	}
}
