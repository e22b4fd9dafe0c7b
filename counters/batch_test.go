package counters_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// Requests of a batch are decided as they would be one after the other, and leave the same behind: keys that come
// again, peeks, costs that never fit, and requests without a rule included.
func TestABatchIsItsRequestsOneAfterTheOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var limits []*counters.Limit
		for i := range 3 {
			m := drawShared(t, algorithms...).Meter()
			m.Rule = fmt.Sprint("r", i)
			limits = append(limits, newLimit(t, m, rapid.Uint64Range(0, 8).Draw(t, "limit")))
		}
		batched, single := small(1), small(1)
		now := start
		for range rapid.IntRange(1, 10).Draw(t, "batches") {
			now += rapid.Int64Range(-int64(2*time.Second), int64(4*time.Second)).Draw(t, "pause")
			if rapid.Bool().Draw(t, "merge") {
				slot := slotOf(limits[0], 1, now, 2, 0, rapid.Uint64Range(1, 9).Draw(t, "count"))
				batched.Merge([]counters.Slot{slot}, now)
				single.Merge([]counters.Slot{slot}, now)
			}
			charges := rapid.SliceOfN(drawCharge(limits), 0, 40).Draw(t, "batch")
			earlier := []counters.Decision{{Rule: "earlier"}}
			got, want := batched.TakeBatch(charges, now, earlier[:1:1]), earlier
			for _, c := range charges {
				if c.Limit == nil {
					want = append(want, counters.Decision{Allowed: true})
					continue
				}
				want = append(want, single.Take(c.Limit, c.Key, c.Cost, now))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%+v:\n got %+v\nwant %+v", charges, got, want)
			}
			if a, b := sorted(batched.Snapshot(now, 1000)), sorted(single.Snapshot(now, 1000)); !slices.EqualFunc(a, b,
				sameSlot) {
				t.Fatalf("%+v leave behind %+v, one after the other %+v", charges, a, b)
			}
			if batched.Stats() != single.Stats() {
				t.Fatalf("%+v, one after the other %+v", batched.Stats(), single.Stats())
			}
		}
		a, b := batched.DrainDirty(now), single.DrainDirty(now)
		if !slices.EqualFunc(sorted(a.Slots), sorted(b.Slots), sameSlot) ||
			!slices.EqualFunc(a.Demand, b.Demand, sameDemand) {
			t.Fatalf("a batch drains %+v, one after the other %+v", a, b)
		}
	})
}

func drawCharge(limits []*counters.Limit) *rapid.Generator[counters.Charge] {
	return rapid.Custom(func(t *rapid.T) counters.Charge {
		return counters.Charge{
			Limit: rapid.SampledFrom(append([]*counters.Limit{nil}, limits...)).Draw(t, "limit"),
			Key:   counters.Key(rapid.Uint64Range(0, 3).Draw(t, "key")),
			Cost:  rapid.Uint64Range(0, 9).Draw(t, "cost"),
		}
	})
}

// A batch may be of any size, and larger than a table.
func TestABatchOfAnySize(t *testing.T) {
	l, table := filler(t), small(1)
	n := fill(t, small(1), l, 0, start)
	var charges []counters.Charge
	for key := range 2 * n {
		charges = append(charges, counters.Charge{Limit: l, Key: key, Cost: 1})
	}
	ds := table.TakeBatch(charges, start, nil)
	if len(ds) != len(charges) {
		t.Fatalf("%d decisions on %d requests", len(ds), len(charges))
	}
	for i, d := range ds {
		if !d.Allowed || d.Remaining != d.Limit-1 {
			t.Fatalf("request %d: %+v", i, d)
		}
	}
	if st := table.Stats(); st.Evicted != uint64(len(charges)-st.Keys) {
		t.Errorf("%+v after %d keys", st, len(charges))
	}
	if ds := table.TakeBatch(nil, start, nil); len(ds) != 0 {
		t.Errorf("no requests: %+v", ds)
	}
}
