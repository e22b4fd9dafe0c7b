package counters_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// reported is the charge of a report of one layer.
func reported(l *counters.Limit, key counters.Key, cost uint64) []counters.Charge {
	return []counters.Charge{{Limit: l, Key: key, Cost: cost}}
}

// What is reported counts whether or not there is room, up to twice the limit; a peek tells for how long that denies.
func TestReport(t *testing.T) {
	for _, a := range algorithms {
		l, table := newLimit(t, counters.NewMeter("r", a, 10*time.Second), 10), small(1)
		for i, step := range []struct{ cost, used uint64 }{{0, 0}, {4, 4}, {6, 10}, {1, 11}, {8, 19}, {1 << 60, 20},
			{1, 20}} {
			table.Report(reported(l, 1, step.cost), start)
			if got := table.View(l, 1, start); got != step.used {
				t.Fatalf("%v: after report %d the view is %d, want %d", a, i+1, got, step.used)
			}
			d := table.Take(l, 1, 0, start)
			if d.Allowed != (step.used < 10) || d.Remaining != 10-min(step.used, 10) ||
				(d.RetryAfter > 0) == d.Allowed {
				t.Errorf("%v: with %d used: %+v", a, step.used, d)
			}
		}
		wait := int64(table.Take(l, 1, 1, start).RetryAfter)
		if wait > int64(20*time.Second) {
			t.Errorf("%v: an overdraft shuts out for %v", a, time.Duration(wait))
		}
		if early, late := table.Take(l, 1, 0, start+wait-1), table.Take(l, 1, 0, start+wait); early.Allowed ||
			!late.Allowed {
			t.Errorf("%v: after the wait %+v, and a nanosecond before %+v", a, late, early)
		}
	}
}

// Each layer is charged by itself, also where several meet in one cell; one without a limit, or with one of 0, is not.
func TestReportLayers(t *testing.T) {
	full, roomy, closed, table := limitNamed(t, "full",
		2), limitNamed(t, "roomy", 100), limitNamed(t, "closed", 0), small(1)
	table.Take(full, 1, 2, start)
	table.Report([]counters.Charge{
		{
			Limit: full, Key: 1, Cost: 1, Mode: counters.Shadow,
		}, {}, {Limit: roomy, Key: 1, Cost: 5}, {Limit: closed, Key: 1, Cost: 1},
		{Limit: roomy, Key: 1, Cost: 6, Mode: counters.Quota}, {Limit: roomy, Key: 2, Cost: 7, Each: true},
	}, start)
	if a, b, c := table.View(full, 1, start), table.View(roomy, 1, start), table.View(roomy, 2, start); a != 3 ||
		b != 11 ||
		c != 7 ||
		table.Stats().Keys != 3 {
		t.Errorf("%d, %d and %d are used, of %d keys", a, b, c, table.Stats().Keys)
	}
	defer func() {
		if recover() == nil {
			t.Error("more layers than there may be: no panic")
		}
	}()
	table.Report(make([]counters.Charge, counters.MaxLayers+1), start)
}

// A report charges a child and its lender what a request would; beyond what both have room for both are overdrawn.
func TestReportOfAnElasticLayer(t *testing.T) {
	child, lender := limitNamed(t, "child", 4), limitNamed(t, "lender", 10)
	table := small(1)
	for i, step := range []struct{ cost, child, lender uint64 }{
		{3, 3, 3},   // both have room
		{2, 3, 5},   // a loan
		{1, 4, 6},   // both
		{4, 4, 10},  // a loan, to the last
		{1, 5, 11},  // neither: both are overdrawn
		{50, 8, 20}, // up to twice
	} {
		table.Report(borrow(child, ann, lender, step.cost), start)
		if v, w := table.View(child, ann, start), table.View(lender, shared, start); v != step.child ||
			w != step.lender {
			t.Errorf("after report %d: %d and %d are used, want %d and %d", i+1, v, w, step.child, step.lender)
		}
	}
	table.Report(borrow(child, bob, lender, 4), start) // what is promised
	if v, w := table.View(child, bob, start), table.View(lender, shared, start); v != 4 || w != 20 {
		t.Errorf("of another %d, and %d of the lender", v, w)
	}
	idle := []counters.Charge{{Limit: child, Key: bob, Cost: 1, Mode: counters.Elastic, Lender: counters.Idle}}
	for _, want := range []uint64{4, 4} {
		if table.Report(idle, start); table.View(child, bob, start) != want {
			t.Errorf("of the idle system is borrowed, but %d are used", table.View(child, bob, start))
		}
	}
}

