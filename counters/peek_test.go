package counters_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// A peek of a key that nobody charged is answered for the whole limit, and makes no cell.
func TestPeekOfANewKey(t *testing.T) {
	l := limitOf(t, time.Minute, time.Second, 5)
	table := small(1)
	want := counters.Decision{Allowed: true, Rule: "edge/per_ip", Window: time.Minute, Limit: 5, Remaining: 5}
	if d := table.Take(l, 1, 0, start); d != want {
		t.Errorf("\n got %+v\nwant %+v", d, want)
	}
	ds := table.TakeAll([]counters.Charge{{Limit: l, Key: 1}, {Limit: l, Key: 2}}, start, nil)
	if len(ds) != 2 || ds[0] != want || ds[1] != want {
		t.Errorf("in layers:\n got %+v\nwant %+v twice", ds, want)
	}
	if view := table.View(l, 1, start); view != 0 {
		t.Errorf("view = %d", view)
	}
	if st, empty := table.Stats(), small(1).Stats(); st != empty {
		t.Errorf("left a trace: %+v", st)
	}
}

// A peek is answered as a cost of 1.
func TestPeekIsAnsweredAsOne(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	table := small(1)
	table.Take(l, 1, 4, start)
	if d := table.Take(l, 1, 0, start); !d.Allowed || d.Remaining != 1 || d.ResetAfter != 11*time.Second {
		t.Errorf("with one left: %+v", d)
	}
	table.Take(l, 1, 1, start)
	peek, take := table.Take(l, 1, 0, start), table.Take(l, 1, 1, start)
	if peek != take || peek.Allowed {
		t.Errorf("with none left:\npeek %+v\ntake %+v", peek, take)
	}
}

// Of two tables with the same history only one is peeked at. Nothing tells them apart: neither what they hold, nor what
// they tell, nor how they decide, nor what they forget.
func TestPeekLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawShared(t, algorithms...)
		plain, peeked := small(1), small(1)
		now := start
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "pause")
			key := counters.Key(rapid.Uint64Range(0, 5).Draw(t, "key"))
			peeked.Take(l, counters.Key(rapid.Uint64Range(0, 9).Draw(t, "peeked")), 0, now)
			peeked.View(l, counters.Key(rapid.Uint64Range(0, 9).Draw(t, "viewed")), now)
			peeked.TakeAll([]counters.Charge{{Limit: l, Key: key}, {Limit: l, Key: key + 1}}, now, nil)
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				a, b := plain.DrainDirty(now), peeked.DrainDirty(now)
				if !slices.EqualFunc(sorted(a.Slots), sorted(b.Slots), sameSlot) ||
					!slices.EqualFunc(a.Demand, b.Demand, sameDemand) {
					t.Fatalf("plain drains %+v, peeked %+v", a, b)
				}
			case 1:
				if a, b := sorted(plain.Snapshot(now, 1000)), sorted(peeked.Snapshot(now, 1000)); !slices.EqualFunc(a,
					b, sameSlot) {
					t.Fatalf("plain holds %v, peeked %v", a, b)
				}
			default:
				cost := rapid.Uint64Range(1, 1+l.Max()/2).Draw(t, "cost")
				if a, b := plain.Take(l, key, cost, now), peeked.Take(l, key, cost, now); a != b {
					t.Fatalf("plain says %+v, peeked %+v", a, b)
				}
			}
			a, b := plain.Stats(), peeked.Stats()
			if a.Bytes, b.Bytes = 0, 0; a != b { // a log that is looked at lets go what has left it
				t.Fatalf("plain is %+v, peeked %+v", a, b)
			}
		}
	})
}

// Not even where a clock went back so far that what the cell holds belongs to no time: it may be a glitch.
func TestPeekFromLongAgoLeavesTheCell(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	table := small(1)
	table.Take(l, 1, 5, start)
	ago := after(-time.Hour)
	if view := table.View(l, 1, ago); view != 0 {
		t.Errorf("an hour before, the view is %d", view)
	}
	if d := table.Take(l, 1, 0, ago); !d.Allowed || d.Remaining != 5 {
		t.Errorf("an hour before: %+v", d)
	}
	if view := table.View(l, 1, start); view != 5 {
		t.Errorf("after a look at an hour before, the view is %d, want 5", view)
	}
}
