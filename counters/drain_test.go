package counters_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

func sameSlot(a, b counters.Slot) bool {
	return *a.Meter == *b.Meter && a.Key == b.Key && a.Index == b.Index && a.Origin == b.Origin && a.Birth == b.Birth &&
		a.Count == b.Count
}

func sorted(slots []counters.Slot) []counters.Slot {
	return slices.SortedFunc(slices.Values(slots), func(a, b counters.Slot) int {
		return cmp.Or(cmp.Compare(a.Meter.Rule, b.Meter.Rule), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Index, b.Index),
			cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Birth, b.Birth))
	})
}

func sameDemand(a, b counters.Demand) bool { return *a.Meter == *b.Meter && a.Rate == b.Rate }

// wantSlots compares slots as sets.
func wantSlots(t rapid.TB, what string, got []counters.Slot, want ...counters.Slot) {
	t.Helper()
	if a, b := sorted(got), sorted(want); !slices.EqualFunc(a, b, sameSlot) {
		t.Errorf("%s: %+v, want %+v", what, a, b)
	}
}

// What rose is sent once, with the count so far; what was only asked for, or came from others, is not sent.
func TestDrainDirtyTellsWhatRoseOnce(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	table := small(9)
	wantSlots(t, "an empty table", table.DrainDirty(start).Slots)

	table.Take(l, 1, 2, start)
	table.Take(l, 1, 1, start)
	table.Take(l, 1, 3, start) // denied
	table.Take(l, 2, 5, after(time.Second))
	table.Take(l, 3, 0, after(time.Second))
	table.Merge([]counters.Slot{slotOf(l, 4, start, 2, 0, 3)}, after(time.Second))
	wantSlots(t, "two keys", table.DrainDirty(after(time.Second)).Slots,
		slotOf(l, 1, start, 9, 0, 3), slotOf(l, 2, after(time.Second), 9, 0, 5))
	wantSlots(t, "nothing since", table.DrainDirty(after(time.Second)).Slots)

	table.Take(l, 1, 1, after(2*time.Second))
	table.Take(l, 4, 1, after(2*time.Second))
	wantSlots(t, "a later sub-window alone", table.DrainDirty(after(2*time.Second)).Slots,
		slotOf(l, 1, after(2*time.Second), 9, 0, 1), slotOf(l, 4, after(2*time.Second), 9, 0, 1))

	table.Take(l, 1, 1, after(2*time.Second))
	table.Take(l, 1, 1, after(9*time.Second)) // denied
	wantSlots(
		t, "its count so far", table.DrainDirty(after(9*time.Second)).Slots,
		slotOf(l, 1, after(2*time.Second), 9, 0, 2),
	)
}

// What was not drained for longer than the window counts nowhere any more.
func TestDrainDirtyLeavesOutWhatHasPassed(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	table := small(9)
	table.Take(l, 1, 2, start)
	table.Take(l, 1, 1, after(time.Second))
	wantSlots(t, "half gone", table.DrainDirty(after(11*time.Second)).Slots, slotOf(l, 1, after(time.Second), 9, 0, 1))
	table.Take(l, 1, 2, after(20*time.Second))
	wantSlots(t, "all gone", table.DrainDirty(after(time.Hour)).Slots)
}

// Any requests, drained at any time: each drain holds just the slots that rose since the one before, with all that was
// ever admitted in their sub-window.
func TestDrainDirtyAgainstARecord(t *testing.T) {
	type slot struct {
		key   counters.Key
		index int64
	}
	rapid.Check(t, func(t *rapid.T) {
		l := limitOf(t, 10*time.Second, time.Second, rapid.Uint64Range(1, 40).Draw(t, "limit"))
		m := l.Meter()
		table := small(9)
		admitted, rose := make(map[slot]uint64), make(map[slot]bool)
		now := start
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, int64(4*time.Second))).Draw(t, "pause")
			if rapid.IntRange(0, 3).Draw(t, "step") > 0 {
				key, cost := counters.Key(rapid.Uint64Range(0, 3).Draw(t, "key")), rapid.Uint64Range(0, 9).
					Draw(t, "cost")
				if table.Take(l, key, cost, now).Allowed && cost > 0 {
					admitted[slot{key, m.Index(now)}] += cost
					rose[slot{key, m.Index(now)}] = true
				}
				continue
			}
			var want []counters.Slot
			for s := range rose {
				if s.index >= m.Index(now)-10 {
					want = append(want,
						counters.Slot{Meter: &m, Key: s.key, Index: s.index, Origin: 9, Count: admitted[s]})
				}
			}
			clear(rose)
			wantSlots(t, "drained", table.DrainDirty(now).Slots, want...)
		}
		var own []counters.Slot
		for s, count := range admitted {
			if s.index >= m.Index(now)-10 {
				own = append(own, counters.Slot{Meter: &m, Key: s.key, Index: s.index, Origin: 9, Count: count})
			}
		}
		wantSlots(t, "own", table.Own(now), own...)
	})
}

