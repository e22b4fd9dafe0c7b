package counters_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// Tables that keep limits together, under all that can happen between them: thinning is for offenders alone.

// circle is some tables that tell each other what they drain, if it arrives.
type circle struct {
	*rapid.T
	limit *counters.Limit
	nodes []*node
	truth *oracle.Model
	now   int64
}

func drawCircle(t *rapid.T) *circle {
	l := drawFair(t)
	c := &circle{
		T: t, limit: l, truth: oracle.NewModel(l),
		now: start + rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "begin"),
	}
	for i := range 3 {
		n := &node{Table: small(counters.Origin(i + 1))}
		n.Know([]*counters.Limit{l})
		n.SetCluster(2, horizon)
		c.nodes = append(c.nodes, n)
	}
	return c
}

// drawFair draws a limit of any algorithm of which 95 % are less than all.
func drawFair(t *rapid.T) *counters.Limit {
	a := rapid.SampledFrom(algorithms).Draw(t, "algorithm")
	n := rapid.SampledFrom([]time.Duration{1, 2, 10}).Draw(t, "sub-windows")
	if a == counters.FixedWindow {
		n = 1
	}
	m := counters.Meter{Rule: "r", Algorithm: a, Window: n * time.Second, Sub: time.Second}
	largest := rapid.Uint64Range(20, 100).Draw(t, "limit")
	if isBucket(a) {
		return newBucket(t, m, largest, rapid.SampledFrom([]uint64{1, 5, 20, 50, 1000}).Draw(t, "refill"))
	}
	return with(t, newLimit(t, m, largest), func(c *counters.LimitConfig) {
		c.OnPartition = rapid.SampledFrom([]counters.Partition{counters.Share, counters.Local}).Draw(t, "on partition")
	})
}

// disturb lets something happen between the tables.
func (c *circle) disturb() {
	who, from := rapid.IntRange(0, 2).Draw(c.T, "who"), rapid.IntRange(0, 2).Draw(c.T, "of whom")
	n, origin := c.nodes[who], counters.Origin(from+1)
	switch rapid.IntRange(0, 9).Draw(c.T, "disturbance") {
	case 0, 1:
		n.tell(c.now)
	case 2, 3, 4: // again, in any order, or never
		if sent := len(c.nodes[from].drains); sent > 0 {
			n.receive(from, c.nodes[from], rapid.IntRange(0, sent-1).Draw(c.T, "telling"), c.now)
			n.SetWatermark(origin, c.now)
		}
	case 5:
		c.nodes[from].Merge(n.DrainEarly(c.now).Slots, c.now)
	case 6:
		lie := rapid.SampledFrom([]float32{-1, 0, 1e-40, 3, 50, 1e30, float32(math.Inf(1)), float32(math.NaN())}).
			Draw(c.T, "lie")
		slots := []counters.Slot{
			sentWith(c.limit, 1, c.now, counters.Origin(rapid.IntRange(2, 9).Draw(c.T, "liar")), 0, lie),
		}
		n.Merge(append(slots, sentWith(c.limit, 2, c.now, origin, 0, lie)), c.now)
	case 7, 8:
		n.SetWatermark(
			origin,
			rapid.SampledFrom([]int64{0, c.now, c.now - 3e8, c.now - 3e9, c.now + 1e9, counters.Gone}).
				Draw(c.T, "as of"),
		)
	case 9:
		n.SetCluster(rapid.IntRange(0, 4).Draw(c.T, "peers"),
			time.Duration(rapid.SampledFrom([]int64{0, 1e6, 2e8, 2e9}).Draw(c.T, "horizon")))
	}
}

// A key that is never asked for more than 95 % of its limit is never denied, and nobody is admitted whom what is known
// leaves no room.
func TestNobodyIsDeniedWithoutProof(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCircle(t)
		l := c.limit
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			c.now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 1e8),
				rapid.Int64Range(0, int64(l.Meter().Window))).
				Draw(t, "pause")
			c.disturb()
			n := c.nodes[rapid.IntRange(0, 2).Draw(t, "asked")]
			cost := rapid.Uint64Range(1, l.Max()/4).Draw(t, "cost")
			if fair := 0.95 * float64(l.Max()); float64(c.truth.View(1, c.now)+cost) <= fair {
				if d := n.Take(l, 1, cost, c.now); !d.Allowed {
					t.Fatalf("%d more than %d of %d were denied: %+v, %+v", cost, c.truth.View(1, c.now), l.Max(), d,
						n.HotKeyState(l, 1))
				}
				c.truth.Charge(1, cost, c.now)
			}
			view := n.View(l, 2, c.now) // of an offender
			if d := n.Take(l, 2, cost, c.now); d.Allowed && view+cost > l.Max() {
				t.Fatalf("%d more than %d of %d were admitted: %+v", cost, view, l.Max(), d)
			}
		}
	})
}

