package counters_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

func TestClockJumpsForward(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	for _, jump := range []time.Duration{11 * time.Second, 12 * time.Second, 13 * time.Second, 5 * time.Hour,
		24 * 365 * time.Hour} {
		table := small(1)
		table.Take(l, 1, 5, start)
		table.Merge([]counters.Slot{slotOf(l, 1, start, 2, 0, 50)}, start)
		now := after(jump)
		if view := table.View(l, 1, now); view != 0 {
			t.Errorf("%v later the view is %d", jump, view)
		}
		if d := table.Take(l, 1, 5, now); !d.Allowed || d.Remaining != 0 || d.ResetAfter != 11*time.Second {
			t.Errorf("%v later: %+v", jump, d)
		}
		if novel := table.Merge([]counters.Slot{slotOf(l, 1, now, 2, 0, 1)}, now); novel != 1 {
			t.Errorf("%v later: a peer's count is no news", jump)
		}
		wantSlots(t, "to tell", table.DrainDirty(now).Slots, slotOf(l, 1, now, 1, 0, 5))
	}
}

// A cell stays at its time where the clock goes back by no more than the window: its counts stay, and are sent.
func TestClockStepsBackALittle(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	for _, back := range []time.Duration{1, time.Second, 4500 * time.Millisecond, 9 * time.Second, 10 * time.Second} {
		table := small(1)
		table.Take(l, 1, 3, start)
		now := after(-back)
		if d := table.Take(l, 1, 2, now); !d.Allowed || d.Remaining != 0 || d.ResetAfter != 11*time.Second+back {
			t.Errorf("%v back: %+v, want what is left admitted", back, d)
		}
		if view := table.View(l, 1, now); view != 5 {
			t.Errorf("%v back: view %d, want 5", back, view)
		}
		wantSlots(t, "to tell", table.DrainDirty(now).Slots, slotOf(l, 1, start, 1, 0, 5))
		if novel := table.Merge([]counters.Slot{slotOf(l, 1, now, 2, 0, 1)}, now); novel != 1 {
			t.Errorf("%v back: a peer's count is no news", back)
		}
		if st := table.Stats(); st.Keys != 1 || st.Refused != 0 {
			t.Errorf("%v back: %+v", back, st)
		}
	}
}

// What is counted then is of the cell's time, which is not used up when the clock gets to where the window of that
// request would end.
func TestCountsOfAClockThatSteppedBackDoNotExpireEarly(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	table := small(1)
	table.Take(l, 1, 1, start)
	table.Snapshot(after(9*time.Second), 10) // only a look brought the cell to this time
	table.Take(l, 1, 3, start)
	for second := 9; second < 20; second++ {
		now := after(time.Duration(second) * time.Second)
		sweep(table, now)
		want := uint64(3)
		switch { // one begins to leave after 10 s, and three after 19 s
		case second < 10:
			want = 4
		case second == 19:
			want = 2
		}
		if view := table.View(l, 1, now); view != want {
			t.Errorf("after %d s: view %d, want %d", second, view, want)
		}
	}
	sweep(table, after(21*time.Second))
	if st := table.Stats(); st.Keys != 0 {
		t.Errorf("%+v, want it expired at last", st)
	}
}

// The wait that is returned where the clock went back is the wait by that clock.
func TestRetryAfterWhereTheClockSteppedBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, table := drawLimit(t), small(1)
		now := drawHistory(t, table, l) - rapid.Int64Range(0, int64(l.Meter().Window)).Draw(t, "back")
		cost := rapid.Uint64Range(1, l.Max()).Draw(t, "cost")
		d := table.Take(l, 1, cost, now)
		if !d.Allowed {
			if d.RetryAfter <= 0 {
				t.Fatalf("denied without a wait: %+v", d)
			}
			then := now + int64(d.RetryAfter)
			if early := table.Take(l, 1, cost, then-1); early.Allowed {
				t.Fatalf("a nanosecond before %v: %+v", d.RetryAfter, early)
			}
			if d = table.Take(l, 1, cost, then); !d.Allowed {
				t.Fatalf("in time: %+v", d)
			}
			now = then
		}
		reset := now + int64(d.ResetAfter)
		if view := table.View(l, 1, reset-1); view == 0 {
			t.Fatalf("a nanosecond before %v nothing counts any more", d.ResetAfter)
		}
		if view := table.View(l, 1, reset); view != 0 {
			t.Fatalf("after %v the view is %d", d.ResetAfter, view)
		}
	})
}

