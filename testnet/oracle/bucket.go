package oracle

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Token and leaky buckets. A bucket holds `capacity` tokens and is refilled with `refill` of them per window, evenly.
// What it is short of is its debt; a request of cost k is admitted if debt + k <= capacity. All buckets are kept as the
// moment at which they will be full again (the theoretical arrival time of GCRA), exactly: in units of 1/refill
// nanoseconds a token takes `window` of them, whatever the rate.

// rate is how fast a bucket is refilled.
type rate struct{ window, refill uint64 }

func rateOf(l *counters.Limit) rate { return rate{uint64(l.Meter().Window), l.Refill()} }

// moment is the time t in units of 1/refill ns, from a second before the epoch: a late run may begin before it.
func (r rate) moment(t int64) wide { return product(uint64(t+int64(time.Second)), r.refill) }

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

// replay is the truth about a bucket: all that was ever taken from it, each at its time, replayed in the order of
// these.
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
	i, _ := slices.BinarySearchFunc(b.debits, t,
		func(d admission, t int64) int { return cmp.Or(cmp.Compare(d.at, t), -1) })
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

// bucket is one node's view of a bucket: what it took itself, and what it received from others, late and by
// sub-windows. It follows two runs and uses the one with less left: one starts when the bucket is full, the other half
// a second or a quarter of a window earlier, so that it includes what others took meanwhile and reported late.
type bucket struct {
	rate
	sub       int64
	run, late run
}

// run is the time at which a bucket will be full, and the time since which it adds up all that was taken.
type run struct {
	full  wide
	since int64
}

func (b *bucket) view(t int64) uint64 { return b.short(larger(b.run.full, b.late.full), t) }

// lag is the time between the start of the late run and the full bucket.
func (b *bucket) lag() int64 { return min(int64(500*time.Millisecond), int64(b.window)/4) }

func (b *bucket) charge(cost uint64, t int64) {
	b.begin(&b.run, t)
	b.take(&b.run, cost, t)
	b.begin(&b.late, t-b.lag())
	b.take(&b.late, cost, t)
}

// receive adds what a peer took in a sub-window after the time since, and reported at the time t. It counts from the
// earliest time at which the peer may have taken it.
func (b *bucket) receive(index int64, cost uint64, since, t int64) {
	s := min(max(index*b.sub, since), (index+1)*b.sub, t)
	b.begin(&b.run, s)
	b.take(&b.run, cost, s)
	b.begin(&b.late, t-b.lag())
	b.take(&b.late, cost, s)
}

// begin begins a run anew where the bucket is full by then.
func (b *bucket) begin(r *run, t int64) {
	if now := b.moment(t); !now.less(r.full) {
		r.full, r.since = now, t
	}
}

// take adds what was taken at the time t. If that is before the run, the refill until its start is subtracted.
func (b *bucket) take(r *run, cost uint64, t int64) {
	if t >= r.since {
		r.full = r.full.plus(product(cost, b.window))
		return
	}
	alone := b.moment(t).plus(product(cost, b.window)) // when it would have been full again
	if began := b.moment(r.since); began.less(alone) {
		r.full = r.full.plus(alone.minus(began))
		r.since = t
	}
}

func (b *bucket) add(index int64, cost uint64) { b.receive(index, cost, 0, math.MaxInt64) }
func (b *bucket) ahead(int64) uint64           { return 0 } // nothing counts later than it is known
func (b *bucket) steady(int64) int64           { return math.MaxInt64 }
func (b *bucket) forget(before int64) bool     { return b.view(before) == 0 }
