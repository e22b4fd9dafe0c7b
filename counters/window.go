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

// takeWindow decides on a request under a sliding or fixed window. ahead is what others counted in the sub-window after
// the cell's time: it is not in the view, but makes waits longer.
func (l *Limit) takeWindow(c *cell, ahead, cost, before uint64, at instant, commit bool, d *Decision) {
	ring := c.counts(&l.shape)
	seen := l.window.Seen(ring, c.inner, at.off) + before
	asked := min(max(cost, 1), MaxLimit+1) // no sum with before overflows
	if d.Allowed = asked <= l.max && seen <= l.max-asked; d.Allowed && commit && cost > 0 {
		c.count(ring, cost)
		seen += cost
	}
	if !d.Allowed {
		d.RetryAfter = Never
		if asked+before <= l.max {
			room := l.max - asked - before
			d.RetryAfter = time.Duration(l.window.Wait(ring, c.inner, ahead, room, at.off) + at.back)
		}
	}
	d.Remaining = l.max - min(seen, l.max)
	if seen > before {
		d.ResetAfter = time.Duration(l.window.Reset(ring, c.inner, ahead, at.off) + at.back)
	}
}
