package strict

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The layers of a request against counters.Table, which decides on them alone: all modes, equal keys, pending costs.
func TestLayersAgainstTable(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	for seed, done := uint64(0), 0; done < testkit.Tenth(*ops); seed++ {
		done += playLayers(c, seed, min(200, testkit.Tenth(*ops)-done))
	}
}

// tableLimits returns limits for which a table is exact in microseconds: buckets get a token in whole ones.
func tableLimits(t *testing.T, r *rand.Rand) []*counters.Limit {
	limits := make([]*counters.Limit, 1+r.IntN(4))
	for i := range limits {
		a := algorithms[r.IntN(len(algorithms))]
		m := counters.NewMeter(string(rune('a'+i)), a, pick(r, 10*time.Millisecond, time.Second, time.Minute))
		var err error
		if limits[i], err = counters.NewLimit(m, pick[uint64](r, 0, 1, 2, 5, 10, 100)); err != nil {
			t.Fatal(err)
		}
		if !isBucket(a) && r.IntN(4) == 0 {
			if limits[i], err = limits[i].With(func(c *counters.LimitConfig) { c.CountRejected = true }); err != nil {
				t.Fatal(err)
			}
		}
	}
	return limits
}

func playLayers(c *clocked, seed uint64, n int) int {
	r := rand.New(rand.NewPCG(seed, 99))
	limits := tableLimits(c.T, r)
	table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
	keys := []counters.Key{counters.Key(seed << 2), counters.Key(seed<<2 + 1)}
	c.now = start + r.Int64N(1e9)
	for i := range n {
		c.now += pick(r, 0, 1, r.Int64N(10_000), r.Int64N(1_000_000), r.Int64N(30_000_000))
		asks := make([]Ask, 1+r.IntN(4))
		charges := make([]counters.Charge, len(asks))
		for j := range asks {
			l := limits[r.IntN(len(limits))]
			cost := pick(r, 0, 1, 1, 1, 2, 3, 1+r.Uint64N(max(l.Max(), 1)), l.Max()+1, 1<<60)
			charges[j] = counters.Charge{Limit: l, Key: keys[r.IntN(2)], Cost: cost, Each: r.IntN(5) == 0,
				Overdraw: r.IntN(6) == 0, Mode: pick(r, counters.Enforce, counters.Enforce, counters.Soft,
					counters.Shadow, counters.Quota, counters.Quota, counters.Throttle)}
			if r.IntN(6) == 0 && !l.CountsRejected() {
				charges[j].Pending = r.Uint64N(4)
			}
			twice := func(ch counters.Charge) bool { return ch.Limit == l && ch.Key == charges[j].Key }
			// A table counts a denial by an earlier layer of the same key, or by what is pending, only if it has a
			// cell for the key.
			if r.IntN(10) == 0 || l.CountsRejected() && slices.ContainsFunc(charges[:j], twice) {
				charges[j] = counters.Charge{}
			}
			asks[j].Charge = charges[j]
		}
		if r.IntN(8) == 0 {
			c.setClock()
			testkit.Must(c, c.Report(c.Context(), asks))
			table.Report(charges, c.now*1000)
			continue
		}
		if !c.sameAnswers(table, asks, charges, limits) {
			c.Fatalf("seed %d, operation %d", seed, i)
		}
		for j := range asks { // peeks show what was charged
			asks[j].Cost, charges[j].Cost, asks[j].Pending, charges[j].Pending = 0, 0, 0, 0
		}
		if !c.sameAnswers(table, asks, charges, limits) {
			c.Fatalf("seed %d, peek after operation %d", seed, i)
		}
	}
	return n
}

// sameAnswers reports whether the store and the table decide alike.
func (c *clocked) sameAnswers(
	table *counters.Table, asks []Ask, charges []counters.Charge, limits []*counters.Limit,
) bool {
	got := c.takeAll(asks)
	want := table.TakeAll(charges, c.now*1000, nil)
	for j := range want {
		w := want[j]
		w.RetryAfter, w.ResetAfter, w.Delay = roundUpWait(w.RetryAfter), roundUp(w.ResetAfter), roundUp(w.Delay)
		if got[j] != w {
			c.Errorf("layer %d (%s) of\n%+v\n%+v:\n got %+v\nwant %+v", j, describe(charges[j].Limit), charges, limits,
				got[j], w)
			return false
		}
	}
	return true
}

func roundUpWait(d time.Duration) time.Duration {
	if d == counters.Never {
		return d
	}
	return roundUp(d)
}
