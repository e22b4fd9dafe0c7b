package rowtable

import (
	"time"
	"unsafe"

	"github.com/edgelimit/edgelimit/counters/internal/bucket"
	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// bucketHead is a head of a bucket. Its count of the sub-window before the newest is in head.state.
type bucketHead struct {
	_     [4]uint64
	level bucket.Level
}

var _ [0]struct{} = [unsafe.Sizeof(bucketHead{}) - unsafe.Sizeof(rows.Line{})]struct{}{} // it is a line

const (
	beforeAt  = 52 // of state: where other heads have age
	maxBefore = 1<<(64-beforeAt) - 1
)

func (c *head) level() *bucket.Level { return &(*bucketHead)(unsafe.Pointer(c)).level }

func (c *head) before() uint64 { return c.state >> beforeAt }

func (c *head) setBefore(n uint64) { c.state = c.state&(1<<beforeAt-1) | n<<beforeAt }

// bucketLimit is a limit in the arithmetic of buckets. Its times are fixed-point nanoseconds, since the start of the
// head's ring.
type bucketLimit struct {
	rate     bucket.Rate
	one      uint64 // time that a cost of 1 takes
	full     uint64 // time that the complete capacity takes
	backdate uint64 // how long before the bucket is full the backdated period begins
	back     uint64 // cost that comes back in that time, rounded up
	fraction uint   // binary digits after the point
}

func newBucketLimit(m *Meter, capacity, refill uint64) (b bucketLimit) {
	window := time.Duration(m.Sub * int64(m.N))
	b.fraction = m.digits()
	b.rate = bucket.Rate{Refill: refill, Window: uint64(window) << b.fraction}
	b.one, b.full, b.backdate = b.rate.Span(1), b.rate.Span(capacity), bucket.Backdate(window)
	b.back = b.rate.Fits(b.backdate) + 1
	return b
}

// digits is how many binary digits after the point the times of a bucket have.
func (m *Meter) digits() uint { return bucket.Fraction(time.Duration(m.Sub * int64(m.N))) }

// point converts a time since the start of the newest sub-window to fixed point.
func (l *Limit) point(off int64) uint64 { return uint64(int64(l.N)*l.Sub+off) << l.fraction }

// span is the time that a cost takes, 0 for windows. It divides for costs above 1 alone.
func (l *Limit) span(cost uint64) uint64 {
	switch {
	case cost == 0 || l.rate.Refill == 0:
		return 0
	case cost == 1:
		return l.one
	}
	return l.rate.Span(cost)
}

// wait converts a duration to whole nanoseconds, rounded up. If the clock is behind the head, the wait is longer.
func (l *Limit) wait(span uint64, back int64) int64 {
	if span == 0 {
		return 0
	}
	return int64((span+1<<l.fraction-1)>>l.fraction) + back
}

// tokens converts a debt to a cost, rounded up.
func (l *Limit) tokens(debt uint64) uint64 {
	if debt <= l.full {
		return l.Max - min(l.rate.Fits(l.full-debt), l.Max)
	}
	return l.rate.Fits(debt-1) + 1
}

// meet prepares a bucket for a decision: merges know the limit from now on, what came while none was known is debited,
// and the time is not before the busy period.
func (t *Table) meet(y *layer) {
	c, l := y.c, y.l
	if l.rate.Refill == 0 {
		return
	}
	known := l
	if l.class != nil { // keys of the meter have limits of their own
		known = l.class.limit
	}
	if of := &t.stateOf(c).limit; of.Load() != known {
		of.Store(known)
	}
	t.debitPending(y)
	y.notBefore()
}

// notBefore moves the time to the start of the busy period if it is before: otherwise, as the clock stepped back, the
// debt would exceed what was taken.
func (y *layer) notBefore() {
	if late := int64(y.c.level().Began()>>y.l.fraction) - int64(y.l.N)*y.l.Sub - y.off; late > 0 {
		y.off, y.back, y.late = y.off+late, y.back+late, y.late+late
	}
}

// debitPending debits the counts that were merged while no limit was known.
func (t *Table) debitPending(y *layer) {
	c, l := y.c, y.l
	if !c.has(pendingDebit) {
		return
	}
	c.lower(pendingDebit)
	var r ring
	t.load(y.s, y.h, c, &l.Meter, &r)
	for i, count := range r.counts[:l.N+1] {
		if count > 0 {
			y.debitPast(int64(l.N-i), count, 0)
		}
	}
	if c.has(ahead) {
		y.debitPast(-1, t.others(y.s, y.h, c, c.sub()+1), 0)
	}
}

// debitPast debits what others counted in the sub-window that is so many before the newest, as of the earliest time
// when they may have taken it: since, or the start of the sub-window if that is later.
func (y *layer) debitPast(age int64, count uint64, since int64) {
	c, l, off := y.c, y.l, y.off
	y.trimFreed()
	i := int64(l.N) - age
	since -= (c.sub() - int64(l.N)) * l.Sub
	then := min(max(i*l.Sub, since), (i+1)*l.Sub, int64(l.N)*l.Sub+off)
	c.level().Debit(l.rate.Span(count), uint64(then)<<l.fraction, l.point(off), l.backdate)
	if l.class != nil {
		c.level().Cap(l.point(off) + l.points(2*l.class.largest))
	}
}

// bucketFits is fits of a bucket.
func (y *layer) bucketFits(cost, before uint64) (ok bool, wait int64) {
	l := y.l
	if l.rate.Refill == 0 {
		return false, Never // a limit of 0, for a key that others counted
	}
	ahead, take := l.span(before), l.span(cost)
	debt := y.debt() + ahead
	switch {
	case cost > l.Max:
		return false, Never
	case debt+take <= l.full:
		if l.Algorithm == LeakyQueue {
			wait = l.wait(debt, y.back)
		}
		return true, wait
	case before > 0 && ahead+take > l.full:
		return false, Never
	}
	return false, l.wait(debt+take-l.full, y.back)
}

// bucketRest is rest of a bucket.
func (y *layer) bucketRest(before uint64) (left, reset int64) {
	l := y.l
	if l.rate.Refill == 0 {
		return 0, 0
	}
	owes := y.debt()
	if debt := owes + l.span(before); debt < l.full {
		left = int64(min(l.rate.Fits(l.full-debt), l.Max))
	}
	return left, l.wait(owes, y.back)
}

// debit takes a time from a bucket.
func (y *layer) debit(span uint64) {
	y.trimFreed()
	now := y.l.point(y.off)
	y.c.level().Debit(span, now, now, y.l.backdate)
}