// rates are the demand of a drain, by rule.
func rates(d counters.Drained) map[string]float64 {
	m := make(map[string]float64)
	for _, d := range d.Demand {
		m[d.Meter.Rule] = d.Rate
	}
	return m
}

func wantRate(t *testing.T, what string, d counters.Drained, rule string, want float64) {
	t.Helper()
	if got := rates(d)[rule]; math.Abs(got-want) > want/1e6 {
		t.Errorf("%s: a rate of %g for %s, want %g", what, got, rule, want)
	}
}

// average is what a rate is after an interval in which a cost was asked for: it follows by e every 0.3 s.
func average(rate, cost float64, interval time.Duration) float64 {
	old := math.Exp(-interval.Seconds() / 0.3)
	return rate*old + cost/interval.Seconds()*(1-old)
}

const tenth = 100 * time.Millisecond

// Demand is what is asked of the hottest key, admitted or not: 50 in a tenth of a second are 500 a second.
func TestDemandIsOfTheHottestKey(t *testing.T) {
	l, other := limitNamed(t, "r", 10), limitNamed(t, "other", 10)
	table := small(1)
	now := start
	tick := func() counters.Drained { now += int64(tenth); return table.DrainDirty(now) }
	table.Take(l, 1, 5, now)
	wantRate(t, "the first drain, which knows no interval", table.DrainDirty(now), "r", 0)

	for range 25 { // five are admitted
		table.Take(l, 1, 2, now)
	}
	table.Take(l, 2, 7, now)
	table.Take(l, 3, 0, now)
	table.Take(other, 1, 1, now)
	d := tick()
	wantRate(t, "hottest key", d, "r", average(0, 50, tenth))
	wantRate(t, "another rule", d, "other", average(0, 1, tenth))
	if len(d.Demand) != 2 {
		t.Errorf("demand for %v, want two rules", rates(d))
	}
}

// A rate is known after a second, and forgotten as soon; then the meter is quiet. Whatever the rhythm of requests, it
// is right on average.
func TestDemandIsAnAverage(t *testing.T) {
	l := limitNamed(t, "r", counters.MaxLimit)
	table := small(1)
	now := start
	table.DrainDirty(now)
	tick := func(cost uint64) counters.Drained {
		if cost > 0 {
			table.Take(l, 1, cost, now)
		}
		now += int64(tenth)
		return table.DrainDirty(now)
	}
	rate := 0.0
	for i, cost := range []uint64{30, 100, 0, 0, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} {
		rate = average(rate, float64(cost), tenth)
		wantRate(t, fmt.Sprint("tick ", i), tick(cost), "r", rate)
	}
	for range 30 {
		tick(0)
	}
	if d := tick(0); len(d.Demand) != 0 {
		t.Errorf("demand %v, want none below half a request a second", rates(d))
	}
	sum, ticks := 0.0, 0
	for i := range 7000 {
		cost := uint64(0)
		if i%7 == 0 {
			cost = 7
		}
		sum += rates(tick(cost))["r"]
		ticks++
	}
	if mean := sum / float64(ticks); math.Abs(mean-10) > 0.1 {
		t.Errorf("of 10 a second, in one interval of seven, %v are said on average", mean)
	}
}

// ticking is a table of which one key is asked for the cost given between ticks, which come when they are called.
func ticking(t *testing.T) (tick func(pause time.Duration, cost uint64) counters.Drained) {
	l := limitNamed(t, "r", counters.MaxLimit)
	table := small(1)
	now := start
	table.DrainDirty(now)
	return func(pause time.Duration, cost uint64) counters.Drained {
		table.Take(l, 1, cost, now)
		now += int64(pause)
		return table.DrainDirty(now)
	}
}

