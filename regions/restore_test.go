package regions_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// What a node told that is gone survives in the tables of the others, and comes back from there.
func TestCountsOfNodesThatAreGoneSurvive(t *testing.T) {
	for _, l := range lapses {
		t.Run(l.name, func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				f := regionstest.NewFaulty(embedded)
				gone := start(t, 1, f, nil)
				testkit.Must(t, f.Save())
				gone.take(&hour, keys(700)...)
				flushes(2)
				testkit.Must(t, gone.stop())
				alive, other := start(t, 2, f, nil), start(t, 3, f, nil)
				testkit.Must(t, alive.Warm(t.Context()))
				alive.take(&hour, 1)
				other.take(&hour, 2)
				flushes(2)
				truth := held(t, f)

				l.lapse(t, f)
				flushes(2)
				if got := held(t, f); !maps.Equal(got, truth) {
					t.Errorf("the store holds %d slots, want the %d of before", len(got), len(truth))
				}
				agree(t, f, gone, alive, other)
				flushes(20)
				agree(t, f, gone, alive, other)
				for _, n := range []node{alive, other} {
					if s := n.Reconciler.Stats(); s.Lost != 1 {
						t.Errorf("one loss was noticed %d times", s.Lost)
					}
				}
			})
		})
	}
}

func TestRestoreIsCapped(t *testing.T) {
	for _, capacity := range []int{0, 100} {
		t.Run(fmt.Sprint(capacity), func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				f := regionstest.NewFaulty(embedded)
				gone := start(t, 1, f, nil)
				gone.take(&hour, keys(700)...)
				gone.take(&hour, keys(99)...)
				flushes(2)
				testkit.Must(t, gone.stop())
				alive := start(t, 2, f, func(c *regions.Config) { c.Restore = capacity })
				testkit.Must(t, alive.Warm(t.Context()))
				alive.take(&hour, 1)
				alive.take(&hour, 1)
				alive.take(&hour, 1)
				flushes(2)
				f.Flush()
				flushes(5)
				got := held(t, f)
				if len(got) != max(1, capacity) {
					t.Errorf("the store holds %d slots, want the own one and %d in all", len(got), capacity)
				}
				for at, count := range got {
					if count < 2 {
						t.Errorf("key %d of count %d was restored before those of 2", at.key, count)
					}
				}
			})
		})
	}
}
