package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A client gets all of a small limit, at whichever tables it asks: below twenty the last request that fits is no proof
// of more to come. Nobody gets more once the tables know of it.
func TestTheLastOneOfASmallLimitIsAdmitted(t *testing.T) {
	for _, a := range algorithms {
		for largest := uint64(1); largest <= 25; largest++ {
			l := newLimit(t, counters.NewMeter("r", a, time.Hour), largest)
			var tables []*counters.Table
			for o := range 3 {
				table := small(counters.Origin(o + 1))
				table.SetCluster(2, horizon)
				table.Know([]*counters.Limit{l})
				tables = append(tables, table)
			}
			sure := (largest*95 + 99) / 100 // 95 %, rounded up
			for i := range sure + 1 {
				now := after(time.Duration(i) * 100 * time.Millisecond)
				fits := i < sure
				if d := tables[i%3].Take(l, 1, 1, now); fits && !d.Allowed || i == largest && d.Allowed {
					t.Errorf("%v: request %d of %d: %+v", a, i+1, largest, d)
				}
				for from, table := range tables {
					slots := table.DrainDirty(now).Slots
					for to, other := range tables {
						if to != from {
							other.Merge(slots, now)
							other.SetWatermark(counters.Origin(from+1), now)
						}
					}
				}
			}
		}
	}
}