// Where the clock goes back by more than the window, the cell is replaced: what it held belongs to no time that will
// come soon. It is born again, so that a peer loses nothing, also when the clock returns.
func TestClockGoesBackByMoreThanTheWindow(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	for _, back := range []time.Duration{11 * time.Second, time.Hour, 365 * 24 * time.Hour} {
		table, sent := small(1), make(sentCounts)
		table.Take(l, 1, 5, start)
		table.Merge([]counters.Slot{slotOf(l, 1, start, 2, 0, 9)}, start)
		now := after(-back)
		if d := table.Take(l, 1, 4, now); !d.Allowed || d.Remaining != 1 || d.ResetAfter != 11*time.Second {
			t.Errorf("%v back: %+v", back, d)
		}
		if novel := table.Merge([]counters.Slot{slotOf(l, 1, now, 2, 0, 1)}, now); novel != 1 ||
			table.View(l, 1, now) != 5 {
			t.Errorf("%v back: a peer's count is no news, or the view is not 5 but %d", back, table.View(l, 1, now))
		}
		if d := table.Take(l, 1, 1, now); d.Allowed {
			t.Errorf("%v back: %+v, want the limit kept", back, d)
		}
		if st := table.Stats(); st.Keys != 1 {
			t.Errorf("%v back: %+v", back, st)
		}
		if novel := table.Merge([]counters.Slot{slotOf(l, 1, start, 3, 0, 1)}, now); novel != 0 ||
			table.Stats().Refused != 1 {
			t.Errorf("%v back: what is now the future is not refused", back)
		}
		sent.note(t, l, table.DrainDirty(now).Slots)
		if d := table.Take(l, 1, 3, start); !d.Allowed {
			t.Errorf("the clock has returned: %+v", d)
		}
		sent.note(t, l, table.DrainDirty(start).Slots)
		if got := sent.sum(1); got != 5+4+3 {
			t.Errorf("%v back: told %d, want the 12 that were admitted", back, got)
		}
	}
}

// A merge alone meets the clock as a request does.
func TestMergeWhereTheClockWentBack(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	table := small(1)
	table.Merge([]counters.Slot{slotOf(l, 1, start, 2, 0, 9)}, start)
	now := after(-time.Hour)
	if novel := table.Merge([]counters.Slot{slotOf(l, 1, now, 2, 0, 2)}, now); novel != 1 ||
		table.View(l, 1, now) != 2 {
		t.Errorf("%d are novel, view %d, want 1 and 2", novel, table.View(l, 1, now))
	}
	if slots := table.Snapshot(now, 10); len(slots) != 1 || slots[0].Count != 2 {
		t.Errorf("snapshot %+v", slots)
	}
	// The cell of another key is of a time to come, and is left out until it comes.
	table.Merge([]counters.Slot{slotOf(l, 7, start, 2, 0, 3)}, start)
	if slots := table.Snapshot(now, 10); len(slots) != 1 || slots[0].Key != 1 {
		t.Errorf("snapshot %+v, want what counts now", slots)
	}
	if slots := table.Snapshot(start, 10); len(slots) != 1 || slots[0].Key != 7 {
		t.Errorf("snapshot %+v, want what counts then", slots)
	}
}

// A cell that a merge replaces has sent its counts under its birth: its successor has another, also when the clock
// returns.
func TestACellThatAMergeReplacesIsBornAgain(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	table, sent := small(1), make(sentCounts)
	table.Take(l, 1, 5, start)
	sent.note(t, l, table.DrainDirty(start).Slots)
	ago := after(-time.Hour)
	table.Merge([]counters.Slot{slotOf(l, 1, ago, 2, 0, 1)}, ago)
	if d := table.Take(l, 1, 3, start); !d.Allowed {
		t.Fatalf("the clock has returned: %+v", d)
	}
	sent.note(t, l, table.DrainDirty(start).Slots)
	if got := sent.sum(1); got != 5+3 {
		t.Errorf("told %d, want the 8 that were admitted", got)
	}
}

