package counters_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/counterstest"
	"github.com/edgelimit/edgelimit/counters/counterstest/mergelaws"
	"pgregory.net/rapid"
)

// start is the beginning of an hour, and of every sub-window that divides one.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano()

// after is the time so long after start.
func after(d time.Duration) int64 { return start + int64(d) }

func newLimit(t rapid.TB, m counters.Meter, most uint64) *counters.Limit {
	t.Helper()
	l, err := counters.NewLimit(m, most)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newBucket(t rapid.TB, m counters.Meter, capacity, refill uint64) *counters.Limit {
	t.Helper()
	l, err := counters.NewBucket(m, capacity, refill)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// limitOf is a limit with the sub-windows given.
func limitOf(t rapid.TB, window, sub time.Duration, most uint64) *counters.Limit {
	t.Helper()
	return newLimit(t, counters.Meter{Rule: "edge/per_ip", Algorithm: counters.SlidingWindow, Window: window, Sub: sub}, most)
}

// slotOf is a slot of the limit's meter in the sub-window of the time at.
func slotOf(l *counters.Limit, key counters.Key, at int64, origin counters.Origin, birth uint32, count uint64) counters.Slot {
	m := l.Meter()
	return counters.Slot{Meter: &m, Key: key, Index: m.Index(at), Origin: origin, Birth: birth, Count: count}
}

// TestTableAgainstModel holds the table against the naive model: random costs, peeks, remote counts and times, forwards with now and
// then a long pause, under limits with few and many sub-windows.
func TestTableAgainstModel(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		window := []time.Duration{time.Second, 10 * time.Second, 7 * time.Second, time.Minute}[r.IntN(4)]
		againstModel(t, r, newLimit(t, counters.NewMeter("r", counters.SlidingWindow, window), 1+r.Uint64N(60)), start+r.Int64N(int64(window)))
	}
}

// A machine without a battery for its clock begins at the epoch, where the window reaches back before it.
func TestTableAgainstModelFromTheEpoch(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 2))
		againstModel(t, r, limitOf(t, time.Hour, time.Hour/[]time.Duration{1, 2, 10, 60}[r.IntN(4)], 1+r.Uint64N(60)), r.Int64N(int64(time.Hour)))
	}
}

func againstModel(t *testing.T, r *rand.Rand, l *counters.Limit, now int64) {
	table := counters.NewTable(counters.Config{Origin: 1})
	model := counterstest.NewModel(l)
	m := l.Meter()
	sub := int64(m.Sub)
	remote := map[[2]int64]uint64{} // key, index -> count of the one remote origin
	for step := range 2000 {
		now += r.Int64N(sub / 2)
		if r.IntN(200) == 0 {
			now += r.Int64N(3 * int64(m.Window))
		}
		key := counters.Key(r.Uint64N(3))
		if r.IntN(4) == 0 {
			index := max(0, now/sub-r.Int64N(int64(m.SubWindows())+1)+r.Int64N(2))
			at := [2]int64{int64(key), index}
			count := remote[at] + 1 + r.Uint64N(3)
			model.Add(key, index, count-remote[at])
			remote[at] = count
			slot := counters.Slot{Meter: &m, Key: key, Index: index, Origin: 2, Count: count}
			if novel := table.Merge([]counters.Slot{slot}, now); novel != 1 {
				t.Fatalf("step %d: %d slots are novel, want 1: %+v", step, novel, slot)
			}
			continue
		}
		cost := r.Uint64N(5)
		got, want := table.Take(l, key, cost, now), model.Take(key, cost, now)
		if got != want {
			t.Fatalf("step %d: Take(key %d, cost %d) = %+v, the model says %+v", step, key, cost, got, want)
		}
		if view := table.View(l, key, now); view != model.View(key, now) {
			t.Fatalf("step %d: view %d, the model says %d", step, view, model.View(key, now))
		}
		model.Forget(now)
	}
	if refused := table.Stats().Refused; refused != 0 {
		t.Errorf("%d slots were refused, want none", refused)
	}
}

func TestTableMergeLaws(t *testing.T) {
	mergelaws.Run(t, func() mergelaws.Merger { return counters.NewTable(counters.Config{Origin: 1}) })
}

// A denial costs the client nothing: however often it asks, it is admitted when the wait is over.
func TestDenialLeavesNoCount(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	table := counters.NewTable(counters.Config{Origin: 1})
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
	for _, c := range []struct{ most, cost uint64 }{{0, 1}, {0, 0}, {5, 6}, {5, 1 << 63}, {counters.MaxLimit, 1<<64 - 1}} {
		l := limitOf(t, time.Minute, time.Second, c.most)
		table := counters.NewTable(counters.Config{Origin: 1})
		want := counters.Decision{
			Rule: "edge/per_ip", Window: time.Minute, Limit: c.most, Remaining: c.most, RetryAfter: counters.Never,
		}
		if d := table.Take(l, 1, c.cost, start); d != want {
			t.Errorf("cost %d, limit %d, a new key:\n got %+v\nwant %+v", c.cost, c.most, d, want)
		}
		table.Merge([]counters.Slot{slotOf(l, 1, start, 2, 0, 1)}, start)
		want.Remaining -= min(1, c.most)
		want.ResetAfter = time.Minute + time.Second
		if d := table.Take(l, 1, c.cost, start); d != want {
			t.Errorf("cost %d, limit %d, a known key:\n got %+v\nwant %+v", c.cost, c.most, d, want)
		}
	}
}

func TestOrigin(t *testing.T) {
	if got := counters.NewTable(counters.Config{Origin: 77}).Origin(); got != 77 {
		t.Errorf("origin %d, want 77", got)
	}
}
