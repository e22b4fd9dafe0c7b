package counterstest

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Rolling is an exact log of the cost that was admitted for one key: what a limit per window is a promise about, whatever
// algorithm keeps it. The zero value is an empty log.
type Rolling struct {
	log []admission
}

type admission struct {
	at   int64
	cost uint64
}

// Add notes that cost was admitted at the time `at`, in nanoseconds. Times may come in any order; all costs together have to fit
// into 64 bits.
func (r *Rolling) Add(at int64, cost uint64) {
	r.log = append(r.log, admission{at, cost})
}

// Peak is the most cost that was admitted within any window (t-window, t]. It takes linear time if the log came in order.
func (r *Rolling) Peak(window time.Duration) uint64 {
	return r.PeakWithin(window, math.MinInt64, math.MaxInt64)
}

// PeakWithin is Peak over the windows that end inside a time: those with from <= t <= to. They may begin before it.
func (r *Rolling) PeakWithin(window time.Duration, from, to int64) uint64 {
	if window <= 0 || from > to {
		return 0
	}
	byTime := func(a, b admission) int { return cmp.Compare(a.at, b.at) }
	if !slices.IsSortedFunc(r.log, byTime) {
		slices.SortFunc(r.log, byTime)
	}
	var sum, peak uint64
	head, tail := 0, 0 // log[tail:head] lies in the window
	endAt := func(t int64) {
		for ; head < len(r.log) && r.log[head].at <= t; head++ {
			sum += r.log[head].cost
		}
		for ; tail < head && t-r.log[tail].at >= int64(window); tail++ {
			sum -= r.log[tail].cost
		}
		peak = max(peak, sum)
	}
	// A window that ends between two admissions holds no more than one that ends with the first of them.
	endAt(from)
	for _, a := range r.log {
		if from < a.at && a.at <= to {
			endAt(a.at)
		}
	}
	return peak
}
