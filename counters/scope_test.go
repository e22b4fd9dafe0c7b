package counters_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

func TestHome(t *testing.T) {
	l := limitNamed(t, "edge/client", 10)
	long := limitNamed(t, strings.Repeat("r", counters.MaxScopedRule), 10)
	region := strings.Repeat("x", counters.MaxRegion)
	for _, tt := range []struct {
		limit *counters.Limit
		name  string
		scope counters.Scope
		in    string
	}{
		{l, "edge/client", counters.Global, ""},
		{scoped(t, l, counters.Global, "eu"), "edge/client", counters.Global, ""},
		{scoped(t, l, counters.Region, "eu"), "edge/client%@eu", counters.Region, "eu"},
		{scoped(t, l, counters.Region, "eu%@us"), "edge/client%@eu%@us", counters.Region, "eu%@us"},
		{scoped(t, l, counters.Alone, "eu"), "edge/client%@", counters.Alone, ""},
		{scoped(t, long, counters.Region, region), long.Meter().Rule + "%@" + region, counters.Region, region},
	} {
		m := tt.limit.Meter()
		scope, in := m.Home()
		if m.Rule != tt.name || scope != tt.scope || tt.limit.Scope() != tt.scope || in != tt.in {
			t.Errorf("meter %s of scope %v (%v) in %q, want %s of %v in %q", m.Rule, scope, tt.limit.Scope(), in,
				tt.name, tt.scope, tt.in)
		}
		if err := m.Validate(); err != nil {
			t.Error(err)
		}
		if again := newLimit(t, m, 10); again.Scope() != tt.scope {
			t.Errorf("a limit on meter %s is of scope %v", m.Rule, again.Scope())
		}
	}
	for _, s := range []counters.Scope{counters.Global, counters.Region, counters.Alone} {
		if got, ok := counters.ParseScope(s.String()); got != s || !ok {
			t.Errorf("scope %v is read as %v", s, got)
		}
	}
	if _, ok := counters.ParseScope("planet"); ok {
		t.Error("there is a scope of planets")
	}
}

// Counts of scopes and regions are apart, also in one table.
func TestScopesCountApart(t *testing.T) {
	l := limitNamed(t, "r", 3)
	table := least(1)
	for _, l := range []*counters.Limit{l, scoped(t, l, counters.Region, "eu"), scoped(t, l, counters.Region, "us"),
		scoped(t, l, counters.Alone, "")} {
		if got := admits(table, l, 5, 1, start); got != 3 {
			t.Errorf("%s admits %d of 3", l.Meter().Rule, got)
		}
	}
}

// aloneWith returns a table with many peers, and a limit of a hundred that it keeps alone.
func aloneWith(t *testing.T, a counters.Algorithm) (*counters.Table, *counters.Limit) {
	l := with(t, newLimit(t, counters.NewMeter("r", a, 10*time.Second), 100),
		func(c *counters.LimitConfig) { c.MaxUnsent, c.Scope = 1, counters.Alone })
	table := clustered(9, l)
	table.SetRegion(9, horizon)
	table.DrainDirty(after(-50 * time.Millisecond)) // so that there is a time over which requests came
	return table, l
}

// Of a limit that a node keeps alone it admits all, holds nothing back, and tells nothing to anybody, in no way.
func TestAloneTellsNothing(t *testing.T) {
	for _, a := range []counters.Algorithm{counters.SlidingWindow, counters.FixedWindow, counters.SlidingLog,
		counters.TokenBucket, counters.LeakyQueue} {
		table, l := aloneWith(t, a)
		if got := admits(table, l, 150, 1, start); got != 100 {
			t.Errorf("%v: %d admitted of 100", a, got)
		}
		if signalled(table) {
			t.Errorf("%v: there is something to tell early", a)
		}
		d, early := table.DrainDirty(after(50*time.Millisecond)), table.DrainEarly(after(50*time.Millisecond))
		if len(d.Slots)+len(d.Demand)+len(early.Slots)+len(early.Demand) > 0 {
			t.Errorf("%v: it tells %+v, early %+v", a, d, early)
		}
		if own, all := table.Own(start), table.Snapshot(start, 1000); len(own)+len(all) > 0 {
			t.Errorf("%v: own slots %+v, all %+v", a, own, all)
		}
		if got := table.View(l, 1, start); got != 100 {
			t.Errorf("%v: %d of 100 are counted", a, got)
		}
	}
}

