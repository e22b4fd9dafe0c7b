package oracle

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Rolling is an exact log of the cost that was admitted for one key, to compare with a limit per window. The zero value
// is an empty log.
type Rolling struct {
	log []admission
}

type admission struct {
	at   int64
	cost uint64
}

// Add notes that cost was admitted at the time `at`, in nanoseconds. Times may come in any order; all costs together
// have to fit into 64 bits.
func (r *Rolling) Add(at int64, cost uint64) {
	r.log = append(r.log, admission{at, cost})
}

// Peak returns the maximum cost that was admitted within a window (t-window, t]. It takes linear time if the log is in
// order.
func (r *Rolling) Peak(window time.Duration) uint64 {
	return r.PeakWithin(window, math.MinInt64, math.MaxInt64)
}

// PeakWithin is Peak over the windows that end inside a time: those with from <= t <= to. They may begin before it.
func (r *Rolling) PeakWithin(window time.Duration, from, to int64) uint64 {
	if window <= 0 || from > to {
		return 0
	}
	s := r.slide(window)
	peak := s.endAt(from)
	for s.head < len(r.log) && r.log[s.head].at <= to {
		peak = max(peak, s.endAt(r.log[s.head].at))
	}
	return peak
}

// Peaks is PeakWithin over n times that follow each other, in one go: the i-th peak is of the windows that end in the
// nanoseconds from+i*every to from+(i+1)*every-1.
func (r *Rolling) Peaks(window time.Duration, from int64, every time.Duration, n int) []uint64 {
	peaks := make([]uint64, n)
	if window <= 0 || every <= 0 {
		return peaks
	}
	s := r.slide(window)
	for i := range peaks {
		begin := from + int64(i)*int64(every)
		peaks[i] = s.endAt(begin)
		for s.head < len(r.log) && r.log[s.head].at < begin+int64(every) {
			peaks[i] = max(peaks[i], s.endAt(r.log[s.head].at))
		}
	}
	return peaks
}

// PeakAbove is the most by which a window of this log holds more than the same window of another one, which counts as
// at least floor. It looks at the windows that end with an admission of this log inside the time from <= t <= to, and
// is 0 where none holds more.
func (r *Rolling) PeakAbove(other *Rolling, floor uint64, window time.Duration, from, to int64) uint64 {
	if window <= 0 || from > to {
		return 0
	}
	s, o := r.slide(window), other.slide(window)
	var peak uint64
	for s.head < len(r.log) && r.log[s.head].at <= to {
		at := r.log[s.head].at
		largest, own := max(floor, o.endAt(at)), s.endAt(at)
		if at >= from && own > largest {
			peak = max(peak, own-largest)
		}
	}
	return peak
}

// sliding is a window that moves along a log. A window that ends between two admissions holds no more than one that
// ends with the first of them, so that it is enough to end it at each.
type sliding struct {
	log        []admission
	window     int64
	tail, head int // log[tail:head] lies in the window
	sum        uint64
}

// slide returns a window before the beginning of the log, which it sorts.
func (r *Rolling) slide(window time.Duration) *sliding {
	byTime := func(a, b admission) int { return cmp.Compare(a.at, b.at) }
	if !slices.IsSortedFunc(r.log, byTime) {
		slices.SortFunc(r.log, byTime)
	}
	return &sliding{log: r.log, window: int64(window)}
}

// endAt moves the window on to end at t, and returns what it holds.
func (s *sliding) endAt(t int64) uint64 {
	for ; s.head < len(s.log) && s.log[s.head].at <= t; s.head++ {
		s.sum += s.log[s.head].cost
	}
	for ; s.tail < s.head && t-s.log[s.tail].at >= s.window; s.tail++ {
		s.sum -= s.log[s.tail].cost
	}
	return s.sum
}
