package counters_test

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// knowing returns a table of one of so many nodes that knows the limit.
func knowing(l *counters.Limit, nodes int) *counters.Table {
	table := small(1)
	table.Know([]*counters.Limit{l})
	table.SetCluster(nodes-1, 100*time.Millisecond)
	return table
}

// admitted is how many of so many requests the table admits.
func admitted(table *counters.Table, l *counters.Limit, requests int, now int64) (n uint64) {
	for range requests {
		if table.Take(l, 1, 1, now).Allowed {
			n++
		}
	}
	return n
}

// No slot that counts more than a node can have admitted is believed, and eight whole limits are.
func TestSlotsBeyondBeliefAreRefused(t *testing.T) {
	for _, a := range algorithms {
		m := counters.NewMeter("r", a, time.Hour)
		l := newLimit(t, m, 100)
		largest := counters.Believed(l)
		for _, c := range []struct {
			count uint64
			novel int
		}{{100, 1}, {800, 1}, {largest, 1}, {largest + 1, 0}, {1 << 63, 0}, {math.MaxUint64, 0}} {
			table := knowing(l, 4)
			if got := table.Merge([]counters.Slot{slotOf(l, 1, start, 7, 0, c.count)}, start); got != c.novel {
				t.Errorf("%v: a slot of %d: %d are novel, want %d", a, c.count, got, c.novel)
			}
			refused, origin := uint64(1-c.novel), counters.Origin(7*(1-c.novel))
			if s := table.Stats(); s.Implausible != refused || s.Refused != refused ||
				s.LastImplausible.Origin != origin {
				t.Errorf("%v: a slot of %d: %+v", a, c.count, s)
			}
			if view := table.View(l, 1, start); c.novel == 0 && view != 0 {
				t.Errorf("%v: a slot of %d: view %d, want 0", a, c.count, view)
			}
		}
	}
}

// An implausible slot makes no key, and moves none on: what counts when the clock steps back counts as before.
func TestAnImplausibleSlotTouchesNoKey(t *testing.T) {
	l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, time.Hour), 100)
	table := knowing(l, 4)
	ban := *banning(t, "r", counters.SlidingWindow).BanMeter()
	for _, m := range []counters.Meter{l.Meter(), ban} {
		lie := counters.Slot{Meter: &m, Key: 2, Index: m.Index(start), Origin: 7, Count: 1 << 63}
		table.Merge([]counters.Slot{lie}, start)
	}
	if st := table.Stats(); st.Keys != 0 || st.Implausible != 2 {
		t.Errorf("%d keys after %d implausible slots", st.Keys, st.Implausible)
	}
	table.Take(l, 1, 5, start)
	later := start + 3*int64(time.Hour)
	table.Merge([]counters.Slot{slotOf(l, 1, later, 7, 0, 1<<63)}, later)
	if view := table.View(l, 1, start); view != 5 {
		t.Errorf("view %d", view)
	}
}

// Nodes learn of a new limit one after the other: what those count that still, or already, have one up to eight times
// as large is believed, and what came by a larger one before it was lowered.
func TestAChangeOfALimitIsNoLie(t *testing.T) {
	for name, known := range map[string][]uint64{"raised elsewhere": {100}, "lowered here": {800, 1}} {
		table := small(1)
		m := counters.NewMeter("r", counters.SlidingWindow, time.Minute)
		for _, largest := range known {
			table.Know([]*counters.Limit{newLimit(t, m, largest)})
		}
		l := newLimit(t, m, 800)
		if table.Merge([]counters.Slot{slotOf(l, 1, start, 7, 0, 800)}, start) != 1 || table.Stats().Implausible != 0 {
			t.Errorf("%s: 800 are not believed", name)
		}
	}
}

// Of a rule that is not known yet everything is kept: that it is much nobody can tell.
func TestWithoutALimitAllIsBelieved(t *testing.T) {
	l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, time.Minute), 10)
	table := small(1)
	if table.Merge([]counters.Slot{slotOf(l, 1, start, 7, 0, 1<<40)}, start) != 1 {
		t.Error("2^40 of an unknown rule are not kept")
	}
}

// A peer whose lies are beyond belief now and then, and can be believed otherwise, pushes nobody below half an even
// share of the limit; one whose word was good so far may well.
func TestTheFloorAgainstALiar(t *testing.T) {
	const limit, nodes, floor = 800, 4, 100
	for _, a := range algorithms {
		l := newLimit(t, counters.NewMeter("r", a, time.Minute), limit)
		table := knowing(l, nodes)
		table.Merge([]counters.Slot{slotOf(l, 1, start, 7, 0, limit)}, start)
		if n := admitted(table, l, limit, start); n != 0 {
			t.Errorf("%v: a limit that another node admitted leaves room for %d", a, n)
		}
		table.Merge([]counters.Slot{slotOf(l, 2, start, 7, 0, 1<<63)}, start)
		if n := admitted(table, l, limit, start); n != floor {
			t.Errorf("%v: against a liar %d are admitted, want %d", a, n, floor)
		}
		var own uint64
		for _, s := range table.Own(start) {
			own += s.Count
		}
		if own != floor {
			t.Errorf("%v: of the floor %d are counted, want %d", a, own, floor)
		}
		if view := table.View(l, 1, start); view != limit+floor {
			t.Errorf("%v: the view is %d, want %d", a, view, limit+floor)
		}
		if d := table.Take(l, 1, 0, start); d.Allowed {
			t.Errorf("%v: a peek is allowed beyond the floor", a)
		}
	}
}

