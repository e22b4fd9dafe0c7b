package counters

import (
	"math/bits"
	"time"
)

// The arithmetic of the window counters, over rings of sub-window counts.
//
// A window of n sub-windows of length s that ends at time t, in sub-window c = t/s, holds the sub-windows c-n+1 to c
// inner and c-n in part: of its length, s - t%s still overlaps. The count of a sliding window is
//
//	view(t) = sum(c-n+1 .. c) + ceil(count[c-n] * (s - t%s) / s)
//
// in whole numbers. Rounding up makes the comparison view + cost <= limit exact: it holds just when it holds for the
// fraction. A fixed window is one sub-window, and its count that of c alone. A ring holds c-n to c in this order.

// windowView is the count of the window that ends at the instant.
func (c *cell) windowView(sh *shape, at instant) uint64 {
	return c.inner + partOf(c.counts(sh), sh, at)
}

// partOf is the count of the oldest sub-window as far as it overlaps.
func partOf(ring []uint64, sh *shape, at instant) uint64 {
	if ring[0] == 0 || sh.algorithm != SlidingWindow {
		return 0
	}
	return overlap(ring[0], sh.sub-at.off, sh.sub)
}

// overlap is ceil(n * left / sub), for 0 < left <= sub.
func overlap(n uint64, left, sub int64) uint64 {
	hi, lo := bits.Mul64(n, uint64(left))
	lo, carry := bits.Add64(lo, uint64(sub-1), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(sub)) // left <= sub, so the quotient fits
	return q
}

// takeWindow decides as a window does, sliding or fixed. What others counted ahead of the cell's time counts for how
// long to wait.
func (l *Limit) takeWindow(c *cell, ahead, cost, before uint64, at instant, commit bool, d *Decision) {
	ring := c.counts(&l.shape)
	seen := c.inner + partOf(ring, &l.shape, at) + before
	asked := max(cost, 1)
	if d.Allowed = asked <= l.max && seen <= l.max-asked; d.Allowed && commit && cost > 0 {
		c.count(ring, cost)
		seen += cost
	}
	newest := newestIn(ring, ahead)
	if !d.Allowed {
		d.RetryAfter = l.roomAfter(ring, c.inner, newest, ahead, at, asked+before)
	}
	d.Remaining = l.max - min(seen, l.max)
	if seen > before {
		d.ResetAfter = emptyAfter(newest, &l.shape, at)
	}
}

// newestIn is the newest place of a ring that holds a count, 0 if none does. What is ahead of it counts as the place
// after the last.
func newestIn(ring []uint64, ahead uint64) int {
	i := len(ring)
	for count := ahead; count == 0 && i > 0; count = ring[i] {
		i--
	}
	return i
}

// roomAfter is the least wait until the view leaves room for a cost, for which there is none now, if nothing is added.
// While a sub-window leaves the window, those after it lie in it whole: it finds the first that leaves them room
// enough, and solves for the moment inside it.
func (l *Limit) roomAfter(
	ring []uint64, inner uint64, newest int, ahead uint64, at instant, cost uint64,
) time.Duration {
	if cost > l.max {
		return Never // whether it comes in one layer or in several
	}
	room, last := l.max-cost, len(ring)
	if inner <= room { // the sub-window that leaves now is enough
		if left := l.stays(ring[0], room-inner); left > 0 {
			return time.Duration(l.sub - left - at.off + at.back)
		}
	}
	// From the newest backwards, as bursts are young. The last is the one ahead: by then time has come to it.
	leaving, rest, count := newest, uint64(0), ahead
	if newest < last {
		count = ring[newest]
	}
	for leaving > 1 && rest+count <= room {
		rest += count
		leaving--
		count = ring[leaving]
	}
	for {
		if left := l.stays(count, room-rest); left > 0 || leaving == last {
			return time.Duration(int64(leaving+1)*l.sub - left - at.off + at.back)
		}
		// Not before it has left, and then the next one begins to leave.
		if leaving++; leaving == last {
			count = ahead
		} else {
			count = ring[leaving]
		}
		rest -= count
	}
}

// stays is how much of a sub-window's length may still overlap so that no more than room of its count does.
func (l *Limit) stays(count, room uint64) int64 {
	if l.algorithm == FixedWindow || count <= room {
		return l.sub // nothing of what leaves a fixed window overlaps
	}
	if room == 0 {
		return 0
	}
	hi, lo := bits.Mul64(room, uint64(l.sub))
	left, _ := bits.Div64(hi, lo, count)
	return int64(left)
}

// emptyAfter is the least wait until a view that is not zero is, if nothing is added.
func emptyAfter(newest int, sh *shape, at instant) time.Duration {
	if sh.algorithm != FixedWindow {
		newest++
	}
	return time.Duration(int64(newest)*sh.sub - at.off + at.back)
}