// A report bans nobody, and who is banned is charged.
func TestReportBansNobody(t *testing.T) {
	for _, a := range algorithms {
		l, table := banning(t, "r", a), small(1)
		table.Report(reported(l, 1, 2*l.Max()), start)
		if d := table.Take(l, 1, 0, start); d.Allowed || d.Banned {
			t.Errorf("%v: after a report %+v", a, d)
		}
		table.Take(l, 2, l.Max(), start)
		table.Take(l, 2, 1, start)
		table.Report(reported(l, 2, 1), start)
		if d := table.Take(l, 2, 0, start); !d.Banned || table.View(l, 2, start) != l.Max()+1 {
			t.Errorf("%v: of who is banned %d are used, and %+v", a, table.View(l, 2, start), d)
		}
	}
}

// What is reported is sent as what is admitted, and believed however large the limit; no less is reported as a rise
// than did.
func TestReportsAreSent(t *testing.T) {
	for _, a := range algorithms {
		for _, largest := range []uint64{1, 10, counters.MaxLog, counters.MaxLimit} {
			if a == counters.SlidingLog {
				largest = min(largest, counters.MaxLog)
			}
			l := newLimit(t, counters.NewMeter("r", a, 10*time.Second), largest)
			table, other := small(1), small(2)
			other.Know([]*counters.Limit{l})
			table.Report(reported(l, 1, 3*largest), start)
			sent := table.DrainDirty(start)
			if i := slices.IndexFunc(sent.Slots, func(s counters.Slot) bool { return s.Count == 2*largest }); len(
				sent.Slots,
			) != 1 ||
				i != 0 {
				t.Fatalf("%v of %d: told %+v", a, largest, sent.Slots)
			}
			if rise := riseOf(sent); rise < min(2*largest, 1<<32-1) {
				t.Errorf("%v of %d: a rise of %d is told", a, largest, rise)
			}
			if other.Merge(sent.Slots, start); other.View(l, 1, start) != 2*largest || other.Stats().Implausible != 0 {
				t.Errorf("%v of %d: another sees %d, and believes not %d", a, largest, other.View(l, 1, start),
					other.Stats().Implausible)
			}
		}
	}
}

// A report that uses up much of what is left is sent at once, and one of a limit that is kept alone never.
func TestReportsAreSentEarly(t *testing.T) {
	l := limitNamed(t, "r", 1000)
	for _, tt := range []struct {
		cost  uint64
		early bool
	}{{15, false}, {400, true}, {1500, true}} {
		table := knowing(l, 2)
		table.Report(reported(l, 1, tt.cost), start)
		if early := len(table.EarlyFlush()) == 1; early != tt.early {
			t.Errorf("a report of %d is told early: %v", tt.cost, early)
		}
	}
	table, alone := knowing(l, 2), scoped(t, l, counters.Alone, "")
	table.Report(reported(alone, 1, 400), start)
	if sent := table.DrainDirty(start).Slots; len(table.EarlyFlush()) != 0 || len(sent) != 0 ||
		table.View(alone, 1, start) != 400 {
		t.Errorf("of what is kept alone is told %+v", sent)
	}
}

// A key that is overdrawn is among the last to go, as those are that were denied.
func TestOverdrawnKeysStay(t *testing.T) {
	l, table := limitNamed(t, "r", 10), least(1)
	table.Report(reported(l, 1, 15), start)
	others := limitNamed(t, "others", 100)
	for key := range counters.Key(50_000) { // twice as many as there is room for
		table.Take(others, key, 90, start)
	}
	if st := table.Stats(); table.View(l, 1, start) != 15 || st.Evicted == 0 || st.EvictedDenied != 0 {
		t.Errorf("%d are used, %+v", table.View(l, 1, start), st)
	}
}

func ExampleTable_Report() {
	tokens, _ := counters.NewLimit(counters.NewMeter("tokens", counters.SlidingWindow, time.Minute), 1000)
	table, now := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory}), time.Now().UnixNano()

	fmt.Println(table.Take(tokens, 7, 1, now).Allowed) // nobody knows yet how much the answer will take
	table.Report([]counters.Charge{{Limit: tokens, Key: 7, Cost: 1200}}, now)
	fmt.Println(table.Take(tokens, 7, 1, now).Allowed, table.View(tokens, 7, now))
	// Output:
	// true
	// false 1201
}
