package counters_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// What peers can make a table hold; the same numbers as in the package.
const (
	maxRemoteMeters = counters.MaxMeters - counters.MaxMeters/4
	maxRows         = 1 << 14
)

func TestMergeRefusesInvalidMeters(t *testing.T) {
	good := counters.Meter{Rule: "r", Algorithm: counters.SlidingWindow, Window: 10 * time.Second, Sub: time.Second}
	for name, spoil := range map[string]func(*counters.Meter){
		"no rule":              func(m *counters.Meter) { m.Rule = "" },
		"unknown algorithm":    func(m *counters.Meter) { m.Algorithm = 9 },
		"no sub-window":        func(m *counters.Meter) { m.Sub = 0 },
		"negative":             func(m *counters.Meter) { m.Sub = -1 },
		"too many sub-windows": func(m *counters.Meter) { m.Sub = time.Millisecond },
	} {
		table := counters.NewTable(counters.Config{Origin: 9})
		bad, fine := good, good
		spoil(&bad)
		slot := counters.Slot{Meter: &fine, Key: 1, Index: fine.Index(start), Origin: 2, Count: 1}
		worse := slot
		worse.Meter = &bad
		// The refused ones must not spoil those of a good meter before and after them.
		if novel := table.Merge([]counters.Slot{worse, slot, worse, worse, {Origin: 2, Count: 1}, slot}, start); novel != 1 {
			t.Errorf("%s: %d slots are novel, want 1", name, novel)
		}
		if st := table.Stats(); st.Refused != 4 || st.Keys != 1 {
			t.Errorf("%s: %+v, want 4 refused, one without a meter among them, and one cell", name, st)
		}
	}
}

// Peers can invent meters, but not without end; what the node itself is asked for is always counted.
func TestPeersCannotInventMetersWithoutEnd(t *testing.T) {
	table := counters.NewTable(counters.Config{Origin: 9, Memory: counters.MinMemory})
	m := counters.NewMeter("", counters.SlidingWindow, 10*time.Second)
	slot := counters.Slot{Key: 1, Index: m.Index(start), Origin: 2, Count: 1}
	merge := func(i int) int {
		meter := m
		meter.Rule = "invented/" + strconv.Itoa(i)
		slot.Meter = &meter
		return table.Merge([]counters.Slot{slot}, start)
	}
	for i := range maxRemoteMeters {
		if merge(i) != 1 {
			t.Fatalf("meter %d is refused: %+v", i, table.Stats())
		}
	}
	for i := range 10 {
		if merge(maxRemoteMeters+i) != 0 {
			t.Errorf("one meter too many is taken")
		}
	}
	if refused := table.Stats().Refused; refused != 10 {
		t.Errorf("%d refused, want 10", refused)
	}
	slot.Count++
	if merge(maxRemoteMeters-1) != 1 {
		t.Error("a meter that is known is refused")
	}
	l := limitNamed(t, "edge/own", 2)
	if d := table.Take(l, 1, 2, start); !d.Allowed || d.Remaining != 0 {
		t.Errorf("the node's own rule: %+v", d)
	}
	if novel := table.Merge([]counters.Slot{slotOf(l, 1, start, 2, 0, 5)}, start); novel != 1 || table.View(l, 1, start) != 7 {
		t.Errorf("counts of the node's own rule from a peer: %d are novel, view %d, want 1 and 7", novel, table.View(l, 1, start))
	}
}

// Nor can they invent origins and births without end.
func TestPeersCannotInventOriginsWithoutEnd(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 1e6)
	table := counters.NewTable(counters.Config{Origin: 1})
	var slots []counters.Slot
	for i := range maxRows + 10 {
		slots = append(slots, slotOf(l, 1, start, counters.Origin(2+i/4), uint32(i), 1))
	}
	if novel := table.Merge(slots, start); novel != maxRows {
		t.Errorf("%d slots are novel, want %d", novel, maxRows)
	}
	if st := table.Stats(); st.Refused != 10 {
		t.Errorf("%+v, want 10 refused", st)
	}
	if view := table.View(l, 1, start); view != maxRows {
		t.Errorf("view = %d, want %d", view, maxRows)
	}
	// When their window has passed there is room again.
	if novel := table.Merge([]counters.Slot{slotOf(l, 1, after(11*time.Second), 7777, 0, 3)}, after(11*time.Second)); novel != 1 {
		t.Error("after the window a new origin is refused")
	}
	if slots := table.Snapshot(after(11*time.Second), 10); len(slots) != 1 {
		t.Errorf("after the window %d slots are left, want 1", len(slots))
	}
}
