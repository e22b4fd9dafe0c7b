package demo

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/judge"
)

// tenIn10s admits 10 in any 10 s, counted in sub-windows of 1 s.
func tenIn10s(t *testing.T) *counters.Limit {
	t.Helper()
	meter := counters.NewMeter("demo/client", counters.SlidingWindow, 10*time.Second)
	if meter.Sub != time.Second {
		t.Fatalf("sub-windows of %v: the numbers of these tests are for 1 s", meter.Sub)
	}
	l, err := counters.NewLimit(meter, 10)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// at is a moment so many milliseconds after the beginning of a sub-window.
func at(ms int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(ms) * time.Millisecond) }

// add takes in n requests of a client, a millisecond apart.
func add(g *tracker, node int, client string, ms, n int, allowed bool) {
	for i := range n {
		g.add(node, client, at(ms+i), at(ms+i), allowed)
	}
}

func near(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

// Two nodes that receive nothing from each other admit 7 and 5 of 12 at once. The oracle would have admitted 10.
func TestTrackerCounts(t *testing.T) {
	g := newTracker(tenIn10s(t), 2)
	add(g, 0, "x", 0, 7, true)
	add(g, 1, "x", 100, 5, true)
	add(g, 1, "x", 200, 3, false)
	nodes, total, over := g.read(at(300))
	want := []judge.Requests{
		{Offered: 7, Admitted: 7, OracleAdmitted: 7},
		{Offered: 8, Admitted: 5, Denied: 3, OracleAdmitted: 3},
	}
	if !reflect.DeepEqual(nodes, want) {
		t.Errorf("by node %+v, want %+v", nodes, want)
	}
	if total != (judge.Requests{Offered: 15, Admitted: 12, Denied: 3, OracleAdmitted: 10}) {
		t.Errorf("in all %+v", total)
	}
	if !near(over, 0.2) {
		t.Errorf("12 under a limit of 10 is %v over", over)
	}
	if _, _, again := g.read(at(5000)); !near(again, 0.2) {
		t.Errorf("five seconds later the window still holds 12, but it says %v", again)
	}
	if _, _, again := g.read(at(30_000)); again != 0 {
		t.Errorf("the window is empty, but it says %v", again)
	}
	if p := g.peakOver(at(0), at(60_000)); !near(p, 0.2) {
		t.Errorf("peak over the oracle %v, want 0.2", p)
	}
}

// Denials and requests below the limit are no excess.
func TestTrackerWithinTheLimit(t *testing.T) {
	g := newTracker(tenIn10s(t), 1)
	add(g, 0, "x", 0, 10, true)
	add(g, 0, "x", 100, 50, false)
	if _, total, over := g.read(at(200)); over != 0 || total.OracleAdmitted != 10 {
		t.Errorf("over %v, %+v", over, total)
	}
	if p := g.peakOver(at(0), at(60_000)); p != 0 {
		t.Errorf("peak %v", p)
	}
}

// Ten early in a sub-window, but not so early that a late clock puts them into the one before. 10.5 s later half of it
// overlaps, and all but an even share of them, 1, still count: the oracle admits one more. Seven make a view of 16, 60
// % over; but in the window (0.5 s, 10.5 s] there are only those 7.
func TestTrackerSeesWhatTheAlgorithmSees(t *testing.T) {
	g := newTracker(tenIn10s(t), 1)
	add(g, 0, "x", 100, 10, true)
	g.read(at(200))
	for range 7 {
		g.add(0, "x", at(10_500), at(10_500), true)
	}
	_, total, over := g.read(at(10_600))
	if !near(over, 0.6) || total.OracleAdmitted != 11 {
		t.Errorf("over %v, the oracle admits %d; want 0.6 and 11", over, total.OracleAdmitted)
	}
	if p := g.peakOver(at(0), at(60_000)); p != 0 {
		t.Errorf("no window held more than 10, but the peak is %v over", p)
	}
}

// The peak is looked for in the windows that end within the time given.
func TestPeakOverWithin(t *testing.T) {
	g := newTracker(tenIn10s(t), 1)
	add(g, 0, "x", 0, 10, true)
	add(g, 0, "x", 30_000, 16, true) // 60 % over
	add(g, 0, "x", 60_000, 12, true) // 20 % over
	for _, test := range []struct {
		from, to int
		want     float64
	}{
		{0, 100_000, 0.6},
		{0, 29_999, 0},
		{0, 30_012, 0.3}, // after 13 of the 16
		{39_000, 39_900, 0.6},
		{40_015, 59_000, 0}, // a window that ends now began after the last of them
		{50_000, 100_000, 0.2},
		{90_000, 100_000, 0},
		{100_000, 0, 0},
	} {
		if p := g.peakOver(at(test.from), at(test.to)); !near(p, test.want) {
			t.Errorf("from %d to %d ms the peak is %v, want %v", test.from, test.to, p, test.want)
		}
	}
}

// Every client has a count of its own, and the worst of them counts.
func TestTrackerKeepsClientsApart(t *testing.T) {
	g := newTracker(tenIn10s(t), 1)
	for i := range 5 {
		add(g, 0, fmt.Sprint("client", i), i*100, 9, true)
	}
	if _, total, over := g.read(at(500)); over != 0 || total.OracleAdmitted != 45 {
		t.Errorf("five clients below their limits are %v over, %+v", over, total)
	}
	add(g, 0, "client2", 500, 4, true)
	add(g, 0, "client3", 600, 2, true)
	if p := g.peakOver(at(0), at(60_000)); !near(p, 0.3) {
		t.Errorf("13 and 11 of 10: %v over, want that of the worst, 0.3", p)
	}
}

// The compliant client is judged, but it is not in the requests of the load, nor in the list of limited clients.
func TestTrackerLeavesOutTheCompliantClient(t *testing.T) {
	g := newTracker(tenIn10s(t), 1)
	add(g, 0, "x", 0, 3, true)
	add(g, 0, compliant, 10, 9, false)
	nodes, total, _ := g.read(at(100))
	if want := (judge.Requests{Offered: 3, Admitted: 3, OracleAdmitted: 3}); total != want || nodes[0] != want ||
		len(g.limited()) != 0 {
		t.Errorf("%+v, by node %+v, limited %v", total, nodes, g.limited())
	}
	if got := g.all.Fairness(); got != (judge.Fairness{CompliantClients: 2, CompliantOffered: 12, FalseRejections: 9}) {
		t.Errorf("%+v", got)
	}
}

func TestLimited(t *testing.T) {
	g := newTracker(tenIn10s(t), 1)
	if got := g.limited(); got == nil || len(got) != 0 {
		t.Errorf("nobody was limited: %#v, want an empty list, not null", got)
	}
	add(g, 0, "kept", 0, 5, true)
	add(g, 0, "b", 10, 2, false)
	add(g, 0, "a", 20, 2, false)
	add(g, 0, "most", 30, 1, true)
	add(g, 0, "most", 40, 3, false)
	want := []Limited{
		{"most", judge.Requests{Offered: 4, Admitted: 1, Denied: 3, OracleAdmitted: 4}},
		{"a", judge.Requests{Offered: 2, Denied: 2, OracleAdmitted: 2}},
		{"b", judge.Requests{Offered: 2, Denied: 2, OracleAdmitted: 2}},
	}
	if got := g.limited(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// What a busy machine does is no excess: the node decided later than it was asked, when the two of before had begun to
// leave the window, and the sampler's tick waited until after that decision.
func TestTrackerOfABusyMachine(t *testing.T) {
	for _, test := range []struct {
		sent, done int
		over       float64
	}{
		{10_920, 10_950, 0.1}, // one of the two still counts
		{10_920, 11_020, 0},
	} {
		g := newTracker(tenIn10s(t), 1)
		add(g, 0, "x", 100, 2, true)
		add(g, 0, "x", 10_910, 9, true)
		g.add(0, "x", at(test.sent), at(test.done), true)
		if _, _, over := g.read(at(10_000)); !near(over, test.over) {
			t.Errorf("asked at %d ms, answered at %d ms: %v over, want %v", test.sent, test.done, over, test.over)
		}
	}
}
