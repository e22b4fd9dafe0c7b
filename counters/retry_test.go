package counters_test

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"pgregory.net/rapid"
)

// drawLimit draws a limit with any number of sub-windows.
func drawLimit(t *rapid.T) *counters.Limit {
	sub := time.Duration(rapid.OneOf(
		rapid.SampledFrom([]int64{1e6, 1e9, 6e9, 3600e9}),
		rapid.Int64Range(1e6, 1e10),
	).Draw(t, "sub"))
	n := rapid.OneOf(rapid.SampledFrom([]int64{1, 2, 10, 60}), rapid.Int64Range(1, counters.MaxSubWindows)).Draw(t, "sub-windows")
	most := rapid.OneOf(rapid.Uint64Range(1, 20), rapid.Uint64Range(1, counters.MaxLimit)).Draw(t, "limit")
	l, err := counters.NewLimit(counters.Meter{Rule: "r", Algorithm: counters.SlidingWindow, Window: time.Duration(n) * sub, Sub: sub}, most)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// drawHistory lets time pass and fills key 1 of the table: requests of its own, and counts of a peer whose clock may be ahead.
// It returns the time.
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
		count := rapid.OneOf(cost, rapid.Uint64Range(math.MaxUint64-1, math.MaxUint64)).Draw(t, "count")
		skew := rapid.Int64Range(-int64(l.Meter().Window), sub).Draw(t, "skew")
		table.Merge([]counters.Slot{slotOf(l, 1, now+skew, 2, rapid.Uint32Range(0, 2).Draw(t, "birth"), count)}, now)
	}
	return now
}

// Waiting RetryAfter admits the same request, asking a nanosecond before does not. Denials leave no count, so that the table that is
// asked too early is the one that is asked in time.
func TestRetryAfterIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, table := drawLimit(t), counters.NewTable(counters.Config{Origin: 1})
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
		l, table := drawLimit(t), counters.NewTable(counters.Config{Origin: 1})
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
		if whole := table.Take(l, 1, l.Max(), then); !whole.Allowed || whole.Remaining != 0 {
			t.Fatalf("after %v: %+v, want the whole limit admitted", d.ResetAfter, whole)
		}
	})
}

func TestDecisionsKeepTheirInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, table := drawLimit(t), counters.NewTable(counters.Config{Origin: 1})
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
		if d.Rule != "r" || d.Window != l.Meter().Window || d.Limit != l.Max() || d.Delay != 0 || d.Degraded {
			t.Fatalf("not the limit's decision: %+v", d)
		}
	})
}

// Counts up to 2^64 from many origins and births, which together are far more, saturate. A wait is still told, and right.
func TestCountsThatDoNotFitSaturate(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	table := counters.NewTable(counters.Config{Origin: 1})
	if d := table.Take(l, 1, 60, start); !d.Allowed {
		t.Fatalf("60 of 100: %+v", d)
	}
	var slots []counters.Slot
	for origin := range counters.Origin(5) {
		for i := range 11 {
			slots = append(slots, slotOf(l, 1, after(-time.Duration(i)*time.Second), 2+origin, uint32(i), math.MaxUint64-uint64(i)))
		}
	}
	if novel := table.Merge(slots, start); novel != len(slots) {
		t.Fatalf("%d slots are novel, want %d", novel, len(slots))
	}
	if view := table.View(l, 1, start); view != math.MaxUint64 {
		t.Errorf("view = %d, want the largest number there is", view)
	}
	want := counters.Decision{Rule: "edge/per_ip", Window: 10 * time.Second, Limit: 100, ResetAfter: 11 * time.Second}
	// The counts of this second have to leave: not even 100/(2^64-1) of it, which is less than a nanosecond, may be left.
	want.RetryAfter = 11 * time.Second
	if d := table.Take(l, 1, 1, start); d != want {
		t.Errorf("\n got %+v\nwant %+v", d, want)
	}
	if d := table.Take(l, 1, 1, after(11*time.Second)-1); d.Allowed {
		t.Errorf("admitted a nanosecond too early: %+v", d)
	}
	if d := table.Take(l, 1, 100, after(11*time.Second)); !d.Allowed {
		t.Errorf("denied after the window has passed: %+v", d)
	}
}
