package counters

import (
	"cmp"
	"fmt"
	"math"
	"strings"
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
	plain          bool   // a window or bucket without what follows, see takeInto
	near           uint64 // takeInto takes no note of a request that leaves as much and is of a key
	burst          uint64 // that was asked for less than this since the last drain
	countsRejected bool
	tallies        bool
	ban            *banSpec // nil: no bans
	addressBan     *banSpec // nil: no bans of addresses
	bansSpent      bool
	class          *debtClass // nil: the limit is its meter's only one, see Debts
	headroom       uint64     // Largest less max
}

// MaxLimit is the largest maximum. Sums of limits do not overflow.
const MaxLimit = 1 << 40

// MaxLog is the largest maximum of a sliding log, which takes 16 bytes for each request.
const MaxLog = 1 << 14

// LimitConfig is what a limit counts, how much it admits and what it does beyond. The zero value of all but Meter and
// Max is the usual one.
type LimitConfig struct {
	Meter Meter
	// Max is the most cost that a window may hold, or the capacity of a bucket; MaxLimit at most.
	Max uint64
	// Refill is what a token or leaky bucket gets back per window, evenly; 0: Max. Ten failed logins of which one is
	// forgiven per hour are a Max of 10, a Refill of 1 and a window of an hour.
	Refill uint64
	// Among is the largest Max of the limits on the meter; 0: Max. Each of them has to know: what others count of a key
	// is plausible by the largest, and what a table reports of its own is relative to it (Demand).
	Among uint64

	// Scope is which nodes count together, and Region the region if it is the nodes of one: 1 to MaxRegion bytes. The
	// rule's name must have at most MaxScopedRule bytes then.
	Scope  Scope
	Region string
	// OnPartition is what the limit does while peers are unreachable.
	OnPartition Partition
	// MaxUnsent is the most cost that a table may admit of a key before it flushes early; 0: any.
	MaxUnsent uint64

	// CountRejected has the limit count denied requests too, up to twice Max; never peeks, nor requests that only
	// another layer denies. It is not for buckets, which refill whatever is asked of them.
	CountRejected bool
	// Tally has it count every request (tally.go). It is for fixed windows alone: with others a client that keeps
	// asking would never be admitted again.
	Tally bool

	// Ban is for how long, in whole milliseconds, each key is banned that the limit denies a request; 0: not at all.
	// RetryAfter of the denial and of later ones is at least the rest of the ban. Peeks, requests that a mode lets pass
	// and those larger than the limit do not lead to a ban. During a ban no request is counted.
	Ban time.Duration
	// BanSpent has a key banned, too, once a report ([Table.Report]) leaves nothing of the limit. It is for limits that
	// count offences such as failed logins, of which requests are not charged: five wrong passwords ban.
	BanSpent bool
	// AddressBans is the rule of the meter of bans of addresses, without the mark of a scope as Meter.Rule is: wherever
	// Charge.Address gives one, it is banned in place of the key, and with it all keys of the address. Empty: none.
	AddressBans string
}

// NewLimit returns the limit of at most max cost per window on the meter. A bucket has the capacity max, and refills
// max per window.
func NewLimit(m Meter, max uint64) (*Limit, error) { return LimitConfig{Meter: m, Max: max}.New() }

// New returns the limit.
func (c LimitConfig) New() (*Limit, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Meter.Rule += homeOf(c.Scope, c.Region)
	l := &Limit{
		spec: newSpec(c.Meter), max: c.Max, window: newWindow(&c.Meter, c.Max),
		policy: policy{c.OnPartition, c.MaxUnsent}, headroom: max(c.Among, c.Max) - c.Max,
		countsRejected: c.CountRejected, tallies: c.Tally,
	}
	if refill := c.refill(); refill > 0 {
		var ok bool
		if l.bucketLimit, ok = newBucketLimit(&c.Meter, c.Max, refill); !ok {
			return nil, fmt.Errorf("meter %s: a bucket of %d with a refill of %d per %s takes longer to fill than %s",
				c.Meter.Rule, c.Max, refill, text.Duration(c.Meter.Window), text.Duration(longestFill(c.Meter.Window)))
		}
	}
	if err := l.setBans(&c); err != nil {
		return nil, err
	}
	l.plain = (l.algorithm <= FixedWindow || l.rate.Refill > 0) && !l.countsRejected && !l.tallies && l.ban == nil
	l.setThresholds()
	return l, nil
}

