package counters_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// drawLimit draws a limit of any of the algorithms, or of those given, with any number of sub-windows. A bucket gets a
// token in a whole number of nanoseconds.
func drawLimit(t *rapid.T, of ...counters.Algorithm) *counters.Limit {
	if len(of) == 0 {
		of = algorithms
	}
	a := rapid.SampledFrom(of).Draw(t, "algorithm")
	sub := rapid.OneOf(rapid.SampledFrom([]int64{1e6, 1e9, 6e9, 3600e9}), rapid.Int64Range(1e6, 1e10)).Draw(t, "sub")
	n := rapid.OneOf(rapid.SampledFrom([]int64{1, 2, 10, 60}), rapid.Int64Range(1, counters.MaxSubWindows)).
		Draw(t, "sub-windows")
	if a == counters.FixedWindow {
		n = 1
	}
	m := counters.Meter{Rule: "r", Algorithm: a, Window: time.Duration(n * sub), Sub: time.Duration(sub)}
	largest := rapid.OneOf(rapid.Uint64Range(1, 20), rapid.Uint64Range(1, counters.MaxLimit)).Draw(t, "limit")
	switch {
	case a == counters.SlidingLog:
		return newLimit(t, m, min(largest, counters.MaxLog))
	case isBucket(a):
		refill := rapid.OneOf(rapid.SampledFrom([]int64{1, n, 1000, 1e6}), rapid.Int64Range(1, 100)).
			Filter(func(refill int64) bool { return n*sub%refill == 0 }).Draw(t, "refill")
		return newBucket(t, m, min(largest, 100*uint64(refill)), uint64(refill))
	}
	return newLimit(t, m, largest)
}

// drawHistory lets time pass and fills key 1 of the table: requests of its own, and counts of a peer whose clock may be
// ahead. It returns the time.
func drawHistory(t *rapid.T, table *counters.Table, l *counters.Limit) int64 {
	sub := int64(l.Meter().Sub)
	now := start + rapid.Int64Range(0, int64(l.Meter().Window)).Draw(t, "begin")
	cost := rapid.OneOf(rapid.Uint64Range(1, l.Max()), rapid.Uint64Range(1, 1+l.Max()/5))
	for range rapid.IntRange(1, 30).Draw(t, "events") {
		now += rapid.OneOf(rapid.SampledFrom([]int64{0, 1, sub}), rapid.Int64Range(0, 3*sub)).Draw(t, "pause")
		if rapid.IntRange(0, 3).Draw(t, "remote") > 0 {
			table.Take(l, 1, cost.Draw(t, "cost"), now)
			continue
		}
		count := rapid.OneOf(cost, rapid.Just(most(l))).Draw(t, "count")
		skew := rapid.Int64Range(-int64(l.Meter().Window), sub).Draw(t, "skew")
		table.Merge([]counters.Slot{slotOf(l, 1, now+skew, 2, rapid.Uint32Range(0, 2).Draw(t, "birth"), count)}, now)
	}
	return now
}

// largest is the largest count that a test lets a peer tell: of a bucket, one that takes twenty windows to refill.
func most(l *counters.Limit) uint64 {
	if isBucket(l.Meter().Algorithm) {
		return 20 * l.Refill()
	}
	return math.MaxUint64
}

// Waiting RetryAfter admits the same request, asking a nanosecond before does not. Denials leave no count, so that the
// table that is asked too early is the one that is asked in time.
func TestRetryAfterIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, table := drawLimit(t), small(1)
		now := drawHistory(t, table, l)
		cost := rapid.Uint64Range(0, l.Max()).Draw(t, "cost")
		d := table.Take(l, 1, cost, now)
		if d.Allowed {
			if d.RetryAfter != 0 {
				t.Fatalf("admitted, and told to come back: %+v", d)
			}
			return
		}
		if d.RetryAfter <= 0 {
			t.Fatalf("denied without a wait: %+v", d)
		}
		then := now + int64(d.RetryAfter)
		if early := table.Take(l, 1, cost, then-1); early.Allowed || (then-1 > now && early.RetryAfter != 1) {
			t.Fatalf("a nanosecond before %v: %+v, want a denial for one more", d.RetryAfter, early)
		}
		if in := table.Take(l, 1, cost, then); !in.Allowed {
			t.Fatalf("after %v: %+v, want it admitted", d.RetryAfter, in)
		}
	})
}

// After ResetAfter the whole limit can be taken at once, a nanosecond before it cannot.
func TestResetAfterIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, table := drawLimit(t), small(1)
		now := drawHistory(t, table, l)
		d := table.Take(l, 1, rapid.Uint64Range(0, l.Max()).Draw(t, "cost"), now)
		if d.ResetAfter == 0 {
			if view := table.View(l, 1, now); view != 0 {
				t.Fatalf("reset already with a view of %d: %+v", view, d)
			}
			return
		}
		then := now + int64(d.ResetAfter)
		if view := table.View(l, 1, then-1); view == 0 {
			t.Fatalf("a nanosecond before %v nothing counts any more", d.ResetAfter)
		}
		if early := table.Take(l, 1, l.Max(), then-1); early.Allowed {
			t.Fatalf("a nanosecond before %v: %+v, want the whole limit denied", d.ResetAfter, early)
		}
		if inner := table.Take(l, 1, l.Max(), then); !inner.Allowed || inner.Remaining != 0 {
			t.Fatalf("after %v: %+v, want the whole limit admitted", d.ResetAfter, inner)
		}
	})
}

func TestDecisionsKeepTheirInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, table := drawLimit(t), small(1)
		now := drawHistory(t, table, l)
		before := table.View(l, 1, now)
		cost := rapid.Uint64Range(0, l.Max()+1).Draw(t, "cost")
		d := table.Take(l, 1, cost, now)
		view := table.View(l, 1, now)
		if want := before <= l.Max() && max(cost, 1) <= l.Max()-before; d.Allowed != want {
			t.Fatalf("cost %d on a view of %d under %d: %+v", cost, before, l.Max(), d)
		}
		if d.Allowed && view != before+cost || !d.Allowed && view != before {
			t.Fatalf("cost %d took the view from %d to %d: %+v", cost, before, view, d)
		}
		if d.Remaining != l.Max()-min(l.Max(), view) || (d.ResetAfter == 0) != (view == 0) || d.ResetAfter < 0 {
			t.Fatalf("view %d: %+v", view, d)
		}
		if d.Rule != "r" || d.Window != l.Meter().Window || d.Limit != l.Max() || d.Degraded {
			t.Fatalf("not the limit's decision: %+v", d)
		}
		if d.Delay != 0 && (!d.Allowed || l.Meter().Algorithm != counters.LeakyQueue) {
			t.Fatalf("held back: %+v", d)
		}
	})
}

// Counts up to 2^64 from many origins and births, each taken for the most that a slot counts. Together they are far
// more than any limit. A wait is still told, and right.
func TestTheLargestCounts(t *testing.T) {
	for _, a := range []counters.Algorithm{counters.SlidingWindow, counters.SlidingLog} {
		l := newLimit(t, counters.Meter{Rule: "edge/per_ip", Algorithm: a, Window: 10 * time.Second, Sub: time.Second},
			100)
		table := least(1)
		table.Take(l, 1, 60, start)
		var slots []counters.Slot
		for origin := range counters.Origin(50) {
			for i := range 10 {
				slots = append(slots,
					slotOf(l, 1, after(-time.Duration(i)*time.Second), 2+origin, uint32(i), math.MaxUint64-uint64(i)))
			}
		}
		if novel := table.Merge(slots, start); novel != len(slots) {
			t.Errorf("%v: %d slots are novel, want %d", a, novel, len(slots))
		}
		if view, want := table.View(l, 1, start), uint64(60+500*counters.MaxCount); view != want {
			t.Errorf("%v: view = %d, want %d", a, view, want)
		}
		// The counts of this second have to leave: not even a part of it, which is less than a nanosecond, may be left.
		want := counters.Decision{
			Rule: "edge/per_ip", Window: 10 * time.Second, Limit: 100, ResetAfter: 11 * time.Second,
			RetryAfter: 11 * time.Second,
		}
		if a == counters.SlidingLog {
			want.ResetAfter, want.RetryAfter = 10*time.Second, 10*time.Second
		}
		if d := table.Take(l, 1, 50, start); d != want {
			t.Errorf("%v:\n got %+v\nwant %+v", a, d, want)
		}
		if d := table.Take(l, 1, 1, start+int64(want.RetryAfter)-1); d.Allowed {
			t.Errorf("%v: admitted a nanosecond too early: %+v", a, d)
		}
		if d := table.Take(l, 1, 100, start+int64(want.RetryAfter)); !d.Allowed {
			t.Errorf("%v: denied after the window has passed: %+v", a, d)
		}
	}
}

// A bucket that receives more than it can refill is empty for as long as it can represent, hundreds of windows
// or decades; it does not overflow into a full one.
func TestABucketThatIsHardlyEverFullAgain(t *testing.T) {
	const year = 366 * 24 * time.Hour
	for _, c := range []struct {
		window           time.Duration
		capacity, refill uint64
	}{
		{time.Second, 5, 1}, {counters.MaxWindow, 5, 1}, {time.Millisecond, 1, 1}, {24 * time.Hour, 500, 3},
		{10 * time.Second, 1000, 1000},
	} {
		l := newBucket(t, counters.NewMeter("r", counters.TokenBucket, c.window), c.capacity, c.refill)
		least := min(700*c.window, 36*year)
		for _, origins := range []int{1, 400} {
			table := overfull(t, l, origins)
			for _, later := range []time.Duration{0, 1, least / 2, least} {
				d := table.Take(l, 1, 1, after(later))
				if d.Allowed || d.Remaining != 0 || d.RetryAfter < least-later || d.ResetAfter < d.RetryAfter ||
					d.Delay != 0 {
					t.Errorf("%+v: after %v, %d origins: %+v, want a denial for long", c, later, origins, d)
				}
				if view := table.View(l, 1, after(later)); view < c.capacity {
					t.Errorf("%+v: after %v, %d origins: view %d", c, later, origins, view)
				}
			}
		}
	}
}

// overfull is a table that so many origins told the most that there is to tell.
func overfull(t *testing.T, l *counters.Limit, origins int) *counters.Table {
	t.Helper()
	table := counters.NewTiny(1, 64)
	table.Take(l, 1, 1, start)
	for i := range origins {
		if table.Merge([]counters.Slot{slotOf(l, 1, start, counters.Origin(2+i), 0, math.MaxUint64)}, start) != 1 {
			t.Fatalf("origin %d is no news", i)
		}
	}
	return table
}
