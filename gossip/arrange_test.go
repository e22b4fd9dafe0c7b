package gossip

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// Slots are arranged as a stable sort would: by meter, origin and the highest byte of the key. No meter has two groups
// of an origin.
func TestArrange(t *testing.T) {
	var a arranger // it is used again and again
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.SliceOf(rapid.Custom(func(t *rapid.T) counters.Slot {
			m := rapid.SampledFrom(frameMeters).Draw(t, "meter")
			if rapid.Bool().Draw(t, "a copy") { // as of a meter that went and came again
				again := *m
				m = &again
			}
			return drawSlot(t, m, counters.Origin(rapid.Uint64Range(1, 3).Draw(t, "origin")))
		})).Draw(t, "slots")
		demand := rapid.MapOf(rapid.SampledFrom(frameMeters), rapid.Float64Range(1, 9)).Draw(t, "demand")
		var demands []counters.Demand
		for m, rate := range demand {
			demands = append(demands, counters.Demand{Meter: m, Rate: rate})
		}
		want := slices.Clone(slots)
		slices.SortStableFunc(want, func(x, y counters.Slot) int {
			return cmp.Or(
				compareGroups(&group{meter: x.Meter, origin: x.Origin}, &group{meter: y.Meter, origin: y.Origin}),
				cmp.Compare(x.Key>>56, y.Key>>56))
		})

		var got []counters.Slot
		groups := a.arrange(slots, demands, 2)
		for i, g := range groups {
			if i > 0 && compareGroups(&groups[i-1], &g) >= 0 {
				t.Fatalf("group %d is not after the one before", i)
			}
			for _, s := range g.slots {
				if *s.Meter != *g.meter || s.Origin != g.origin {
					t.Fatalf("a slot of %s and %x in a group of %s and %x", s.Meter.Rule, s.Origin, g.meter.Rule,
						g.origin)
				}
			}
			got = append(got, g.slots...)
			if g.origin == 2 {
				for m, rate := range demand {
					if *m == *g.meter && g.demand == rate {
						delete(demand, m)
					}
				}
			} else if g.demand != 0 {
				t.Fatalf("a demand of %v of another origin", g.demand)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("arranged:\n%+v\nwant\n%+v", got, want)
		}
		if len(demand) > 0 {
			t.Fatalf("demands that are in no group: %v", demand)
		}
	})
}

// A group may hold nothing but a demand.
func TestArrangeDemandAlone(t *testing.T) {
	m := frameMeters[0]
	groups := new(arranger).arrange(nil, []counters.Demand{{Meter: m, Rate: 3}}, 9)
	if len(groups) != 1 || groups[0].meter != m || groups[0].origin != 9 || groups[0].demand != 3 ||
		len(groups[0].slots) != 0 {
		t.Errorf("groups %+v, want one with a demand of 3", groups)
	}
	if groups := new(arranger).arrange(nil, nil, 9); len(groups) != 0 {
		t.Errorf("groups of nothing: %+v", groups)
	}
}
