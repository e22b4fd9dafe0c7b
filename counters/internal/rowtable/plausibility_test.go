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
	if last := table.LastImplausible(); last != (rowtable.Implausible{Meter: m.ID, Origin: 2}) {
		t.Errorf("the last implausible slot is %+v", last)
	}
	if n := admitted(start + int64(time.Minute)); n != 0 {
		t.Errorf("%d were admitted a minute later", n)
	}
}

// A table names the peer that alone had a key denied.
func TestDenier(t *testing.T) {
	m := rowtable.Meter{ID: 0x9e3779b97f4a7c15, Sub: int64(time.Second), N: 10}
	for _, c := range []struct {
		name   string
		own    int
		counts []uint64 // of the origins 2, 3 and so on
		denier uint16
	}{
		{"one peer", 0, []uint64{90, 10}, 2},
		{"another peer", 0, []uint64{9, 91}, 3},
		{"two peers", 0, []uint64{80, 20}, 0},
		{"either of two", 0, []uint64{95, 95}, 0},
		{"this table", 60, []uint64{90}, 0},
	} {
		table, l := rowtable.New(tableSize, 1), rowtable.NewLimit(m, 100)
		for range c.own {
			table.Take(l, 1, 1, start)
		}
		for i, count := range c.counts { // in two sub-windows each
			slot := rowtable.Slot{Key: 1, Index: start / l.Sub, Origin: uint16(2 + i), Count: count - count/2}
			before := slot
			before.Index, before.Count = before.Index-1, count/2
			table.Merge(&l.Meter, []rowtable.Slot{slot, before}, start)
		}
		if d := table.Take(l, 1, 1, start); d.Allowed {
			t.Errorf("%s: admitted", c.name)
		}
		table.Take(l, 1, 1, start) // counts once
		if got := table.LastDenier(); got != c.denier || table.DeniedByOne() != uint64(min(c.denier, 1)) {
			t.Errorf("%s: origin %d, %d keys", c.name, got, table.DeniedByOne())
		}
	}
}
