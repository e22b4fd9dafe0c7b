package counters

import (
	"time"
	"unsafe"

	"github.com/edgelimit/edgelimit/counters/internal/bucket"
)

// The times of buckets are fixed-point nanoseconds with shape.fraction binary digits after the point, since the start
// of the cell's ring.

const bucketWords = int(unsafe.Sizeof(bucket.Level{}) / wordBytes)

// level is the state of a bucket's cell.
func (c *cell) level() *bucket.Level {
	return (*bucket.Level)(unsafe.Add(unsafe.Pointer(c), headWords*wordBytes))
}

// bucketLimit is a limit in the arithmetic of buckets. Except backdateCost, which is a cost, its fields are durations.
type bucketLimit struct {
	rate         bucket.Rate
	one          uint64 // time that one unit of cost takes
	full         uint64 // time that the complete capacity takes
	backdate     uint64 // how long before the bucket is full the backdated period begins
	backdateCost uint64 // what comes back in that time, rounded up
}

// longestFill is the maximum time for a bucket to fill: from anywhere in a ring, no TAT may exceed bucket.MaxSpan.
func longestFill(window time.Duration) time.Duration {
	return bucket.MaxSpan>>bucket.Fraction(window) - 4*window
}

func newBucketLimit(m *Meter, capacity, refill uint64) (b bucketLimit, ok bool) {
	b.rate = bucket.Rate{Refill: refill, Window: uint64(m.Window) << bucket.Fraction(m.Window)}
	b.one, b.full = b.rate.Span(1), b.rate.Span(capacity)
	b.backdate = bucket.Backdate(m.Window)
	b.backdateCost = b.rate.Fits(b.backdate) + 1
	return b, b.one < bucket.MaxSpan && b.full <= uint64(longestFill(m.Window))<<bucket.Fraction(m.Window)
}

func (l *Limit) takeBucket(c *cell, cost, before uint64, at instant, commit bool, d *Decision) {
	if l.rate.Refill == 0 {
		d.RetryAfter = Never // a limit of 0, for a key that others counted
		return
	}
	asked := max(cost, 1)
	take := l.one
	if asked > 1 {
		take = l.rate.Span(asked)
	}
	state := c.level()
	at = l.notBefore(state, at)
	debt := l.debt(c, at)
	if before > 0 {
		debt += l.rate.Span(before)
	}
	if d.Allowed = asked <= l.max && debt+take <= l.full; d.Allowed {
		if l.algorithm == LeakyQueue {
			d.Delay = l.wait(debt, at)
		}
		if commit && cost > 0 {
			l.debitCounted(c, cost, take, at)
			debt = l.debt(c, at)
		}
	} else if d.RetryAfter = Never; asked <= l.max && (before == 0 || l.rate.Span(before)+take <= l.full) {
		d.RetryAfter = l.wait(debt+take-l.full, at)
	}
	if debt < l.full {
		d.Remaining = min(l.rate.Fits(l.full-debt), l.max)
	}
	d.ResetAfter = l.wait(l.debt(c, at), at)
}

// tokens converts a debt to a cost, rounded up.
func (l *Limit) tokens(debt uint64) uint64 {
	if debt <= l.full {
		return l.max - min(l.rate.Fits(l.full-debt), l.max)
	}
	return l.rate.Fits(debt-1) + 1
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
func (sh *shape) notBefore(v *bucket.Level, at instant) instant {
	if late := int64(v.Began()>>sh.fraction) - int64(sh.n)*sh.sub - at.off; late > 0 {
		at.off += late
		at.back += late
	}
	return at
}

// mergeBucket debits what others counted in the place i of the ring, as of the earliest time when they may have taken
// it: since, in nanoseconds from the start of the ring, or the start of the sub-window if that is later.
func (l *Limit) mergeBucket(c *cell, i int, count uint64, since int64, at instant) {
	l.trimFreed(c, at)
	then := min(max(int64(i)*l.sub, since), int64(i+1)*l.sub, int64(l.n)*l.sub+at.off)
	c.level().Debit(l.rate.Span(count), uint64(then)<<l.fraction, l.point(at), l.backdate)
	if l.class != nil {
		c.level().Cap(l.point(at) + l.points(2*l.class.largest))
	}
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
