package counters_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// Clients that keep to their limit are never rejected, by a table alone under a clock that only goes forward.

// drawCompliant draws a limit of any algorithm of which 95 % are worth speaking of, and how much 95 % of it are.
func drawCompliant(t *rapid.T) (*counters.Limit, uint64) {
	largest := rapid.Uint64Range(40, 1000).Draw(t, "limit")
	sub := time.Duration(rapid.SampledFrom([]int64{1e6, 1e9, 7e9}).Draw(t, "sub"))
	n := rapid.SampledFrom([]time.Duration{1, 2, 5, 10, 60}).Draw(t, "sub-windows")
	a := rapid.SampledFrom(algorithms).Draw(t, "algorithm")
	if a == counters.FixedWindow {
		n = 1
	}
	return newLimit(t, counters.Meter{Rule: "r", Algorithm: a, Window: n * sub, Sub: sub}, largest), largest * 95 / 100
}

// send asks for a cost of 1 at each of the times, which have to be in order, and checks that the client kept to its
// limit.
func send(t *rapid.T, l *counters.Limit, largest uint64, times []int64) {
	table := small(1)
	var log oracle.Rolling
	for i, at := range times {
		log.Add(at, 1)
		if d := table.Take(l, 1, 1, at); !d.Allowed {
			t.Fatalf("request %d of %d was denied: %+v", i, len(times), d)
		}
	}
	if peak := log.Peak(l.Meter().Window); peak > largest {
		t.Fatalf("%d in a window, at most %d are fair: the test is wrong", peak, largest)
	}
}

// The same burst again and again, a window and a sub-window after it began, however long it lasts: all 95 % of the
// limit at once, in a fifth of a second, or over half the window.
func TestBurstsAWindowAndASubWindowApartAreAdmitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, largest := drawCompliant(t)
		window, sub := int64(l.Meter().Window), int64(l.Meter().Sub)
		lasting := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, window/50), rapid.Int64Range(0, window/2)).
			Draw(t, "lasting")
		spacing := window + sub + rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, sub)).Draw(t, "pause")
		begin := start + rapid.Int64Range(0, window).Draw(t, "begin")
		var times []int64
		for burst := range int64(4) {
			for i := range int64(largest) {
				times = append(times, begin+burst*spacing+lasting*i/int64(largest))
			}
		}
		send(t, l, largest, times)
	})
}

// 95 % of the limit, evenly.
func TestEvenClientsAreAdmitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, largest := drawCompliant(t)
		window := int64(l.Meter().Window)
		spacing := (window + int64(largest) - 1) / int64(largest) // rounded up
		begin := start + rapid.Int64Range(0, window).Draw(t, "begin")
		var times []int64
		for i := range 4 * int64(largest) {
			times = append(times, begin+i*spacing)
		}
		send(t, l, largest, times)
	})
}

// A client that comes at random, but never passes its limit with all that may still overlap, is admitted as well: what
// counts is never older than a window and a sub-window.
func TestNothingCountsForLongerThanAWindowAndASubWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, largest := drawCompliant(t)
		longest := l.Meter().Window + l.Meter().Sub
		now := start
		var times []int64
		for range rapid.IntRange(1, 300).Draw(t, "requests") {
			now += rapid.Int64Range(0, 2*int64(longest)/int64(largest)).Draw(t, "pause")
			if i := len(times) - int(largest); i >= 0 {
				now = max(now, times[i]+int64(longest))
			}
			times = append(times, now)
		}
		send(t, l, largest, times)
	})
}
