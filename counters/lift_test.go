package counters_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// liftOf is the slot of a lift of the bans up to a time.
func liftOf(l *counters.Limit, key counters.Key, at int64, origin counters.Origin) counters.Slot {
	m := *l.BanMeter()
	m.Algorithm = counters.Lifts
	millis := (at + int64(time.Millisecond) - 1) / int64(time.Millisecond)
	return counters.Slot{Meter: &m, Key: key, Index: m.Index(at), Origin: origin, Count: uint64(millis)}
}

func isBanned(table *counters.Table, l *counters.Limit, key counters.Key, now int64) bool {
	return table.Take(l, key, 0, now).Banned
}

// lift lifts the bans of a key, and holds that there was room to remember it.
func lift(t testing.TB, table *counters.Table, l *counters.Limit, key counters.Key, now int64) (left time.Duration) {
	t.Helper()
	left, kept := counters.LiftBanOf(table, l, key, now)
	if !kept {
		t.Fatal("the lift was not kept")
	}
	return left
}

// A lift ends the ban of its key alone, leaves the counts, and does not keep the next denial from beginning another
// ban.
func TestLift(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			l, table := banning(t, "r", a), small(1)
			provoke(t, table, l, 1, start)
			other := provoke(t, table, l, 2, start)
			now := after(time.Second)
			if left := lift(t, table, l, 1, now); left != 29*time.Second {
				t.Errorf("the ban was to last %v more", left)
			}
			if left := lift(t, table, l, 1, now+1); left != 0 {
				t.Errorf("lifted already, it was to last %v more", left)
			}
			d := table.Take(l, 1, 0, now)
			if d.Banned || d.RetryAfter > 10*time.Second || table.View(l, 1, now) == 0 {
				t.Errorf("after the lift: %+v", d)
			}
			wantBan(t, table, l, 2, now, other)
			now = after(11 * time.Second)
			if d := table.Take(l, 1, 1, now); !d.Allowed {
				t.Errorf("after the window: %+v", d)
			}
			if until := provoke(t, table, l, 1, now); until != now+int64(30*time.Second) ||
				!isBanned(table, l, 1, now+1) {
				t.Errorf("denied after the lift: the ban lasts %v", time.Duration(until-now))
			}
		})
	}
}

// What is denied in the millisecond of a lift is no ban, and is not said to be one.
func TestADenialAtTheMomentOfALift(t *testing.T) {
	l, table := banning(t, "r", counters.SlidingWindow), small(1)
	provoke(t, table, l, 1, start)
	lift(t, table, l, 1, start)
	if d := table.Take(l, 1, 1, start); d.Allowed || d.Banned || d.RetryAfter > 11*time.Second {
		t.Errorf("%+v", d)
	}
}

// A lift is replicated as a slot of a meter of its own: once, and to whoever needs all that counts.
func TestALiftIsReplicated(t *testing.T) {
	l, table := banning(t, "r", counters.SlidingWindow), small(1)
	until := provoke(t, table, l, 1, start)
	table.DrainDirty(start)
	lift(t, table, l, 1, start)
	want := liftOf(l, 1, start, 1)
	wantSlots(t, "sent", table.DrainDirty(start).Slots, want)
	if again := table.DrainDirty(start).Slots; len(again) > 0 {
		t.Errorf("sent again: %+v", again)
	}
	wantSlots(
		t, "in a snapshot", table.Snapshot(start, 100), slotOf(l, 1, start, 1, 0, 3), banOf(l, 1, start, 1, until),
		want,
	)
	newcomer := small(2)
	newcomer.Merge(table.Snapshot(start, 100), start)
	if isBanned(newcomer, l, 1, start) {
		t.Error("a newcomer bans it")
	}
}

// A lift counts before the ban that it lifts has come, and when that comes again; not for a ban that began later.
func TestALiftNeedsNoOrder(t *testing.T) {
	l := banning(t, "r", counters.TokenBucket)
	lifted := liftOf(l, 1, after(5*time.Second), 7)
	old, later := banOf(l, 1, start, 8,
		after(30*time.Second)), banOf(l, 1, after(6*time.Second), 8, after(36*time.Second))
	now := after(7 * time.Second)
	for _, slots := range [][]counters.Slot{{lifted, old}, {old, lifted}, {lifted, old, old, lifted, old}} {
		table := small(1)
		for _, s := range slots {
			table.Merge([]counters.Slot{s}, now)
		}
		if isBanned(table, l, 1, now) {
			t.Errorf("banned after %+v", slots)
		}
		table.Merge([]counters.Slot{later, lifted}, now)
		wantBan(t, table, l, 1, now, after(36*time.Second))
	}
}