// A table that has no peers, or none that reports its keys, decides just as one that has no cluster.
func TestATableAloneDecidesAsBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawFair(t)
		plain, lonely, unreachable := small(1), small(1), small(1)
		for _, table := range []*counters.Table{lonely, unreachable} {
			table.Know([]*counters.Limit{l})
		}
		unreachable.SetCluster(3, horizon)
		now := start
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause")
			slots := []counters.Slot{slotOf(l, 1, now, 2, 0, rapid.Uint64Range(0, 20).Draw(t, "told"))}
			plain.Merge(slots, now)
			unreachable.Merge(slots, now)
			slots[0].Demand = 100
			lonely.Merge(slots, now)
			charges := []counters.Charge{
				{
					Limit: l, Key: 1, Cost: rapid.Uint64Range(0, l.Max()/3).Draw(t, "cost"),
				}, {Limit: l, Key: 2, Cost: 1}, {Limit: l, Key: 1, Cost: 1},
			}
			ask := func(table *counters.Table) []counters.Decision { return table.TakeAll(charges, now, nil) }
			if rapid.Bool().Draw(t, "one by one") {
				ask = func(table *counters.Table) (ds []counters.Decision) {
					for _, c := range charges {
						ds = append(ds, table.Take(c.Limit, c.Key, c.Cost, now))
					}
					return ds
				}
			}
			want := ask(plain)
			for who, table := range map[string]*counters.Table{"without peers": lonely,
				"that hears no demand": unreachable} {
				if got := ask(table); !slices.Equal(got, want) {
					t.Fatalf("a table %s says %+v, want %+v", who, got, want)
				}
			}
			if rapid.Bool().Draw(t, "drain") {
				want := sorted(plain.DrainDirty(now).Slots)
				if got := sorted(lonely.DrainDirty(now).Slots); !slices.EqualFunc(got, want, sameSlot) {
					t.Fatalf("a table without peers drains %+v, want %+v", got, want)
				}
				unreachable.DrainDirty(now) // it may tell its demand besides
			}
		}
	})
}

// Of two tables with the same history, peers and offenders, only one is peeked at. Nothing tells their decisions apart.
func TestPeekOfAnOffenderLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawFair(t)
		plain, peeked := small(1), small(1)
		both := func(f func(*counters.Table)) { f(plain); f(peeked) }
		both(func(table *counters.Table) { table.Know([]*counters.Limit{l}); table.SetCluster(2, horizon) })
		now := start
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2e8), rapid.Int64Range(0, 3e9)).
				Draw(t, "pause")
			origin := counters.Origin(rapid.IntRange(2, 3).Draw(t, "peer"))
			peek := peeked.Take(l, 1, 0, now)
			for range rapid.IntRange(0, 3).Draw(t, "peeks") {
				if again := peeked.TakeAll([]counters.Charge{{Limit: l, Key: 1}}, now, nil)[0]; again != peek {
					t.Fatalf("a peek says %+v, then %+v", peek, again)
				}
			}
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				sent, demand := rapid.Uint64Range(0, l.Max()).
					Draw(t, "told"),
					rapid.Float32Range(0, 1000).
						Draw(t, "demand")
				slots := []counters.Slot{sentWith(l, 1, now, origin, sent, demand)}
				both(func(table *counters.Table) { table.Merge(slots, now) })
			case 1:
				watermark := rapid.SampledFrom([]int64{now, now - 3e8, now - 3e9, counters.Gone}).Draw(t, "as of")
				both(func(table *counters.Table) { table.SetWatermark(origin, watermark) })
			case 2:
				a, b := plain.DrainDirty(now), peeked.DrainDirty(now)
				if !slices.EqualFunc(sorted(a.Slots), sorted(b.Slots), func(a, b counters.Slot) bool {
					return sameSlot(a, b) && a.Demand == b.Demand
				}) {
					t.Fatalf("plain drains %+v, peeked %+v", a, b)
				}
			default:
				cost := rapid.Uint64Range(1, 3).Draw(t, "cost")
				a, b := plain.Take(l, 1, cost, now), peeked.Take(l, 1, cost, now)
				if a != b {
					t.Fatalf("plain says %+v, peeked %+v", a, b)
				}
			}
		}
	})
}
