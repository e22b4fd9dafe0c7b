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

// span is the time that a cost takes. It divides for costs above 1 alone.
func (l *Limit) span(cost uint64) uint64 {
	switch cost {
	case 0:
		return 0
	case 1:
		return l.one
	}
	return l.rate.Span(cost)
}

// meet prepares a bucket's cell for a decision: merges know the limit from now on, and what came while none was known
// is debited.
func (t *Table) meet(y *layer) {
	known := y.l
	if known.class != nil { // keys of the meter have limits of their own
		known = known.class.limit
	}
	if of := &t.meters.state(y.c.number()).limit; of.Load() != known {
		of.Store(known)
	}
	if y.c.has(pendingDebit) {
		y.fold()
	}
	y.busy = y.l.notBefore(y.c.level(), y.instant)
}

// takeBucket decides on a request that is no peek and fits the limit, and counts it if it is admitted.
func (t *Table) takeBucket(y *layer, cost uint64, d *Decision) {
	t.meet(y)
	ok, wait := y.bucketFits(cost, 0)
	if ok {
		y.debitInheriting(cost)
	}
	if d.Allowed = ok; ok {
		d.Delay = wait
	} else {
		d.RetryAfter = wait
	}
	d.Remaining, d.ResetAfter = y.bucketRest(0)
}

// bucketFits is fits of a bucket.
func (y *layer) bucketFits(asked, before uint64) (ok bool, wait time.Duration) {
	l := y.l
	if y.seen = l.debt(y.c, y.busy); asked > l.max {
		return false, Never
	}
	ahead, take := l.span(before), l.span(asked)
	debt := y.seen + ahead
	switch {
	case debt+take <= l.full && l.algorithm == LeakyQueue:
		return true, l.wait(debt, y.busy.back)
	case debt+take <= l.full:
		return true, 0
	case before > 0 && ahead+take > l.full:
		return false, Never
	}
	return false, l.wait(debt+take-l.full, y.busy.back)
}

// bucketRest is rest of a bucket.
func (y *layer) bucketRest(before uint64) (left uint64, reset time.Duration) {
	l := y.l
	if l.rate.Refill == 0 { // a limit of 0, of a key that others counted
		return 0, 0
	}
	if debt := y.seen + l.span(before); debt < l.full {
		left = min(l.rate.Fits(l.full-debt), l.max)
	}
	return left, l.wait(y.seen, y.busy.back)
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
// the wait is longer by that.
func (sh *shape) wait(span uint64, back int64) time.Duration {
	if span == 0 {
		return 0
	}
	return time.Duration(int64((span+1<<sh.fraction-1)>>sh.fraction) + back)
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
func (y *layer) fold() {
	for i, count := range y.c.counts(&y.l.shape) {
		if count > 0 {
			y.l.mergeBucket(y.c, i, count, 0, y.instant)
		}
	}
	if ahead := y.s.ahead(y.c); ahead > 0 {
		y.l.mergeBucket(y.c, y.l.n+1, ahead, 0, y.instant)
	}
	y.c.lower(pendingDebit)
}
