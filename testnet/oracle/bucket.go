package oracle

import (
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Token and leaky buckets. A bucket holds `capacity` tokens and is refilled with `refill` of them per window, evenly.
// The tokens that it lacks are its debt; a request of cost k is admitted if debt + k <= capacity. The state is the
// moment at which the bucket will be full again (the theoretical arrival time of GCRA). It is exact in units of
// 1/refill nanoseconds: a token takes `window` of them.

type rate struct{ window, refill uint64 }

func rateOf(l *counters.Limit) rate { return rate{uint64(l.Meter().Window), l.Refill()} }

// moment is the time t in units of 1/refill ns since a second before the epoch: a late run may begin before the epoch.
func (r rate) moment(t int64) wide { return product(uint64(t+int64(time.Second)), r.refill) }

// short is the debt at the time t, in tokens rounded up.
func (r rate) short(full wide, t int64) uint64 {
	now := r.moment(t)
	if !now.less(full) {
		return 0
	}
	return full.minus(now).over(r.window)
}

// replay is the truth about a bucket: it replays all that was taken in the order of time.
type replay struct {
	rate
	sub    int64
	full   wide // when the bucket would be full without the debits
	debits admissions
}

func (b *replay) view(t int64) uint64 { return b.short(b.after(b.debits[:b.debits.until(t)]), t) }

// after is when the bucket is full after some debits.
func (b *replay) after(debits admissions) wide {
	full := b.full
	for _, d := range debits {
		full = larger(full, b.moment(d.at)).plus(product(d.cost, b.window))
	}
	return full
}

func (b *replay) charge(cost uint64, t int64)  { b.debits.add(t, cost) }
func (b *replay) add(index int64, cost uint64) { b.charge(cost, index*b.sub) }
func (b *replay) ahead(t int64) uint64         { return b.debits.after(t) }

func (b *replay) steady(t int64) int64 {
	if next := b.debits.next(t); next < math.MaxInt64 {
		return next - 1
	}
	return math.MaxInt64
}

func (b *replay) forget(before int64) (all bool) {
	old := b.debits.until(before)
	b.full = b.after(b.debits[:old])
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

// charge adds what was taken now: it is received at once.
func (b *bucket) charge(cost uint64, t int64) { b.debit(cost, t, t) }

// receive adds what a peer took in a sub-window after the time since, and reported at the time t. It counts from the
// earliest time at which the peer may have taken it.
func (b *bucket) receive(index int64, cost uint64, since, t int64) {
	b.debit(cost, min(max(index*b.sub, since), (index+1)*b.sub, t), t)
}

// debit adds what was taken at one time and reported at another.
func (b *bucket) debit(cost uint64, taken, reported int64) {
	b.begin(&b.run, taken)
	b.take(&b.run, cost, taken)
	b.begin(&b.late, reported-min(int64(500*time.Millisecond), int64(b.window)/4))
	b.take(&b.late, cost, taken)
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
