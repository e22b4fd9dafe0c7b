package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// Twelve nodes take a little each from a bucket, together twice what comes back, and tell each other every 100 ms,
// which takes 100 ms more. None of them keeps the bucket busy by itself. Each sees what all of them owe all the same:
// never more than the truth, and less by what is on its way and what comes back in half a second.
func TestBucketsAddUpWhatManyTake(t *testing.T) {
	const nodes, every = 12, int64(5 * time.Millisecond)
	const interval, underWay = 20, 20 // in requests
	for _, a := range []counters.Algorithm{counters.TokenBucket, counters.LeakyBucket, counters.LeakyQueue} {
		l := newLimit(t, counters.NewMeter("r", a, 10*time.Second), 1000)
		truth := oracle.NewModel(l)
		var tables []*counters.Table
		for n := range counters.Origin(nodes) {
			tables = append(tables, small(n+1))
			tables[n].Know([]*counters.Limit{l})
		}
		sent := make(map[int][]counters.Slot) // by when it arrives
		now := start
		for i := range 1600 { // 8 s
			now += every
			if !tables[i%nodes].Take(l, 1, 1, now).Allowed {
				t.Fatalf("%v: request %d was denied, though %d of 1000 are owed", a, i, truth.View(1, now))
			}
			truth.Charge(1, 1, now)
			for _, table := range tables {
				table.Merge(sent[i], now)
				if view, largest := table.View(l, 1, now), truth.View(1, now); view > largest {
					t.Fatalf("%v: after request %d a node believes in %d, of which there are %d", a, i, view, largest)
				}
				if i%interval == 0 {
					for _, s := range table.DrainDirty(now).Slots {
						s.CompleteThrough = now - interval*every
						sent[i+underWay] = append(sent[i+underWay], s)
					}
				}
			}
		}
		for n, table := range tables {
			if view, largest := table.View(l, 1, now), truth.View(1, now); largest < 790 ||
				view+50+interval+underWay < largest {
				t.Errorf("%v: in the end node %d believes in %d of %d", a, n, view, largest)
			}
		}
	}
}
