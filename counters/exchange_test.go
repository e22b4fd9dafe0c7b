package counters_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// Two tables that tell each other what they drain, in whatever order, once or more, agree in the end with each other
// and with a model that saw all requests; before that, neither has ever seen more than the model.
func TestTablesThatExchangeDrainsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawShared(t, counters.SlidingWindow, counters.FixedWindow)
		tables := [2]*counters.Table{small(1), small(2)}
		truth := oracle.NewModel(l)
		var sent [2][][]counters.Slot // by whom they are to be heard
		now := start
		drain := func(from int) { sent[1-from] = append(sent[1-from], tables[from].DrainDirty(now).Slots) }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause")
			who := rapid.IntRange(0, 1).Draw(t, "who")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				drain(who)
			case 1:
				if len(sent[who]) > 0 {
					tables[who].Merge(rapid.SampledFrom(sent[who]).Draw(t, "heard"), now)
				}
			default:
				key, cost := counters.Key(rapid.Uint64Range(0, 2).Draw(t, "key")), rapid.Uint64Range(0, 4).
					Draw(t, "cost")
				if tables[who].Take(l, key, cost, now).Allowed {
					truth.Add(key, l.Meter().Index(now), cost)
				}
			}
			for key := range counters.Key(3) {
				if view, largest := tables[who].View(l, key, now), truth.View(key, now); view > largest {
					t.Fatalf("table %d believes in %d of key %d, of which there are %d", who, view, key, largest)
				}
			}
		}
		drain(0)
		drain(1)
		for who := range tables {
			for _, slots := range rapid.Permutation(sent[who]).Draw(t, "heard at last") {
				tables[who].Merge(slots, now)
			}
			for key := range counters.Key(3) {
				if got, want := tables[who].View(l, key, now), truth.View(key, now); got != want {
					t.Fatalf("in the end table %d believes in %d of key %d, of which there are %d", who, got, key, want)
				}
			}
		}
		wantSlots(t, "snapshot of the other", tables[0].Snapshot(now, 1000), tables[1].Snapshot(now, 1000)...)
	})
}

// Of what is counted by sub-windows a snapshot is all that a newcomer needs: it decides as the one that it heard it
// from, and so does one that heard it from the newcomer.
func TestSnapshotMakesANewcomerEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, table := drawLimit(t, counters.SlidingWindow, counters.FixedWindow), small(1)
		now := drawHistory(t, table, l)
		source := table
		for origin := range counters.Origin(2) {
			newcomer := small(100 + origin)
			newcomer.Merge(source.Snapshot(now, 1000), now)
			source = newcomer
		}
		for range 5 {
			now += rapid.Int64Range(0, 3*int64(l.Meter().Sub)).Draw(t, "pause")
			if a, b := table.Take(l, 1, 0, now), source.Take(l, 1, 0, now); a != b {
				t.Fatalf("%+v, the newcomer says %+v", a, b)
			}
		}
	})
}

// What a peer sends a table of its own counts, the table knows better.
func TestOwnSlotsFromAPeerChangeNothing(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	table := small(9)
	table.Take(l, 1, 3, start)
	table.DrainDirty(start)
	echo := []counters.Slot{
		slotOf(l, 1, start, 9, 0,
			50), slotOf(l, 1, start, 9, 7, 50), slotOf(l, 2, start, 9, 0, 50), slotOf(l, 1, start, 0, 0, 50),
	}
	if novel := table.Merge(echo, start); novel != 0 {
		t.Errorf("%d slots are novel, want 0", novel)
	}
	wantSlots(t, "snapshot", table.Snapshot(start, 100), slotOf(l, 1, start, 9, 0, 3))
	wantSlots(t, "to tell", table.DrainDirty(start).Slots)
	if st := table.Stats(); st.Keys != 1 || st.Refused != 0 {
		t.Errorf("%+v, want one cell, and nothing refused", st)
	}
}

