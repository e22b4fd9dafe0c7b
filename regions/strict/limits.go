package strict

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/text"
	"github.com/edgelimit/edgelimit/regions"
)

// exact is the largest number up to which a float64, the number of Lua, has all whole numbers.
const exact = 1 << 53

// ErrLimit is the error of a limit that the store cannot count exactly.
var ErrLimit = errors.New("not for strict rules")

// Check returns why the store cannot count the limit, which wraps ErrLimit, or nil. The limit may ban: the caller does.
func Check(l *counters.Limit) error {
	_, err := shapeOf(l)
	return err
}

// shape is what the script has to know of a limit, and the limit's part of the names of keys.
type shape struct {
	suffix    string
	algorithm counters.Algorithm
	denied    bool // counts denied requests
	max       uint64
	a, b, c   float64       // see the algorithm's script
	window    time.Duration // after which a charge at the time 0 counts no more; of buckets: the window of the refill
	full      time.Duration // of a bucket: the time in which its capacity refills
}

func shapeOf(l *counters.Limit) (*shape, error) {
	m := l.Meter()
	refuse := func(format string, args ...any) (*shape, error) {
		return nil, fmt.Errorf("rule %s is %w: "+format, append([]any{m.Rule, ErrLimit}, args...)...)
	}
	switch {
	case l.Tallies():
		return refuse("it counts every request; only approximate rules do")
	case l.Scope() == counters.Alone:
		return refuse("it counts per node; use scope: region or global")
	case m.Sub%time.Microsecond != 0:
		return refuse("its sub-windows of %s are no whole microseconds; choose another window", text.Duration(m.Sub))
	}
	y := &shape{
		suffix:    string(regions.AppendMeter(nil, &m)),
		algorithm: m.Algorithm, denied: l.CountsRejected(), max: l.Max(), window: m.Window + m.Sub,
	}
	switch m.Algorithm {
	case counters.SlidingWindow:
		y.a, y.b = float64(m.Sub.Microseconds()), float64(m.SubWindows())
	case counters.FixedWindow, counters.SlidingLog:
		y.a, y.window = float64(m.Window.Microseconds()), m.Window
	default:
		unit, pace := uint64(m.Window.Microseconds()), max(l.Refill(), 1)
		divisor := gcd(unit, pace)
		unit, pace = unit/divisor, pace/divisor
		if 3*l.Max()+1 > exact/unit { // a debt of twice the capacity, and a cost
			return refuse("a capacity of %d with a refill of %d per %s has no exact state in Redis; choose a refill "+
				"that divides the window", l.Max(), l.Refill(), text.Duration(m.Window))
		}
		y.a, y.b, y.c = float64(unit), float64(pace), float64(m.Window.Microseconds())
		y.full = time.Duration(math.Ceil(float64(l.Max())*y.a/y.b)) * time.Microsecond
	}
	return y, nil
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// shapes caches the shapes of limits. Rules that are gone are forgotten with all others when there are too many.
type shapes struct {
	known sync.Map // *counters.Limit -> *shape
	n     atomic.Int64
}

const maxShapes = 1 << 14

func (s *shapes) of(l *counters.Limit) (*shape, error) {
	if y, ok := s.known.Load(l); ok {
		return y.(*shape), nil
	}
	y, err := shapeOf(l)
	if err != nil {
		return nil, err
	}
	if s.n.Load() >= maxShapes {
		s.known.Clear()
		s.n.Store(0)
	}
	first, loaded := s.known.LoadOrStore(l, y) // leases are found by it: all requests have the same
	if !loaded {
		s.n.Add(1)
	}
	return first.(*shape), nil
}

// The two keys of a layer in Redis, of which the second is of tokens, or of the requests of a log:
//
//	el2:{bcd05f2a9e1774c6}:s:1:1h0m0s/10:edge/remote_address
//	│    │                 │ │ │      │  └ rule, as it is: it comes last
//	│    │                 │ │ │      └ sub-windows in the window
//	│    │                 │ │ └ window
//	│    │                 │ └ algorithm
//	│    │                 └ s: state; t: tokens
//	│    └ key, a keyed hash of the identity: Redis Cluster places keys by what is in braces
//	└ version of this layout
const keyPrefix = "el2:{"

// names returns the names of the keys of a layer.
func (y *shape) names(key counters.Key) (state, tokens string) {
	b := make([]byte, 0, len(keyPrefix)+20+len(y.suffix))
	b = append(b, keyPrefix...)
	digits := strconv.AppendUint(make([]byte, 0, 16), uint64(key), 16)
	for range 16 - len(digits) {
		b = append(b, '0')
	}
	b = append(append(b, digits...), "}:s:"...)
	kind := len(b) - 2
	b = append(b, y.suffix...)
	state = string(b)
	b[kind] = 't'
	return state, string(b)
}

// Flags of a layer in a call of the script.
const (
	flagEach      = 1
	flagOverdraw  = 2
	flagsRejected = 4
)

// maxCost is more than may be counted of any limit: twice the maximum.
const maxCost = 4 * counters.MaxLimit

// appendLayer appends a layer as the script takes it. at is when a layer to refund was charged, 0 if that is unknown;
// nth is which of the layers on the same state it is.
func (y *shape) appendLayer(dst []byte, a *Ask, mode counters.Mode, nth byte, at int64) []byte {
	var flags byte
	if a.Each {
		flags |= flagEach
	}
	if a.Overdraw {
		flags |= flagOverdraw
	}
	if y.denied {
		flags |= flagsRejected
	}
	pending := float64(min(a.Pending, 2*counters.MaxLimit))
	if at != 0 {
		pending = float64(at)
	}
	dst = append(dst, byte(y.algorithm), byte(mode), flags, nth)
	for _, n := range [...]float64{float64(y.max), float64(min(a.Cost, maxCost)), pending, y.a, y.b, y.c} {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(n))
	}
	return dst
}

// atPending is where a layer has its pending cost, or that of a refund the time of its charge.
const atPending = 4 + 2*8

// appendLasts appends to the layer of a lease, or of a refund, how long leases last.
func appendLasts(layer []byte, d time.Duration) []byte {
	return binary.LittleEndian.AppendUint64(layer, math.Float64bits(float64(d.Microseconds())))
}