// The rate is over the time that passed, be it more or less than the usual.
func TestDemandOverUnevenTicks(t *testing.T) {
	tick, rate := ticking(t), 0.0
	for _, step := range []struct {
		pause time.Duration
		cost  uint64
	}{{tenth, 10}, {3 * tenth, 60}, {tenth, 30}, {70 * time.Millisecond, 70}} {
		rate = average(rate, float64(step.cost), step.pause)
		wantRate(t, step.pause.String(), tick(step.pause, step.cost), "r", rate)
	}
}

// A tick that comes right after a late one would make a burst of the little that it finds: no tick counts as shorter
// than half of the usual, or not much less.
func TestDemandOfATickThatComesTooEarly(t *testing.T) {
	tick := ticking(t)
	for range 5 {
		tick(100*time.Millisecond, 10)
	}
	tick(190*time.Millisecond, 19)
	if got := rates(tick(10*time.Microsecond, 5))["r"]; got < 80 || got > 125 {
		t.Errorf("5 within 10 us after a late tick are a rate of %g, want about 100", got)
	}
}

// Nor does one long pause, or a clock that is set forward, make the ticks after it count as longer than they are.
func TestDemandAfterAPause(t *testing.T) {
	for _, pause := range []time.Duration{2 * time.Second, 10 * time.Second, time.Hour, 365 * 24 * time.Hour} {
		tick := ticking(t)
		for range 5 {
			tick(tenth, 10)
		}
		rate := rates(tick(pause, 10))["r"]
		wantRate(t, "after "+pause.String(), tick(tenth, 30), "r", average(rate, 30, tenth))
	}
}

// Where the clock stands still or goes back no rate is known, and what is known stays known: a bound must not fall
// for that.
func TestDemandStaysWhereTheClockDoesNotMove(t *testing.T) {
	l := limitNamed(t, "r", counters.MaxLimit)
	table := small(1)
	table.DrainDirty(start)
	table.Take(l, 1, 30, start)
	rate := average(0, 30, tenth)
	wantRate(t, "a tick", table.DrainDirty(after(tenth)), "r", rate)
	table.Take(l, 1, 1000, after(tenth))
	wantRate(t, "at the same time", table.DrainDirty(after(tenth)), "r", rate)
	table.Take(l, 1, 1000, after(-time.Second))
	wantRate(t, "a second before", table.DrainDirty(after(-time.Second)), "r", rate)
	table.Take(l, 1, 10, after(-time.Second))
	wantRate(t, "a tick later", table.DrainDirty(after(-900*time.Millisecond)), "r", average(rate, 10, tenth))
}

// demandOf is what a drain says of the only meter that it reports.
func demandOf(t *testing.T, d counters.Drained) counters.Demand {
	t.Helper()
	if len(d.Demand) != 1 {
		t.Fatalf("it speaks of %d meters, want 1", len(d.Demand))
	}
	return d.Demand[0]
}

// Rise is what one key rose by since it was sent, and where its limit is shared out not what was asked for beside.
func TestRiseIsOfWhatWasAdmitted(t *testing.T) {
	l := newLimit(t, counters.NewMeter("million", counters.SlidingWindow, 10*time.Second), 1e6)
	table := clustered(2, l)
	table.Take(l, 1, 300, start)
	table.Take(l, 1, 400, start)
	table.Take(l, 2, 699, start)
	if d := demandOf(t, table.DrainDirty(start)); d.Rise != 700 {
		t.Errorf("two requests of 300 and 400 are told as %d", d.Rise)
	}
	if rise := riseOf(table.DrainDirty(after(100 * time.Millisecond))); rise != 0 {
		t.Errorf("what was told already is told again: %d", rise)
	}
	// Others used up most of it: some requests are admitted, the rest is denied.
	table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 970e3, 1e6)}, after(100*time.Millisecond))
	admitted := uint64(admits(table, l, 1000, 1, after(110*time.Millisecond)))
	if admitted == 0 || admitted == 1000 {
		t.Fatalf("%d of 1000 are admitted", admitted)
	}
	if d := demandOf(t, table.DrainDirty(after(200*time.Millisecond))); d.Rise != admitted {
		t.Errorf("%d of 1000 were admitted, it tells %d", admitted, d.Rise)
	}
}

