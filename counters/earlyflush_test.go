package counters_test

import (
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// signalled reports whether the table asks for something to be sent early, and takes note.
func signalled(table *counters.Table) bool {
	select {
	case <-table.EarlyFlush():
		return true
	default:
		return false
	}
}

// halfUsed returns a table with a limit of 100 of which it knows that half is used, and that told so.
func halfUsed(t *testing.T) (*counters.Table, *counters.Limit) {
	l := limitNamed(t, "r", 100)
	table := small(1)
	table.SetCluster(4, horizon)
	table.Know([]*counters.Limit{l})
	table.DrainDirty(after(-50 * time.Millisecond)) // so that there is a time over which they came
	for range 50 {
		table.Take(l, 1, 1, start)
	}
	table.DrainDirty(after(50 * time.Millisecond))
	signalled(table) // so many at once were urgent
	return table, l
}

// What is much of what is left is sent early, once: no drain sends it again unless it rose again.
func TestEarlyFlushSendsOnce(t *testing.T) {
	table, l := halfUsed(t)
	now := after(60 * time.Millisecond)
	if table.Take(l, 1, 1, now); signalled(table) {
		t.Error("one of 50 that five have left between them is urgent")
	}
	if table.Take(l, 1, 1, now); !signalled(table) { // 2 >= 48 / (8*5)
		t.Error("two of 49 that five have left between them are not urgent")
	}
	wantSlots(t, "early", table.DrainEarly(now).Slots, slotOf(l, 1, now, 1, 0, 52))
	wantSlots(t, "early, again", table.DrainEarly(now).Slots)
	wantSlots(t, "then", table.DrainDirty(after(100*time.Millisecond)).Slots)
	now = after(110 * time.Millisecond)
	table.Take(l, 1, 3, now)
	wantSlots(t, "early, when it rose", table.DrainEarly(now).Slots, slotOf(l, 1, now, 1, 0, 55))
	table.Take(l, 1, 1, now)
	wantSlots(
		t, "in time, when it rose once more", table.DrainDirty(after(200*time.Millisecond)).Slots,
		slotOf(l, 1, now, 1, 0, 56),
	)
	table.Take(l, 1, 3, now)
	wantSlots(t, "in time", table.DrainDirty(after(300*time.Millisecond)).Slots, slotOf(l, 1, now, 1, 0, 59))
	wantSlots(t, "early, when it was told in time", table.DrainEarly(now).Slots)
}

// Alone, there is nobody to tell early; and the requests of an offender that are thinned are expected.
func TestWhatIsNotUrgent(t *testing.T) {
	table, l := halfUsed(t)
	signalled(table)
	table.SetCluster(0, horizon)
	if table.Take(l, 1, 5, start); signalled(table) {
		t.Error("a table without peers has something to tell early")
	}
	wide := millionOf(t, counters.SlidingWindow)
	table = crowded(wide)
	if table.Take(wide, 1, 30e3, start); signalled(table) {
		t.Error("what is denied is told early")
	}
	for range 10 {
		if table.Take(wide, 1, 20e3, start); signalled(table) {
			t.Error("of an offender that is thinned something is told early")
		}
	}
	if table.View(wide, 1, start) == 960e3 {
		t.Error("nothing was admitted: this is no test")
	}
}

// A limit that says what may stay unsent keeps to it however little of it is used, and however long it was.
func TestMaxUnsentLasts(t *testing.T) {
	l := with(t, millionOf(t, counters.SlidingWindow), func(c *counters.LimitConfig) { c.MaxUnsent = 5 })
	table := clustered(1, l)
	for tenth := range time.Duration(30) {
		now := after(tenth * 100 * time.Millisecond)
		if table.Take(l, 1, 4, now); signalled(table) {
			t.Fatalf("after %v: 4 of 5 that may stay unsent are urgent", tenth*100*time.Millisecond)
		}
		if table.Take(l, 1, 1, now); !signalled(table) {
			t.Fatalf("after %v: 5 of 5 that may stay unsent are not urgent", tenth*100*time.Millisecond)
		}
		table.DrainDirty(now + 1)
	}
}

// Nothing is lost of a cell that goes before it is sent early.
func TestWhatIsUrgentOutlivesItsCell(t *testing.T) {
	table, l := halfUsed(t)
	now := after(60 * time.Millisecond)
	table.Take(l, 1, 3, now)
	sent := newCrowd(t).pushOut(t, table, l, 1, now)
	if early := of(l, table.DrainEarly(now).Slots); len(early) != 0 {
		t.Errorf("of a cell that went %v are told early", early)
	}
	sent = append(sent, of(l, table.DrainDirty(now).Slots)...)
	if len(sent) == 0 || sent[len(sent)-1].Count != 53 {
		t.Errorf("%v were told, want 53", sent)
	}
}

// Nobody has to listen: many keys may be urgent, and none waits.
func TestNobodyWaitsForWhoTells(t *testing.T) {
	l := limitNamed(t, "r", 10)
	table := clustered(1, l)
	const keys = 1000
	for key := range counters.Key(keys) {
		table.Take(l, key, 6, start)
	}
	table.DrainDirty(after(time.Millisecond))
	for key := range counters.Key(keys) {
		table.Take(l, key, 3, after(2*time.Millisecond))
	}
	if !signalled(table) || signalled(table) {
		t.Error("many urgent keys are no one signal")
	}
	if sent := table.DrainEarly(after(3 * time.Millisecond)).Slots; len(sent) != keys {
		t.Errorf("%d of %d keys are told early", len(sent), keys)
	}
}

// All that happens to a table at once: what is drained early and in time tells each count once, and the last of them is
// what was admitted.
func TestConcurrentUrgency(t *testing.T) {
	const keys = 4
	l := limitNamed(t, "r", 4000)
	table := clustered(3, l)
	last := make(map[counters.Key]uint64)
	note := func(slots []counters.Slot) {
		for _, s := range slots {
			if s.Count < last[s.Key] || s.Count == last[s.Key] && s.Demand == 0 {
				t.Errorf("key %d: drained %d after %d", s.Key, s.Count, last[s.Key])
			}
			last[s.Key] = s.Count
		}
	}
	var takers, others sync.WaitGroup
	stop := make(chan struct{})
	for range goroutines {
		takers.Go(func() {
			for i := range 3000 {
				table.Take(l, counters.Key(i%keys), 1, after(time.Duration(i)*time.Microsecond))
			}
		})
	}
	disturb := func(f func(i int)) {
		others.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					f(i)
				}
			}
		})
	}
	disturb(func(i int) { table.SetCluster(3+i%2, horizon+time.Duration(i%3)*time.Millisecond) })
	disturb(func(i int) { table.SetWatermark(counters.Origin(2+i%3), after(time.Duration(i%3000)*time.Microsecond)) })
	disturb(func(i int) {
		table.Merge(
			[]counters.Slot{sentWith(l, counters.Key(i%keys), start, counters.Origin(2+i%3), 1, float32(i%1000))},
			start)
	})
	disturb(func(i int) { // one drains, as the cluster does
		note(table.DrainEarly(after(3 * time.Millisecond)).Slots)
		note(table.DrainDirty(after(3*time.Millisecond + time.Duration(i))).Slots)
	})
	takers.Wait()
	close(stop)
	others.Wait()
	note(table.DrainEarly(after(4 * time.Millisecond)).Slots)
	note(table.DrainDirty(after(4 * time.Millisecond)).Slots)
	for key := range counters.Key(keys) {
		var own uint64
		for _, s := range table.Own(after(4 * time.Millisecond)) {
			if s.Key == key {
				own = s.Count
			}
		}
		if own == 0 || last[key] != own {
			t.Errorf("key %d: %d were told in the end, of %d", key, last[key], own)
		}
	}
}