// What comes from others is not sent as the table's own.
func TestOwnLeavesOutOthers(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	table := small(9)
	table.Take(l, 1, 3, start)
	table.Take(l, 1, 4, after(2*time.Second))
	table.Merge([]counters.Slot{slotOf(l, 1, start, 2, 0, 50), slotOf(l, 2, start, 2, 0, 50)}, after(2*time.Second))
	own := []counters.Slot{slotOf(l, 1, start, 9, 0, 3), slotOf(l, 1, after(2*time.Second), 9, 0, 4)}
	wantSlots(t, "own", table.Own(after(2*time.Second)), own...)
	wantSlots(t, "own, not only once", table.Own(after(10*time.Second)), own...)
	wantSlots(t, "own, when some has passed", table.Own(after(11*time.Second)), own[1])
	wantSlots(t, "own, when all has passed", table.Own(after(13*time.Second)))
}

// At its cap a snapshot holds the keys that count most, whole, and leaves out the others.
func TestSnapshotIsCappedHottestFirst(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 1000)
	table := small(9)
	for key := range counters.Key(20) {
		table.Take(l, key, 1+7*uint64(key)%20, start) // all different: 1 to 20
		table.Merge([]counters.Slot{slotOf(l, key, start, 2, 0, 100)}, start)
	}
	table.Merge([]counters.Slot{slotOf(l, 99, after(time.Second), 2, 0, 1e6)}, start) // counts nothing yet
	now := after(500 * time.Millisecond)
	if got := len(table.Snapshot(now, 41)); got != 41 {
		t.Errorf("%d slots where 41 may be, want all 41", got)
	}
	for limit := range 41 {
		slots := table.Snapshot(now, limit)
		if len(slots) != limit/2*2 {
			t.Errorf("%d slots where %d may be: keys are whole, of two slots each", len(slots), limit)
		}
		for i, s := range slots {
			if want := uint64(20 - i/2); 1+7*uint64(s.Key)%20 != want {
				t.Errorf("at place %d of %d stands a key with %d, want %d", i, limit, 1+7*uint64(s.Key)%20, want)
			}
		}
	}
}

// Slots from the future beyond the next sub-window are refused and counted; those of the past are late, and no offence.
func TestMergeRefusesTheFuture(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	table := small(9)
	now := after(time.Second - 1)
	for _, c := range []struct {
		at      time.Duration
		novel   int
		refused uint64
	}{
		{-10 * time.Second, 1, 0}, {-10*time.Second - 1, 0, 0}, {-time.Hour, 0, 0},
		{0, 1, 0}, {time.Second, 1, 0}, {2 * time.Second, 0, 1}, {time.Hour, 0, 2},
	} {
		if novel := table.Merge([]counters.Slot{slotOf(l, 1, after(c.at), 2, 0, 1)}, now); novel != c.novel {
			t.Errorf("a slot of %v: %d are novel, want %d", c.at, novel, c.novel)
		}
		if refused := table.Stats().Refused; refused != c.refused {
			t.Errorf("a slot of %v: %d refused so far, want %d", c.at, refused, c.refused)
		}
	}
	if view := table.View(l, 1, now); view != 1 {
		t.Errorf("view = %d, want 1: one is leaving, the one of the next sub-window is not seen yet", view)
	}
	if view := table.View(l, 1, now+1); view != 2 {
		t.Errorf("view = %d, want 2: one came, one has left", view)
	}
}

// An empty count is not worth a cell, nor a row.
func TestMergeOfNothing(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	table := small(9)
	empty := table.Stats()
	if novel := table.Merge([]counters.Slot{slotOf(l, 1, start, 2, 0, 0)}, start); novel != 0 ||
		table.Stats() != empty {
		t.Errorf("a count of 0: %d are novel, %+v", novel, table.Stats())
	}
	if novel := table.Merge(nil, start); novel != 0 {
		t.Errorf("no slots: %d are novel", novel)
	}
}
