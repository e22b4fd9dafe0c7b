package counters_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// Tables that hear of each other, against the truth: all that was admitted anywhere, at its true time.

// node is a table with what others have sent it.
type node struct {
	*counters.Table
	drains   []drain   // what it drained, in order
	complete [3]int    // of each node, up to where everything was heard
	got      [3][]bool // and what else
}

// drain is one drain: everything that its node charged before `since` was in an earlier one.
type drain struct {
	slots []counters.Slot
	at    int64
}

// tell drains the table.
func (n *node) tell(now int64) {
	n.drains = append(n.drains, drain{n.DrainDirty(now).Slots, now})
}

// receive merges the i-th drain of a peer. As long as it has heard all that came before, it knows since when that is
// new.
func (n *node) receive(peer int, from *node, i int, now int64) {
	for len(n.got[peer]) < len(from.drains) {
		n.got[peer] = append(n.got[peer], false)
	}
	var since int64
	if known := min(n.complete[peer], i); known > 0 {
		since = from.drains[known-1].at
	}
	slots := make([]counters.Slot, len(from.drains[i].slots))
	for j, s := range from.drains[i].slots {
		s.CompleteThrough = since
		slots[j] = s
	}
	n.Merge(slots, now)
	n.got[peer][i] = true
	for n.complete[peer] < len(n.got[peer]) && n.got[peer][n.complete[peer]] {
		n.complete[peer]++
	}
}

// drawShared draws a limit of any algorithm that a few requests fill.
func drawShared(t *rapid.T, of ...counters.Algorithm) *counters.Limit {
	a := rapid.SampledFrom(of).Draw(t, "algorithm")
	n := rapid.SampledFrom([]time.Duration{1, 2, 10}).Draw(t, "sub-windows")
	if a == counters.FixedWindow {
		n = 1
	}
	m := counters.Meter{Rule: "r", Algorithm: a, Window: n * time.Second, Sub: time.Second}
	largest := rapid.Uint64Range(1, 30).Draw(t, "limit")
	if isBucket(a) {
		return newBucket(t, m, largest, rapid.SampledFrom([]uint64{1, 2, 5, 8, 20, 50}).Draw(t, "refill"))
	}
	return newLimit(t, m, largest)
}

// However late, often or seldom tables hear of each other: none of them believes in more than there is, and none denies
// what the truth has room for.
func TestNoViewExceedsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawShared(t, algorithms...)
		truth := oracle.NewModel(l)
		var nodes [3]node
		for i := range nodes {
			nodes[i].Table = small(counters.Origin(1 + i))
		}
		now := start + rapid.Int64Range(0, int64(time.Second)).Draw(t, "begin")
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, int64(500*time.Millisecond)),
				rapid.Int64Range(0, int64(3*time.Second))).Draw(t, "pause")
			who := rapid.IntRange(0, 2).Draw(t, "who")
			n := &nodes[who]
			key := counters.Key(rapid.IntRange(0, 1).Draw(t, "key"))
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				n.tell(now)
			case 1, 2:
				if from := rapid.IntRange(0, 2).Draw(t, "from"); from != who && len(nodes[from].drains) > 0 {
					i := rapid.IntRange(0, len(nodes[from].drains)-1).Draw(t, "which")
					n.receive(from, &nodes[from], i, now)
				}
			default:
				cost := rapid.Uint64Range(0, min(4, l.Max())).Draw(t, "cost")
				fair := truth.Fits(key, max(cost, 1), now)
				d := n.Take(l, key, cost, now)
				if fair && !d.Allowed {
					t.Fatalf("the truth is %d, which has room for %d, a table has not: %+v", truth.View(key, now), cost,
						d)
				}
				if d.Allowed {
					truth.Charge(key, cost, now)
				}
			}
			for key := range counters.Key(2) {
				if view, largest := n.View(l, key, now), truth.View(key, now); view > largest {
					t.Fatalf("table %d believes in %d of key %d, of which there are %d", who, view, key, largest)
				}
			}
		}
	})
}

