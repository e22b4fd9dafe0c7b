package counters

import (
	"math/bits"
	"time"
)

// Window counters, over rings of sub-window counts.
//
// A sliding window has n sub-windows of length s. At the time t, in the sub-window c = t/s, it covers the sub-windows
// c-n+1 to c completely, and the last s - t%s of c-n, which is leaving. Its count is
//
//	view(t) = sum(c-n+1 .. c) + ceil(count[c-n] * (s - t%s) / s)
//
// Rounding up keeps the comparison view + cost <= limit exact. A fixed window is a single sub-window: its count is that
// of c. A ring holds the counts of c-n to c in this order.

// windowView is the count of the window that ends at the instant.
func (c *cell) windowView(sh *shape, at instant) uint64 {
	return c.inner + partOf(c.counts(sh), sh, at)
}

// partOf is the part of the oldest sub-window's count that is still in the window.
func partOf(ring []uint64, sh *shape, at instant) uint64 {
	if ring[0] == 0 || sh.algorithm != SlidingWindow {
		return 0
	}
	return overlap(ring[0], sh.sub-at.off, sh.sub)
}

// overlap is ceil(n * left / sub), for 0 < left <= sub. It is apart from partOf, so that partOf is inlined.
func overlap(n uint64, left, sub int64) uint64 {
	hi, lo := bits.Mul64(n, uint64(left))
	lo, carry := bits.Add64(lo, uint64(sub-1), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(sub)) // left <= sub, so the quotient fits
	return q
}

// takeWindow decides on a request under a sliding or fixed window. ahead is what others counted in the sub-window after
// the cell's time: it is not in the view, but makes waits longer.
func (l *Limit) takeWindow(c *cell, ahead, cost, before uint64, at instant, commit bool, d *Decision) {
	ring := c.counts(&l.shape)
	seen := c.inner + partOf(ring, &l.shape, at) + before
	asked := min(max(cost, 1), MaxLimit+1) // no sum with before overflows
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

// newestIn is the newest place of a ring with a count, 0 if there is none. The count ahead is at the place after the
// last.
func newestIn(ring []uint64, ahead uint64) int {
	i := len(ring)
	for count := ahead; count == 0 && i > 0; count = ring[i] {
		i--
	}
	return i
}

// roomAfter is the shortest wait until the view leaves room for a cost, if nothing is added. There is no room now.
//
// While a sub-window leaves, all newer ones are completely in the window. So roomAfter finds the oldest sub-window
// whose leaving makes enough room, and solves for the time at which enough of it has left.
func (l *Limit) roomAfter(
	ring []uint64, inner uint64, newest int, ahead uint64, at instant, cost uint64,
) time.Duration {
	if cost > l.max {
		return Never
	}
	room, last := l.max-cost, len(ring)
	if inner <= room { // the sub-window that leaves now makes enough room
		if left := l.stays(ring[0], room-inner); left > 0 {
			return time.Duration(l.sub - left - at.off + at.back)
		}
	}
	// The search goes from the newest place back, as bursts tend to be recent.
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
		// All of it has to leave; at that moment the next one begins to leave.
		if leaving++; leaving == last {
			count = ahead
		} else {
			count = ring[leaving]
		}
		rest -= count
	}
}

// stays is how much of a sub-window's length may still be in the window for its count to fit into room.
func (l *Limit) stays(count, room uint64) int64 {
	if l.algorithm == FixedWindow || count <= room {
		return l.sub // a fixed window leaves at once
	}
	if room == 0 {
		return 0
	}
	hi, lo := bits.Mul64(room, uint64(l.sub))
	left, _ := bits.Div64(hi, lo, count)
	return int64(left)
}

// emptyAfter is the shortest wait until a view above zero is zero, if nothing is added.
func emptyAfter(newest int, sh *shape, at instant) time.Duration {
	if sh.algorithm != FixedWindow {
		newest++
	}
	return time.Duration(int64(newest)*sh.sub - at.off + at.back)
}
