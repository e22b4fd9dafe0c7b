package counters

import (
	"fmt"
	"time"
)

// Limit is a meter with a maximum. It is immutable and safe for concurrent use.
type Limit struct {
	spec
	max uint64
	bucket
	policy
	countsRejected bool
	tallies        bool
	ban            *banSpec   // nil: no bans
	class          *debtClass // nil: the limit is its meter's only one, see Debts
}

// MaxLimit is the largest maximum. Sums of limits do not overflow.
const MaxLimit = 1 << 40

// MaxLog is the largest maximum of a sliding log, which takes 16 bytes for each request.
const MaxLog = 1 << 14

// NewLimit returns the limit of at most max cost per window on the meter. A bucket has the capacity max, and refills
// max per window.
func NewLimit(m Meter, max uint64) (*Limit, error) {
	refill := uint64(0)
	if m.Algorithm.bucket() {
		refill = max
	}
	return newLimit(m, max, refill)
}

// NewBucket returns the limit of a token or leaky bucket that refills refill per window, evenly. Ten failed logins of
// which one is forgiven per hour are a capacity of 10, a refill of 1 and a window of an hour.
func NewBucket(m Meter, capacity, refill uint64) (*Limit, error) {
	if !m.Algorithm.bucket() {
		return nil, fmt.Errorf("meter %s: a refill is for buckets, not for a %s", m.Rule, m.Algorithm)
	}
	if refill == 0 && capacity > 0 {
		return nil, fmt.Errorf("meter %s: a bucket without a refill would stay empty for ever", m.Rule)
	}
	return newLimit(m, capacity, refill)
}

func newLimit(m Meter, maximum, refill uint64) (*Limit, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if !m.Algorithm.Counts() {
		return nil, fmt.Errorf("meter %s: algorithm %s is not for limits", m.Rule, m.Algorithm)
	}
	if err := checkMax(&m, max(maximum, refill)); err != nil {
		return nil, err
	}
	l := &Limit{spec: newSpec(m), max: maximum}
	if refill > 0 {
		var ok bool
		if l.bucket, ok = newBucket(&m, maximum, refill); !ok {
			return nil, fmt.Errorf("meter %s: a bucket of %d with a refill of %d per %v takes longer to fill than %v",
				m.Rule, maximum, refill, m.Window, longestFill(m.Window))
		}
	}
	return l, nil
}

func checkMax(m *Meter, maximum uint64) error {
	if maximum > MaxLimit {
		return fmt.Errorf("meter %s: limit %d is above %d", m.Rule, maximum, uint64(MaxLimit))
	}
	if m.Algorithm == SlidingLog && maximum > MaxLog {
		return fmt.Errorf("meter %s: limit %d is above %d, the maximum of a sliding log: use a sliding window",
			m.Rule, maximum, MaxLog)
	}
	return nil
}

// chargeable reports whether a request of the cost is no peek and fits the limit.
func (l *Limit) chargeable(cost uint64) bool { return cost > 0 && cost <= l.max }

// WithMax returns the limit with another maximum on the same meter: both count the same thing. It is an error for
// buckets, whose counts depend on the maximum.
func (l *Limit) WithMax(maximum uint64) (*Limit, error) {
	if l.algorithm.bucket() {
		return nil, fmt.Errorf("meter %s: a bucket counts by its capacity", l.meter.Rule)
	}
	if err := checkMax(&l.meter, maximum); err != nil {
		return nil, err
	}
	other := *l
	other.max = maximum
	return &other, nil
}

// Meter returns what the limit counts.
func (l *Limit) Meter() Meter { return l.meter }

// Max returns the most cost that a window may hold, or the capacity of a bucket.
func (l *Limit) Max() uint64 { return l.max }

// Refill returns what a bucket gets back per window; 0 for other algorithms.
func (l *Limit) Refill() uint64 { return l.bucket.refill }

// Lasts returns how long an admission counts: a window, or the time in which an empty bucket fills.
func (l *Limit) Lasts() time.Duration {
	if l.refill == 0 {
		return l.meter.Window
	}
	return time.Duration(l.full >> l.fraction)
}

// Refills returns how long n takes to come back into a bucket; 0 for other algorithms.
func (l *Limit) Refills(n uint64) time.Duration {
	if l.bucket.refill == 0 {
		return 0
	}
	return l.wait(l.span(n), instant{})
}

// Far returns the use up to which the limit is not near: three quarters of Max.
func (l *Limit) Far() uint64 { return l.max - l.max/4 }