// A ban that began by a clock that is ahead is lifted too, where the table that lifts has it.
func TestALiftOfABanOfAClockThatIsAhead(t *testing.T) {
	l, table := banning(t, "r", counters.SlidingWindow), small(1)
	table.Merge([]counters.Slot{banOf(l, 1, after(2*time.Second), 7, after(32*time.Second))}, start)
	lift(t, table, l, 1, start)
	for _, at := range []time.Duration{0, time.Second, 3 * time.Second, 31 * time.Second} {
		if isBanned(table, l, 1, after(at)) {
			t.Errorf("banned after %v", at)
		}
	}
}

// A ban of a time that the clock stepped back from by more than a ban is of no use, and a lift does not reach up to it:
// peers would take that for a forged one.
func TestALiftAfterTheClockSteppedBack(t *testing.T) {
	l, table, peer := banning(t, "r", counters.SlidingWindow), small(1), small(2)
	provoke(t, table, l, 1, after(time.Hour))
	lift(t, table, l, 1, start)
	slots := table.DrainDirty(start).Slots
	if peer.Merge(slots, start); len(slots) == 0 || peer.Stats().Implausible != 0 {
		t.Errorf("of %v, %d are implausible", slots, peer.Stats().Implausible)
	}
}

// A lift stays as long as a ban that it lifts could, and no longer.
func TestALiftLastsAsLongAsItsBans(t *testing.T) {
	lasts := 30 * time.Second
	l := banning(t, "r", counters.SlidingWindow)
	for into := time.Duration(0); into < lasts; into += lasts / 7 {
		now := start - start%int64(lasts) + int64(into)
		ban := banOf(l, 1, now, 8, now+int64(lasts)) // the last one that it lifts
		for wait := time.Duration(0); wait < lasts; wait += lasts / 9 {
			table := small(1)
			lift(t, table, l, 1, now)
			at := now + int64(wait)
			sweep(table, at)
			if table.Merge([]counters.Slot{ban}, at); isBanned(table, l, 1, at) {
				t.Errorf("%v into a sub-window: the lift is forgotten %v later", into, wait)
			}
			if sweep(table, now+int64(2*lasts)); table.Stats().Keys != 0 {
				t.Errorf("%v into a sub-window: it is kept for longer than two bans: %+v", into, table.Stats())
			}
		}
	}
}

// A lift of a clock that is ahead, and a ban that goes over it, stay until they end, though they leave the window
// before.
func TestALiftOfAClockThatIsAheadLasts(t *testing.T) {
	lasts := 30 * time.Second
	b := manually(t, "r", "", lasts)
	m := b.Meter()
	m.Algorithm = counters.Lifts
	begin := start - start%int64(lasts)
	lifted, now := begin+2*int64(lasts), begin+5*int64(lasts)/2
	slot := counters.Slot{Meter: &m, Key: 1, Index: m.Index(begin), Origin: 7, Count: uint64(lifted / 1e6)}

	table := small(1)
	table.Merge([]counters.Slot{slot}, begin)
	until, _ := table.Ban(b, 1, begin)
	if sweep(table, now); until <= now || table.BanEnds(b, 1, now) != until {
		t.Error("the ban is forgotten")
	}

	table = small(1)
	table.Merge([]counters.Slot{slot}, begin)
	sweep(table, now)
	slot.Index += 2
	slot.Count += uint64(lasts / 1e6)
	m = b.Meter() // of the last ban that it lifts
	if table.Merge([]counters.Slot{slot}, now); table.BanEnds(b, 1, now) != 0 {
		t.Error("the lift is forgotten")
	}
}

