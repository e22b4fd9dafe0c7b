package counterstest

import (
	"cmp"
	"math"
	"slices"

	"github.com/edgelimit/edgelimit/counters"
)

// Token and leaky buckets. A bucket holds `capacity` tokens and is refilled with `refill` of them per window, evenly. What it is short of
// is its debt; a request of cost k is admitted if debt + k <= capacity. All buckets are kept as the moment at which they will be full
// again (the theoretical arrival time of GCRA), exactly: in units of 1/refill nanoseconds a token takes `window` of them, whatever
// the rate.

// rate is how fast a bucket is refilled.
type rate struct{ window, refill uint64 }

func rateOf(l *counters.Limit) rate { return rate{uint64(l.Meter().Window), l.Refill()} }

// moment is the time t in units of 1/refill ns.
func (r rate) moment(t int64) wide { return product(uint64(t), r.refill) }

// debit is when a bucket that would be full at a moment is full after so many tokens more were taken at the time t.
func (r rate) debit(full wide, tokens uint64, t int64) wide {
	return larger(full, r.moment(t)).plus(product(tokens, r.window))
}

// short is how many tokens, a part counting as one, a bucket is short of at the time t.
func (r rate) short(full wide, t int64) uint64 {
	now := r.moment(t)
	if !now.less(full) {
		return 0
	}
	return full.minus(now).over(r.window)
}

// replay is the truth about a bucket: all that was ever taken from it, each at its time, replayed in the order of these.
type replay struct {
	rate
	sub    int64
	full   wide        // when it would be full, but for the debits
	debits []admission // in the order of time
}

func (b *replay) view(t int64) uint64 {
	full := b.full
	for _, d := range b.debits {
		if d.at > t {
			break
		}
		full = b.debit(full, d.cost, d.at)
	}
	return b.short(full, t)
}

func (b *replay) charge(cost uint64, t int64) {
	b.debits = slices.Insert(b.debits, b.until(t), admission{t, cost})
}

// until is how many debits are not after t.
func (b *replay) until(t int64) int {
	i, _ := slices.BinarySearchFunc(b.debits, t, func(d admission, t int64) int { return cmp.Or(cmp.Compare(d.at, t), -1) })
	return i
}

func (b *replay) add(index int64, cost uint64) { b.charge(cost, index*b.sub) }

func (b *replay) ahead(t int64) (sum uint64) {
	for _, d := range b.debits[b.until(t):] {
		sum = add(sum, d.cost)
	}
	return sum
}

func (b *replay) steady(t int64) int64 {
	if next := b.until(t); next < len(b.debits) {
		return b.debits[next].at - 1
	}
	return math.MaxInt64
}

func (b *replay) forget(before int64) (all bool) {
	old := b.until(before)
	for _, d := range b.debits[:old] {
		b.full = b.debit(b.full, d.cost, d.at)
	}
	b.debits = slices.Delete(b.debits, 0, old)
	return len(b.debits) == 0 && b.short(b.full, before) == 0
}

// bucket is what one node believes of a bucket: what it took itself, and what it heard of, late and by sub-windows.
type bucket struct {
	rate
	sub  int64
	full wide  // when it will be full
	busy int64 // when it was full the last time
}

func (b *bucket) view(t int64) uint64 { return b.short(b.full, t) }

func (b *bucket) charge(cost uint64, t int64) {
	if !b.moment(t).less(b.full) {
		b.busy = t
	}
	b.full = b.debit(b.full, cost, t)
}

// hear takes in what a peer took in a sub-window, after the time since, and that is known at the time t. It counts from the earliest
// moment at which it may have been taken. Where that lies before the bucket was last full, what was refilled until then is not missing
// any more.
func (b *bucket) hear(index int64, cost uint64, since, t int64) {
	s := min(max(index*b.sub, since), (index+1)*b.sub, t)
	begin := b.moment(s)
	switch {
	case !begin.less(b.full):
		b.charge(cost, s)
	case s >= b.busy:
		b.full = b.debit(b.full, cost, s)
	default:
		alone := begin.plus(product(cost, b.window)) // when it would have been full again
		if busy := b.moment(b.busy); busy.less(alone) {
			b.full = b.full.plus(alone.minus(busy))
			b.busy = s
		}
	}
}

func (b *bucket) add(index int64, cost uint64) { b.hear(index, cost, 0, math.MaxInt64) }
func (b *bucket) ahead(int64) uint64           { return 0 } // nothing counts later than it is known
func (b *bucket) steady(int64) int64           { return math.MaxInt64 }
func (b *bucket) forget(before int64) bool     { return b.short(b.full, before) == 0 }
