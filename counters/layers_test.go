package counters_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

func limitNamed(t rapid.TB, rule string, largest uint64) *counters.Limit {
	t.Helper()
	return newLimit(t, counters.NewMeter(rule, counters.SlidingWindow, 10*time.Second), largest)
}

func TestTakeAllIsAllOrNothing(t *testing.T) {
	wide, narrow := limitNamed(t, "all", 100), limitNamed(t, "one", 3)
	table := least(1)
	request := []counters.Charge{
		{Limit: wide, Key: 1, Cost: 2},
		{Limit: narrow, Key: 2, Cost: 2},
		{Limit: wide, Key: 3, Cost: 2},
	}

	for i, d := range table.TakeAll(request, start, nil) {
		reset := 10500 * time.Millisecond // an even client of 100 may have two in a second: one counts for half of it
		if d.Limit == 3 {
			reset = 11 * time.Second
		}
		if !d.Allowed || d.Remaining != d.Limit-2 || d.ResetAfter != reset {
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
	table := least(1)
	earlier := counters.Decision{Rule: "earlier"}
	ds := table.TakeAll([]counters.Charge{{}, {Limit: l, Key: 1, Cost: 1}, {Key: 9, Cost: 9}}, start,
		[]counters.Decision{earlier})
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
	table := least(1)
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
			table := least(1)
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
	table := least(1)
	both := func(cost uint64, now int64) []counters.Decision {
		return table.TakeAll([]counters.Charge{{Limit: l, Key: 1, Cost: cost}, {Limit: l, Key: 1, Cost: cost}}, now,
			nil)
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

// A layer's new cell must not push out that of another layer of the same request: it would be admitted untracked.
func TestLayersDoNotEvictEachOther(t *testing.T) {
	m := filler(t).Meter()
	m.Rule = "narrow"
	l, table := newLimit(t, m, 1), small(1)
	next := fill(t, table, filler(t), 0, start)
	for seed := range counters.Key(200) {
		next += 100
		var charges []counters.Charge
		for i := range counters.Key(counters.MaxLayers) {
			charges = append(charges, counters.Charge{Limit: l, Key: next + i, Cost: 1})
		}
		now := start + int64(next)
		for i, d := range table.TakeAll(charges, now, nil) {
			if !d.Allowed {
				t.Fatalf("layer %d: %+v", i, d)
			}
		}
		for i, c := range charges {
			if d := table.Take(l, c.Key, 0, now); d.Allowed {
				t.Fatalf("request %d, layer %d was charged and is forgotten: %+v", seed, i, d)
			}
		}
		// The first layer comes once more at the end: it meets itself.
		again := append(charges[:20:20], charges[0])
		for i := range again {
			again[i].Key += 50
		}
		if ds := table.TakeAll(again, now, nil); ds[20].Allowed {
			t.Fatalf("request %d: one key was charged twice under a limit of 1", seed)
		}
	}
}

// A request that is denied in one layer makes no cell in the others, whichever comes first: a client that is over its
// limit pushes nobody out by trying one name after another.
func TestDeniedLayersEvictNobody(t *testing.T) {
	ip, user := limitNamed(t, "ip", 10), filler(t)
	for _, denying := range []int{0, 1} {
		table := small(1)
		table.Take(ip, 1, 10, start)
		n := fill(t, table, user, 0, start)
		before, now := table.Stats(), start+int64(n)
		for key := range 20 * n {
			charges := []counters.Charge{
				{Limit: user, Key: 1<<32 + key, Cost: 1},
				{Limit: user, Key: 1<<33 + key, Cost: 1},
			}
			charges[denying] = counters.Charge{Limit: ip, Key: 1, Cost: 1}
			ds := table.TakeAll(charges, now, nil)
			if other := ds[1-denying]; ds[denying].Allowed || !other.Allowed || other.Remaining != user.Max() {
				t.Fatalf("layer %d is over its limit: %+v", denying, ds)
			}
		}
		if st := table.Stats(); st != before {
			t.Errorf("%d requests that layer %d denied: %+v, was %+v: %d keys evicted, want none",
				20*n, denying, st, before, st.Evicted-before.Evicted)
		}
	}
}

// Layers are only kept from each other, and only while they are decided on: what comes after may evict them, admitted
// or not.
func TestLayersCanBeEvictedAfterwards(t *testing.T) {
	l, full := filler(t), limitNamed(t, "full", 1)
	table := small(1)
	n := fill(t, table, l, 0, start)
	table.Take(full, 0, 1, start)
	for key := 100 * n; key < 101*n; key++ {
		table.TakeAll([]counters.Charge{{Limit: l, Key: 3 * key, Cost: 1}, {Limit: l, Key: 3*key + 1, Cost: 1}}, start,
			nil)
		table.TakeAll([]counters.Charge{{Limit: l, Key: 3*key + 2, Cost: 1}, {Limit: full, Key: 0, Cost: 1}}, start,
			nil)
	}
	before := table.Stats().Evicted
	for key := 200 * n; key < 202*n; key++ {
		table.Take(l, key, 1, after(time.Second))
	}
	if st := table.Stats(); st.Bytes > counters.MinMemory || st.Evicted-before < uint64(n) {
		t.Errorf("%+v, want the cells of layers evicted as others are", st)
	}
	if got := kept(table, l, 300*n, 303*n, after(time.Second)); got > n/10 {
		t.Errorf("%d cells of layers are kept where twice as many keys came as a table holds", got)
	}
}

// Any layers, of any algorithms, against one model each.
func TestTakeAllAgainstModels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var limits []*counters.Limit
		var models []*oracle.Cells
		for i := range 3 {
			m := drawShared(t, algorithms...).Meter()
			m.Rule = fmt.Sprint("r", i)
			var l *counters.Limit
			if largest := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(3, 12)).Draw(t, "limit"); isBucket(
				m.Algorithm,
			) &&
				largest > 0 {
				l = newBucket(t, m, largest, rapid.SampledFrom([]uint64{1, 2, 5}).Draw(t, "refill"))
			} else {
				l = newLimit(t, m, largest)
			}
			limits, models = append(limits, l), append(models, oracle.NewCells(l, 1))
		}
		table := least(1)
		now := start
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			now += rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "pause")
			cost := rapid.Uint64Range(0, 3).Draw(t, "cost")
			var charges []counters.Charge
			var rules []int
			for range rapid.IntRange(1, 5).Draw(t, "layers") {
				rule := rapid.IntRange(0, 2).Draw(t, "rule")
				charges = append(
					charges,
					counters.Charge{
						Limit: limits[rule], Key: counters.Key(rapid.Uint64Range(0, 1).Draw(t, "key")), Cost: cost,
					},
				)
				rules = append(rules, rule)
			}
			checkLayers(t, table, models, charges, rules, now)
		}
	})
}

