package rowtable

import (
	"math"

	"github.com/edgelimit/edgelimit/counters/internal/window"
)

// Algorithm is what the lines of a meter hold. The numbers are those of counters.Algorithm; 0 is that of counts.
type Algorithm uint8

// Algorithms of meters that are no limits'.
const (
	Ban  Algorithm = 7 // when bans end
	Lift Algorithm = 8 // up to when bans of the key are lifted
)

// Meter is what lines count: of what length the sub-windows are, and how many a window has.
type Meter struct {
	ID        uint64
	Sub       int64 // nanoseconds
	N         int
	Fixed     bool
	Algorithm Algorithm
	Bucket    *Bucket // nil: a window
	Fraction  uint    // see Bucket
	Lasts     int64   // nanoseconds for which an admission counts
	MaxSlot   uint64  // of a slot of an honest node; 0: any
}

// Limit is a meter with a maximum.
type Limit struct {
	Meter
	Max    uint64
	window window.Window
	tag    uint64 // 16 bits of a hash of Max, not 0
}

// NewLimit returns a limit on the meter.
func NewLimit(m Meter, maximum uint64) *Limit {
	if m.Lasts = m.Sub * int64(m.N); m.Bucket != nil {
		m.Lasts = int64(m.Bucket.Full >> m.Fraction)
	}
	return &Limit{Meter: m, Max: maximum, tag: maximum*0x9e3779b97f4a7c15>>48 | 1,
		window: window.Window{Sub: m.Sub, Even: window.Even(maximum, m.N), Fixed: m.Fixed}}
}

// reset is the time until nothing is seen of a window whose newest count is at a place: window.Reset of that alone.
func (l *Limit) reset(count uint64, place int, off int64) int64 {
	stays := int64(0)
	switch {
	case l.Fixed:
		stays = l.Sub
	case count <= l.window.Even:
		stays = l.Sub / int64(max(count, 1))
	}
	return int64(place+1)*l.Sub - stays - off
}

// maxAsked is above every limit, and small enough for sums.
const maxAsked = 1<<40 + 1

// Decision is the answer to one request. Waits are in nanoseconds.
type Decision struct {
	Allowed    bool
	Remaining  uint64
	RetryAfter int64
	ResetAfter int64
}

// Never is the RetryAfter of a request whose cost exceeds the limit.
const Never = -1

// Slot is a cumulative count: what an origin, by number, counted of a key in a sub-window since a birth.
type Slot struct {
	Key    uint64
	Index  int64
	Count  uint64
	Birth  uint32
	Origin uint16 // 0: this table
	Meter  uint16 // its number
	// CompleteThrough is up to when the sender had sent all that the origin counted before; 0: unknown.
	CompleteThrough int64
}

// worth of a head, for eviction: denied last, then those in use, then those that count much.
const (
	deniedWorth = 1 << 62
	busyWorth   = 1 << 61
	mostWorth   = math.MaxInt64 >> 3
)
