package counters

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Algorithm names a way to turn a key's slots into a count.
type Algorithm uint8

// The numbers travel between nodes: they are never reused.
const (
	// SlidingWindow sums the sub-windows of the window that ends now, the oldest weighted by how much of it overlaps.
	SlidingWindow Algorithm = 1
)

// String returns the name that rule files use.
func (a Algorithm) String() string {
	if a == SlidingWindow {
		return "sliding_window"
	}
	return "algorithm(" + strconv.Itoa(int(a)) + ")"
}

// What a meter may ask for. The cap on sub-windows bounds the memory of a cell and lets a cell note its changed
// sub-windows in one word.
const (
	MaxSubWindows = 60
	MaxRuleName   = 512
	MaxWindow     = 366 * 24 * time.Hour
	minSubWindow  = time.Millisecond
)

// DefaultSubWindows is how many sub-windows a window has unless its rule says otherwise.
const DefaultSubWindows = 10

// Meter gives a count its meaning. Two nodes whose meters are equal count the same thing.
// It is comparable; the zero value is invalid.
type Meter struct {
	Rule      string        // the rule's full name, unique among all rules
	Algorithm Algorithm     //
	Window    time.Duration // a multiple of Sub
	Sub       time.Duration // length of a sub-window
}

// NewMeter returns a sliding-window meter with the default number of sub-windows. Windows too short for so many get fewer.
func NewMeter(rule string, window time.Duration) Meter {
	n := time.Duration(DefaultSubWindows)
	for n > 1 && (window%n != 0 || window/n < minSubWindow) {
		n--
	}
	return Meter{Rule: rule, Algorithm: SlidingWindow, Window: window, Sub: window / n}
}

// Validate says what is wrong with the meter. A peer's meter is as untrusted as a file's.
func (m Meter) Validate() error {
	switch {
	case m.Rule == "":
		return errors.New("meter: the rule has no name")
	case len(m.Rule) > MaxRuleName:
		return fmt.Errorf("meter: the rule's name has %d bytes, at most %d are allowed", len(m.Rule), MaxRuleName)
	case m.Algorithm != SlidingWindow:
		return fmt.Errorf("meter %s: unknown algorithm %d", m.Rule, m.Algorithm)
	case m.Sub < minSubWindow || m.Window > MaxWindow || m.Window < m.Sub:
		return fmt.Errorf("meter %s: window %v with sub-windows of %v is outside %v to %v", m.Rule, m.Window, m.Sub, minSubWindow, MaxWindow)
	case m.Window%m.Sub != 0 || m.Window/m.Sub > MaxSubWindows:
		return fmt.Errorf("meter %s: window %v is not a multiple of 1 to %d sub-windows of %v", m.Rule, m.Window, MaxSubWindows, m.Sub)
	}
	return nil
}

// SubWindows is the number of whole sub-windows in the window. A cell keeps one more: the oldest, which overlaps partly.
func (m Meter) SubWindows() int { return int(m.Window / m.Sub) }

// Index is the number of the sub-window that holds the time now. Every node derives it from wall time, so that all agree.
func (m Meter) Index(now int64) int64 { return now / int64(m.Sub) }

// id folds the meter into the 64 bits under which cells are found. Peers send meters, so it is a hash for which none of them
// can find a meter that takes another's place.
func (m Meter) id() uint64 {
	var buf [MaxRuleName + 64]byte // on the stack: Merge comes here for every group of slots
	b := append(buf[:0], m.Rule...)
	for _, n := range [...]int64{int64(m.Algorithm), int64(m.Window), int64(m.Sub)} {
		b = strconv.AppendInt(append(b, 0), n, 10)
	}
	h := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(h[:])
}

// Limit is a meter with the most that may be admitted in any window. It is immutable and safe for concurrent use.
type Limit struct {
	meter Meter
	max   uint64
	id    uint64
}

// MaxLimit is the largest maximum: far beyond use, and far from where sums would overflow.
const MaxLimit = 1 << 40

// NewLimit returns the limit of at most max cost per window on the meter.
func NewLimit(m Meter, max uint64) (*Limit, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if max > MaxLimit {
		return nil, fmt.Errorf("meter %s: limit %d is above %d", m.Rule, max, uint64(MaxLimit))
	}
	return &Limit{meter: m, max: max, id: m.id()}, nil
}

// chargeable reports whether a request of the cost is more than a peek, and could be admitted at all.
func (l *Limit) chargeable(cost uint64) bool { return cost > 0 && cost <= l.max }

// Meter returns what the limit counts.
func (l *Limit) Meter() Meter { return l.meter }

// Max returns the most cost that a window may hold.
func (l *Limit) Max() uint64 { return l.max }
