package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/counterstest"
	"pgregory.net/rapid"
)

// Clients that keep to their limit are never rejected, by a table alone under a clock that only goes forward.

// drawCompliant draws a limit of which 95 % are worth speaking of, and how much 95 % of it are.
func drawCompliant(t *rapid.T) (*counters.Limit, uint64) {
	most := rapid.Uint64Range(40, 1000).Draw(t, "limit")
	sub := time.Duration(rapid.SampledFrom([]int64{1e6, 1e9, 7e9}).Draw(t, "sub"))
	n := rapid.SampledFrom([]time.Duration{1, 2, 5, 10, 60}).Draw(t, "sub-windows")
	return limitOf(t, n*sub, sub, most), most * 95 / 100
}

// send asks for a cost of 1 at each of the times, which have to be in order, and checks that the client kept to its limit.
func send(t *rapid.T, l *counters.Limit, most uint64, times []int64) {
	table := counters.NewTable(counters.Config{Origin: 1})
	var log counterstest.Rolling
	for i, at := range times {
		log.Add(at, 1)
		if d := table.Take(l, 1, 1, at); !d.Allowed {
			t.Fatalf("request %d of %d was denied: %+v", i, len(times), d)
		}
	}
	if peak := log.Peak(l.Meter().Window); peak > most {
		t.Fatalf("%d in a window, at most %d are fair: the test is wrong", peak, most)
	}
}

// The same burst again and again, a window and a sub-window after it began, however long it lasts: all 95 % of the limit at once, in a
// fifth of a second, or over half the window.
func TestBurstsAWindowAndASubWindowApartAreAdmitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, most := drawCompliant(t)
		window, sub := int64(l.Meter().Window), int64(l.Meter().Sub)
		lasting := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, window/50), rapid.Int64Range(0, window/2)).Draw(t, "lasting")
		spacing := window + sub + rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, sub)).Draw(t, "pause")
		begin := start + rapid.Int64Range(0, window).Draw(t, "begin")
		var times []int64
		for burst := range int64(4) {
			for i := range int64(most) {
				times = append(times, begin+burst*spacing+lasting*i/int64(most))
			}
		}
		send(t, l, most, times)
	})
}

// 95 % of the limit, evenly.
func TestEvenClientsAreAdmitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, most := drawCompliant(t)
		window := int64(l.Meter().Window)
		spacing := (window + int64(most) - 1) / int64(most) // rounded up
		begin := start + rapid.Int64Range(0, window).Draw(t, "begin")
		var times []int64
		for i := range 4 * int64(most) {
			times = append(times, begin+i*spacing)
		}
		send(t, l, most, times)
	})
}

// A client that comes at random, but never passes its limit with all that may still overlap, is admitted as well: what counts is
// never older than a window and a sub-window.
func TestNothingCountsForLongerThanAWindowAndASubWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, most := drawCompliant(t)
		longest := l.Meter().Window + l.Meter().Sub
		now := start
		var times []int64
		for range rapid.IntRange(1, 300).Draw(t, "requests") {
			now += rapid.Int64Range(0, 2*int64(longest)/int64(most)).Draw(t, "pause")
			if i := len(times) - int(most); i >= 0 {
				now = max(now, times[i]+int64(longest))
			}
			times = append(times, now)
		}
		send(t, l, most, times)
	})
}

// Three tables that hear of each other late, twice or never: none of them ever sees more than there is. A client that the truth
// admits is therefore admitted by each of them.
func TestAMergedViewNeverExceedsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limitOf(t, 10*time.Second, time.Second, 30)
		truth := counterstest.NewModel(l)
		var tables []*counters.Table
		for origin := range counters.Origin(3) {
			// So small that cells are evicted, and born again.
			tables = append(tables, counters.NewTable(counters.Config{Origin: 1 + origin, Memory: counters.MinMemory}))
		}
		keys := rivals(t, l, 2)
		var told [][]counters.Slot
		now := start
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause")
			table := rapid.SampledFrom(tables).Draw(t, "table")
			key := rapid.SampledFrom(keys).Draw(t, "key")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				told = append(told, table.DrainDirty(now).Slots)
			case 1:
				told = append(told, table.Snapshot(now, 3))
			case 2:
				if len(told) > 0 {
					table.Merge(rapid.SampledFrom(told).Draw(t, "heard"), now)
				}
			default:
				cost := rapid.Uint64Range(0, 3).Draw(t, "cost")
				fair := truth.View(key, now)+max(cost, 1) <= l.Max()
				d := table.Take(l, key, cost, now)
				if fair && !d.Allowed {
					t.Fatalf("the truth has room for %d on %d, a table has not: %+v", cost, truth.View(key, now), d)
				}
				if d.Allowed {
					truth.Add(key, l.Meter().Index(now), cost)
				}
			}
			if view := table.View(l, key, now); view > truth.View(key, now) {
				t.Fatalf("a view of %d, of which there are %d", view, truth.View(key, now))
			}
		}
	})
}