// With returns the limit with another configuration.
func (l *Limit) With(change func(*LimitConfig)) (*Limit, error) {
	c := l.config()
	change(&c)
	return c.New()
}

// setThresholds sets what follows from the maximum.
func (l *Limit) setThresholds() {
	l.near, l.burst = l.Largest()-l.Far()+l.backdateCost, max(burstMin, l.max/burstShare)
}

// refill is what a bucket gets back per window; 0 for other algorithms.
func (c *LimitConfig) refill() uint64 {
	if !c.Meter.Algorithm.bucket() {
		return 0
	}
	return cmp.Or(c.Refill, c.Max)
}

// check reports what is wrong with all but the bans.
func (c *LimitConfig) check() error {
	m := &c.Meter
	if err := m.Validate(); err != nil {
		return err
	}
	switch {
	case !m.Algorithm.Counts():
		return fmt.Errorf("meter %s: algorithm %s is not for limits", m.Rule, m.Algorithm)
	case c.Refill > 0 && !m.Algorithm.bucket():
		return fmt.Errorf("meter %s: a refill is for buckets, not for a %s", m.Rule, m.Algorithm)
	case c.CountRejected && m.Algorithm.bucket():
		return fmt.Errorf("meter %s: a %s refills whatever is asked of it", m.Rule, m.Algorithm)
	case c.Tally && m.Algorithm != FixedWindow:
		return fmt.Errorf("meter %s: only a fixed window counts every request, not a %s", m.Rule, m.Algorithm)
	}
	return checkMax(m, max(c.Max, c.Refill))
}

// config returns what the limit was made of.
func (l *Limit) config() LimitConfig {
	c := LimitConfig{
		Meter: l.meter, Max: l.max, Refill: l.Refill(), Among: l.Largest(),
		OnPartition: l.partition, MaxUnsent: l.maxUnsent,
		CountRejected: l.countsRejected, Tally: l.tallies, BanSpent: l.bansSpent,
	}
	c.Scope, c.Region = l.meter.Home()
	c.Meter.Rule, _, _ = strings.Cut(l.meter.Rule, homeMark)
	if l.ban != nil {
		c.Ban = l.ban.meter.Window
	}
	if l.addressBan != nil {
		c.AddressBans, _, _ = strings.Cut(l.addressBan.meter.Rule, homeMark)
	}
	return c
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

// withMax returns the limit with another maximum on the same meter: both count the same thing. It is an error for
// buckets, whose counts depend on the maximum.
func (l *Limit) withMax(maximum uint64) (*Limit, error) {
	if l.algorithm.bucket() {
		return nil, fmt.Errorf("meter %s: a bucket counts by its capacity", l.meter.Rule)
	}
	if err := checkMax(&l.meter, maximum); err != nil {
		return nil, err
	}
	other := *l
	other.max, other.window = maximum, newWindow(&l.meter, maximum)
	other.headroom = l.Largest() - min(maximum, l.Largest())
	other.setThresholds()
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
		return l.withMax(maximum)
	}
	if l.ban != nil {
		return nil, fmt.Errorf("meter %s: bans are of one window, and not of a bucket: give a limit per %s",
			l.meter.Rule, text.Duration(l.meter.Window))
	}
	name := fmt.Sprintf("%s%s%d/%d", l.meter.Rule, overrideMark, maximum, window.Milliseconds())
	return LimitConfig{
		Meter: NewMeter(name, l.algorithm, window), Max: maximum,
		OnPartition: l.partition, MaxUnsent: l.maxUnsent, CountRejected: l.countsRejected,
	}.New()
}

// overrideMark separates a rule's name in a meter from the limit of an override, as homeMark does from a scope.
const overrideMark = "%#"

// Largest returns the largest maximum of the limits on the meter, see LimitConfig.Among.
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
	return l.wait(l.rate.Span(n), 0)
}

// Far returns the use up to which the limit is not near: three quarters of Largest.
func (l *Limit) Far() uint64 { return l.Largest() - l.Largest()/4 }
