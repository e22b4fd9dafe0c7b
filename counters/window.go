package counters

import (
	"math"
	"math/bits"
	"time"
)

// The arithmetic of the sliding-window counter, over rings of sub-window counts.
//
// A window of n sub-windows of length s that ends at time t, in sub-window c = t/s, holds the sub-windows c-n+1 to c whole
// and c-n in part: of its length, s - t%s still overlaps. The count is
//
//	view(t) = sum(c-n+1 .. c) + ceil(count[c-n] * (s - t%s) / s)
//
// in whole numbers. Rounding up makes the comparison view + cost <= limit exact: it holds just when it holds for the
// fraction. A ring has n+2 places: c-n to c, and c+1 for counts of a peer whose clock is ahead, which are seen when time has come
// to them: no window is ever longer than it should be.

// frame of reference of one decision: where in the ring `now` stands.
type instant struct {
	now   int64
	index int64 // the sub-window that holds now
	left  int64 // how much of the oldest sub-window still overlaps: (0, sub]
}

func (m *Meter) at(now int64) instant {
	sub := int64(m.Sub)
	index := now / sub
	return instant{now: now, index: index, left: sub - (now - index*sub)}
}

// ringSize is the number of places that a ring of the meter has.
func (m *Meter) ringSize() int { return m.SubWindows() + 2 }

// place is where a ring keeps a sub-window. Near the epoch a window begins before it, by less than the ring is long.
func place(index int64, size int) int { return int(uint64(index+int64(size)) % uint64(size)) }

// view is the count of the window that ends at the instant.
func view(ring []uint64, m *Meter, at instant) uint64 {
	n := int64(m.SubWindows())
	oldest, next := place(at.index-n, len(ring)), place(at.index+1, len(ring))
	var sum uint64
	for i, count := range ring {
		if i != oldest && i != next {
			sum = addSaturated(sum, count)
		}
	}
	return addSaturated(sum, overlap(ring[oldest], at.left, int64(m.Sub)))
}

// overlap is ceil(n * left / sub), for 0 < left <= sub.
func overlap(n uint64, left, sub int64) uint64 {
	if n == 0 || left == sub {
		return n
	}
	hi, lo := bits.Mul64(n, uint64(left))
	q, r := bits.Div64(hi, lo, uint64(sub)) // left < sub, so the quotient fits
	if r > 0 {
		q++
	}
	return q
}

// roomAfter is the least wait until the view leaves room for a cost if nothing is added: 0 when there is room now. It walks
// the sub-windows in the order in which they leave, and solves for the moment inside the one that makes the difference.
func roomAfter(ring []uint64, m *Meter, at instant, most, cost uint64) time.Duration {
	if cost > most {
		return Never
	}
	room := most - cost
	n, sub := int64(m.SubWindows()), int64(m.Sub)
	for leaving := at.index - n; ; leaving++ {
		// While this one leaves, the n after it lie in the window whole. The one after at.index is the last that can hold counts.
		var rest uint64
		for i := leaving + 1; i <= min(leaving+n, at.index+1); i++ {
			rest = addSaturated(rest, ring[place(i, len(ring))])
		}
		if rest > room {
			continue
		}
		// Of the one that leaves, `left` may still overlap: ceil(count*left/sub) <= room-rest.
		left := sub
		if count, allowed := ring[place(leaving, len(ring))], room-rest; count > allowed {
			hi, lo := bits.Mul64(allowed, uint64(sub))
			q, _ := bits.Div64(hi, lo, count)
			left = int64(q)
		}
		end := (leaving + n + 1) * sub // when it has left
		if left == 0 && leaving < at.index+1 {
			continue // not before it has left, and then the next one begins to leave
		}
		return time.Duration(max(end-left, at.now) - at.now)
	}
}

// resetAfter is the least wait until the view is zero if nothing is added.
func resetAfter(ring []uint64, m *Meter, at instant) time.Duration {
	n := int64(m.SubWindows())
	if view(ring, m, at) == 0 {
		return 0
	}
	for index := at.index + 1; ; index-- {
		if ring[place(index, len(ring))] != 0 {
			return time.Duration((index+n+1)*int64(m.Sub) - at.now)
		}
	}
}

func addSaturated(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}
