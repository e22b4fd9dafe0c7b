package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// allocations runs f often, each time a microsecond later.
func allocations(f func(now int64)) float64 {
	now := start
	return testing.AllocsPerRun(1000, func() {
		now += 1000
		f(now)
	})
}

// The request path of a key that is known allocates nothing, whatever the algorithm, and whatever is decided.
func TestDecisionsAllocateNothing(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			largest := uint64(counters.MaxLimit)
			if a == counters.SlidingLog {
				largest = counters.MaxLog
			}
			m := counters.NewMeter("wide", a, 10*time.Second)
			wide := newLimit(t, m, largest)
			m.Rule = "narrow"
			narrow := newLimit(t, m, 1)
			decisionsAllocateNothing(t, wide, narrow)
			decisionsAllocateNothing(t, penalized(t, wide, true, true, time.Minute),
				penalized(t, narrow, true, true, time.Minute))
		})
	}
}

func decisionsAllocateNothing(t *testing.T, wide, narrow *counters.Limit) {
	table := least(1)
	layers := []counters.Charge{{Limit: wide, Key: 1, Cost: 1}, {}, {Limit: wide, Key: 2, Cost: 1}}
	denied := append(layers[:3:3], counters.Charge{Limit: narrow, Key: 1, Cost: 1})
	ds := make([]counters.Decision, 0, len(denied))
	table.TakeAll(layers, start, nil)
	table.Take(narrow, 1, 1, start)

	for name, f := range map[string]func(now int64){
		"Take, admitted":    func(now int64) { table.Take(wide, 1, 1, now) },
		"Take, denied":      func(now int64) { table.Take(narrow, 1, 1, now) },
		"Take, a peek":      func(now int64) { table.Take(wide, 1, 0, now) },
		"Take, a new peek":  func(now int64) { table.Take(wide, 99, 0, now) },
		"TakeAll, admitted": func(now int64) { ds = table.TakeAll(layers, now, ds[:0]) },
		"TakeAll, denied":   func(now int64) { ds = table.TakeAll(denied, now, ds[:0]) },
		"Report":            func(now int64) { table.Report(layers, now) },
		"Report, overdrawn": func(now int64) { table.Report(denied, now) },
		"View":              func(now int64) { table.View(wide, 1, now) },
		"VerdictOf":         func(int64) { counters.VerdictOf(ds) },
	} {
		if n := allocations(f); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

// Nor does that of an offender, of which a part is denied, or that of a key which peers report.
func TestDecisionsOnOffendersAllocateNothing(t *testing.T) {
	for _, a := range algorithms {
		if a == counters.SlidingLog {
			continue // it remembers at most some thousand requests
		}
		l := millionOf(t, a)
		table := crowded(l)
		table.SetWatermark(3, after(-3*time.Second))
		charges := []counters.Charge{{Limit: l, Key: 1, Cost: 1}, {}, {Limit: l, Key: 2, Cost: 1}}
		ds := make([]counters.Decision, 0, 3)
		table.Take(l, 1, 1, start)
		table.Take(l, 2, 1, start)
		for name, f := range map[string]func(now int64){
			"Take":         func(now int64) { table.Take(l, 1, 1, now) },
			"Take, a peek": func(now int64) { table.Take(l, 1, 0, now) },
			"TakeAll":      func(now int64) { ds = table.TakeAll(charges, now, ds[:0]) },
		} {
			if n := allocations(f); n != 0 {
				t.Errorf("%v, %s: %v allocations, want none", a, name, n)
			}
		}
		if w := table.HotKeyState(l, 1); w.Estimate == 0 || w.Until == 0 {
			t.Errorf("%v: this is no offender in a cut: %+v", a, w)
		}
	}
}

// Merging raises slots that exist for nothing as well, also where the meters alternate and where the peer sent them
// anew.
func TestMergeIntoExistingSlotsAllocatesNothing(t *testing.T) {
	table := least(1)
	var slots []counters.Slot
	for _, a := range algorithms {
		x, y := newLimit(t, counters.NewMeter("x", a, 10*time.Second),
			10), newLimit(t, counters.NewMeter("y", a, 10*time.Second), 10)
		slots = append(slots, slotOf(x, 1, start, 2, 0, 1), slotOf(x, 1, start, 3, 0, 1), slotOf(y, 1, start, 2, 0, 1),
			slotOf(x, 2, start, 2, 5, 1))
	}
	table.Merge(slots, start)
	if n := allocations(func(now int64) {
		for i := range slots {
			slots[i].Count++
		}
		if novel := table.Merge(slots, now); novel != len(slots) {
			t.Errorf("%d slots are novel, want %d", novel, len(slots))
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkTake(b *testing.B) {
	l := newLimit(b, counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), 1000)
	t := least(1)
	now := time.Now().UnixNano()
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		t.Take(l, 7, 1, now)
	}
}

func BenchmarkTakeParallel(b *testing.B) {
	l := newLimit(b, counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), 1000)
	t := least(1)
	now := time.Now().UnixNano()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for key := counters.Key(0); pb.Next(); key++ {
			t.Take(l, key%1024, 1, now)
		}
	})
}

func BenchmarkTakeAll(b *testing.B) {
	t := least(1)
	charges := []counters.Charge{
		{Limit: limitNamed(b, "a", 1000), Key: 1, Cost: 1},
		{Limit: limitNamed(b, "b", 1000), Key: 2, Cost: 1},
	}
	var ds []counters.Decision
	now := time.Now().UnixNano()
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		ds = t.TakeAll(charges, now, ds[:0])
	}
}

// One slot of one meter, which is found by its hash.
func BenchmarkMerge(b *testing.B) {
	l := newLimit(b, counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), 1000)
	t := least(1)
	slots := []counters.Slot{slotOf(l, 7, start, 2, 0, 1)}
	b.ReportAllocs()
	for b.Loop() {
		slots[0].Count++
		t.Merge(slots, start)
	}
}