// A bucket that hears of everything in the order in which it happened, with the time at which it did, is as good as the
// truth.
func TestABucketThatHearsInOrderKnowsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawShared(t, counters.TokenBucket, counters.LeakyBucket, counters.LeakyQueue)
		truth := oracle.NewModel(l)
		var tables []*counters.Table
		for i := range 3 {
			table := small(counters.Origin(1 + i))
			table.Know([]*counters.Limit{l})
			tables = append(tables, table)
		}
		now := start + rapid.Int64Range(0, int64(time.Second)).Draw(t, "begin")
		for range rapid.IntRange(1, 100).Draw(t, "requests") {
			now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, int64(500*time.Millisecond)),
				rapid.Int64Range(0, int64(5*time.Second))).Draw(t, "pause")
			who := rapid.IntRange(0, 2).Draw(t, "who")
			cost := rapid.Uint64Range(0, l.Max()).Draw(t, "cost")
			d, want := tables[who].Take(l, 1, cost, now), truth.Take(1, cost, now)
			if d != want {
				t.Fatalf("cost %d:\n got %+v\nwant %+v", cost, d, want)
			}
			slots := tables[who].DrainDirty(now).Slots
			for i := range slots {
				slots[i].CompleteThrough = now
			}
			now += rapid.Int64Range(0, int64(l.Meter().Window)).Draw(t, "delay")
			for i, table := range tables {
				if i != who {
					table.Merge(slots, now)
				}
				if view, want := table.View(l, 1, now), truth.View(1, now); view != want {
					t.Fatalf("table %d believes in %d, of which there are %d", i, view, want)
				}
			}
		}
	})
}

// What is counted by sub-windows does not depend on the order in which it is sent, nor on how often.
func TestViewsDoNotDependOnTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawShared(t, counters.SlidingWindow, counters.FixedWindow, counters.SlidingLog)
		m, n := l.Meter(), int64(l.Meter().SubWindows())
		now := start + rapid.Int64Range(0, int64(m.Window)).Draw(t, "now")
		slot := rapid.Custom(func(t *rapid.T) counters.Slot {
			return counters.Slot{
				Meter: &m, Key: counters.Key(rapid.IntRange(0, 1).Draw(t, "key")), Index: m.Index(now) +
					rapid.Int64Range(-n, 1).Draw(t, "index"),
				Origin: counters.Origin(
					rapid.IntRange(2, 4).Draw(t, "origin"),
				), Birth: rapid.Uint32Range(0, 1).Draw(t, "birth"),
				Count:           rapid.Uint64Range(1, 9).Draw(t, "count"),
				CompleteThrough: rapid.Int64Range(0, now).Draw(t, "since"),
			}
		})
		slots := rapid.SliceOfN(slot, 1, 30).Draw(t, "slots")
		once, again := small(1), small(9)
		once.Merge(slots, now)
		for range rapid.IntRange(1, 3).Draw(t, "times") {
			for _, s := range rapid.Permutation(slots).Draw(t, "order") {
				again.Merge([]counters.Slot{s}, now)
			}
		}
		for range 4 {
			for key := range counters.Key(2) {
				if a, b := once.Take(l, key, 0, now), again.Take(l, key, 0, now); a != b {
					t.Fatalf("%+v, in another order %+v", a, b)
				}
			}
			now += rapid.Int64Range(0, 2*int64(m.Sub)).Draw(t, "pause")
		}
	})
}

// What a bucket hears of before anybody asks for it is debited as it comes, if the table knows the limit; and if it
// learns of it only by the first request, it believes in what its slots still tell, and never in more than there is.
func TestABucketThatHearsBeforeItIsAsked(t *testing.T) {
	l := newBucket(t, counters.NewMeter("logins", counters.TokenBucket, time.Hour), 10, 1)
	for _, known := range []bool{true, false} {
		for hours := range 11 {
			table := small(1)
			if known {
				table.Know([]*counters.Limit{l})
			}
			slot := slotOf(l, 1, start, 3, 0, 10)
			slot.CompleteThrough = start
			table.Merge([]counters.Slot{slot}, start)
			for hour := range hours {
				sweep(table, after(time.Duration(hour)*time.Hour))
			}
			truth := uint64(10 - hours)
			view := table.View(l, 1, after(time.Duration(hours)*time.Hour))
			if view > truth || view < truth && (known || hours == 0) {
				t.Errorf("known %v: first asked for after %d hours, it counts %d, of which there are %d", known, hours,
					view, truth)
			}
		}
	}
}
