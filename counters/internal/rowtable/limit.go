package rowtable

import (
	"cmp"
	"math"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
	"github.com/edgelimit/edgelimit/counters/internal/window"
)

// Algorithm is what the lines of a meter hold, and how it becomes a decision. The numbers are those of
// counters.Algorithm; 0 is a SlidingWindow, too.
type Algorithm uint8

// The algorithms of limits, and of meters that are no limits'.
const (
	SlidingWindow Algorithm = 1
	FixedWindow   Algorithm = 2
	SlidingLog    Algorithm = 3
	TokenBucket   Algorithm = 4
	LeakyBucket   Algorithm = 5 // a TokenBucket by another name
	LeakyQueue    Algorithm = 6 // a LeakyBucket in which requests wait
	Ban           Algorithm = 7 // when bans end
	Lift          Algorithm = 8 // up to when bans of the key are lifted
	Credit        Algorithm = 9 // what token buckets got back, see Debts
)

// Meter is what lines count: of what length the sub-windows are, and how many a window has.
type Meter struct {
	ID        uint64
	Sub       int64 // nanoseconds
	N         int
	Algorithm Algorithm
	Lasts     int64  // nanoseconds for which an admission counts
	MaxSlot   uint64 // of a slot of an honest node; 0: any
	Scope     Scope
}

func (m *Meter) isLog() bool { return m.Algorithm == SlidingLog }

func (m *Meter) isBucket() bool { return m.Algorithm >= TokenBucket && m.Algorithm <= LeakyQueue }

// LimitConfig is what a limit counts, how much it admits, and what it does beyond.
type LimitConfig struct {
	Meter  Meter
	Max    uint64
	Refill uint64 // what a bucket gets back in a window; 0: Max
	Among  uint64 // the largest Max of the limits on the meter; 0: Max
	// Local has each side of a partition admit the whole limit, and not its part in proportion to its demand.
	Local bool
	// MaxUnsent is the most cost that a table may admit of a key before it flushes early; 0: any.
	MaxUnsent uint64
	// CountRejected has the limit count what it denies; it is for windows.
	CountRejected bool
	// Tally has it count every request, and compare afterwards; it is for fixed windows.
	Tally bool
	// BanSpent has a key banned, too, once a report leaves nothing of the limit.
	BanSpent bool
}

// Limit is a meter with a maximum. It is immutable.
type Limit struct {
	Meter
	Max            uint64
	tag            uint64 // 16 bits of a hash of Max, not 0
	plain          bool   // a window that counts what it admits, and nothing else
	countsRejected bool
	tallies        bool
	bansSpent      bool
	local          bool   // see LimitConfig.Local
	largest        uint64 // see LimitConfig.Among
	near           uint64 // a use that leaves less of largest is reported, see Demand.Used
	burst          uint64 // cost asked for since the last drain from which a key may be in a burst
	maxUnsent      uint64
	window         window.Window
	ceiling        uint64     // up to which debts count, see debt.go
	class          *debtClass // nil: the limit is its meter's only one, see Debts
	bucketLimit
}

// NewLimit returns the limit on a meter that counts what it admits. A bucket refills its capacity in a window.
func NewLimit(m Meter, maximum uint64) *Limit { return LimitConfig{Meter: m, Max: maximum}.New() }

// New returns the limit.
func (c LimitConfig) New() *Limit {
	m := c.Meter
	m.Lasts = m.Sub * int64(m.N)
	l := &Limit{
		Meter: m, Max: c.Max, tag: c.Max*0x9e3779b97f4a7c15>>48 | 1,
		window: window.Window{
			Sub: m.Sub, Even: window.Even(c.Max, m.N), Fixed: m.isBucket() || m.isLog() || m.Algorithm == FixedWindow,
		},
		countsRejected: c.CountRejected, tallies: c.Tally, bansSpent: c.BanSpent, ceiling: maxHeld * c.Max,
		local: c.Local, maxUnsent: c.MaxUnsent, largest: max(c.Among, c.Max), burst: max(burstMin, c.Max/burstShare),
	}
	l.near = l.largest / 4
	if m.isBucket() {
		l.bucketLimit = newBucketLimit(&m, c.Max, cmp.Or(c.Refill, c.Max))
		l.Lasts = int64(l.full >> l.fraction)
	}
	if c.Tally {
		l.ceiling = MaxTally
	}
	l.plain = !m.isBucket() && !m.isLog() && !c.CountRejected && !c.Tally
	return l
}

// chargeable reports whether a request of the cost is no peek and fits the limit.
func (l *Limit) chargeable(cost uint64) bool { return cost > 0 && cost <= l.Max }

// demand is what a request of a cost asks the limit for: nothing if it can never be counted.
func (l *Limit) demand(cost uint64) uint64 {
	switch {
	case l.tallies:
		return cost
	case l.countsRejected:
		return min(cost, l.Max)
	case cost > l.Max:
		return 0
	}
	return cost
}

// reset is the time until nothing is seen of a window whose newest count is at a place: window.Reset of that alone.
func (l *Limit) reset(count uint64, place int, off int64) int64 {
	stays := int64(0)
	switch {
	case l.window.Fixed:
		stays = l.Sub
	case count <= l.window.Even:
		stays = l.Sub / int64(max(count, 1))
	}
	return int64(place+1)*l.Sub - stays - off
}

// The largest limit, a cost above every limit, and the most that a request charges to one head: sums do not overflow.
const (
	maxLimit   = 1 << 40
	maxAsked   = maxLimit + 1
	maxCharged = 2 * maxLimit
	// A slot counts less than four of the largest limits, and all slots of others are merged that have a sub-window
	// count maxCount with them. This table then adds less than as much again, so a head has room: what it counts itself
	// is all without what others count, to the last one.
	maxSlot  = 4*maxLimit - 1
	maxCount = 8 * maxLimit
)

// The head has room for twice maxCount.
var _ [0]struct{} = [2*maxCount - 1<<rows.RestBits]struct{}{}

// Slot is a cumulative count: what an origin, by number, counted of a key in a sub-window since a birth.
type Slot struct {
	Key    uint64
	Index  int64
	Count  uint64
	Birth  uint32
	Origin uint16  // 0: this table
	Meter  uint16  // its number
	Sender uint16  // the origin of the peer that sent the slot, which may be another's; 0: unknown
	Place  Place   // where the origin counts, as seen from the table that merges the slot; see sums.go
	Demand float32 // cost per second that the origin is asked for the key, admitted or not; 0: not reported
	SentAt int64   // when the slot was sent, by the sender's clock, in nanoseconds; 0: unknown
	// CompleteThrough is up to when the sender had sent all that the origin counted before; 0: unknown.
	CompleteThrough int64
}

// worth of a head, for eviction: denied last, then those in use, then those that count much.
const (
	deniedWorth = 1 << 62
	busyWorth   = 1 << 61
	mostWorth   = math.MaxInt64 >> 3
)
