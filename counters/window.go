package counters

import (
	"math/bits"
	"time"
)

// The arithmetic of the window counters, over rings of sub-window counts.
//
// A window of n sub-windows of length s that ends at time t, in sub-window c = t/s, holds the sub-windows c-n+1 to c whole
// and c-n in part: of its length, s - t%s still overlaps. The count of a sliding window is
//
//	view(t) = sum(c-n+1 .. c) + ceil(count[c-n] * (s - t%s) / s)
//
// in whole numbers. Rounding up makes the comparison view + cost <= limit exact: it holds just when it holds for the
// fraction. A fixed window is one sub-window, and its count that of c alone. A ring holds c-n to c+1 in this order.

// windowView is the count of the window that ends at the instant.
func windowView(ring []uint64, sh *shape, at instant) uint64 {
	var sum uint64
	for _, count := range ring[1 : len(ring)-1] {
		sum += count
	}
	if oldest := ring[0]; oldest != 0 && sh.algorithm == SlidingWindow {
		sum += overlap(oldest, sh.sub-at.off, sh.sub)
	}
	return sum
}

// overlap is ceil(n * left / sub), for 0 < left <= sub.
func overlap(n uint64, left, sub int64) uint64 {
	hi, lo := bits.Mul64(n, uint64(left))
	lo, carry := bits.Add64(lo, uint64(sub-1), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(sub)) // left <= sub, so the quotient fits
	return q
}

// takeWindow decides as a window does, sliding or fixed.
func (l *Limit) takeWindow(c *cell, cost, before uint64, at instant, commit bool, d *Decision) {
	ring := c.counts(&l.shape)
	seen := windowView(ring, &l.shape, at) + before
	asked := max(cost, 1)
	if d.Allowed = asked <= l.max && seen <= l.max-asked; !d.Allowed {
		d.RetryAfter = l.roomAfter(ring, at, asked+before)
	} else if commit && cost > 0 {
		c.count(&l.shape, cost)
		seen += cost
	}
	d.Remaining = l.max - min(seen, l.max)
	if seen > before {
		d.ResetAfter = emptyAfter(ring, &l.shape, at)
	}
}

// roomAfter is the least wait until the view leaves room for a cost, for which there is none now, if nothing is added. It walks
// the sub-windows in the order in which they leave, and solves for the moment inside the one that makes the difference.
func (l *Limit) roomAfter(ring []uint64, at instant, cost uint64) time.Duration {
	if cost > l.max {
		return Never // whether it comes in one layer or in several
	}
	room, last := l.max-cost, len(ring)-1
	var rest uint64 // what lies whole in the window while the sub-window `leaving` leaves it
	for _, count := range ring[1:last] {
		rest += count
	}
	for leaving := 0; ; leaving++ {
		if rest <= room {
			end := int64(leaving+1)*l.sub - at.off // when it has left
			left := l.stays(ring, leaving, room-rest)
			if left > 0 || leaving > last {
				return time.Duration(max(end-left, 0) + at.back)
			}
			// Not before it has left, and then the next one begins to leave.
		}
		if leaving == 0 {
			rest += ring[last] // the counts of a clock ahead: time has come to them by then
		}
		if leaving < last {
			rest -= ring[leaving+1]
		}
	}
}

// stays is how much of a sub-window's length may still overlap so that no more than room of its count does.
func (l *Limit) stays(ring []uint64, leaving int, room uint64) int64 {
	if l.algorithm == FixedWindow || leaving >= len(ring) || ring[leaving] <= room {
		return l.sub // nothing of what leaves a fixed window overlaps
	}
	hi, lo := bits.Mul64(room, uint64(l.sub))
	left, _ := bits.Div64(hi, lo, ring[leaving])
	return int64(left)
}

// emptyAfter is the least wait until a view that is not zero is, if nothing is added.
func emptyAfter(ring []uint64, sh *shape, at instant) time.Duration {
	for i := len(ring) - 1; ; i-- {
		if ring[i] != 0 {
			if sh.algorithm == FixedWindow {
				i--
			}
			return time.Duration(int64(i+1)*sh.sub - at.off + at.back)
		}
	}
}
