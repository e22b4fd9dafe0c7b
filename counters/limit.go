package counters

import (
	"fmt"
	"math"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/window"
	"github.com/edgelimit/edgelimit/node/text"
)

// Limit is a meter with a maximum. It is immutable and safe for concurrent use.
type Limit struct {
	spec
	max    uint64
	window window.Window
	bucketLimit
	policy
	countsRejected bool
	tallies        bool
	ban            *banSpec   // nil: no bans
	addressBan     *banSpec   // nil: bans keep no addresses
	addressBits    uint8      // of IPv6 addresses in addressBan
	bansSpent      bool       // see BanSpent
	class          *debtClass // nil: the limit is its meter's only one, see Debts
	headroom       uint64     // see Among
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
	l := &Limit{spec: newSpec(m), max: maximum, window: newWindow(&m, maximum)}
	if refill > 0 {
		var ok bool
		if l.bucketLimit, ok = newBucketLimit(&m, maximum, refill); !ok {
			return nil, fmt.Errorf("meter %s: a bucket of %d with a refill of %d per %s takes longer to fill than %s",
				m.Rule, maximum, refill, text.Duration(m.Window), text.Duration(longestFill(m.Window)))
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
	other.max, other.window = maximum, newWindow(&l.meter, maximum)
	other.headroom = l.Largest() - min(maximum, l.Largest())
	return &other, nil
}

// Override returns the limit with another maximum for some keys. On the same window it has the meter of l, so that
// their counts stay. A bucket, and another window, need a meter of their own, whose rule is the name of l's with a
// suffix: it counts these keys anew. Policies stay, but a limit with bans needs the same meter, which its bans have as
// well. A queue has no overrides.
func (l *Limit) Override(maximum uint64, window time.Duration) (*Limit, error) {
	if l.algorithm == LeakyQueue {
		return nil, fmt.Errorf("meter %s: a queue has one limit for all keys", l.meter.Rule)
	}
	if !l.algorithm.bucket() && window == l.meter.Window {
		return l.WithMax(maximum)
	}
	if l.ban != nil {
		return nil, fmt.Errorf("meter %s: bans are of one window, and not of a bucket: give a limit per %s",
			l.meter.Rule, text.Duration(l.meter.Window))
	}
	name := fmt.Sprintf("%s%s%d/%d", l.meter.Rule, overrideMark, maximum, window.Milliseconds())
	own, err := NewLimit(NewMeter(name, l.algorithm, window), maximum)
	if err != nil {
		return nil, err
	}
	own.policy, own.countsRejected = l.policy, l.countsRejected
	return own, nil
}

// overrideMark separates a rule's name in a meter from the limit of an override, as homeMark does from a scope.
const overrideMark = "%#"

// Among returns the limit as one of several on its meter, of which the largest has the given maximum. Each of them has
// to know: what others count of a key is plausible by the largest, and what a table reports of its own is relative to
// it (Demand).
func (l *Limit) Among(largest uint64) *Limit {
	other := *l
	other.headroom = largest - min(l.max, largest)
	return &other
}

// Largest returns the largest maximum of the limits on the meter: Max, but see Among.
func (l *Limit) Largest() uint64 { return l.max + l.headroom }

// Meter returns what the limit counts.
func (l *Limit) Meter() Meter { return l.meter }

// Max returns the most cost that a window may hold, or the capacity of a bucket.
func (l *Limit) Max() uint64 { return l.max }

// Refill returns what a bucket gets back per window; 0 for other algorithms.
func (l *Limit) Refill() uint64 { return l.rate.Refill }

// Lasts returns how long an admission counts: a window, or the time in which an empty bucket fills.
func (l *Limit) Lasts() time.Duration {
	if l.rate.Refill == 0 {
		return l.meter.Window
	}
	return time.Duration(l.full >> l.fraction)
}

// MostIn returns the most that one node admits of a key in a time, as far as it still counts: the limit, and what a
// bucket gets back meanwhile.
func (l *Limit) MostIn(d time.Duration) uint64 {
	if l.rate.Refill == 0 {
		return l.Largest()
	}
	back := float64(l.rate.Refill) * d.Seconds() / l.meter.Window.Seconds()
	return l.Largest() + uint64(math.Ceil(min(back, MaxLimit)))
}

// Refills returns how long n takes to come back into a bucket; 0 for other algorithms.
func (l *Limit) Refills(n uint64) time.Duration {
	if l.rate.Refill == 0 {
		return 0
	}
	return l.wait(l.rate.Span(n), instant{})
}

// Far returns the use up to which the limit is not near: three quarters of Largest.
func (l *Limit) Far() uint64 { return l.Largest() - l.Largest()/4 }