func checkLayers(
	t *rapid.T, table *counters.Table, models []*oracle.Cells, charges []counters.Charge, rules []int, now int64,
) {
	type cell struct {
		rule int
		key  counters.Key
	}
	before := make(map[cell]uint64)
	want, all := make([]counters.Decision, len(charges)), true
	for i, c := range charges {
		id := cell{rules[i], c.Key}
		want[i] = models[rules[i]].Ask(c.Key, c.Cost, before[id], now)
		all = all && want[i].Allowed
		if c.Cost <= c.Limit.Max() {
			before[id] += c.Cost
		}
	}
	for i, c := range charges {
		if all && c.Cost > 0 {
			models[rules[i]].Charge(c.Key, c.Cost, now)
			then := models[rules[i]].Take(c.Key, 0, now)
			want[i].Remaining, want[i].ResetAfter = then.Remaining, then.ResetAfter
		}
	}
	if got := table.TakeAll(charges, now, nil); !slices.Equal(got, want) {
		t.Fatalf("layers %+v:\n got %+v\nwant %+v", charges, got, want)
	}
	for i, c := range charges {
		if got, want := table.View(c.Limit, c.Key, now), models[rules[i]].View(c.Key, now); got != want {
			t.Fatalf("layer %d of %+v: view %d, want %d", i, charges, got, want)
		}
	}
}
