package oracle

import (
	"math"
	"sort"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Model decides on requests under one limit by the definition of its algorithm, from all charges at their true times.
// One model for all nodes of a cluster is the oracle. It has no bans, and does not count denied requests: [Cells] does.
//
// Times are nanoseconds since the Unix epoch, not negative, in any order: a view at a time is of what was charged up to
// it. Sums and waits that do not fit end at their maximum.
type Model struct {
	limit *counters.Limit
	keys  map[counters.Key]count
}

// count is what one key has used of a limit, by the definition of an algorithm.
type count interface {
	// view returns what is used of the limit at the time t.
	view(t int64) uint64
	// charge counts a cost at the time t.
	charge(cost uint64, t int64)
	// add counts a cost of which no more is known than the sub-window that it came in.
	add(index int64, cost uint64)
	// ahead returns what is counted at times after t.
	ahead(t int64) uint64
	// steady returns a time until which the view does not rise from t on, if nothing is added.
	steady(t int64) int64
	// forget drops what no view at the time before or later sees, and reports whether that was all.
	forget(before int64) (empty bool)
}

// newCount returns the algorithm of the limit with nothing counted.
func newCount(l *counters.Limit) count {
	m := l.Meter()
	switch m.Algorithm {
	case counters.SlidingWindow:
		n := int64(m.SubWindows())
		return &slidingWindow{fixedWindow{sub: int64(m.Sub)}, n, uint64(math.Ceil(float64(l.Max()) / float64(n)))}
	case counters.FixedWindow:
		return &fixedWindow{sub: int64(m.Sub)}
	case counters.SlidingLog:
		return &slidingLog{window: int64(m.Window), sub: int64(m.Sub)}
	default:
		return &replay{rate: rateOf(l), sub: int64(m.Sub)}
	}
}

// NewModel returns a model of the limit that has counted nothing yet.
func NewModel(l *counters.Limit) *Model {
	return &Model{limit: l, keys: make(map[counters.Key]count)}
}

// Limit returns the limit that the model is of.
func (m *Model) Limit() *counters.Limit { return m.limit }

// of returns the count of a key, an empty one if there is none.
func (m *Model) of(key counters.Key) count {
	if c := m.keys[key]; c != nil {
		return c
	}
	return newCount(m.limit)
}

// Take decides on a request and charges it if it is admitted. A cost of 0 is a peek: it is answered as a cost of 1 and
// leaves no trace.
func (m *Model) Take(key counters.Key, cost uint64, now int64) counters.Decision {
	c := m.of(key)
	d := ask(m.limit, c, cost, 0, now, now)
	if d.Allowed && cost > 0 {
		m.keys[key] = c
		c.charge(cost, now)
		setRemaining(&d, c, 0, now, now)
	}
	return d
}

// Fits reports whether there is room for a cost.
func (m *Model) Fits(key counters.Key, cost uint64, now int64) bool {
	return cost <= m.limit.Max() && m.View(key, now) <= m.limit.Max()-cost
}

// Charge counts a cost at the time at without asking whether there is room.
func (m *Model) Charge(key counters.Key, cost uint64, at int64) {
	if cost > 0 {
		m.keys[key] = m.of(key)
		m.keys[key].charge(cost, at)
	}
}

// Add counts a cost in a sub-window without asking whether there is room, as a merge does. Algorithms with exact times
// take it as of the start of the sub-window.
func (m *Model) Add(key counters.Key, index int64, count uint64) {
	if count > 0 {
		m.keys[key] = m.of(key)
		m.keys[key].add(index, count)
	}
}

// View is what is used of the key's limit at the time now.
func (m *Model) View(key counters.Key, now int64) uint64 {
	return m.of(key).view(now)
}

// Ahead is what is counted for the key after the time now (by sub-windows: after the one that holds now), and not in
// its view yet.
func (m *Model) Ahead(key counters.Key, now int64) uint64 {
	return m.of(key).ahead(now)
}

// Forget drops what no view at the time before or later will see.
func (m *Model) Forget(before int64) {
	for key, c := range m.keys {
		if c.forget(before) {
			delete(m.keys, key)
		}
	}
}

// ask decides on a request as of the time at, without charging it. before is what the same request charges to the same
// key already. Waits count from now, which is not after at.
func ask(l *counters.Limit, c count, cost, before uint64, at, now int64) counters.Decision {
	meter, largest, asked := l.Meter(), l.Max(), add(max(cost, 1), before)
	d := counters.Decision{Rule: meter.Rule, Window: meter.Window, Limit: largest}
	setRemaining(&d, c, before, at, now)
	switch {
	case asked > largest:
		d.RetryAfter = counters.Never
	case c.view(at) > largest-asked:
		d.RetryAfter = wait(c, largest-asked, at, now)
	default:
		d.Allowed = true
		if meter.Algorithm == counters.LeakyQueue {
			d.Delay = wait(behind(c, before, at), 0, at, now) // until the queue before it is empty
		}
	}
	return d
}

// behind returns the queue before a request whose other layers charge before to the same key.
func behind(c count, before uint64, at int64) count {
	if b, ok := c.(*bucket); ok && before > 0 {
		queue := *b
		queue.charge(before, at)
		return &queue
	}
	return c
}

func setRemaining(d *counters.Decision, c count, before uint64, at, now int64) {
	d.Remaining = d.Limit - min(d.Limit, add(c.view(at), before))
	d.ResetAfter = wait(c, 0, at, now)
}

// wait returns the time from now until the view is at most limit without further requests: 0 if it is at the time at.
//
// A binary search finds the first such time within a span in which the view does not rise.
func wait(c count, limit uint64, at, now int64) time.Duration {
	if c.view(at) <= limit {
		return 0
	}
	for from := at; ; {
		last := c.steady(from)
		if c.view(last) <= limit {
			into := sort.Search(int(last-from), func(i int) bool { return c.view(from+int64(i)) <= limit })
			return time.Duration(from + int64(into) - now)
		}
		if last == math.MaxInt64 {
			return time.Duration(last - now)
		}
		from = last + 1
	}
}

func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