// Bans and lifts of several tables, exchanged in any order, late, twice or by snapshots only, come to the same
// everywhere: what a history of plain times says.
func TestTablesAgreeOnBansAndLifts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := penalized(t, newLimit(rt, counters.NewMeter("r", counters.FixedWindow, time.Second), 1), true, false,
			10*time.Second)
		tables := []*counters.Table{small(1), small(2), small(3)}
		var sent []counters.Slot
		var began, lifted int64 // the latest
		now := start
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now += rapid.Int64Range(1, 400).Draw(rt, "pause") * int64(time.Millisecond)
			table := tables[rapid.IntRange(0, 2).Draw(rt, "table")]
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0:
				if _, kept := counters.LiftBanOf(table, l, 1, now); !kept {
					rt.Fatal("a lift is not kept")
				}
				lifted = now
			case 1, 2:
				for range 2 {
					if d := table.Take(l, 1, 1, now); !d.Allowed && !d.Banned && d.RetryAfter > time.Second {
						began = now
					}
				}
			case 3:
				sent = append(sent, table.DrainDirty(now).Slots...)
			case 4:
				if len(sent) > 0 {
					table.Merge([]counters.Slot{rapid.SampledFrom(sent).Draw(rt, "slot")}, now)
				}
			}
		}
		for _, table := range tables {
			sent = append(sent, table.Snapshot(now, 1000)...)
		}
		for i, table := range tables {
			for _, s := range rapid.Permutation(sent).Draw(rt, "order") {
				table.Merge([]counters.Slot{s}, now)
			}
			want := began > lifted && began+int64(10*time.Second) > now
			if got := isBanned(table, l, 1, now); got != want {
				rt.Fatalf("table %d: banned %v, want %v: the last ban began %v ago, the last lift %v ago", i, got, want,
					time.Duration(now-began), time.Duration(now-lifted))
			}
		}
	})
}

// Lifts of times to come are refused as bans are; a table that doubts its peers believes its own lifts alone.
func TestLiftsBeyondBelief(t *testing.T) {
	l := banning(t, "r", counters.SlidingWindow)
	table := small(1)
	until := provoke(t, table, l, 1, start)
	lie := liftOf(l, 1, start, 7)
	lie.Count = counters.MaxCount
	table.Merge([]counters.Slot{lie}, start)
	if st := table.Stats(); st.Implausible != 1 {
		t.Errorf("%+v", st)
	}
	table.Merge([]counters.Slot{liftOf(l, 1, start, 8)}, start)
	wantBan(t, table, l, 1, start, until)
	lift(t, table, l, 1, start)
	if isBanned(table, l, 1, start) {
		t.Error("it does not believe its own lift")
	}
	for _, index := range []int64{2, 3} {
		future := liftOf(l, 2, start, 7)
		if future.Index += index; table.Merge([]counters.Slot{future}, start) != 0 {
			t.Errorf("a lift %d sub-windows ahead is taken", index)
		}
	}
}

// Lifts stay while anything else can go, also those that only another table knows of stay beside counts that nobody
// asks for.
func TestLiftsAreEvictedLast(t *testing.T) {
	l, flood, table := banning(t, "r", counters.SlidingWindow), filler(t), small(1)
	const keys = 50
	for key := range counters.Key(keys) {
		provoke(t, table, l, key, start)
		lift(t, table, l, key, start)
	}
	now := after(20 * time.Second)
	for key := range 4 * fill(t, small(2), flood, 0, start) {
		now++
		table.Take(flood, key, 1, now)
	}
	for key := range counters.Key(keys) {
		if isBanned(table, l, key, now) {
			t.Errorf("the lift of key %d is forgotten", key)
		}
	}
	if st := table.Stats(); st.Evicted == 0 || st.Forgotten > st.Evicted {
		t.Errorf("%+v: want plenty evicted, of a count of one each", st)
	}
}

// A lift is of its ban's scope.
func TestLiftsHaveTheScopeOfTheirLimit(t *testing.T) {
	l := banning(t, "r", counters.SlidingWindow)
	for _, scope := range []counters.Scope{counters.Global, counters.Region, counters.Alone} {
		here := scoped(t, l, scope, "eu")
		table := counters.NewTable(counters.Config{Origin: 1, Region: "eu", Memory: counters.MinMemory})
		provoke(t, table, here, 1, start)
		lift(t, table, here, 1, start)
		if isBanned(table, here, 1, start) {
			t.Errorf("%v: not lifted", scope)
		}
		rules := func(s counters.Slot) bool {
			return s.Meter.Algorithm == counters.Lifts && s.Meter.Rule == here.Meter().Rule
		}
		if got, want := slices.ContainsFunc(table.DrainDirty(start).Slots, rules),
			scope != counters.Alone; got != want {
			t.Errorf("%v: sent %v", scope, got)
		}
	}
}

func BenchmarkTakeBesideALift(b *testing.B) {
	l := penalized(b, newLimit(b, counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), 1000), true, false,
		time.Hour)
	table, now := least(1), start
	provoke(b, table, l, 7, now)
	lift(b, table, l, 7, now)
	now = after(11 * time.Second)
	b.ReportAllocs()
	for b.Loop() {
		now += int64(time.Second) / 50
		table.Take(l, 7, 1, now)
	}
}
