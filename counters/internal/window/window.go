// Package window is the arithmetic of sliding and fixed windows, on plain numbers.
//
// A sliding window has n sub-windows of the length s. At the time t, in the sub-window c = t/s, it covers the
// sub-windows c-n+1 to c completely, and the last left = s - t%s of c-n, which is leaving. Of a limit L, its count is
//
//	seen(t) = sum(c-n+1 .. c) + part(count[c-n], left)
//	part(k, left) = max(ceil(k * left / s) - 1, k - even)    0 if k is 0
//	even = ceil(L / n)
//
// The first term is the least that a client which comes evenly may have had in the rest of the sub-window, so such a
// client is never rejected. The second one holds any window to L + even: even is the most that an even client has in a
// sub-window, and what exceeds it counts until the sub-window has left.
//
// A fixed window is a single sub-window: its count is that of c.
//
// # Proofs
//
// No window holds more than L + even. When a request is admitted, inner and the part of the k that are leaving are L
// at most, with it. The window that ends then holds inner + k <= L - part + k, and part >= k - even. So a limit of up
// to ten with ten sub-windows is exceeded by one at most, a larger one by a tenth.
//
// A client that comes evenly, at any rate up to the limit, is never denied, whatever L and n. Requests of cost 1 come
// every d >= W/L. At one of them let x = (W - left)/d: the complete sub-windows hold floor(x) earlier ones, and the
// leaving one k = floor(f + s/d) of them, f = x - floor(x). With p = left/s <= 1:
//
//	floor(x) + k*p  <=  x - f + p*(f + s/d)  <=  x + left/d  =  W/d  <=  L
//
// so floor(x) + ceil(k*p) - 1 <= L - 1: there is room. And k <= even, so the second term is no obstacle either. Without
// the 1 a client of a limit of 10 that comes evenly at 95 % would be denied every twentieth time.
//
// A client that comes in bursts pays for the first bound: it is sure of its limit again a window and a sub-window
// later.
//
// The functions take the counts by sub-window as
//
//	ring   counts of c-n, which is leaving, to c
//	inner  sum of the ring without the place that is leaving
//	ahead  count of c+1, by clocks that are ahead: it is not in the window yet, but makes waits longer
//	off    t%s
package window

import (
	"math/bits"
	"slices"
)

// Window is a window under a limit.
type Window struct {
	Sub   int64  // length of a sub-window in nanoseconds
	Even  uint64 // Even of the limit
	Fixed bool   // a sub-window leaves at once, when the next but n begins
}

// Even is the most that a client which spends a limit evenly has in one of n sub-windows.
func Even(limit uint64, n int) uint64 { return (limit + uint64(n) - 1) / uint64(n) }

// Seen is the count of the window.
func (w *Window) Seen(ring []uint64, inner uint64, off int64) uint64 {
	return inner + w.Part(ring[0], w.Sub-off)
}

// Most is the largest count that the window can have had since a time, relative to the start of c. At a time in the
// sub-window c-q it was that of c-q-n to c-q, of which the ring has lost q. left are the latest of these, the newest
// first; older ones count as the largest that is known.
func (w *Window) Most(ring, left []uint64, since int64) (most uint64) {
	n, largest := len(ring)-1, max(slices.Max(ring), slices.Max(left))
	count := func(age int) uint64 { // of c-age
		switch {
		case age <= n:
			return ring[n-age]
		case age <= n+len(left):
			return left[age-n-1]
		}
		return largest
	}
	var sum uint64
	for age := range n {
		sum += count(age)
	}
	for q := 0; ; q++ {
		off := since + int64(q)*w.Sub
		most = max(most, sum+w.Part(count(q+n), w.Sub-min(max(off, 0), w.Sub-1)))
		if off >= 0 || q > n+len(left) { // before that, all count as the largest
			return most
		}
		sum += count(q+n) - count(q)
	}
}

// Part is the part of a leaving sub-window's count that is in the window while so much of its length is, for
// 0 < left <= Sub.
func (w *Window) Part(count uint64, left int64) uint64 {
	if count == 0 || w.Fixed {
		return 0
	}
	return w.part(count, left)
}

// part is Part of a count above 0. It is apart, so that Part is inlined.
func (w *Window) part(count uint64, left int64) uint64 {
	hi, lo := bits.Mul64(count, uint64(left))
	lo, borrow := bits.Sub64(lo, 1, 0)
	q, _ := bits.Div64(hi-borrow, lo, uint64(w.Sub)) // ceil(count*left / Sub) - 1; left <= Sub, so the quotient fits
	return max(q, count-min(count, w.Even))
}

// stays is the inverse of Part: how much of a sub-window's length may still be in the window for Part of its count to
// fit into room; 0 if all of it has to leave. ceil(count*left / Sub) - 1 <= room as long as
// left <= (room+1) * Sub / count.
func (w *Window) stays(count, room uint64) int64 {
	if w.Fixed || count <= room {
		return w.Sub
	}
	if count-min(count, w.Even) > room {
		return 0
	}
	hi, lo := bits.Mul64(room+1, uint64(w.Sub))
	left, _ := bits.Div64(hi, lo, count) // room+1 <= count, so it is at most Sub
	return int64(left)
}

// Wait is the shortest time until no more than room is seen, if nothing is added. More is seen now.
//
// While a sub-window leaves, all newer ones are completely in the window. So it is the first whose newer ones have
// room, and room for a part of it; or which has to leave completely, and the next has not begun to.
func (w *Window) Wait(ring []uint64, inner, ahead, room uint64, off int64) int64 {
	if inner <= room {
		if left := w.stays(ring[0], room-inner); left > 0 {
			return w.Sub - left - off
		}
	}
	newer := inner + ahead
	for i := 1; i < len(ring); i++ {
		if newer -= ring[i]; newer <= room {
			if left := w.stays(ring[i], room-newer); left > 0 {
				return int64(i+1)*w.Sub - left - off
			}
		}
	}
	return int64(len(ring)+1)*w.Sub - w.stays(ahead, room) - off
}

// Reset is Wait until nothing is seen. It goes from the newest sub-window back, as the last to leave counts alone.
func (w *Window) Reset(ring []uint64, inner, ahead uint64, off int64) int64 {
	newest, count := len(ring), ahead
	for ; count == 0 && newest > 0; count = ring[newest] {
		newest--
	}
	if inner == 0 && w.stays(ring[0], 0) > 0 { // nothing is seen before the count ahead comes in
		newest, count = 0, ring[0]
	}
	return int64(newest+1)*w.Sub - w.stays(count, 0) - off
}

// Last is Reset where the newest count is that of the place i of the ring, and nothing is ahead.
func (w *Window) Last(i int, count uint64, off int64) int64 {
	leaves := int64(i+1)*w.Sub - off
	switch {
	case w.Fixed:
		leaves -= w.Sub
	case count <= w.Even:
		leaves -= int64(uint64(w.Sub) / count)
	}
	return leaves
}

// Newest is the newest place of a ring with a count, 0 if there is none.
func Newest(ring []uint64) int {
	i := len(ring) - 1
	for i > 0 && ring[i] == 0 {
		i--
	}
	return i
}
