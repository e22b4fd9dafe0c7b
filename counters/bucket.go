package counters

import (
	"math/bits"
	"time"
	"unsafe"
)

// Token and leaky buckets are GCRA, the generic cell rate algorithm (ITU-T I.371), in its virtual scheduling form. A
// bucket of capacity C that refills R per window W takes W/R of time for each unit of cost. Its state is a theoretical
// arrival time (TAT), at which it would be full again:
//
//	debt(t) = max(0, TAT - t)
//	a cost k is admitted if debt(t) + k*W/R <= C*W/R; then TAT = max(TAT, t) + k*W/R
//
// Times are fixed-point nanoseconds with shape.fraction binary digits after the point, since the start of the cell's
// ring. Times of costs are rounded down: where W/R is no whole number, a cost takes too little by less than 2^-fraction
// nanoseconds.
//
// The state is a time, not a number of tokens: a bucket stays as full as it was when its rule is edited.

// level is the state of a bucket: two busy periods, of which the one with more debt counts.
//
// A busy period adds up all that was taken since the bucket was last full. What others took is reported late, so the
// bucket may have been full in between, and a busy period that began later misses it. With many nodes that each take a
// little, this would lose nearly everything that others take. So the backdated period begins bucket.backdate before the
// bucket is full, early enough to include late reports. Neither period owes more than was taken.
type level struct{ run, backdated run }

// run is a busy period: it began at the time since with a full bucket, which will be full again at the time tat.
type run struct{ tat, since uint64 }

const bucketWords = int(unsafe.Sizeof(level{}) / wordBytes)

// level is the state of a bucket's cell.
func (c *cell) level() *level { return (*level)(unsafe.Add(unsafe.Pointer(c), headWords*wordBytes)) }

// bucket is a limit in the arithmetic of buckets. Except refill and backdateCost, which are costs, its fields are
// fixed-point durations.
type bucket struct {
	refill       uint64
	window       uint64 // time in which refill comes back
	one          uint64 // time that a cost of 1 takes
	full         uint64 // time that the whole capacity takes
	backdate     uint64 // how long before the bucket is full the backdated period begins
	backdateCost uint64 // what comes back in that time, rounded up
}

// backdateBy is bucket.backdate for all but short windows: in this time a report crosses an ocean, even if it is lost
// once.
const backdateBy = 500 * time.Millisecond

// maxSpan is the maximum of a duration, so that the sum of two does not overflow.
const maxSpan = 1 << 61

// fractionOf is shape.fraction. For windows under half an hour it leaves room for 2^20 windows until a bucket is full.
func fractionOf(window time.Duration) uint {
	return uint(max(0, 41-bits.Len64(uint64(window))))
}

// longestFill is the maximum time for a bucket to fill: from anywhere in a ring, no TAT may exceed maxSpan.
func longestFill(window time.Duration) time.Duration { return maxSpan>>fractionOf(window) - 4*window }

func newBucket(m *Meter, capacity, refill uint64) (b bucket, ok bool) {
	b = bucket{refill: refill, window: uint64(m.Window) << fractionOf(m.Window)}
	b.one, b.full = b.span(1), b.span(capacity)
	b.backdate = uint64(min(backdateBy, m.Window/4)) << fractionOf(m.Window)
	b.backdateCost = b.fits(b.backdate) + 1
	return b, b.one < maxSpan && b.full <= uint64(longestFill(m.Window))<<fractionOf(m.Window)
}

// span is the time that a cost takes, maxSpan at most.
func (b *bucket) span(cost uint64) uint64 {
	hi, lo := bits.Mul64(cost, b.window)
	if hi >= b.refill {
		return maxSpan
	}
	q, _ := bits.Div64(hi, lo, b.refill)
	return min(q, maxSpan)
}

// fits is the largest cost k that takes no more than a time: floor(k*window/refill) <= span if and only if
// k*window < (span+1)*refill.
func (b *bucket) fits(span uint64) uint64 {
	hi, lo := bits.Mul64(span+1, b.refill)
	if hi >= b.window {
		return MaxLimit
	}
	q, r := bits.Div64(hi, lo, b.window)
	if r == 0 && q > 0 {
		q--
	}
	return q
}

