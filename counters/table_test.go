package counters_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/counterstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// start is the beginning of an hour, and of every sub-window that divides one.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano()

// after is the time so long after start.
func after(d time.Duration) int64 { return start + int64(d) }

func newLimit(t rapid.TB, m counters.Meter, largest uint64) *counters.Limit {
	t.Helper()
	l, err := counters.NewLimit(m, largest)
	testkit.Must(t, err)
	return l
}

func newBucket(t rapid.TB, m counters.Meter, capacity, refill uint64) *counters.Limit {
	t.Helper()
	l, err := counters.LimitConfig{Meter: m, Max: capacity, Refill: refill}.New()
	testkit.Must(t, err)
	return l
}

// with is the limit with another configuration.
func with(t rapid.TB, l *counters.Limit, change func(*counters.LimitConfig)) *counters.Limit {
	t.Helper()
	l, err := l.With(change)
	testkit.Must(t, err)
	return l
}

func scoped(t rapid.TB, l *counters.Limit, s counters.Scope, region string) *counters.Limit {
	t.Helper()
	return with(t, l, func(c *counters.LimitConfig) { c.Scope, c.Region = s, region })
}

// limitOf is a limit with the sub-windows given.
func limitOf(t rapid.TB, window, sub time.Duration, largest uint64) *counters.Limit {
	t.Helper()
	return newLimit(t, counters.Meter{Rule: "edge/per_ip", Algorithm: counters.SlidingWindow, Window: window, Sub: sub},
		largest)
}

// slotOf is a slot of the limit's meter in the sub-window of the time at.
func slotOf(
	l *counters.Limit, key counters.Key, at int64, origin counters.Origin, birth uint32, count uint64,
) counters.Slot {
	m := l.Meter()
	return counters.Slot{Meter: &m, Key: key, Index: m.Index(at), Origin: origin, Birth: birth, Count: count}
}

// The merge laws hold for the slots of every algorithm.
func TestTableMergeLaws(t *testing.T) {
	counterstest.Run(t, func() counterstest.Merger { return least(1) })
}

// A denial costs the client nothing: however often it asks, it is admitted when the wait is over.
func TestDenialLeavesNoCount(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	table := least(1)
	if d := table.Take(l, 1, 5, start); !d.Allowed || d.Remaining != 0 {
		t.Fatalf("5 of 5: %+v", d)
	}
	table.DrainDirty(start)
	before := table.Snapshot(start, 100)
	first := table.Take(l, 1, 1, start)
	for range 1000 {
		if d := table.Take(l, 1, 1, start); d.Allowed || d != first {
			t.Fatalf("asked again: %+v, want what was said before: %+v", d, first)
		}
	}
	if view := table.View(l, 1, start); view != 5 {
		t.Errorf("view = %d, want 5", view)
	}
	if got := table.DrainDirty(start + 1).Slots; len(got) != 0 {
		t.Errorf("denials have something to tell: %v", got)
	}
	if got := table.Snapshot(start, 100); len(got) != len(before) || got[0] != before[0] {
		t.Errorf("snapshot %v, was %v", got, before)
	}
	if d := table.Take(l, 1, 1, start+int64(first.RetryAfter)); !d.Allowed {
		t.Errorf("after the wait of %v: %+v", first.RetryAfter, d)
	}
}

// No wait makes room for what the limit cannot hold, for a request and for a peek alike, of a key that is known or new.
func TestWhatCanNeverFit(t *testing.T) {
	for _, c := range []struct{ most, cost uint64 }{{0, 1}, {0, 0}, {5, 6}, {5, 1 << 63},
		{counters.MaxLimit, 1<<64 - 1}} {
		l := limitOf(t, time.Minute, time.Second, c.most)
		table := least(1)
		want := counters.Decision{
			Rule: "edge/per_ip", Window: time.Minute, Limit: c.most, Remaining: c.most, RetryAfter: counters.Never,
		}
		if d := table.Take(l, 1, c.cost, start); d != want {
			t.Errorf("cost %d, limit %d, a new key:\n got %+v\nwant %+v", c.cost, c.most, d, want)
		}
		table.Merge([]counters.Slot{slotOf(l, 1, start, 2, 0, 1)}, start)
		want.Remaining -= min(1, c.most)
		want.ResetAfter = time.Minute // a single one does not count any more once it begins to leave
		if c.most == 0 {              // it is beyond an even share, and stays until its second has left
			want.ResetAfter += time.Second
		}
		if d := table.Take(l, 1, c.cost, start); d != want {
			t.Errorf("cost %d, limit %d, a known key:\n got %+v\nwant %+v", c.cost, c.most, d, want)
		}
	}
}

func TestOrigin(t *testing.T) {
	if got := least(77).Origin(); got != 77 {
		t.Errorf("origin %d, want 77", got)
	}
}