// An owner flushes early for the other regions when its own counted a tenth of its share of what is left, for its
// members when anybody counted a sixteenth of what is left (what other regions count is no news to them), and for
// somebody who asks for the first time when half of the limit is used.
func TestOwnersFlushEarly(t *testing.T) {
	l := limitNamed(t, "r", 1000)
	near := func(count uint64) counters.Slot {
		s := sentBy(7, slotOf(l, 1, start, 7, 0, count))
		s.Place = counters.Near
		return s
	}
	far := func(count uint64) counters.Slot { return summed(l, 1, counters.Far(0).Sum(), count, start) }
	for _, test := range []struct {
		name   string
		slot   func(count uint64) counters.Slot
		before uint64 // counted by another region, and passed on
		asked  uint64 // what the slot had counted before that
		count  uint64 // what it counts beyond that
		want   bool
	}{
		{"just below a tenth of a region's share, here", near, 499, 1, 16, false}, // 16 < 484 / (10*3)
		{"a tenth of a region's share, here", near, 499, 1, 17, true},
		{"a tenth of a region's share, elsewhere", far, 499, 1, 17, false},
		{"just below a sixteenth, elsewhere", far, 499, 1, 29, false}, // 29 < 471 / 16
		{"a sixteenth, elsewhere", far, 499, 1, 30, true},
		{"a tenth of a region's share of all, here", near, 0, 1, 33, true},
		{"a tenth of a region's share of all, elsewhere", far, 0, 1, 33, false},
		{"nothing is left", near, 999, 1, 17, false},
		{"a node that did not ask before, half is used", near, 499, 0, 1, true},
		{"a node that did not ask before, less is used", near, 498, 0, 1, false},
		{"a node that did not ask before, nothing is left", near, 1000, 0, 1, true},
		{"a region that did not ask before, nothing is left", far, 1000, 0, 1, true},
	} {
		table := ofThree(l, 50, 50, 50)
		if test.before > 0 {
			table.Merge([]counters.Slot{summed(l, 1, counters.Far(1).Sum(), test.before, start)}, start)
		}
		if test.asked > 0 {
			table.Merge([]counters.Slot{test.slot(test.asked)}, start)
		}
		table.DrainDirty(start)
		signalled(table)
		table.Merge([]counters.Slot{test.slot(test.asked + test.count)}, start)
		if got := signalled(table); got != test.want {
			t.Errorf("%s: flushed early %v, want %v", test.name, got, test.want)
		}
	}
}
