package counters

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// What a meter may ask for.
const (
	MaxSubWindows = 60
	MaxRuleName   = 512
	MaxWindow     = 366 * 24 * time.Hour
	minSubWindow  = time.Millisecond
)

// DefaultSubWindows is how many sub-windows a sliding window has unless its rule says otherwise.
const DefaultSubWindows = 10

// Meter gives a count its meaning. Two nodes whose meters are equal count the same thing.
// It is comparable; the zero value is invalid.
type Meter struct {
	Rule      string // the rule's full name, unique among all rules
	Algorithm Algorithm
	Window    time.Duration // a multiple of Sub; of a bucket, the interval in which its refill comes
	Sub       time.Duration // length of a sub-window, in which counts are sent to others
}

// NewMeter returns a meter with as many sub-windows as is usual: DefaultSubWindows where the window slides (fewer where
// it is too short for so many), one otherwise.
func NewMeter(rule string, a Algorithm, window time.Duration) Meter {
	n := time.Duration(1)
	if a == SlidingWindow || a == SlidingLog {
		for n = DefaultSubWindows; n > 1 && (window%n != 0 || window/n < minSubWindow); {
			n--
		}
	}
	return Meter{Rule: rule, Algorithm: a, Window: window, Sub: window / n}
}

// Validate says what is wrong with the meter. A peer's meter is as untrusted as a file's.
func (m Meter) Validate() error {
	switch {
	case m.Rule == "":
		return errors.New("meter: the rule has no name")
	case len(m.Rule) > MaxRuleName:
		return fmt.Errorf("meter: the rule's name has %d bytes, at most %d are allowed", len(m.Rule), MaxRuleName)
	case !m.Algorithm.Known():
		return fmt.Errorf("meter %s: unknown algorithm %d", m.Rule, m.Algorithm)
	case m.Sub < minSubWindow || m.Window > MaxWindow || m.Window < m.Sub:
		return fmt.Errorf("meter %s: window %v with sub-windows of %v is outside %v to %v", m.Rule, m.Window, m.Sub,
			minSubWindow, MaxWindow)
	case m.Window%m.Sub != 0 || m.Window/m.Sub > MaxSubWindows:
		return fmt.Errorf("meter %s: window %v is not a multiple of 1 to %d sub-windows of %v", m.Rule, m.Window,
			MaxSubWindows, m.Sub)
	case m.Algorithm == FixedWindow && m.Window != m.Sub:
		return fmt.Errorf("meter %s: a fixed window has no sub-windows", m.Rule)
	case !m.Algorithm.Counts() && (m.Window != m.Sub || m.Window%time.Millisecond != 0):
		return fmt.Errorf("meter %s: a ban lasts whole milliseconds and has no sub-windows, not %v in %v", m.Rule,
			m.Window, m.Sub)
	}
	return nil
}

// AdHoc reports whether the meter is of no rule, but of a limit that requests brought along. Its name begins with a
// percent sign that no two hexadecimal digits follow: no full name of a rule does.
func (m *Meter) AdHoc() bool {
	hex := func(c byte) bool { return '0' <= c && c <= '9' || 'A' <= c && c <= 'F' }
	return len(m.Rule) > 2 && m.Rule[0] == '%' && !(hex(m.Rule[1]) && hex(m.Rule[2]))
}

// SubWindows is the number of whole sub-windows in the window. A cell keeps one more: the oldest, which overlaps
// partly. A sliding window of one is the classic counter of two buckets.
func (m Meter) SubWindows() int { return int(m.Window / m.Sub) }

// Index is the number of the sub-window that holds the time now. Every node derives it from wall time, so that all
// agree.
func (m Meter) Index(now int64) int64 { return now / int64(m.Sub) }

// id folds the meter into the 64 bits under which cells are found. Peers send meters, so it is a hash for which none of
// them can find a meter that takes another's place. Its lowest bit is 0, but of the meter of lifts, whose id is that of
// its bans and liftBit.
func (m Meter) id() uint64 {
	var buf [MaxRuleName + 64]byte // on the stack: Merge comes here for every group of slots
	b := append(buf[:0], m.Rule...)
	algorithm, bit := m.Algorithm, uint64(0)
	if algorithm == Lift {
		algorithm, bit = Ban, liftBit
	}
	for _, n := range [...]int64{int64(algorithm), int64(m.Window), int64(m.Sub)} {
		b = strconv.AppendInt(append(b, 0), n, 10)
	}
	h := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(h[:])&^liftBit | bit
}

// shape is what a meter means for its cells' arithmetic and layout.
type shape struct {
	algorithm Algorithm
	sub       int64 // length of a sub-window, ns
	n         int   // whole sub-windows in a window
	ring      int   // where in a cell its ring begins, in words
	words     int   // of a cell
	fraction  uint  // binary digits after the point of a bucket's times, see bucket.go
}

func (m *Meter) shape() shape {
	s := shape{algorithm: m.Algorithm, sub: int64(m.Sub), n: m.SubWindows(), ring: headWords}
	switch {
	case m.Algorithm.bucket():
		s.ring += bucketWords
		s.fraction = fractionOf(m.Window)
	case m.Algorithm == SlidingLog:
		s.ring += logWords + s.size()
	case !m.Algorithm.Counts():
		s.ring += banWords
	}
	s.words = s.ring + s.size()
	return s
}

// size is the number of places in a ring: the window's sub-windows, and one before them that overlaps partly.
func (s *shape) size() int { return s.n + 1 }
