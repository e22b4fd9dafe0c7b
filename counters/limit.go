package counters

import (
	"fmt"
	"time"
)

// Limit is a meter with the most that may be admitted. It is immutable and safe for concurrent use.
type Limit struct {
	meter Meter
	max   uint64
	id    uint64
	shape
	bucket
	policy
	countsRejected bool
	ban            *banSpec // nil: nobody is banned
}

// MaxLimit is the largest maximum: far beyond use, and far from where sums would overflow.
const MaxLimit = 1 << 40

// MaxLog is the largest maximum of a sliding log, which remembers each request: 16 bytes a key and request.
const MaxLog = 1 << 14

// NewLimit returns the limit of at most max cost per window on the meter. A bucket has max for its capacity, and gets
// max back in each window.
func NewLimit(m Meter, max uint64) (*Limit, error) {
	refill := uint64(0)
	if m.Algorithm.bucket() {
		refill = max
	}
	return newLimit(m, max, refill)
}

// NewBucket returns the limit of a token or leaky bucket that holds capacity, and gets refill back in each of the
// meter's windows, a little at a time: ten failed logins of which one is forgiven an hour are a capacity of 10, a
// refill of 1 and a window of an hour.
func NewBucket(m Meter, capacity, refill uint64) (*Limit, error) {
	if !m.Algorithm.bucket() {
		return nil, fmt.Errorf("meter %s: %s is not a bucket that could be refilled", m.Rule, m.Algorithm)
	}
	if refill == 0 && capacity > 0 {
		return nil, fmt.Errorf("meter %s: a bucket without a refill would stay empty for ever", m.Rule)
	}
	return newLimit(m, capacity, refill)
}

func newLimit(m Meter, largest, refill uint64) (*Limit, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if !m.Algorithm.Counts() {
		return nil, fmt.Errorf("meter %s: bans are no limit", m.Rule)
	}
	if largest > MaxLimit || refill > MaxLimit {
		return nil, fmt.Errorf("meter %s: limit %d is above %d", m.Rule, max(largest, refill), uint64(MaxLimit))
	}
	if m.Algorithm == SlidingLog && largest > MaxLog {
		return nil, fmt.Errorf(
			"meter %s: limit %d is above %d, which is as much as a log of each request can hold: a sliding window "+
				"has no such end",
			m.Rule,
			largest,
			MaxLog,
		)
	}
	l := &Limit{meter: m, max: largest, id: m.id(), shape: m.shape()}
	l.scope, _ = m.Home()
	if refill > 0 {
		var ok bool
		if l.bucket, ok = newBucket(&m, largest, refill); !ok {
			return nil, fmt.Errorf(
				"meter %s: a bucket of %d that gets %d in %v back takes longer to fill than can be told: at most %v",
				m.Rule, largest, refill, m.Window, longestFill(m.Window))
		}
	}
	return l, nil
}

// chargeable reports whether a request of the cost is more than a peek, and could be admitted at all.
func (l *Limit) chargeable(cost uint64) bool { return cost > 0 && cost <= l.max }

// Meter returns what the limit counts.
func (l *Limit) Meter() Meter { return l.meter }

// Max returns the most cost that a window may hold; of a bucket, its capacity.
func (l *Limit) Max() uint64 { return l.max }

// Lasts returns how long an admission counts: for a window, or for as long as a bucket takes to come back from all that
// it holds.
func (l *Limit) Lasts() time.Duration {
	if l.refill == 0 {
		return l.meter.Window
	}
	return time.Duration(l.full >> l.fraction)
}

// Refill returns what a bucket gets back in a window; 0 for other algorithms.
func (l *Limit) Refill() uint64 { return l.bucket.refill }

// Far returns the usage up to which the limit does not count as near: three quarters of Max.
func (l *Limit) Far() uint64 { return l.max - l.max/4 }