// A cell that replaced another because the clock went back does not know what that one received. Peers send sums, and
// only what rose since the last time is as late as they say: it debits a bucket as if all of it came early.
func TestACellOfAClockThatWentBackBelievesNoSince(t *testing.T) {
	l := newLimit(t, counters.NewMeter("r", counters.TokenBucket, time.Hour), 10)
	late := after(50 * time.Minute)
	for name, c := range map[string]struct {
		back func(table *counters.Table, ago int64)
		want uint64
	}{
		// five taken at :05 have come back at :50, the sixth was taken just now
		"no step back": {func(*counters.Table, int64) {}, 1},
		"a request":    {func(table *counters.Table, ago int64) { table.Take(l, 1, 1, ago) }, 0},
		"layers": {func(table *counters.Table, ago int64) {
			table.TakeAll([]counters.Charge{{Limit: l, Key: 1, Cost: 1}}, ago, nil)
		}, 0},
		"a merge": {func(table *counters.Table, ago int64) {
			table.Merge([]counters.Slot{slotOf(l, 1, ago, 2, 0, 1)}, ago)
		}, 0},
	} {
		table := small(1)
		table.Know([]*counters.Limit{l})
		slot := slotOf(l, 1, start, 2, 0, 5)
		slot.CompleteThrough = after(5 * time.Minute)
		table.Merge([]counters.Slot{slot}, slot.CompleteThrough)
		c.back(table, after(-3*time.Hour))
		slot.Count, slot.CompleteThrough = 6, late
		table.Merge([]counters.Slot{slot}, late)
		if view := table.View(l, 1, late); view != c.want {
			t.Errorf("%s three hours ago: view %d, want %d of the 1 that is owed", name, view, c.want)
		}
	}
}

// Under any clock: no panic, nothing admitted beyond what the view leaves, and no view of more than was ever admitted.
func TestAnyClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		table := small(1)
		window := int64(l.Meter().Window)
		clock := rapid.OneOf(rapid.Int64Range(-2*window, 2*window).Filter(func(d int64) bool { return start+d >= 0 }),
			rapid.SampledFrom([]int64{-start, 1 - start, window - start, 0, int64(100 * 365 * 24 * time.Hour)}))
		admitted := make(map[counters.Key]uint64)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now := start + clock.Draw(t, "clock")
			key := counters.Key(rapid.Uint64Range(0, 100).Draw(t, "key"))
			cost := rapid.Uint64Range(0, l.Max()).Draw(t, "cost")
			d := table.Take(l, key, cost, now)
			if d.Allowed {
				admitted[key] += cost
			}
			view := table.View(l, key, now)
			if d.Allowed && view > l.Max() || view > admitted[key] {
				t.Fatalf("view %d of %d ever admitted, %+v", view, admitted[key], d)
			}
			if d.Remaining != l.Max()-min(l.Max(), view) || (d.RetryAfter > 0) == d.Allowed {
				t.Fatalf("view %d, %+v", view, d)
			}
			if rapid.IntRange(0, 5).Draw(t, "drain") == 0 {
				table.DrainDirty(now)
				table.Snapshot(now, 5)
			}
		}
	})
}

// A client that asks all the time, while the clock jumps once: whatever the jump, it gets at most twice the limit in
// any window of real time, beside what the algorithm admits too much by itself.
func TestAClockThatJumpsOnceCostsALimit(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	for _, jump := range []time.Duration{0, time.Second, -time.Second, 7 * time.Second, -7 * time.Second,
		-10 * time.Second, -11 * time.Second,
		time.Hour, -time.Hour} {
		for _, at := range []time.Duration{12 * time.Second, 15500 * time.Millisecond} {
			table := small(1)
			var log oracle.Rolling
			for real := time.Duration(0); real < 40*time.Second; real += 50 * time.Millisecond {
				now := after(real)
				if real >= at {
					now += int64(jump)
				}
				if table.Take(l, 1, 5, now).Allowed {
					log.Add(after(real), 5)
				}
			}
			largest := 2 * l.Max()
			if jump <= 0 && jump >= -10*time.Second {
				largest = l.Max() // the cell stays, and with it its counts
			}
			largest += l.Max() / 10
			if peak := log.Peak(10 * time.Second); peak > largest || peak < l.Max() {
				t.Errorf("a jump by %v after %v: %d in a window, at most %d are allowed", jump, at, peak, largest)
			}
		}
	}
}
