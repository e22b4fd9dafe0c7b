package rowtable_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

// Once an implausible slot has come, a table admits half of its even share for a minute, whatever others report.
func TestFloor(t *testing.T) {
	m := rowtable.Meter{ID: 0x9e3779b97f4a7c15, Sub: int64(time.Second), N: 10, MaxSlot: 160}
	table, l := rowtable.New(tableSize, 1), rowtable.NewLimit(m, 20)
	table.SetCluster(rowtable.Global, 1, time.Second)
	slot := rowtable.Slot{Key: 1, Index: start / l.Sub, Origin: 2, Count: 160}
	admitted := func(now int64) (n int) {
		slot.Index = now / l.Sub
		table.Merge(&l.Meter, []rowtable.Slot{slot}, now)
		for range 30 {
			if table.Take(l, slot.Key, 1, now).Allowed {
				n++
			}
		}
		return n
	}
	if n := admitted(start); n != 0 || table.Implausible() != 0 {
		t.Errorf("%d were admitted of a limit that others have used up", n)
	}
	table.Merge(&l.Meter, []rowtable.Slot{{Key: 2, Index: slot.Index, Origin: 2, Count: 161}}, start)
	if n := admitted(start + 1); n != 5 || table.Implausible() != 1 {
		t.Errorf("%d were admitted after an implausible slot, want half of 20 among two", n)
	}
	if n := admitted(start + int64(time.Minute)); n != 0 {
		t.Errorf("%d were admitted a minute later", n)
	}
}