// What went to make room is not sent either.
func TestAloneTellsNothingOfWhatWent(t *testing.T) {
	l := scoped(t, filler(t), counters.Alone, "")
	table := small(1)
	for key := counters.Key(0); table.Stats().Evicted == 0; key++ {
		table.Take(l, key, 1, start+int64(key))
	}
	if d := table.DrainDirty(after(time.Second)); len(d.Slots)+len(d.Demand) > 0 {
		t.Errorf("it tells %+v", d)
	}
}

// What others send of limits that a node keeps alone, or of other regions', changes nothing, takes no room, and is no
// mistake of theirs.
func TestOthersCountsAreLetGo(t *testing.T) {
	table := counters.NewTable(counters.Config{Origin: 1, Region: "eu", Memory: counters.MinMemory})
	l := limitNamed(t, "r", 100)
	before := table.Stats()
	for _, other := range []*counters.Limit{scoped(t, l, counters.Alone, ""), scoped(t, l, counters.Region, "us"),
		scoped(t, l, counters.Region, "e")} {
		table.Know([]*counters.Limit{other})
		for key := range counters.Key(1000) {
			if n := table.Merge([]counters.Slot{sentWith(other, key, start, 2, 50, 1000)}, start); n != 0 {
				t.Fatalf("%d slots of meter %s are news", n, other.Meter().Rule)
			}
		}
		if got := admits(table, other, 150, 1, start); got != 100 {
			t.Errorf("%d admitted of 100 on %s", got, other.Meter().Rule)
		}
	}
	if now := table.Stats(); now.Keys != 3 || now.Refused != before.Refused {
		t.Errorf("%d keys, want the three that were asked for; %d slots refused", now.Keys, now.Refused)
	}
	own := scoped(t, l, counters.Region, "eu")
	if n := table.Merge([]counters.Slot{slotOf(own, 1, start, 2, 0, 60)}, start); n != 1 ||
		admits(table, own, 150, 1, start) != 40 {
		t.Error("what its own region told is not counted")
	}
	slots := table.DrainDirty(start).Slots
	if !slices.ContainsFunc(slots, func(s counters.Slot) bool { return s.Meter.Rule == "r%@eu" && s.Count == 40 }) {
		t.Errorf("the region is not told: %+v", slots)
	}
}

// A region's limit is shared out among its own nodes: with as many of them as in the examples of the whole cluster,
// just so; without any, nothing is held back.
func TestRegionsShareByThemselves(t *testing.T) {
	l := scoped(t, millionOf(t, counters.SlidingWindow), counters.Region, "eu")
	for _, tt := range []struct{ near, all, want int }{{2, 2, 100}, {2, 9, 100}, {0, 9, 1000}} {
		table := counters.NewTable(counters.Config{Origin: 1, Region: "eu", Memory: counters.MinMemory})
		table.SetCluster(tt.all, 20*horizon)
		table.SetRegion(tt.near, horizon)
		table.Know([]*counters.Limit{l})
		table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 480e3, 500e3), sentWith(l, 1, start, 3, 480e3, 500e3)},
			start)
		table.SetWatermark(2, after(-100*time.Millisecond))
		table.SetWatermark(3, after(-100*time.Millisecond))
		if got := admits(table, l, 1000, 1, start); got < tt.want*98/100 || got > tt.want*102/100 {
			t.Errorf("%d nodes in the region, %d in all: %d of 1000 admitted, want %d", tt.near, tt.all, got, tt.want)
		}
	}
}
