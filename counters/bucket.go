package counters

import (
	"math/bits"
	"time"
	"unsafe"
)

// The arithmetic of token and leaky buckets: GCRA, the generic cell rate algorithm (ITU-T I.371), as the virtual
// scheduling of a theoretical arrival time (TAT). A bucket of capacity C that gets R back in a window W spends W/R on
// each unit of cost:
//
//	debt(t) = max(0, TAT - t)     admit k iff debt + k*W/R <= C*W/R     then TAT = max(TAT, t) + k*W/R
//
// Times are fixed-point numbers with shape.fraction binary digits after the nanosecond's point, counted from the
// beginning of the cell's ring, and a request's share of W is rounded down. So the arithmetic is exact where W/R is a
// whole number of nanoseconds, and elsewhere a request costs too little by less than 2^-fraction ns.
//
// What is kept is time, not tokens: a bucket whose rule is edited stays as full as it was.

// level is the state of a bucket: two runs, of which the one that owes more counts.
//
// The first begins whenever the bucket is full. What others took at about that time is sent later: where each took too
// little to keep the bucket busy for so long it would be lost, piece by piece, also where all of it together was too
// much. So the second run begins bucket.backdate before it is full, and what is sent soon enough falls into it. Neither
// ever owes more than the truth.
type level struct{ run, backdated run }

// run is a time from which on all that was taken adds up: a full bucket that was taken from at the time since, and
// never idled, would be full again at the time tat. If it did idle that is too early, and never too late.
type run struct{ tat, since uint64 }

const bucketWords = int(unsafe.Sizeof(level{}) / wordBytes)

// level is the state of a bucket's cell.
func (c *cell) level() *level { return (*level)(unsafe.Add(unsafe.Pointer(c), headWords*wordBytes)) }

// bucket is what a limit means for the arithmetic of a bucket: spans of time in fixed point.
type bucket struct {
	refill uint64
	window uint64 // in which refill comes
	one    uint64 // what a cost of 1 takes
	full   uint64 // what the whole capacity takes
	// by how much the late run begins before the bucket is full: while that lasts, others' requests are sent
	backdate     uint64
	backdateCost uint64 // cost that comes back in that time, rounded up
}

// backdateBy is bucket.late, but for short windows: after that a report of a peer across an ocean has come, also if it
// was lost once.
const backdateBy = 500 * time.Millisecond

// maxSpan caps spans of time, so that no sum of two overflows.
const maxSpan = 1 << 61

// fractionOf leaves 20 bits for the windows that a bucket takes to fill, where a window is shorter than half an hour.
func fractionOf(window time.Duration) uint {
	return uint(max(0, 41-bits.Len64(uint64(window))))
}

// longestFill is how long a bucket may take to fill, so that it has time to from anywhere in a ring and after.
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

// fits is the largest cost that takes no more than the span: k*window/refill, rounded down, is at most span just when
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

// takeBucket decides as a bucket does.
func (l *Limit) takeBucket(c *cell, cost, before uint64, at instant, commit bool, d *Decision) {
	if l.refill == 0 {
		d.Allowed, d.RetryAfter = false, Never // a limit of 0, of a key that others counted
		return
	}
	asked := max(cost, 1)
	take := l.one
	if asked > 1 {
		take = l.span(asked)
	}
	state := c.level()
	at = state.notBefore(&l.shape, at)
	debt := state.debt(&l.shape, at)
	if before > 0 {
		debt += l.span(before)
	}
	if d.Allowed = asked <= l.max && debt+take <= l.full; d.Allowed {
		if l.algorithm == LeakyQueue {
			d.Delay = l.wait(debt, at)
		}
		if commit && cost > 0 {
			state.take(take, l.point(at), l.backdate)
			c.count(c.counts(&l.shape), cost)
			debt = state.debt(&l.shape, at)
		}
	} else if d.RetryAfter = Never; asked <= l.max && (before == 0 || l.span(before)+take <= l.full) {
		d.RetryAfter = l.wait(debt+take-l.full, at)
	}
	d.Remaining = 0
	if debt < l.full {
		d.Remaining = min(l.fits(l.full-debt), l.max)
	}
	d.ResetAfter = l.wait(state.debt(&l.shape, at), at)
}

// tokens is what is used of the limit: the bucket's debt as a cost, rounded up.
func (l *Limit) tokens(debt uint64) uint64 {
	if debt <= l.full {
		return l.max - min(l.fits(l.full-debt), l.max)
	}
	return l.fits(debt-1) + 1
}

// point is the instant in fixed point, from the beginning of the ring.
func (sh *shape) point(at instant) uint64 {
	return uint64(int64(sh.n)*sh.sub+at.off) << sh.fraction
}

// wait is a span in whole nanoseconds, rounded up; as long as the clock is behind, it counts from there.
func (sh *shape) wait(span uint64, at instant) time.Duration {
	if span == 0 {
		return 0
	}
	return time.Duration(int64((span+1<<sh.fraction-1)>>sh.fraction) + at.back)
}

// notBefore is the instant, or where the clock went back the moment since when the bucket is busy: what it owes is
// never more than what was taken.
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

// take debits what a request takes at a time that is not before any other.
func (v *level) take(span, now, late uint64) {
	v.run.begin(now)
	v.run.add(span, now)
	v.backdated.begin(now - min(now, late))
	v.backdated.add(span, now)
}

// debit debits what others took, as of a time that may long have passed. It never debits more than had been if that had
// been known then: where the bucket has been full since, only what would not have come back until then is left to
// debit.
func (v *level) debit(span, then, now, late uint64) {
	v.run.begin(then)
	v.run.add(span, then)
	v.backdated.begin(now - min(now, late))
	v.backdated.add(span, then)
}

// begin begins the run anew if the bucket is full by then.
func (r *run) begin(at uint64) {
	if r.tat <= at {
		r.tat, r.since = at, at
	}
}

// add adds what was taken at a time. Of what was taken before the run, it adds what had not come back when the run
// began.
func (r *run) add(span, at uint64) {
	switch {
	case r.since <= at:
		r.tat += span
	case at+span > r.since:
		r.tat, r.since = r.tat+at+span-r.since, at
	}
	r.tat = min(r.tat, maxSpan)
}

// elapse moves the beginning of the ring on by so many sub-windows.
func (v *level) elapse(sh *shape, by int64) {
	hi, span := bits.Mul64(uint64(by), uint64(sh.sub)<<sh.fraction)
	if hi != 0 {
		*v = level{}
		return
	}
	v.run.elapse(span)
	v.backdated.elapse(span)
}

func (r *run) elapse(span uint64) {
	r.tat -= min(r.tat, span)
	r.since -= min(r.since, span)
}

// mergeBucket debits what others counted in the ring's place i, and where then is unknown as of its beginning.
func (l *Limit) mergeBucket(c *cell, i int, count uint64, since int64, at instant) {
	then := min(max(int64(i)*l.sub, since), int64(i+1)*l.sub, int64(l.n)*l.sub+at.off)
	c.level().debit(l.span(count), uint64(then)<<l.fraction, l.point(at), l.backdate)
}

// fold debits what was merged before a limit was known.
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
