package counters_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/counterstest"
	"pgregory.net/rapid"
)

func limitNamed(t rapid.TB, rule string, most uint64) *counters.Limit {
	t.Helper()
	return newLimit(t, counters.NewMeter(rule, counters.SlidingWindow, 10*time.Second), most)
}

func TestTakeAllIsAllOrNothing(t *testing.T) {
	wide, narrow := limitNamed(t, "all", 100), limitNamed(t, "one", 3)
	table := counters.NewTable(counters.Config{Origin: 1})
	request := []counters.Charge{{Limit: wide, Key: 1, Cost: 2}, {Limit: narrow, Key: 2, Cost: 2}, {Limit: wide, Key: 3, Cost: 2}}

	for i, d := range table.TakeAll(request, start, nil) {
		if !d.Allowed || d.Remaining != d.Limit-2 || d.ResetAfter != 11*time.Second {
			t.Errorf("layer %d: %+v", i, d)
		}
	}
	ds := table.TakeAll(request, start, nil)
	for i, d := range ds {
		if narrow := i == 1; d.Allowed == narrow || d.Remaining != d.Limit-2 {
			t.Errorf("layer %d of a request that has no room in layer 1: %+v", i, d)
		}
	}
	if ds[1].RetryAfter == 0 || ds[0].RetryAfter != 0 || counters.Governing(ds) != 1 {
		t.Errorf("layer 1 is what the client has to wait for: %+v", ds)
	}
	for i, c := range request {
		if view := table.View(c.Limit, c.Key, start); view != 2 {
			t.Errorf("layer %d: view %d, want 2: of two requests one was denied", i, view)
		}
	}
}

func TestTakeAllAppends(t *testing.T) {
	l := limitNamed(t, "r", 5)
	table := counters.NewTable(counters.Config{Origin: 1})
	earlier := counters.Decision{Rule: "earlier"}
	ds := table.TakeAll([]counters.Charge{{}, {Limit: l, Key: 1, Cost: 1}, {Key: 9, Cost: 9}}, start, []counters.Decision{earlier})
	if len(ds) != 4 || ds[0] != earlier {
		t.Fatalf("%+v, want three more after %+v", ds, earlier)
	}
	noRule := counters.Decision{Allowed: true}
	if ds[1] != noRule || ds[3] != noRule {
		t.Errorf("layers without a limit: %+v and %+v, want %+v", ds[1], ds[3], noRule)
	}
	if !ds[2].Allowed || ds[2].Rule != "r" || ds[2].Remaining != 4 {
		t.Errorf("the layer with a limit: %+v", ds[2])
	}
	if ds := table.TakeAll(nil, start, nil); len(ds) != 0 {
		t.Errorf("no layers: %+v", ds)
	}
	if ds := table.TakeAll([]counters.Charge{{Cost: 1}}, start, nil); len(ds) != 1 || !ds[0].Allowed {
		t.Errorf("only layers without a limit: %+v", ds)
	}
	if st := table.Stats(); st.Keys != 1 {
		t.Errorf("%d cells, want that of the one limit", st.Keys)
	}
}

func TestMaxLayers(t *testing.T) {
	l := limitNamed(t, "r", 1000)
	table := counters.NewTable(counters.Config{Origin: 1})
	charges := make([]counters.Charge, counters.MaxLayers, counters.MaxLayers+1)
	for i := range charges {
		charges[i] = counters.Charge{Limit: l, Key: counters.Key(i), Cost: 1}
	}
	for i, d := range table.TakeAll(charges, start, nil) {
		if !d.Allowed {
			t.Errorf("layer %d of as many as there may be: %+v", i, d)
		}
	}
	defer func() {
		if recover() == nil {
			t.Errorf("%d layers did not panic", counters.MaxLayers+1)
		}
		if d := table.Take(l, 1, 1, start); d.Remaining != 998 {
			t.Errorf("after the panic: %+v, want nothing charged and nothing locked", d)
		}
	}()
	table.TakeAll(append(charges, counters.Charge{}), start, nil)
}

// Layers that meet in one cell have to fit together, in whatever order and under whatever maximum each.
func TestLayersThatMeetInOneCell(t *testing.T) {
	five, seven := limitNamed(t, "r", 5), limitNamed(t, "r", 7)
	for _, c := range []struct {
		limits  []*counters.Limit
		cost    uint64
		allowed []bool
	}{
		{[]*counters.Limit{five, five}, 2, []bool{true, true}},
		{[]*counters.Limit{five, five}, 3, []bool{true, false}},
		{[]*counters.Limit{five, seven}, 3, []bool{true, true}},
		{[]*counters.Limit{seven, five}, 3, []bool{true, false}},
		{[]*counters.Limit{five, nil, seven, seven}, 2, []bool{true, true, true, true}},
		{[]*counters.Limit{seven, nil, seven, five}, 2, []bool{true, true, true, false}},
		{[]*counters.Limit{five, five, five}, 0, []bool{true, true, true}},
	} {
		t.Run(fmt.Sprint(len(c.limits), " layers of cost ", c.cost, " ", c.allowed), func(t *testing.T) {
			table := counters.NewTable(counters.Config{Origin: 1})
			var charges []counters.Charge
			var charged uint64
			for _, l := range c.limits {
				charges = append(charges, counters.Charge{Limit: l, Key: 1, Cost: c.cost})
				if l != nil && !slices.Contains(c.allowed, false) {
					charged += c.cost
				}
			}
			for i, d := range table.TakeAll(charges, start, nil) {
				if d.Allowed != c.allowed[i] {
					t.Errorf("layer %d: %+v, want allowed %v", i, d, c.allowed[i])
				}
			}
			if view := table.View(five, 1, start); view != charged {
				t.Errorf("view %d, want %d", view, charged)
			}
		})
	}
}

