package judge

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// tenIn10s is a tracker of a limit of 10 in any 10 s, counted in sub-windows of 1 s.
func tenIn10s(t *testing.T) *Tracker {
	t.Helper()
	l, err := counters.NewLimit(counters.Meter{
		Rule: "test", Algorithm: counters.SlidingWindow, Window: 10 * time.Second, Sub: time.Second}, 10)
	testkit.Must(t, err)
	return NewTracker(l, 0)
}

// at is a moment so many milliseconds after the beginning of a sub-window.
func at(ms int64) int64 { return int64(1_000_000*time.Second) + ms*int64(time.Millisecond) }

func near(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

// A sliding window lets more than its limit pass in a badly placed rolling window. That is no fault of the cluster: the
// oracle does so as well, and only what goes beyond it counts.
func TestPeakOverIsOverTheOracle(t *testing.T) {
	g := tenIn10s(t)
	for i := range int64(10) {
		g.Add("x", 1, at(990+i), at(990+i), true) // the end of a sub-window
	}
	g.Add("x", 1, at(10_100), at(10_100), true)
	for range 3 { // of a sub-window that overlaps by 9/10 nine count
		g.Add("x", 1, at(10_101), at(10_101), true)
	}
	if oracle, actual := g.clients["x"].Oracle.Peak(10*time.Second),
		g.clients["x"].Admitted.Peak(10*time.Second); oracle != 11 ||
		actual != 14 {
		t.Fatalf("fullest windows of %d and %d: the numbers of this test are for 11 and 14", oracle, actual)
	}
	if p := g.PeakOver(at(0), at(60_000)); !near(p, 0.3) {
		t.Errorf("14 where the oracle had 11 under a limit of 10: %v, want 0.3", p)
	}
	if p := g.PeakAbove(at(0), at(60_000)); !near(p, 0.3) {
		t.Errorf("14 where the oracle had 11 in the same window: %v, want 0.3", p)
	}
	if p := g.PeakAbove(at(0), at(10_050)); p != 0 {
		t.Errorf("before that: %v, want 0", p)
	}
	if p := g.PeakOverLimit(at(0), at(60_000)); !near(p, 0.4) {
		t.Errorf("14 under a limit of 10: %v over the limit, want 0.4", p)
	}
	if reach := g.oraclePeak(g.clients["x"]); reach != 11 {
		t.Errorf("the algorithm itself reaches %d, want 11", reach)
	}
}

// The verdict on each decision, with costs: Oracle goes by what the oracle admitted, Fits by what the nodes did.
func TestVerdict(t *testing.T) {
	g := tenIn10s(t)
	for i, step := range []struct {
		cost    uint64
		allowed bool
		want    Verdict
	}{
		{6, true, Verdict{Oracle: true, Fits: true, Excess: -0.4}},
		{5, true, Verdict{Oracle: false, Fits: false, Excess: 0.1}},   // the oracle holds 6, the nodes 11
		{4, false, Verdict{Oracle: true, Fits: false, Excess: 0.1}},   // the oracle has room, the nodes have none
		{11, false, Verdict{Oracle: false, Fits: false, Excess: 0.1}}, // more than any window holds
	} {
		got := g.Add("x", step.cost, at(int64(i)), at(int64(i)), step.allowed)
		if got.Oracle != step.want.Oracle || got.Fits != step.want.Fits || !near(got.Excess, step.want.Excess) {
			t.Errorf("step %d: %+v, want %+v", i, got, step.want)
		}
	}
	if g.Add("y", 1, at(10), at(10), false) != (Verdict{Oracle: true, Fits: true, Excess: -1}) {
		t.Error("clients are not kept apart")
	}
	if e := g.Excess(at(11)); !near(e, 0.1) {
		t.Errorf("the worst client is %v over, want 0.1", e)
	}
	if e := g.Excess(at(30_000)); e != 0 {
		t.Errorf("when all has left the window there is an excess of %v", e)
	}
	if x := g.clients["x"].Requests; x != (Requests{Offered: 4, Admitted: 2, Denied: 2, OracleAdmitted: 2}) {
		t.Errorf("%+v", x)
	}
}

// Compliant is who the oracle never counts above 95 %, whatever the nodes made of it; only denials of such a client are
// false.
func TestFairness(t *testing.T) {
	l, err := counters.NewLimit(counters.NewMeter("test", counters.SlidingWindow, 10*time.Second), 100)
	testkit.Must(t, err)
	for _, test := range []struct {
		name    string
		costs   []uint64
		allowed bool
		want    Fairness
	}{
		{"nobody", nil, true, Fairness{}},
		{"up to 95 %, admitted", []uint64{90, 5}, true, Fairness{1, 2, 0}},
		{"up to 95 %, denied", []uint64{90, 5}, false, Fairness{1, 2, 2}},
		{"beyond, denied before that as well", []uint64{90, 6}, false, Fairness{}},
		{"beyond by what the oracle denies", []uint64{90, 11}, false, Fairness{}},
		{"more than the limit at once", []uint64{101}, false, Fairness{}},
	} {
		g := NewTracker(l, 0)
		for i, cost := range test.costs {
			g.Add("x", cost, at(int64(i)), at(int64(i)), test.allowed)
		}
		if got := g.Fairness(); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
	g := NewTracker(l, 0)
	for i := range int64(300) { // once all has left the window it may be asked for again
		g.Add("x", 1, at(i/90*11_000+i%90), at(i/90*11_000+i%90), false)
	}
	g.Add("greedy", 100, at(40_000), at(40_000), false)
	if got := g.Fairness(); got != (Fairness{1, 300, 300}) {
		t.Errorf("beside somebody who is not compliant: %+v", got)
	}
}

// Forgetting what has passed changes no decision of the oracle.
func TestTrackerForgets(t *testing.T) {
	g := tenIn10s(t)
	for ms := int64(0); ms < 120_000; ms += 500 { // 20 in a window, two times the limit
		g.Add("x", 1, at(ms), at(ms), false)
	}
	c := g.clients["x"]
	if c.OracleAdmitted < 110 || c.OracleAdmitted > 130 {
		t.Errorf("of two times the limit for 12 windows the oracle admitted %d, want about 120", c.OracleAdmitted)
	}
	if got := g.oracle.View(c.key, at(60_000)); got != 0 {
		t.Errorf("what was counted a minute ago is still held: %d", got)
	}
}

func TestClients(t *testing.T) {
	g := tenIn10s(t)
	for _, name := range []string{"b", "a", "c", "a"} {
		g.Add(name, 1, at(0), at(0), true)
	}
	if got := slices.Sorted(maps.Keys(maps.Collect(g.Clients()))); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("clients %v", got)
	}
}

// A node whose clock is a little late counts the ten in the sub-window before theirs, and so lets them go a little
// early: the twelfth request is admitted rightly. Two clocks that differ cannot show an excess; what differs by more
// than ClockLag does.
func TestObservedTimesAreNotExact(t *testing.T) {
	limit := tenIn10s(t).limit
	for _, test := range []struct {
		name string
		g    *Tracker
		// ms after the beginning of a sub-window
		begins, answered int64
		excess           bool
	}{
		{"exact times", NewTracker(limit, 0), 5, 5, true},
		{"a late clock explains it", NewTracker(limit, ClockLag), 5, 5, false},
		{"no clock is that late", NewTracker(limit, ClockLag), 30, 30, true},
		{"nor with an answer a little later", NewTracker(limit, ClockLag), 30, 60, true},
		{"an answer in the next one explains it", NewTracker(limit, ClockLag), 30, 1000, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 10 {
				test.g.Add("x", 1, at(test.begins), at(test.begins), true)
			}
			test.g.Add("x", 1, at(10_000+test.begins), at(10_000+test.answered), true) // the ten count as nine
			noted := test.g.Add("x", 1, at(10_000+test.begins), at(10_000+test.answered), true)
			if (noted.Excess > 0) != test.excess {
				t.Errorf("excess %v", noted.Excess)
			}
		})
	}
}
