package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A key with a larger limit on the same meter is counted with its earlier counts; what it counts is plausible to peers
// whose keys have the small limit, and no table takes it for an excess.
func TestLimitsOfOneMeter(t *testing.T) {
	small, err := counters.NewLimit(counters.NewMeter("r", counters.SlidingWindow, time.Minute), 10)
	testkit.Must(t, err)
	large, err := small.Override(1000, time.Minute)
	testkit.Must(t, err)
	among := func(c *counters.LimitConfig) { c.Among = 1000 }
	small, large = with(t, small, among), with(t, large, among)
	config := func(o counters.Origin) counters.Config {
		return counters.Config{Origin: o, Memory: counters.MinMemory}
	}
	mine, other := counters.NewTable(config(1)), counters.NewTable(config(2))
	for _, table := range []*counters.Table{mine, other} {
		table.Know([]*counters.Limit{small})
	}
	now := time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC).UnixNano()
	for range 10 {
		mine.Take(small, 1, 1, now)
	}
	if mine.Take(small, 1, 1, now).Allowed || !mine.Take(large, 1, 985, now).Allowed ||
		!mine.Take(small, 2, 4, now).Allowed {
		t.Error("the counts of a key do not stay when it gets another limit")
	}
	drained := mine.DrainDirty(now)
	if used := drained.Demand[0].Used; used != 995 { // 10 of 10 are 1000 of the largest, and 995 are themselves
		if used != 1000 {
			t.Errorf("the most that is used is %d of %d", used, small.Largest())
		}
	}
	other.Merge(drained.Slots, now)
	if n := other.Stats().Implausible; n != 0 {
		t.Errorf("%d slots are implausible", n)
	}
	if d := other.Take(large, 1, 0, now); d.Remaining != 5 || d.Limit != 1000 {
		t.Errorf("%d of %d remain elsewhere, want 5", d.Remaining, d.Limit)
	}
}

// A limit of another window, and a bucket, count anew under a meter of their own that no rule has; policies stay.
func TestOverrideWithAMeterOfItsOwn(t *testing.T) {
	for _, algorithm := range []counters.Algorithm{counters.SlidingWindow, counters.FixedWindow, counters.SlidingLog,
		counters.TokenBucket, counters.LeakyBucket} {
		l, err := counters.NewLimit(counters.NewMeter("edge/a", algorithm, time.Minute), 10)
		testkit.Must(t, err)
		own, err := with(t, l, func(c *counters.LimitConfig) { c.OnPartition = counters.Local }).Override(20, time.Hour)
		testkit.Must(t, err)
		m := own.Meter()
		if m.Rule == "edge/a" || counters.AdHoc(m) ||
			m.Window != time.Hour || own.Max() != 20 || m.Algorithm != algorithm {
			t.Errorf("%v: %+v of %d", algorithm, m, own.Max())
		}
		if scoped := scoped(t, own, counters.Region, "eu").Meter(); scoped.Rule != m.Rule+"%@eu" {
			t.Errorf("%v: in a region it is %s", algorithm, scoped.Rule)
		}
	}
}