// What can never fit together is never admitted, and says so; what can has a wait that is right.
func TestWaitOfLayersThatMeet(t *testing.T) {
	l := limitNamed(t, "r", 5)
	table := counters.NewTable(counters.Config{Origin: 1})
	both := func(cost uint64, now int64) []counters.Decision {
		return table.TakeAll([]counters.Charge{{Limit: l, Key: 1, Cost: cost}, {Limit: l, Key: 1, Cost: cost}}, now, nil)
	}
	if ds := both(3, start); ds[0].RetryAfter != 0 || ds[1].RetryAfter != counters.Never {
		t.Errorf("3 and 3 under 5: %+v, want the second never", ds)
	}
	table.Take(l, 1, 4, start)
	ds := both(2, start)
	wait := int64(ds[1].RetryAfter)
	if ds[1].Allowed || wait <= 0 || ds[1].RetryAfter < ds[0].RetryAfter {
		t.Fatalf("2 and 2 beside 4 under 5: %+v", ds)
	}
	if ds := both(2, start+wait-1); ds[1].Allowed {
		t.Errorf("a nanosecond before %v: %+v", time.Duration(wait), ds)
	}
	if ds := both(2, start+wait); !ds[0].Allowed || !ds[1].Allowed {
		t.Errorf("after %v: %+v", time.Duration(wait), ds)
	}
}

// A layer's new cell must not push out that of another layer of the same request: it would be admitted untracked. The table is as
// small as can be, so that layers meet in full shards all the time.
func TestLayersDoNotEvictEachOther(t *testing.T) {
	l := limitNamed(t, "r", 1)
	for seed := range counters.Key(200) {
		table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
		var charges []counters.Charge
		for i := range counters.Key(counters.MaxLayers) {
			charges = append(charges, counters.Charge{Limit: l, Key: seed*1000 + i, Cost: 1})
		}
		for i, d := range table.TakeAll(charges, start, nil) {
			if !d.Allowed {
				t.Fatalf("layer %d: %+v", i, d)
			}
		}
		for i, c := range charges {
			if d := table.Take(l, c.Key, 0, start); d.Allowed {
				t.Fatalf("request %d, layer %d was charged and is forgotten: %+v", seed, i, d)
			}
		}
		// The first layer comes once more at the end: it meets itself.
		again := append(charges[:20:20], charges[0])
		fresh := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
		if ds := fresh.TakeAll(again, start, nil); ds[20].Allowed {
			t.Fatalf("request %d: one key was charged twice under a limit of 1", seed)
		}
	}
}

// Layers are only kept from each other, and only while they are decided on: what comes after may evict them, admitted or not.
func TestLayersCanBeEvictedAfterwards(t *testing.T) {
	l, full := limitNamed(t, "r", 5), limitNamed(t, "full", 1)
	table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
	table.Take(full, 0, 1, start)
	for key := range counters.Key(3000) {
		table.TakeAll([]counters.Charge{{Limit: l, Key: 3 * key, Cost: 1}, {Limit: l, Key: 3*key + 1, Cost: 1}}, start, nil)
		table.TakeAll([]counters.Charge{{Limit: l, Key: 3*key + 2, Cost: 1}, {Limit: full, Key: 0, Cost: 1}}, start, nil)
	}
	for key := range counters.Key(3000) {
		table.Take(l, 1e6+key, 1, start)
	}
	if keys := table.Stats().Keys; keys > shards {
		t.Errorf("%d cells, at most %d are allowed", keys, shards)
	}
}

// Any layers against one model each.
func TestTakeAllAgainstModels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var limits []*counters.Limit
		var models []*counterstest.Model
		for i := range 3 {
			l := limitNamed(t, fmt.Sprint("r", i), rapid.Uint64Range(0, 12).Draw(t, "limit"))
			limits, models = append(limits, l), append(models, counterstest.NewModel(l))
		}
		table := counters.NewTable(counters.Config{Origin: 1})
		now := start
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			now += rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "pause")
			cost := rapid.Uint64Range(0, 3).Draw(t, "cost")
			var charges []counters.Charge
			var rules []int
			for range rapid.IntRange(1, 5).Draw(t, "layers") {
				rule := rapid.IntRange(0, 2).Draw(t, "rule")
				charges = append(charges, counters.Charge{Limit: limits[rule], Key: counters.Key(rapid.Uint64Range(0, 1).Draw(t, "key")), Cost: cost})
				rules = append(rules, rule)
			}
			checkLayers(t, table, models, charges, rules, now)
		}
	})
}

func checkLayers(t *rapid.T, table *counters.Table, models []*counterstest.Model, charges []counters.Charge, rules []int, now int64) {
	type cell struct {
		rule int
		key  counters.Key
	}
	before := make(map[cell]uint64)
	want, all := make([]bool, len(charges)), true
	for i, c := range charges {
		seen := models[rules[i]].View(c.Key, now) + before[cell{rules[i], c.Key}]
		want[i] = seen+max(c.Cost, 1) <= c.Limit.Max()
		all = all && want[i]
		before[cell{rules[i], c.Key}] += c.Cost
	}
	for i, d := range table.TakeAll(charges, now, nil) {
		if d.Allowed != want[i] {
			t.Fatalf("layer %d of %+v: %+v, want allowed %v", i, charges, d, want[i])
		}
	}
	for i, c := range charges {
		if all {
			models[rules[i]].Add(c.Key, c.Limit.Meter().Index(now), c.Cost)
		}
	}
	for i, c := range charges {
		if got, want := table.View(c.Limit, c.Key, now), models[rules[i]].View(c.Key, now); got != want {
			t.Fatalf("layer %d of %+v: view %d, want %d", i, charges, got, want)
		}
	}
}
