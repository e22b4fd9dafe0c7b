package gossip

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// While a snapshot is merged, others have the lock every few hundred slots: frames of the same peer come in between,
// and nothing is lost.
func TestSnapshotsAreMergedInParts(t *testing.T) {
	const slots = 20 * mergedAtOnce
	m := counters.NewMeter("r", counters.SlidingWindow, time.Hour)
	limit, err := counters.NewLimit(m, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	now := frameTime
	nodes := make([]*Replica, 2)
	tables := make([]*counters.Table, 2)
	for i := range nodes {
		o := counters.Origin(i + 1)
		tables[i] = counters.NewTable(counters.Config{Origin: o, Memory: counters.MinMemory})
		nodes[i] = NewReplica(o, DefaultInterval, tables[i])
		nodes[i].Join(counters.Origin(2-i), now)
	}
	key := func(i int) counters.Key { return counters.Key(i+1) * 0x9e3779b97f4a7c15 }
	for i := range slots {
		tables[0].Take(limit, key(i), 5, now)
	}
	snapshot := nodes[0].Snapshot(now)
	tables[0].Take(limit, key(slots), 7, now)
	frames := nodes[0].Tick(tables[0].DrainDirty(now), now)
	parts := 0
	nodes[1].between = func() {
		if parts++; parts == 3 {
			for _, f := range frames {
				if err := nodes[1].Receive(f.Data, now); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if err := nodes[1].Receive(snapshot, now); err != nil {
		t.Fatal(err)
	}
	if parts < slots/mergedAtOnce {
		t.Errorf("others have the lock %d times, want %d", parts, slots/mergedAtOnce)
	}
	for i := range slots {
		if got := tables[1].View(limit, key(i), now); got != 5 {
			t.Fatalf("key %d counts %d, want 5", i, got)
		}
	}
	if got := tables[1].View(limit, key(slots), now); got != 7 {
		t.Errorf("what came in between counts %d, want 7", got)
	}
}
