package counters

import (
	"testing"
	"time"
)

// What no decision shows: what a table holds beside its cells.

func touchedCells(t *Table) (listed, kept int) {
	for i := range t.shards {
		listed += len(t.shards[i].touched)
		for _, c := range t.shards[i].touched[:cap(t.shards[i].touched)] {
			if c != nil {
				kept++
			}
		}
	}
	return listed, kept
}

// A cell is listed to be drained once, however often it is asked for, and a drain keeps no hold on cells that may go.
func TestTheListOfTouchedCells(t *testing.T) {
	l, err := NewLimit(NewMeter("r", SlidingWindow, 10*time.Second), 100)
	if err != nil {
		t.Fatal(err)
	}
	table, now := NewTable(Config{Origin: 1}), int64(1e18)
	for range 3 {
		for i := range 1000 {
			table.Take(l, Key(i%10), 1, now)
			table.TakeAll([]Charge{{Limit: l, Key: Key(i % 10), Cost: 1}}, now, nil)
			table.Take(l, 99, 0, now)
			table.Take(l, 98, 101, now)
		}
		if listed, kept := touchedCells(table); listed != 10 || kept != 10 {
			t.Errorf("%d cells are listed, %d kept, want the 10 that were asked for", listed, kept)
		}
		table.DrainDirty(now)
		if listed, kept := touchedCells(table); listed != 0 || kept != 0 {
			t.Errorf("after a drain %d cells are listed, %d kept, want none", listed, kept)
		}
	}
}

// When the counts of an origin have left the window, its row goes, and the rows that stay keep theirs.
func TestEmptyRowsGo(t *testing.T) {
	m := NewMeter("r", SlidingWindow, 10*time.Second)
	table, begin := NewTable(Config{Origin: 1}), int64(1e18)
	var slots []Slot
	for i := range int64(10) { // the lower the origin, the longer it counts
		slots = append(slots, Slot{Meter: &m, Key: 1, Index: m.Index(begin) - i, Origin: Origin(2 + i), Count: uint64(100 + i)})
	}
	table.Merge(slots, begin)
	for i := range int64(11) {
		now := begin + (1+i)*int64(m.Sub)
		held := table.Snapshot(now, 100)
		if want := int(10 - i); len(held) != want {
			t.Fatalf("%d sub-windows later %d slots are held, want %d", 1+i, len(held), want)
		}
		for _, s := range held {
			if s.Count != 98+uint64(s.Origin) {
				t.Errorf("%d sub-windows later origin %d counts %d, want %d", 1+i, s.Origin, s.Count, 98+s.Origin)
			}
		}
		for _, c := range table.shards[cellID{m.id(), 1}.shard()].cells {
			if len(c.rows) != len(held) || len(c.rings) != (remoteRows+len(held))*m.ringSize() {
				t.Errorf("%d sub-windows later there are %d rows and %d places for %d slots", 1+i, len(c.rows), len(c.rings), len(held))
			}
		}
	}
}
