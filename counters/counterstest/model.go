package counterstest

import (
	"math"
	"math/bits"
	"sort"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Model decides on requests under one limit as the definition of the sliding-window counter has it. A window has n sub-windows of
// s nanoseconds; the time t lies in the sub-window c = t/s, and
//
//	view(t) = sum of the counts of c-n+1 to c  +  ceil(count of c-n * (s - t mod s) / s)
//
// A request of cost k is admitted at t if view(t) + k <= limit, and is then counted in c.
//
// Counts of a sub-window after c are seen once time has come to it. Sums and counts that do not fit end at the largest uint64.
// Times are nanoseconds since the Unix epoch and not negative; they need not come in order.
type Model struct {
	limit  *counters.Limit
	sub    int64                             // s
	n      int64                             // sub-windows in a window
	counts map[counters.Key]map[int64]uint64 // by sub-window
}

// NewModel returns a model of the limit that has counted nothing yet.
func NewModel(l *counters.Limit) *Model {
	m := l.Meter()
	return &Model{
		limit:  l,
		sub:    int64(m.Sub),
		n:      int64(m.Window / m.Sub),
		counts: make(map[counters.Key]map[int64]uint64),
	}
}

// Take decides on a request and charges it if it is admitted. A cost of 0 is a peek: it is answered as a cost of 1 and leaves
// no trace, so that Remaining and ResetAfter are those of before.
func (m *Model) Take(key counters.Key, cost uint64, now int64) counters.Decision {
	meter, limit, asked := m.limit.Meter(), m.limit.Max(), max(cost, 1)
	d := counters.Decision{Rule: meter.Rule, Window: meter.Window, Limit: limit}
	switch {
	case asked > limit:
		d.RetryAfter = counters.Never
	case !m.Fits(key, asked, now):
		d.RetryAfter = m.wait(key, limit-asked, now)
	default:
		d.Allowed = true
		m.Add(key, now/m.sub, cost)
	}
	d.Remaining = limit - min(limit, m.View(key, now))
	d.ResetAfter = m.wait(key, 0, now)
	return d
}

// Fits reports whether there is room for a cost.
func (m *Model) Fits(key counters.Key, cost uint64, now int64) bool {
	return cost <= m.limit.Max() && m.View(key, now) <= m.limit.Max()-cost
}

// Add counts a cost in the sub-window with the given index without asking whether there is room: what a merge brings.
// A count of 0 leaves no trace.
func (m *Model) Add(key counters.Key, index int64, count uint64) {
	if count == 0 {
		return
	}
	if m.counts[key] == nil {
		m.counts[key] = make(map[int64]uint64)
	}
	m.counts[key][index] = add(m.counts[key][index], count)
}

// View is the key's count at the time now.
func (m *Model) View(key counters.Key, now int64) uint64 {
	counts, current := m.counts[key], now/m.sub
	var sum uint64
	for i := current - m.n + 1; i <= current; i++ {
		sum = add(sum, counts[i])
	}
	return add(sum, portion(counts[current-m.n], m.sub-now%m.sub, m.sub))
}

// Ahead is what is counted for the key in sub-windows after the one that holds now, and not in its view yet.
func (m *Model) Ahead(key counters.Key, now int64) uint64 {
	var sum uint64
	for index, count := range m.counts[key] {
		if index > now/m.sub {
			sum = add(sum, count)
		}
	}
	return sum
}

// Forget drops what no view at the time before or later will see.
func (m *Model) Forget(before int64) {
	oldest := before/m.sub - m.n
	for key, counts := range m.counts {
		for index := range counts {
			if index < oldest {
				delete(counts, index)
			}
		}
		if len(counts) == 0 {
			delete(m.counts, key)
		}
	}
}

// wait is the least d >= 0 for which the view at now+d is at most `most`, if nobody asks.
//
// Inside a sub-window the view never grows, because only the weight of the oldest count changes. So the first sub-window whose
// last nanosecond will do holds the answer, and inside it a binary search finds it.
func (m *Model) wait(key counters.Key, most uint64, now int64) time.Duration {
	from := now
	for {
		last := (from/m.sub+1)*m.sub - 1
		if m.View(key, last) <= most {
			into := sort.Search(int(last-from), func(i int) bool { return m.View(key, from+int64(i)) <= most })
			return time.Duration(from + int64(into) - now)
		}
		from = last + 1
	}
}

// portion is ceil(count * part / whole) for 0 <= part <= whole. The product needs 128 bits.
func portion(count uint64, part, whole int64) uint64 {
	hi, lo := bits.Mul64(count, uint64(part))
	lo, carry := bits.Add64(lo, uint64(whole)-1, 0)
	quotient, _ := bits.Div64(hi+carry, lo, uint64(whole))
	return quotient
}

func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