// The floor holds in every layer, and is charged in all or in none.
func TestTheFloorInLayers(t *testing.T) {
	l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, time.Minute), 80)
	full := newLimit(t, counters.NewMeter("full", counters.SlidingWindow, time.Minute), 1)
	table := knowing(l, 4)
	table.Merge([]counters.Slot{slotOf(l, 1, start, 7, 0, 80), slotOf(l, 2, start, 7, 0, 1<<63)}, start)
	layers := []counters.Charge{{Limit: l, Key: 1, Cost: 3}, {Limit: l, Key: 1, Cost: 3}}
	for i, want := range []bool{true, false} { // 10 is the floor
		for layer, d := range table.TakeAll(layers, start, nil) {
			if d.Allowed != want && (layer > 0 || want) {
				t.Errorf("request %d, layer %d: %+v", i, layer, d)
			}
		}
	}
	table.Take(full, 1, 1, start)
	layers[1] = counters.Charge{Limit: full, Key: 1, Cost: 1}
	table.TakeAll(layers, start, nil)
	if n := admitted(table, l, 10, start); n != 4 {
		t.Errorf("%d are left of the floor, want 4", n)
	}
}

// The floor goes a minute after the last implausible count, or when what was sent with it counts no more.
func TestTheFloorEnds(t *testing.T) {
	for window, ends := range map[time.Duration]time.Duration{time.Second: time.Minute, time.Hour: time.Hour} {
		l := newLimit(t, counters.NewMeter("r", counters.FixedWindow, window), 80)
		for at, want := range map[time.Duration]uint64{ends - 1: 10, ends: 0} {
			table := knowing(l, 4)
			table.Merge([]counters.Slot{slotOf(l, 2, start, 7, 0, 1<<63)}, start)
			now := after(at)
			table.Merge([]counters.Slot{slotOf(l, 1, now, 7, 0, 80)}, now)
			if n := admitted(table, l, 80, now); n != want {
				t.Errorf("window %v: %v after the lie %d are admitted, want %d", window, at, n, want)
			}
		}
	}
}

// Whatever demand a peer reports: who is no offender is not held back, and arithmetic stays sound.
func TestDemandBeyondReason(t *testing.T) {
	for _, demand := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -1, 1e30,
		math.MaxFloat32} {
		l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, time.Minute), 100)
		table := knowing(l, 4)
		for _, origin := range []counters.Origin{7, 8, 9} {
			slot := slotOf(l, 1, start, origin, 0, 1)
			slot.Demand = demand
			table.Merge([]counters.Slot{slot}, start)
			table.SetWatermark(origin, start)
		}
		// with 3 of others, as much as makes no offender
		if n := admitted(table, l, 92, after(50*time.Millisecond)); n != 92 {
			t.Errorf("a demand of %v: %d of 92 are admitted", demand, n)
		}
		if n := admitted(table, l, 1000, after(60*time.Millisecond)); n > 5 {
			t.Errorf("a demand of %v: %d are admitted, 5 are left", demand, n)
		}
		table.Merge([]counters.Slot{slotOf(l, 2, start, 7, 0, 1<<63)}, after(70*time.Millisecond))
		other := slotOf(l, 3, start, 7, 0, 96)
		other.Demand = demand
		table.Merge([]counters.Slot{other}, after(70*time.Millisecond))
		table.SetWatermark(7, start)
		n := 0
		for range 50 {
			if table.Take(l, 3, 1, after(80*time.Millisecond)).Allowed {
				n++
			}
		}
		if n < 12 { // 100/8
			t.Errorf("a demand of %v: %d are admitted, below the floor of 12", demand, n)
		}
	}
}

// An origin cannot fill a cell with births of it; another's still count, and those that are known still rise.
func TestBirthsAreCapped(t *testing.T) {
	const most = 64
	l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, time.Minute), 1<<20)
	table := knowing(l, 2)
	var sent []counters.Slot
	for birth := range uint32(1000) {
		sent = append(sent, slotOf(l, 1, start, 7, birth, 1))
	}
	if novel := table.Merge(sent, start); novel != most {
		t.Errorf("%d births are believed, want %d", novel, most)
	}
	if s := table.Stats(); s.Refused != 1000-most {
		t.Errorf("%d are refused, want %d", s.Refused, 1000-most)
	}
	sent[most-1].Count = 5
	next := slotOf(l, 1, after(6*time.Second), 7, 2000, 1) // in the next sub-window
	other := slotOf(l, 1, start, 8, 2000, 1)
	if novel := table.Merge([]counters.Slot{sent[most-1], other, next}, after(6*time.Second)); novel != 3 {
		t.Errorf("%d of 3 slots are novel", novel)
	}
	if n := len(table.Snapshot(after(6*time.Second), 1e6)); n != most+2 {
		t.Errorf("%d slots are kept, want %d", n, most+2)
	}
}
