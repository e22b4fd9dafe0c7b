package regions_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
)

// Whoever can write to the store can forge counts, and so can a forger on its network: counts that no node can have
// admitted deny nobody, counted as a peer's would be. Those of a limit or less are believed.
func TestForgedCountsOfAStore(t *testing.T) {
	for _, test := range []struct {
		name        string
		count       uint64
		allowed     bool
		implausible uint64
	}{
		{"a whole limit", 100, false, 0},
		{"more than a node can have admitted", 1 << 40, true, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := time.Now().UnixNano()
			limit, err := counters.NewLimit(hour, 100)
			if err != nil {
				t.Fatal(err)
			}
			table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
			table.Know([]*counters.Limit{limit})
			store := embedded()
			forged := counters.Slot{Meter: &hour, Key: 7, Index: hour.Index(now), Origin: 666, Birth: 1,
				Count: test.count}
			if _, err := store.Merge(t.Context(), []counters.Slot{forged}, now); err != nil {
				t.Fatal(err)
			}
			r, err := regions.NewReconciler(regions.DefaultConfig(), store, table)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
			d := table.Take(limit, 7, 1, now)
			if s := table.Stats(); d.Allowed != test.allowed || s.Implausible != test.implausible {
				t.Errorf("allowed: %v, %d implausible, want %v and %d", d.Allowed, s.Implausible, test.allowed,
					test.implausible)
			}
		})
	}
}
