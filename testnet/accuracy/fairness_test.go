package main

import (
	"fmt"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// fewer are the arrivals of a client's first bursts.
func fewer(s spender) []int64 {
	times := s.arrivals()
	return times[:len(times)/4]
}

// With the first weight, the window decides just as package counters does.
func TestWindowIsThatOfCounters(t *testing.T) {
	for _, n := range subWindows {
		limit, err := counters.NewLimit(meterOf(n), fairLimit)
		testkit.Must(t, err)
		denied := 0
		for _, s := range append(append([]spender{}, compliant...), greedy...) {
			table, w := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory}), newWindow(n,
				weightings[0])
			for i, at := range fewer(s) {
				got, want := w.take(at), table.Take(limit, 1, 1, at).Allowed
				if got != want {
					t.Fatalf("%d sub-windows, %s, request %d: %v, counters says %v", n, s.name, i, got, want)
				}
				if !got {
					denied++
				}
			}
		}
		if denied == 0 {
			t.Errorf("%d sub-windows: nothing was denied, that shows little", n)
		}
	}
}

// No rolling window ever holds more than 95 % of the limit of a client that is called compliant, and nearly that of
// some.
func TestCompliantSpendersAreCompliant(t *testing.T) {
	for _, s := range compliant {
		var log oracle.Rolling
		for _, at := range fewer(s) {
			log.Add(at, 1)
		}
		if peak := log.Peak(fairWindow); peak != 950 {
			t.Errorf("%s: a window holds %d, want 950", s.name, peak)
		}
	}
}

// What the document says of the weights.
func TestWeights(t *testing.T) {
	rejects := func(weight, n int, s spender) bool {
		out := spend(s, newWindow(n, weightings[weight]))
		return out.admitted < out.offered
	}
	burst, late, even := compliant[0], compliant[4], compliant[5]
	for _, n := range []int{1, 5, 10} {
		for i, w := range weightings {
			if got, want := rejects(i, n, burst), w.name != "not at all"; got != want {
				t.Errorf("%d sub-windows, %s: a burst is rejected: %v", n, w.name, got)
			}
			if got, want := rejects(i, n, even), w.name == "in full"; got != want {
				t.Errorf("%d sub-windows, %s: an even client is rejected: %v", n, w.name, got)
			}
		}
		if out := spend(greedy[2], newWindow(n, weightings[3])); out.peak < fairLimit*3/2 {
			t.Errorf("%d sub-windows: not at all, a greedy client has %d in a window only", n, out.peak)
		}
		bound := fairLimit + uint64((fairLimit+n-1)/n)
		if out := spend(greedy[2], newWindow(n, weightings[0])); out.peak > bound {
			t.Errorf("%d sub-windows: a greedy client has %d in a window, want at most %d", n, out.peak, bound)
		}
	}
	for _, n := range []int{10, 20, 50} {
		if rejects(0, n, late) {
			t.Errorf("%d sub-windows: a burst that comes a window and a sub-window later is rejected", n)
		}
	}
}

func TestFairnessSheets(t *testing.T) {
	trials := []trial{{weight: "w", subWindows: 1, bytes: 84.4,
		compliant: []spent{
			{offered: 1000, admitted: 810},
		}, greedy: []spent{{offered: 2000, admitted: 1050, peak: 1100, seconds: fairWindow.Seconds()}}}}
	if got, want := fmt.Sprint(fairnessSheet(trials).rows), "[[w 1 (two buckets) 84 19]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := fmt.Sprint(greedySheet(trials).rows), "[[w 1 (two buckets) 105; 10.0]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
