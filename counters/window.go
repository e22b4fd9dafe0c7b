package counters

import (
	"math/bits"
	"time"
)

// Window counters, over rings of sub-window counts.
//
// A sliding window has n sub-windows of length s. At the time t, in the sub-window c = t/s, it covers the sub-windows
// c-n+1 to c completely, and the last left = s - t%s of c-n, which is leaving. Of a limit L, its count is
//
//	view(t) = sum(c-n+1 .. c) + part(count[c-n], left)
//	part(k, left) = max(ceil(k * left / s) - 1, k - even)    0 if k is 0
//	even = ceil(L / n)
//
// The first term is the least that a client which comes evenly may have had in the rest of the sub-window, so such a
// client is never rejected. The second one holds any window to L + even: even is the most that an even client has in a
// sub-window, and what exceeds it counts until the sub-window has left. DESIGN.md has the proofs. A fixed window is a
// single sub-window: its count is that of c. A ring holds the counts of c-n to c in this order.

// evenShare is the most that a client which spends the maximum evenly has in a sub-window.
func evenShare(maximum uint64, n int) uint64 { return (maximum + uint64(n) - 1) / uint64(n) }

// windowView is the count of the window that ends at the instant.
func (l *Limit) windowView(c *cell, at instant) uint64 {
	return c.inner + l.partOf(c.counts(&l.shape)[0], l.sub-at.off)
}

// partOf is the part of a leaving sub-window's count that is in the window while so much of its length is, for
// 0 < left <= sub.
func (l *Limit) partOf(count uint64, left int64) uint64 {
	if count == 0 || l.algorithm != SlidingWindow {
		return 0
	}
	return l.overlap(count, left)
}

// overlap is partOf a count above 0. It is apart, so that partOf is inlined.
func (l *Limit) overlap(count uint64, left int64) uint64 {
	hi, lo := bits.Mul64(count, uint64(left))
	lo, borrow := bits.Sub64(lo, 1, 0)
	q, _ := bits.Div64(hi-borrow, lo, uint64(l.sub)) // ceil(count*left / sub) - 1; left <= sub, so the quotient fits
	return max(q, count-min(count, l.even))
}

// takeWindow decides on a request under a sliding or fixed window. ahead is what others counted in the sub-window after
// the cell's time: it is not in the view, but makes waits longer.
func (l *Limit) takeWindow(c *cell, ahead, cost, before uint64, at instant, commit bool, d *Decision) {
	ring := c.counts(&l.shape)
	seen := c.inner + l.partOf(ring[0], l.sub-at.off) + before
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
		d.ResetAfter = l.emptyAfter(ring, c.inner, newest, ahead, at)
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

// stays is how much of a sub-window's length may still be in the window for partOf its count to fit into room. It is
// the inverse of overlap: ceil(count*left / sub) - 1 <= room as long as left <= (room+1) * sub / count.
func (l *Limit) stays(count, room uint64) int64 {
	if l.algorithm == FixedWindow || count <= room {
		return l.sub // a fixed window leaves at once
	}
	if count-min(count, l.even) > room {
		return 0
	}
	hi, lo := bits.Mul64(room+1, uint64(l.sub))
	left, _ := bits.Div64(hi, lo, count) // room+1 <= count, so it is at most sub
	return int64(left)
}

// emptyAfter is the shortest wait until a view above zero is zero, if nothing is added. newest is that of newestIn.
func (l *Limit) emptyAfter(ring []uint64, inner uint64, newest int, ahead uint64, at instant) time.Duration {
	count := ahead
	if inner == 0 && l.stays(ring[0], 0) > 0 { // it is zero before the count ahead comes in
		newest = 0
	}
	if newest < len(ring) {
		count = ring[newest]
	}
	return time.Duration(int64(newest+1)*l.sub - l.stays(count, 0) - at.off + at.back)
}
