package oracle

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRollingWindowIsOpenAtItsBegin(t *testing.T) {
	var r Rolling
	r.Add(100, 3)
	r.Add(110, 4)
	for window, want := range map[time.Duration]uint64{1: 4, 10: 4, 11: 7, 1000: 7} {
		if got := r.Peak(window); got != want {
			t.Errorf("peak of (t-%d, t] = %d, want %d", window, got, want)
		}
	}
}

func TestRollingCountsWhatCameTogether(t *testing.T) {
	var r Rolling
	for range 5 {
		r.Add(100, 2)
	}
	if got := r.Peak(1); got != 10 {
		t.Errorf("peak = %d, want all 10 of one nanosecond", got)
	}
}

func TestRollingPeakWithin(t *testing.T) {
	var r Rolling
	for _, at := range []int64{10, 11, 12, 30, 31, 50} { // three, two, one
		r.Add(at, 1)
	}
	for _, c := range []struct {
		from, to int64
		want     uint64
		why      string
	}{
		{0, 9, 0, "nothing has come"},
		{0, 10, 1, "both ends belong to it"},
		{12, 12, 3, "a single window"},
		{14, 14, 3, "the window reaches back before from, to 10"},
		{15, 15, 2, "10 has left"},
		{16, 29, 1, "only 12 is seen, and only at 16"},
		{17, 29, 0, "between"},
		{17, 100, 2, "the second burst"},
		{35, 49, 1, "31, at 35"},
		{36, 49, 0, "between"},
		{51, 1000, 1, "50, until 54"},
		{math.MinInt64, math.MaxInt64, 3, "all"},
		{20, 10, 0, "no time"},
	} {
		if got := r.PeakWithin(5, c.from, c.to); got != c.want {
			t.Errorf("peak of windows of 5 that end in %d to %d = %d, want %d: %s", c.from, c.to, got, c.want, c.why)
		}
	}
}

func TestRollingWithNothingInIt(t *testing.T) {
	var r Rolling
	if got := r.Peak(time.Second); got != 0 {
		t.Errorf("peak of an empty log = %d", got)
	}
	r.Add(5, 1)
	for _, window := range []time.Duration{0, -1, math.MinInt64} {
		if got := r.Peak(window); got != 0 {
			t.Errorf("peak of windows of %d = %d, want 0: there is no such window", window, got)
		}
	}
}

// Against every window there is, one by one.
func TestRollingAgainstAllWindows(t *testing.T) {
	const end = 60
	rapid.Check(t, func(t *rapid.T) {
		var r Rolling
		at := rapid.SliceOfN(rapid.Int64Range(0, end-1), 0, 40).Draw(t, "times")
		var costs [end]uint64
		for _, t0 := range at { // in no order
			cost := rapid.Uint64Range(0, 9).Draw(t, "cost")
			r.Add(t0, cost)
			costs[t0] += cost
		}
		window := rapid.Int64Range(1, end).Draw(t, "window")
		peakOf := func(from, to int64) (peak uint64) {
			for last := from; last <= to; last++ {
				var sum uint64
				for i := max(0, last-window+1); i <= min(last, end-1); i++ {
					sum += costs[i]
				}
				peak = max(peak, sum)
			}
			return peak
		}
		if got, want := r.Peak(time.Duration(window)), peakOf(0, end); got != want {
			t.Fatalf("peak = %d, want %d", got, want)
		}
		from := rapid.Int64Range(-5, end+5).Draw(t, "from")
		to := rapid.Int64Range(from, end+10).Draw(t, "to")
		if got, want := r.PeakWithin(time.Duration(window), from, to), peakOf(from, to); got != want {
			t.Fatalf("peak of windows that end in %d to %d = %d, want %d", from, to, got, want)
		}
	})
}

// Peaks are what PeakWithin finds, time by time.
func TestRollingPeaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Rolling
		for range rapid.IntRange(0, 30).Draw(t, "admissions") {
			r.Add(rapid.Int64Range(-5, 60).Draw(t, "at"), rapid.Uint64Range(1, 5).Draw(t, "cost"))
		}
		window := time.Duration(rapid.Int64Range(1, 20).Draw(t, "window"))
		from, every := rapid.Int64Range(-10, 30).Draw(t, "from"), rapid.Int64Range(1, 12).Draw(t, "every")
		peaks := r.Peaks(window, from, time.Duration(every), 6)
		for i, got := range peaks {
			begin := from + int64(i)*every
			if want := r.PeakWithin(window, begin, begin+every-1); got != want {
				t.Fatalf("from %d for %d: %d, want %d", begin, every, got, want)
			}
		}
	})
}

func TestRollingPeaksOfNoTime(t *testing.T) {
	var r Rolling
	r.Add(1, 1)
	for _, got := range [][]uint64{r.Peaks(0, 0, 10, 1), r.Peaks(10, 0, 0, 1)} {
		if len(got) != 1 || got[0] != 0 {
			t.Errorf("peaks %v of windows or times without a length, want one 0", got)
		}
	}
}

// Against the naive sum over every window that ends with an admission.
func TestPeakAbove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Int64Range(1, 20).Draw(t, "window")
		floor := rapid.Uint64Range(0, 10).Draw(t, "floor")
		from, to := rapid.Int64Range(-5, 40).Draw(t, "from"), rapid.Int64Range(-5, 60).Draw(t, "to")
		draw := func(name string) (r Rolling, log []admission) {
			for range rapid.IntRange(0, 12).Draw(t, name) {
				a := admission{rapid.Int64Range(0, 50).Draw(t, "at"), rapid.Uint64Range(1, 4).Draw(t, "cost")}
				r.Add(a.at, a.cost)
				log = append(log, a)
			}
			return r, log
		}
		within := func(log []admission, end int64) (sum uint64) {
			for _, a := range log {
				if a.at <= end && a.at > end-window {
					sum += a.cost
				}
			}
			return sum
		}
		mine, log := draw("mine")
		other, otherLog := draw("other")
		var want uint64
		for _, a := range log {
			if own, largest := within(log, a.at), max(floor, within(otherLog, a.at)); a.at >= from && a.at <= to &&
				own > largest {
				want = max(want, own-largest)
			}
		}
		if got := mine.PeakAbove(&other, floor, time.Duration(window), from, to); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	})
}