func (l *Limit) takeBucket(c *cell, cost, before uint64, at instant, commit bool, d *Decision) {
	if l.refill == 0 {
		d.RetryAfter = Never // a limit of 0, for a key that others counted
		return
	}
	asked := max(cost, 1)
	take := l.one
	if asked > 1 {
		take = l.span(asked)
	}
	state := c.level()
	at = state.notBefore(&l.shape, at)
	debt := l.debt(c, at)
	if before > 0 {
		debt += l.span(before)
	}
	if d.Allowed = asked <= l.max && debt+take <= l.full; d.Allowed {
		if l.algorithm == LeakyQueue {
			d.Delay = l.wait(debt, at)
		}
		if commit && cost > 0 {
			l.debitCounted(c, cost, take, at)
			debt = l.debt(c, at)
		}
	} else if d.RetryAfter = Never; asked <= l.max && (before == 0 || l.span(before)+take <= l.full) {
		d.RetryAfter = l.wait(debt+take-l.full, at)
	}
	if debt < l.full {
		d.Remaining = min(l.fits(l.full-debt), l.max)
	}
	d.ResetAfter = l.wait(l.debt(c, at), at)
}

// tokens converts a debt to a cost, rounded up.
func (l *Limit) tokens(debt uint64) uint64 {
	if debt <= l.full {
		return l.max - min(l.fits(l.full-debt), l.max)
	}
	return l.fits(debt-1) + 1
}

// point converts an instant to fixed point, since the start of the ring.
func (sh *shape) point(at instant) uint64 {
	return uint64(int64(sh.n)*sh.sub+at.off) << sh.fraction
}

// wait converts a duration from fixed point to whole nanoseconds, rounded up. If the clock is behind the cell's time,
// the wait includes the difference.
func (sh *shape) wait(span uint64, at instant) time.Duration {
	if span == 0 {
		return 0
	}
	return time.Duration(int64((span+1<<sh.fraction-1)>>sh.fraction) + at.back)
}

// notBefore returns the instant, but not one before the busy period: if the clock stepped back, the debt would exceed
// what was taken.
func (v *level) notBefore(sh *shape, at instant) instant {
	if late := int64(v.run.since>>sh.fraction) - int64(sh.n)*sh.sub - at.off; late > 0 {
		at.off += late
		at.back += late
	}
	return at
}

func (v *level) debt(sh *shape, at instant) uint64 {
	now := sh.point(at)
	return max(v.run.tat, v.backdated.tat, now) - now
}

// debit adds what was taken at the time then: now for own requests, in the past for those of others. It adds no more
// debt than there would be had it been known then.
func (v *level) debit(span, then, now, backdate uint64) {
	v.run.begin(then)
	v.run.add(span, then)
	v.backdated.begin(now - min(now, backdate))
	v.backdated.add(span, then)
}

// begin begins a new busy period at a time if the bucket is full then.
func (r *run) begin(at uint64) {
	if r.tat <= at {
		r.tat, r.since = at, at
	}
}

// add adds what was taken at a time. If that is before the busy period, the refill until the period began is not owed.
func (r *run) add(span, at uint64) {
	switch {
	case r.since <= at:
		r.tat += span
	case at+span > r.since:
		r.tat, r.since = r.tat+at+span-r.since, at
	}
	r.tat = min(r.tat, maxSpan)
}

// elapse moves the start of the ring on by so many sub-windows.
func (v *level) elapse(sh *shape, by int64) {
	hi, span := bits.Mul64(uint64(by), uint64(sh.sub)<<sh.fraction)
	if hi != 0 {
		*v = level{}
		return
	}
	for _, t := range [...]*uint64{&v.run.tat, &v.run.since, &v.backdated.tat, &v.backdated.since} {
		*t -= min(*t, span)
	}
}

// mergeBucket debits what others counted in the place i of the ring, as of the earliest time when they may have taken
// it: since, in nanoseconds from the start of the ring, or the start of the sub-window if that is later.
func (l *Limit) mergeBucket(c *cell, i int, count uint64, since int64, at instant) {
	then := min(max(int64(i)*l.sub, since), int64(i+1)*l.sub, int64(l.n)*l.sub+at.off)
	c.level().debit(l.span(count), uint64(then)<<l.fraction, l.point(at), l.backdate)
	if l.class != nil {
		c.level().limitDebt(l.point(at) + l.points(2*l.class.largest))
	}
}

// limitDebt has the bucket full at a time, if it were later.
func (v *level) limitDebt(tat uint64) {
	v.run.tat, v.backdated.tat = min(v.run.tat, tat), min(v.backdated.tat, tat)
}

// fold debits the counts that were merged before a limit was known.
func (l *Limit) fold(c *cell, ahead uint64, at instant) {
	for i, count := range c.counts(&l.shape) {
		if count > 0 {
			l.mergeBucket(c, i, count, 0, at)
		}
	}
	if ahead > 0 {
		l.mergeBucket(c, l.n+1, ahead, 0, at)
	}
	c.lower(pendingDebit)
}
