package counters_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

const year = 365 * 24 * time.Hour

func adHoc(t testing.TB, n int) *counters.Limit {
	t.Helper()
	return newLimit(t, counters.NewMeter(fmt.Sprintf("%%test/%d", n), counters.FixedWindow, year), 10)
}

func TestAdHocMeters(t *testing.T) {
	for name, want := range map[string]bool{"%override/1/1h0m0s": true, "%cl.throttle/1/2/3": true, "%25a/b": false,
		"%ban/k/a/b/c": true, "edge/client": false, "%": false, "": false} {
		if m := (counters.Meter{Rule: name}); counters.AdHoc(m) != want {
			t.Errorf("%s: %v", name, counters.AdHoc(m))
		}
	}
}

// pass drains a table four times a second for so long.
func pass(table *counters.Table, now int64, long time.Duration) int64 {
	for end := now + int64(long); now < end; now += int64(250 * time.Millisecond) {
		table.DrainDirty(now)
	}
	return now
}

// Ever new ad-hoc limits, each of a year, use up no meters for longer than the node knows them: counts of those that
// it gave up go, those of what is asked for, or known, stay.
func TestAdHocLimitsThatWereGivenUp(t *testing.T) {
	table, now := counters.NewTable(counters.Config{Origin: 1, Memory: 64 << 20}), start
	known, asked := adHoc(t, 0), adHoc(t, 1)
	table.Know([]*counters.Limit{known})
	for n := range counters.MaxMeters {
		table.Take(adHoc(t, n), 1, 1, now)
	}
	if d := table.Take(adHoc(t, counters.MaxMeters), 1, 1, now); d.Allowed {
		t.Fatalf("there is a meter for everybody: %+v", d) // or this test shows nothing
	}
	rule := limitNamed(t, "new rule", 10)
	if d := table.Take(rule, 1, 1, now); !d.Allowed {
		t.Errorf("no meter is left for a rule: %+v", d)
	}
	now = pass(table, now, 500*time.Millisecond)
	table.Take(asked, 1, 1, now)
	now = pass(table, now, 20*time.Second)
	if keys := table.Stats().Keys; keys != 2 {
		t.Errorf("%d keys are kept, want 2", keys)
	}
	if a, b := table.View(known, 1, now), table.View(asked, 1, now); a != 1 || b != 2 {
		t.Errorf("%d are used of the one that is known, %d of the one that was asked for again, want 1 and 2", a, b)
	}
	if d := table.Take(adHoc(t, counters.MaxMeters), 1, 1, now); !d.Allowed {
		t.Errorf("there is still no room: %+v", d)
	}
}

// What only peers count of an ad-hoc limit stays: nobody here gave it up.
func TestAdHocLimitsOfPeers(t *testing.T) {
	table, l := small(1), adHoc(t, 0)
	table.Merge([]counters.Slot{slotOf(l, 1, start, 7, 0, 5)}, start)
	if now := pass(table, start, 20*time.Second); table.View(l, 1, now) != 5 {
		t.Errorf("%d are used, want 5", table.View(l, 1, now))
	}
}
