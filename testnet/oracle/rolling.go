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
	log admissions
}

// Add records that a cost was admitted at a time in nanoseconds. Times may come in any order; the sum of all costs must
// fit into 64 bits.
func (r *Rolling) Add(at int64, cost uint64) {
	r.log = append(r.log, admission{at, cost})
}

// Peak returns the maximum cost that was admitted within a window (t-window, t]. It takes linear time if the log is in
// order.
func (r *Rolling) Peak(window time.Duration) uint64 {
	return r.PeakWithin(window, math.MinInt64, math.MaxInt64)
}

// PeakWithin is Peak over the windows that end at times from <= t <= to. They may begin before it.
func (r *Rolling) PeakWithin(window time.Duration, from, to int64) uint64 {
	if window <= 0 || from > to {
		return 0
	}
	return r.slide(window).peak(from, to)
}

// Peaks is PeakWithin over n intervals in a row: the i-th from from+i*every to from+(i+1)*every-1.
func (r *Rolling) Peaks(window time.Duration, from int64, every time.Duration, n int) []uint64 {
	peaks := make([]uint64, n)
	if window <= 0 || every <= 0 {
		return peaks
	}
	s := r.slide(window)
	for i := range peaks {
		begin := from + int64(i)*int64(every)
		peaks[i] = s.peak(begin, begin+int64(every)-1)
	}
	return peaks
}

// PeakAbove is the maximum by which a window of this log exceeds the same window of another one, or floor if that is
// more; 0 if none does. It looks at windows that end with an admission of this log at a time from <= t <= to.
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
// ends with the first of them, so it is enough to end it at each.
type sliding struct {
	log        admissions
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

// peak returns the most that a window which ends at a time from <= t <= to holds.
func (s *sliding) peak(from, to int64) uint64 {
	peak := s.endAt(from)
	for s.head < len(s.log) && s.log[s.head].at <= to {
		peak = max(peak, s.endAt(s.log[s.head].at))
	}
	return peak
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
