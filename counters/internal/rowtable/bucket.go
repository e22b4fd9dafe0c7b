package rowtable

import (
	"time"
	"unsafe"

	"github.com/edgelimit/edgelimit/counters/internal/bucket"
	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// Bucket is the arithmetic of a bucket's limit. Except Refill, its fields are durations, in fixed-point nanoseconds
// with Meter.Fraction binary digits after the point, since the start of the head's ring.
type Bucket struct {
	bucket.Rate
	Full     uint64 // time that the complete capacity takes
	Backdate uint64 // how long before the bucket is full the backdated period begins
}

// SetBucket makes the meter that of a bucket.
func (m *Meter) SetBucket(capacity, refill uint64) {
	window := time.Duration(m.Sub * int64(m.N))
	m.Fraction = bucket.Fraction(window)
	b := &Bucket{Rate: bucket.Rate{Refill: refill, Window: uint64(window) << m.Fraction}}
	b.Full = b.Span(capacity)
	b.Backdate = bucket.Backdate(window)
	m.Bucket = b
}

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

// point converts a time since the start of the newest sub-window to fixed point, since the start of the ring.
func (m *Meter) point(off int64) uint64 { return uint64(int64(m.N)*m.Sub+off) << m.Fraction }

// wait converts a duration to whole nanoseconds, rounded up. If the clock is behind the head, the wait is longer.
func (m *Meter) wait(span uint64, back int64) int64 {
	if span == 0 {
		return 0
	}
	return int64((span+1<<m.Fraction-1)>>m.Fraction) + back
}

// takeBucket is Take of a bucket that has a head, at the time off in its newest sub-window.
func (t *Table) takeBucket(s *rows.Shard, l *Limit, c *head, cost uint64, off, back int64) (d Decision) {
	asked := max(cost, 1)
	chargeable := cost > 0 && cost <= l.Max
	if chargeable {
		c.offer(s, cost)
	}
	if l.Bucket.Refill == 0 {
		d.RetryAfter = Never // a limit of 0, for a key that others counted
		return d
	}
	level := c.level()
	if late := int64(level.Began()>>l.Fraction) - int64(l.N)*l.Sub - off; late > 0 { // the clock stepped back
		off, back = off+late, back+late
	}
	now, take := l.point(off), l.Bucket.Span(asked)
	debt := level.Debt(now)
	switch d.Allowed = asked <= l.Max && debt+take <= l.Bucket.Full; {
	case !d.Allowed:
		if d.RetryAfter = Never; asked <= l.Max {
			d.RetryAfter = l.wait(debt+take-l.Bucket.Full, back)
		}
	case cost > 0:
		level.Debit(take, now, now, l.Bucket.Backdate)
		debt = level.Debt(now)
		c.setNewest(c.newest() + cost)
		c.send()
	}
	if chargeable {
		if c.lower(denied); !d.Allowed {
			c.raise(denied)
		}
	}
	if debt < l.Bucket.Full {
		d.Remaining = min(l.Bucket.Fits(l.Bucket.Full-debt), l.Max)
	}
	d.ResetAfter = l.wait(debt, back)
	return d
}

// mergeBucket debits what others counted in the sub-window that is so many before the newest, as of the earliest time
// when they may have taken it: since, or the start of the sub-window if that is later.
func (m *Meter) mergeBucket(c *head, age int64, count uint64, since, off int64) {
	i := int64(m.N) - age
	since -= (c.sub() - int64(m.N)) * m.Sub
	then := min(max(i*m.Sub, since), (i+1)*m.Sub, int64(m.N)*m.Sub+off)
	b := m.Bucket
	c.level().Debit(b.Span(count), uint64(then)<<m.Fraction, m.point(off), b.Backdate)
}
