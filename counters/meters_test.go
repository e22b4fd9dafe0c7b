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
		"unknown algorithm":    func(m *counters.Meter) { m.Algorithm = 10 },
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
		if novel := table.Merge([]counters.Slot{worse, slot, worse, worse, {Origin: 2, Count: 1}, slot},
			start); novel != 1 {
			t.Errorf("%s: %d slots are novel, want 1", name, novel)
		}
		if st := table.Stats(); st.Refused != 4 || st.Keys != 1 {
			t.Errorf("%s: %+v, want 4 refused, one without a meter among them, and one cell", name, st)
		}
	}
}

// Peers can invent meters, but not without end; what the node itself is asked for is always counted.
func TestPeersCannotInventMetersWithoutEnd(t *testing.T) {
	table := counters.NewTable(counters.Config{Origin: 9, Memory: 64 << 20})
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
	if novel := table.Merge([]counters.Slot{slotOf(l, 1, start, 2, 0, 5)}, start); novel != 1 ||
		table.View(l, 1, start) != 7 {
		t.Errorf("counts of the node's own rule from a peer: %d are novel, view %d, want 1 and 7", novel,
			table.View(l, 1, start))
	}
}

// The meters that are kept for the node's own rules stay so, however often these are edited: what they leave behind is
// not for peers.
func TestPeersCannotTakeTheMetersOfOwnRules(t *testing.T) {
	const own = counters.MaxMeters - maxRemoteMeters
	table := counters.NewTable(counters.Config{Origin: 1, Memory: 64 << 20})
	m := counters.NewMeter("", counters.FixedWindow, 24*time.Hour)
	invented := 0
	invent := func(n int) (taken int) {
		for range n {
			meter := m
			meter.Rule, invented = "invented/"+strconv.Itoa(invented), invented+1
			taken += table.Merge([]counters.Slot{{Meter: &meter, Key: 1, Index: m.Index(start), Origin: 2, Count: 1}},
				start)
		}
		return taken
	}
	if taken := invent(maxRemoteMeters + 10); taken != maxRemoteMeters {
		t.Errorf("peers got %d meters, want %d", taken, maxRemoteMeters)
	}
	for i := range 2 * own { // a rule set of one limit, which is edited again and again
		table.Know([]*counters.Limit{limitNamed(t, "edited/"+strconv.Itoa(i), 1)})
	}
	if taken := invent(own); taken != 0 {
		t.Errorf("peers got %d of the meters that edited rules left behind, want none", taken)
	}
	var limits []*counters.Limit
	for i := range own {
		limits = append(limits, limitNamed(t, "own/"+strconv.Itoa(i), 1))
	}
	table.Know(nil)
	table.Know(limits)
	denied := 0
	for _, l := range limits {
		if !table.Take(l, 1, 1, start).Allowed {
			denied++
		}
	}
	if denied > 0 {
		t.Errorf("%d of %d own rules have no meter, and deny", denied, own)
	}
}

// Nor can they invent origins and births without end, in one sub-window of a key or in several: each lies in the way of
// older ones.
func TestPeersCannotInventOriginsWithoutEnd(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 1e6)
	table := counters.NewTable(counters.Config{Origin: 1})
	var slots []counters.Slot
	for i := range maxRows + 10 {
		back := time.Duration(i/(maxRows/10+2)) * time.Second
		table.SetMember(counters.Origin(2+i/4), true)
		slots = append(slots, slotOf(l, 1, after(-back), counters.Origin(2+i/4), uint32(i), 1))
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
	if novel := table.Merge([]counters.Slot{slotOf(l, 1, after(11*time.Second), 7777, 0, 3)},
		after(11*time.Second)); novel != 1 {
		t.Error("after the window a new origin is refused")
	}
	if slots := table.Snapshot(after(11*time.Second), 10); len(slots) != 1 {
		t.Errorf("after the window %d slots are left, want 1", len(slots))
	}
}

// A hundred thousand rules and as many limits that requests bring along count beside each other, each for itself.
func TestManyRulesAndAdHocLimits(t *testing.T) {
	const each = 100_000
	table, now := counters.NewTable(counters.Config{Origin: 1, Memory: 128 << 20}), start
	var limits []*counters.Limit
	for i := range each {
		limits = append(limits, limitNamed(t, "rule/"+strconv.Itoa(i), 2))
	}
	table.Know(limits)
	for i := range each {
		limits = append(limits, adHoc(t, i))
	}
	for taken := range uint64(2) {
		for i, l := range limits {
			if d := table.Take(l, 1, 1, now); !d.Allowed || d.Remaining != l.Max()-taken-1 {
				t.Fatalf("request %d of limit %d of %d: %+v", taken, i, len(limits), d)
			}
		}
	}
	if d := table.DrainDirty(now); len(d.Slots) != 2*each {
		t.Errorf("%d slots are sent, want one for each of %d limits", len(d.Slots), 2*each)
	}
}

// Asking what is left of limits gives none of them a number, or a cell.
func TestPeeksTakeNoMeters(t *testing.T) {
	table := counters.NewTable(counters.Config{Origin: 1, Memory: 64 << 20})
	for i := range counters.MaxMeters + 1 {
		if d := table.Take(adHoc(t, i), 1, 0, start); !d.Allowed || d.Remaining != 10 {
			t.Fatalf("peek %d: %+v", i, d)
		}
	}
	if d := table.Take(adHoc(t, -1), 1, 1, start); !d.Allowed || table.Stats().Keys != 1 {
		t.Errorf("after them: %+v, %d keys", d, table.Stats().Keys)
	}
}