// Whatever comes, and whenever what is sent: of no key more is sent than the rise says.
func TestRiseCoversWhatIsSent(t *testing.T) {
	for _, a := range []counters.Algorithm{counters.SlidingWindow, counters.FixedWindow, counters.SlidingLog,
		counters.TokenBucket, counters.LeakyQueue} {
		rapid.Check(t, func(t *rapid.T) {
			l := newLimit(t, counters.NewMeter("r", a, 10*time.Second), 200)
			table, now := clustered(2, l), start
			sent := make(map[counters.Slot]uint64)
			check := func(d counters.Drained) {
				rose := make(map[counters.Key]uint64)
				for _, s := range d.Slots {
					id := counters.Slot{Key: s.Key, Index: s.Index, Birth: s.Birth}
					rose[s.Key] += s.Count - sent[id]
					sent[id] = s.Count
				}
				for key, by := range rose {
					if got := riseOf(d); got < by {
						t.Fatalf("key %d rose by %d, it tells %d", key, by, got)
					}
				}
			}
			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				now += rapid.Int64Range(0, int64(300*time.Millisecond)).Draw(t, "passes")
				key := counters.Key(rapid.Uint64Range(1, 3).Draw(t, "key"))
				switch rapid.SampledFrom([]string{"take", "take", "layers", "report", "merge", "drain",
					"urgent"}).Draw(t, "what") {
				case "take":
					admits(table, l, rapid.IntRange(1, 80).Draw(t, "requests"), rapid.Uint64Range(0, 3).Draw(t, "cost"),
						now)
				case "layers":
					table.TakeAll([]counters.Charge{{Limit: l, Key: key, Cost: 2}, {Limit: l, Key: 4, Cost: 5}}, now,
						nil)
				case "report":
					table.Report(reported(l, key, rapid.Uint64Range(0, 500).Draw(t, "reported")), now)
				case "merge":
					table.Merge(
						[]counters.Slot{sentWith(l, key, now, 2, rapid.Uint64Range(0, 250).Draw(t, "count"), 50)}, now)
				case "drain":
					check(table.DrainDirty(now))
				case "urgent":
					check(table.DrainEarly(now))
				}
			}
			check(table.DrainDirty(now))
		})
	}
}

// riseOf is the rise of the only meter, if the drain reports it.
func riseOf(d counters.Drained) uint64 {
	if len(d.Demand) == 0 {
		return 0
	}
	return d.Demand[0].Rise
}

// Used is the most that was used when something was admitted, with what the algorithm may overlook.
func TestUsedIsWhatAdmissionsFound(t *testing.T) {
	const second = int64(time.Second)
	begin := start - start%(10*second)
	for _, test := range []struct {
		algorithm counters.Algorithm
		beside    uint64 // what it overlooks
	}{
		{counters.SlidingWindow, 0},
		{counters.FixedWindow, 0},
		{counters.SlidingLog, 30},  // others' requests in the sub-window that has begun to leave
		{counters.TokenBucket, 51}, // what comes back in half a second, rounded up
		{counters.LeakyBucket, 51},
		{counters.LeakyQueue, 51},
	} {
		l := newLimit(t, counters.NewMeter("r", test.algorithm, 10*time.Second), 1000)
		table := least(1)
		if l.Far() != 750 {
			t.Fatalf("of 1000, %d are far", l.Far())
		}
		drain := func(at int64) uint64 { return demandOf(t, table.DrainDirty(at)).Used }
		now := begin
		table.Take(l, 1, 690, now)
		if got := drain(now); got != 0 {
			t.Errorf("%v: 690 are told as %d", test.algorithm, got)
		}
		table.Take(l, 1, 100, now)
		table.Take(l, 1, 400, now) // is denied
		table.Take(l, 1, 0, now)
		table.Take(l, 2, 10, now)
		want := 790 + test.beside
		if test.algorithm == counters.SlidingLog {
			want = 790 // others have sent nothing
		}
		if got := drain(now); got != want {
			t.Errorf("%v: the most used is told as %d, want %d", test.algorithm, got, want)
		}
		table.Take(l, 1, 400, now)
		if got := drain(now); got != 0 {
			t.Errorf("%v: nothing was admitted, and %d are told", test.algorithm, got)
		}
	}
	log := newLimit(t, counters.NewMeter("log", counters.SlidingLog, 10*time.Second), 1000)
	table := least(1)
	table.Merge([]counters.Slot{slotOf(log, 1, begin, 2, 0, 30)}, begin)
	later := begin + 10*second + second/2
	table.Take(log, 1, 800, later)
	if got := demandOf(t, table.DrainDirty(later)).Used; got != 830 {
		t.Errorf("of a log, with 30 in the sub-window that leaves, %d are told to be used, want 830", got)
	}
}
