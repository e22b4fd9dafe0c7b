package counters

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/bucket"
	"github.com/edgelimit/edgelimit/node/text"
)

// Bounds of a meter.
const (
	maxSubWindows = 60
	MaxRuleName   = 512
	MaxWindow     = 366 * 24 * time.Hour
	minSubWindow  = time.Millisecond
)

// DefaultSubWindows is the number of sub-windows in a sliding window whose rule sets none.
const DefaultSubWindows = 10

// Meter gives a count its meaning: nodes with equal meters count the same thing. It is comparable. The zero value is
// invalid.
type Meter struct {
	Rule      string // the rule's full name, unique among all rules
	Algorithm Algorithm
	Window    time.Duration // a multiple of Sub; for a bucket, the time in which it gets its refill
	Sub       time.Duration // length of a sub-window, 60 in a window at most; peers learn counts by it
}

// NewMeter returns a meter with the default number of sub-windows: DefaultSubWindows for a sliding window or log, fewer
// if the window is too short or cannot be divided evenly, and one for other algorithms.
func NewMeter(rule string, a Algorithm, window time.Duration) Meter {
	n := time.Duration(1)
	if a == SlidingWindow || a == SlidingLog {
		for n = DefaultSubWindows; n > 1 && (window%n != 0 || window/n < minSubWindow); {
			n--
		}
	}
	return Meter{Rule: rule, Algorithm: a, Window: window, Sub: window / n}
}

// Validate returns what is wrong with the meter, which may come from a file or a peer.
func (m Meter) Validate() error {
	switch {
	case m.Rule == "":
		return errors.New("meter: the rule has no name")
	case len(m.Rule) > MaxRuleName:
		return fmt.Errorf("meter: the rule's name has %d bytes, at most %d are allowed", len(m.Rule), MaxRuleName)
	case !m.Algorithm.Known():
		return fmt.Errorf("meter %s: unknown algorithm %d", m.Rule, m.Algorithm)
	case m.Sub < minSubWindow || m.Window > MaxWindow || m.Window < m.Sub:
		return fmt.Errorf("meter %s: window %s with sub-windows of %s is outside %s to %s", m.Rule,
			text.Duration(m.Window), text.Duration(m.Sub), text.Duration(minSubWindow), text.Duration(MaxWindow))
	case m.Window%m.Sub != 0 || m.Window/m.Sub > maxSubWindows:
		return fmt.Errorf("meter %s: window %s is not a multiple of 1 to %d sub-windows of %s", m.Rule,
			text.Duration(m.Window), maxSubWindows, text.Duration(m.Sub))
	case m.Algorithm == FixedWindow && m.Window != m.Sub:
		return fmt.Errorf("meter %s: a fixed window has no sub-windows", m.Rule)
	case m.Algorithm.timed() && (m.Window != m.Sub || m.Window%time.Millisecond != 0):
		return fmt.Errorf("meter %s: a ban lasts whole milliseconds and has no sub-windows, not %s in %s", m.Rule,
			text.Duration(m.Window), text.Duration(m.Sub))
	}
	return nil
}

// adHoc reports whether the meter belongs to an ad-hoc limit, one that requests bring along, rather than to a rule. Its
// name begins with a percent sign that two hexadecimal digits do not follow: no full name of a rule does.
func (m *Meter) adHoc() bool {
	hex := func(c byte) bool { return '0' <= c && c <= '9' || 'A' <= c && c <= 'F' }
	return len(m.Rule) > 2 && m.Rule[0] == '%' && !(hex(m.Rule[1]) && hex(m.Rule[2]))
}

// SubWindows returns the number of sub-windows in the window. A cell keeps one more: the one that is leaving the
// window. A sliding window of one sub-window is the classic counter of two buckets.
func (m Meter) SubWindows() int { return int(m.Window / m.Sub) }

// Index returns the number of the sub-window that holds the time now. It follows from wall time, so all nodes agree.
func (m Meter) Index(now int64) int64 { return now / int64(m.Sub) }

// id hashes the meter to the 64 bits under which its cells are found. Peers send meters, so the hash is one for which
// they cannot find a second meter with the same id. Bans and lifts of the same window differ in liftBit alone, and so
// do token buckets and their credits.
func (m Meter) id() uint64 {
	var buf [MaxRuleName + 64]byte // on the stack: Merge comes here for every group of slots
	b := append(buf[:0], m.Rule...)
	algorithm, bit := m.Algorithm, uint64(0)
	switch algorithm {
	case lifts:
		algorithm, bit = Ban, liftBit
	case credits:
		algorithm, bit = TokenBucket, liftBit
	}
	for _, n := range [...]int64{int64(algorithm), int64(m.Window), int64(m.Sub)} {
		b = strconv.AppendInt(append(b, 0), n, 10)
	}
	h := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(h[:])&^liftBit | bit
}

// spec is a meter with all that follows from it.
type spec struct {
	meter Meter
	id    uint64
	scope Scope
	shape
}

// shape is the arithmetic and the layout of a meter's cells.
type shape struct {
	algorithm Algorithm
	sub       int64 // length of a sub-window in nanoseconds
	n         int   // sub-windows in a window
	ring      int   // first word of the ring in a cell
	words     int   // of a cell
	fraction  uint  // binary digits of a bucket's times after the point, see bucket.go
}

func newSpec(m Meter) (y spec) {
	y.init(&m)
	return y
}

// init sets y to the spec of m.
func (y *spec) init(m *Meter) {
	y.meter, y.id = *m, m.id()
	y.shape = shape{algorithm: m.Algorithm, sub: int64(m.Sub), n: m.SubWindows(), ring: headWords}
	y.scope, _ = m.Home()
	switch {
	case m.Algorithm.bucket():
		y.ring += bucketWords
		y.fraction = bucket.Fraction(m.Window)
		if m.Algorithm == LeakyQueue {
			y.ring++ // freed
		}
	case m.Algorithm == SlidingLog:
		y.ring += logWords + y.size()
	case m.Algorithm.timed():
		y.ring += banWords
	}
	y.words = y.ring + y.size()
}

// size is the number of places in a ring: the sub-windows of the window, and the one before them, of which a part is
// still in the window.
func (s *shape) size() int { return s.n + 1 }
