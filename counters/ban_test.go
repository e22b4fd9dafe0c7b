package counters_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// banning is a limit of 3 in 10 s that bans for half a minute.
func banning(t testing.TB, rule string, a counters.Algorithm) *counters.Limit {
	t.Helper()
	return with(t, newLimit(t, counters.NewMeter(rule, a, 10*time.Second), 3),
		func(c *counters.LimitConfig) { c.Ban = 30 * time.Second })
}

// provoke asks until a request is denied, and returns when its ban ends.
func provoke(t testing.TB, table *counters.Table, l *counters.Limit, key counters.Key, now int64) (until int64) {
	t.Helper()
	for range l.Max() + 1 {
		if d := table.Take(l, key, 1, now); !d.Allowed {
			return now + int64(d.RetryAfter)
		}
	}
	t.Fatal("nothing is denied")
	return 0
}

// banOf is the slot of a ban that began in the sub-window of a time.
func banOf(l *counters.Limit, key counters.Key, began int64, origin counters.Origin, until int64) counters.Slot {
	m := l.BanMeter()
	return counters.Slot{
		Meter: m, Key: key, Index: m.Index(began), Origin: origin, Count: uint64(until / int64(time.Millisecond)),
	}
}

// wantBan holds that the key is banned until a time, and no nanosecond longer, without leaving a trace.
func wantBan(t testing.TB, table *counters.Table, l *counters.Limit, key counters.Key, now, until int64) {
	t.Helper()
	for _, at := range []int64{now, until - 1} {
		if d := table.Take(l, key, 0, at); d.Allowed || !d.Banned || at+int64(d.RetryAfter) != until {
			t.Errorf("a peek %v before the end: %+v", time.Duration(until-at), d)
		}
	}
	if d := table.Take(l, key, 0, until); !d.Allowed || d.Banned || d.RetryAfter != 0 {
		t.Errorf("a peek at the end: %+v", d)
	}
}

// A ban runs from the first denial for as long as it says, to the next millisecond, whatever is asked meanwhile.
func TestBan(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			l, table, now := banning(t, "r", a), small(1), after(123_456_789)
			for i := range uint64(3) {
				if d := table.Take(l, 1, 1, now); !d.Allowed || d.Remaining != 2-i || d.Banned {
					t.Fatalf("request %d: %+v", i+1, d)
				}
			}
			until := after(30*time.Second + 124*time.Millisecond)
			d := table.Take(l, 1, 1, now)
			if d.Allowed || d.Banned || d.Remaining != 0 || now+int64(d.RetryAfter) != until ||
				d.ResetAfter < d.RetryAfter ||
				d.Delay != 0 {
				t.Errorf("the request that is denied: %+v", d)
			}
			for _, at := range []int64{now + 1, now + int64(15*time.Second), until - 1} {
				d := table.Take(l, 1, 1, at)
				if d.Allowed || !d.Banned || d.Remaining != 0 || d.Limit != 3 || d.Rule != "r" ||
					at+int64(d.RetryAfter) != until {
					t.Errorf("%v before the end: %+v", time.Duration(until-at), d)
				}
			}
			if view := table.View(l, 1, now); view > 3 {
				t.Errorf("%d are counted, want none while the key is banned", view)
			}
			if d := table.Take(l, 1, 4, now); d.RetryAfter != counters.Never {
				t.Errorf("what never fits: %+v", d)
			}
			if d := table.Take(l, 2, 1, now); !d.Allowed {
				t.Errorf("another key: %+v", d)
			}
			if d := table.Take(l, 1, 1, until); !d.Allowed || d.Banned || d.Remaining != 2 {
				t.Errorf("at the end: %+v", d)
			}
			if again := provoke(t, table, l, 1, until); again != until+int64(30*time.Second) {
				t.Errorf("the next ban lasts %v", time.Duration(again-until))
			}
		})
	}
}

// Where the limit itself takes longer than the ban, that is what the client has to wait for.
func TestABanShorterThanTheWait(t *testing.T) {
	l := penalized(t, newLimit(t, counters.NewMeter("r", counters.FixedWindow, time.Hour), 1), true, false, time.Second)
	table := small(1)
	for now, end := after(0), start-start%int64(time.Hour)+int64(time.Hour); now < end; now += int64(10 * time.Minute) {
		if until := provoke(t, table, l, 1, now); until != end {
			t.Errorf("retry %v before there is room", time.Duration(end-until))
		}
	}
}

// A ban is sent as a slot of a meter of its own: when it ends.
func TestABanIsSent(t *testing.T) {
	l, table := banning(t, "r", counters.SlidingWindow), small(1)
	until := provoke(t, table, l, 1, start)
	drained := table.DrainDirty(start)
	wantSlots(t, "told", drained.Slots, slotOf(l, 1, start, 1, 0, 3), banOf(l, 1, start, 1, until))
	if len(drained.Demand) > 1 || len(drained.Demand) == 1 && drained.Demand[0].Meter.Algorithm == counters.Ban {
		t.Errorf("demand %+v of what nobody asks for", drained.Demand)
	}
	table.Take(l, 1, 1, start+1)
	if sent := table.DrainDirty(start + 1).Slots; len(sent) != 0 {
		t.Errorf("a request that a ban denies is told: %+v", sent)
	}
	if m := l.BanMeter(); m.Rule != "r" || m.Window != 30*time.Second || m.Algorithm != counters.Ban {
		t.Errorf("the meter is %+v", m)
	}
}

// Two tables that deny at different times agree on the later end, in whatever order they hear of each other, and
// however often.
func TestBansMergeByMax(t *testing.T) {
	l := banning(t, "r", counters.SlidingWindow)
	for _, apart := range []time.Duration{0, time.Millisecond, 5 * time.Second, 29 * time.Second} {
		one, two := small(1), small(2)
		first, last := provoke(t, one, l, 1, start), provoke(t, two, l, 1, after(apart))
		now := after(apart)
		sent := append(one.DrainDirty(now).Slots, two.DrainDirty(now).Slots...)
		slices.Reverse(sent)
		for range 2 {
			one.Merge(sent, now)
			two.Merge(sent, now)
		}
		three := small(3)
		three.Merge(sent, now)
		four := small(4)
		four.Merge(three.Snapshot(now, 1000), now)
		if last-first != int64(apart) {
			t.Errorf("%v apart the bans end %v apart", apart, time.Duration(last-first))
		}
		for _, table := range []*counters.Table{one, two, three, four} {
			wantBan(t, table, l, 1, now, last)
		}
	}
}

// What tells of another's ban comes to bear at once, also of one whose clock is ahead, and moves no end that is later.
func TestABanOfOthers(t *testing.T) {
	l := banning(t, "r", counters.TokenBucket)
	table := small(1)
	until := after(20 * time.Second)
	table.Merge(
		[]counters.Slot{banOf(l, 1, after(-10*time.Second), 7, until), banOf(l, 1, start, 8, after(5*time.Second))},
		start)
	wantBan(t, table, l, 1, start, until)
	ahead := small(1)
	ahead.Merge([]counters.Slot{banOf(l, 1, after(30*time.Second), 7, after(60*time.Second))}, start)
	wantBan(t, ahead, l, 1, start, after(60*time.Second))
	if table.Merge([]counters.Slot{banOf(l, 1, after(61*time.Second), 7, after(91*time.Second))},
		start); table.Stats().Refused != 1 {
		t.Errorf("a ban of a time to come: %+v", table.Stats())
	}
}

// One table decides what a random history of requests and of others' bans means, in layers, batches or one by one: all
// the same.
func TestBansInLayersAndBatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := rapid.SampledFrom(algorithms).Draw(rt, "algorithm")
		l := penalized(t, newLimit(rt, counters.NewMeter("r", a, time.Second), 3), true, rapid.Bool().Draw(rt, "count"),
			700*time.Millisecond)
		tables := [2]*counters.Table{small(1), small(1)}
		now := start
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now += rapid.Int64Range(0, int64(400*time.Millisecond)).Draw(rt, "pause")
			key := counters.Key(rapid.IntRange(0, 1).Draw(rt, "key"))
			if rapid.IntRange(0, 9).Draw(rt, "step") == 0 {
				ban := banOf(l, key, now, 7, now+int64(rapid.IntRange(0, 700).Draw(rt, "ms"))*int64(time.Millisecond))
				for _, table := range tables {
					table.Merge([]counters.Slot{ban}, now)
				}
				continue
			}
			charge := counters.Charge{Limit: l, Key: key, Cost: rapid.Uint64Range(0, 4).Draw(rt, "cost")}
			alone := tables[0].Take(l, key, charge.Cost, now)
			layer := tables[1].TakeAll([]counters.Charge{charge}, now, nil)[0]
			if alone != layer {
				rt.Fatalf("a cost of %d:\n alone    %+v\n a layer  %+v", charge.Cost, alone, layer)
			}
		}
		wantSlots(rt, "the table of layers", tables[1].Own(now), tables[0].Own(now)...)
	})
}

// Who is not denied is not banned: nor who only asked, or could never be admitted.
func TestWhatBansNobody(t *testing.T) {
	full := func(t *testing.T) (*counters.Limit, *counters.Table) {
		l, table := banning(t, "r", counters.SlidingWindow), small(1)
		table.Take(l, 1, 3, start)
		return l, table
	}
	for name, request := range map[string]func(l *counters.Limit, table *counters.Table){
		"a peek": func(l *counters.Limit, table *counters.Table) { table.Take(l, 1, 0, start) },
		"a peek in a layer": func(l *counters.Limit, table *counters.Table) {
			table.TakeAll([]counters.Charge{{Limit: l, Key: 1}}, start, nil)
		},
		"what never fits": func(l *counters.Limit, table *counters.Table) { table.Take(l, 1, 4, start) },
		"a shadow": func(l *counters.Limit, table *counters.Table) {
			table.TakeAll([]counters.Charge{{Limit: l, Key: 1, Cost: 1, Mode: counters.Shadow}}, start, nil)
		},
		"a quota beside another": func(l *counters.Limit, table *counters.Table) {
			table.TakeAll([]counters.Charge{{Limit: l, Key: 1, Cost: 1, Mode: counters.Quota},
				{Limit: l, Key: 2, Cost: 1, Mode: counters.Quota}}, start, nil)
		},
	} {
		l, table := full(t)
		request(l, table)
		if d := table.Take(l, 1, 0, start); d.Banned || d.RetryAfter > 11*time.Second {
			t.Errorf("%s: %+v", name, d)
		}
		for _, s := range table.Own(start) {
			if s.Meter.Algorithm == counters.Ban {
				t.Errorf("%s: %+v is told", name, s)
			}
		}
	}
	for name, mode := range map[string]counters.Mode{"enforced": counters.Enforce,
		"beyond a soft margin": counters.Soft, "the only quota": counters.Quota} {
		l, table := full(t)
		table.TakeAll([]counters.Charge{{Limit: l, Key: 1, Cost: 1, Mode: mode}}, start, nil)
		if d := table.Take(l, 1, 0, start); !d.Banned {
			t.Errorf("%s: %+v", name, d)
		}
	}
	blocked := penalized(t, newLimit(t, counters.NewMeter("r", counters.SlidingWindow, time.Second), 0), true, false,
		time.Minute)
	table := small(1)
	table.Take(blocked, 1, 1, start)
	l := banning(t, "r", counters.SlidingWindow)
	// together they never fit
	table.TakeAll([]counters.Charge{{Limit: l, Key: 1, Cost: 2}, {Limit: l, Key: 1, Cost: 2}}, start, nil)
	if got, none := table.Stats(), small(1).Stats(); got != none {
		t.Errorf("what no wait can make room for left %+v", got)
	}
}

// A request is denied by the ban in one of its layers, and costs the others nothing; only the layer that denied it
// begins one.
func TestBansInLayers(t *testing.T) {
	login, wide, general := banning(t, "login",
		counters.SlidingWindow), limitNamed(t, "wide", 100), banning(t, "general", counters.TokenBucket)
	table := small(1)
	request := []counters.Charge{
		{Limit: wide, Key: 1, Cost: 1},
		{Limit: login, Key: 1, Cost: 1},
		{Limit: general, Key: 1, Cost: 1},
	}
	table.Take(login, 1, 3, start)
	want := []string{"ada", "ada", "aaa"}
	for i, now := range []int64{start, after(15 * time.Second), after(30 * time.Second)} {
		ds := table.TakeAll(request, now, nil)
		if said(ds) != want[i] || ds[1].Banned != (i == 1) || ds[0].Banned || ds[2].Banned {
			t.Errorf("request %d: %+v", i+1, ds)
		}
	}
	if view := table.View(wide, 1, after(30*time.Second)); view != 1 {
		t.Errorf("%d are counted of one request that was admitted", view)
	}
	shadow := []counters.Charge{{Limit: login, Key: 2, Cost: 1, Mode: counters.Shadow}}
	provoke(t, table, login, 2, start)
	if ds := table.TakeAll(shadow, start, nil); !ds[0].Allowed || !ds[0].Waived || !ds[0].Banned ||
		ds[0].RetryAfter != 0 {
		t.Errorf("a ban in a rule that is in shadow mode by now: %+v", ds)
	}
}

// A newcomer hears of bans before it hears of counts.
func TestSnapshotsBeginWithBans(t *testing.T) {
	l, wide, table := banning(t, "r", counters.SlidingWindow), limitNamed(t, "wide", counters.MaxLimit-1), small(1)
	until := provoke(t, table, l, 1, start)
	for key := range counters.Key(100) {
		table.Take(wide, key, counters.MaxLimit-1, start)
	}
	newcomer := small(2)
	newcomer.Merge(table.Snapshot(start, 1), start)
	wantBan(t, newcomer, l, 1, start, until)
}

// Bans stay while anything else can go, and go when they have ended.
func TestBansAreEvictedLast(t *testing.T) {
	l, flood, table := banning(t, "r", counters.SlidingWindow), filler(t), small(1)
	const keys = 50
	for key := range counters.Key(keys) {
		provoke(t, table, l, key, start)
	}
	now := after(20 * time.Second) // they are older than half of their length
	for key := range 4 * fill(t, small(2), flood, 0, start) {
		now++
		table.Take(flood, key, 1, now)
	}
	for key := range counters.Key(keys) {
		if d := table.Take(l, key, 0, now); !d.Banned {
			t.Errorf("key %d is forgotten: %+v", key, d)
		}
	}
	if st := table.Stats(); st.Evicted == 0 || st.EvictedDenied != 0 || st.Forgotten > st.Evicted {
		t.Errorf("%+v: want plenty evicted, of a count of one each", st)
	}
	crowd := small(1)
	for key := range counters.Key(20_000) {
		provoke(t, crowd, l, key, start)
	}
	if st := crowd.Stats(); st.EvictedDenied < 10_000 || st.Forgotten > 3*st.Evicted {
		t.Errorf("%+v: want bans evicted, and only requests counted as forgotten", st)
	}
	lone := small(1)
	provoke(t, lone, l, 1, start)
	if sweep(lone, after(60*time.Second)); lone.Stats().Keys != 0 {
		t.Errorf("a ban that has ended is kept: %+v", lone.Stats())
	}
}

// A peer that tells of bans of a million keys that nobody asks for pushes out no key that was denied here, nor a ban
// that denied here.
func TestBansOfOthersPushNobodyOut(t *testing.T) {
	l, plain, table := banning(t, "r", counters.SlidingWindow), newLimit(t, filler(t).Meter(), 1), least(1)
	const keys = 50
	sent := func(key counters.Key) counters.Slot { return banOf(l, key, start, 7, after(29*time.Second)) }
	for key := range counters.Key(keys) {
		table.Take(plain, key, 1, start)
		table.Take(plain, key, 1, start)
		provoke(t, table, l, key, start)
		table.Merge([]counters.Slot{sent(keys + key)}, start)
		table.Take(l, keys+key, 1, start)
	}
	var slots []counters.Slot
	for key := range counters.Key(200_000) {
		slots = append(slots, sent(1000+key))
	}
	table.Merge(slots, start)
	if st := table.Stats(); st.Evicted < 50_000 || st.EvictedDenied != 0 {
		t.Errorf("%+v: want many evicted, and none of them denied here", st)
	}
	for key := range counters.Key(2 * keys) {
		if d := table.Take(l, key, 0, start); !d.Banned {
			t.Errorf("the ban of %d is forgotten", key)
		}
	}
	if got := kept(table, plain, 0, keys, start); got != keys {
		t.Errorf("%d of %d denied keys are kept", got, keys)
	}
}

// Nobody can say that a ban lasts longer than one does: such slots are refused and counted, and until they end a table
// believes no bans but its own.
func TestBansBeyondBelief(t *testing.T) {
	l := banning(t, "r", counters.SlidingWindow)
	lasts := int64(30 * time.Second)
	begin := start - start%lasts
	for name, c := range map[string]struct {
		slot  counters.Slot
		lie   bool
		until int64 // at most
	}{
		"the last of its sub-window": {banOf(l, 1, start, 7, begin+2*lasts), false, begin + 2*lasts},
		"a millisecond later":        {banOf(l, 1, start, 7, begin+2*lasts+int64(time.Millisecond)), true, 0},
		"the last of the next":       {banOf(l, 1, begin+lasts, 7, begin+3*lasts), false, begin + 3*lasts},
		"for ever": {counters.Slot{Meter: l.BanMeter(), Key: 1, Index: l.BanMeter().Index(start),
			Origin: 7, Count: math.MaxUint64}, true, 0},
		"for ever, as long as counted": {counters.Slot{Meter: l.BanMeter(), Key: 1, Index: l.BanMeter().Index(start),
			Origin: 7, Count: counters.MaxCount}, true, 0},
		"of a time long past": {counters.Slot{Meter: l.BanMeter(), Key: 1, Index: 0, Origin: 7,
			Count: counters.MaxCount}, false, 0},
		"of another length": {banOf(penalized(t, l, true, false, 300*24*time.Hour), 1, start, 7,
			start+int64(300*24*time.Hour)), false, 0},
	} {
		table := small(1)
		table.Merge([]counters.Slot{c.slot}, start)
		st := table.Stats()
		if got := st.Implausible == 1; got != c.lie || c.lie != (st.LastImplausible.Origin == 7) {
			t.Errorf("%s: %+v", name, table.Stats())
		}
		if d := table.Take(l, 1, 0, start); c.until == 0 && d.Banned {
			t.Errorf("%s: %+v", name, d)
		}
		if c.until > 0 {
			wantBan(t, table, l, 1, start, c.until)
		}
	}
	table := small(1)
	others := func(now int64) { table.Merge([]counters.Slot{banOf(l, 2, now, 8, now+lasts)}, now) }
	own := provoke(t, table, l, 1, start)
	others(start)
	table.Merge([]counters.Slot{banOf(l, 1, start, 7, begin+2*lasts), banOf(l, 3, start, 7, math.MaxInt64)}, start)
	wantBan(t, table, l, 1, start, own)
	if d := table.Take(l, 2, 1, start); !d.Allowed {
		t.Errorf("beside a lie another's ban is believed: %+v", d)
	}
	others(after(time.Minute))
	wantBan(t, table, l, 2, after(time.Minute), after(90*time.Second))
}

// What others sent while they were doubted counts again afterwards, also where a table began a ban of its own
// meanwhile.
func TestBansAreOnlyDistrustedForAWhile(t *testing.T) {
	l := penalized(t, limitNamed(t, "r", 3), true, false, time.Hour)
	table, until := small(1), after(time.Hour)
	now := after(-20 * time.Minute)
	table.Merge([]counters.Slot{banOf(l, 1, start, 7, until), banOf(l, 3, start, 7, math.MaxInt64)}, now)
	if own := provoke(t, table, l, 1, now); own >= until {
		t.Fatal("its own ban ends later: that shows nothing")
	}
	wantBan(t, table, l, 1, now+int64(time.Minute), until)
}

// Another number or window keeps bans, another length of them does not.
func TestBansSurviveAnEdit(t *testing.T) {
	l, table := banning(t, "r", counters.SlidingWindow), small(1)
	provoke(t, table, l, 1, start)
	for name, c := range map[string]struct {
		limit *counters.Limit
		kept  bool
	}{
		"another number":    {penalized(t, newLimit(t, l.Meter(), 500), true, false, 30*time.Second), true},
		"another algorithm": {banning(t, "r", counters.TokenBucket), true},
		"another length":    {penalized(t, l, true, false, 31*time.Second), false},
		"another rule":      {banning(t, "s", counters.SlidingWindow), false},
	} {
		if d := table.Take(c.limit, 1, 0, start); d.Banned != c.kept {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// Where the clock is set back by more than a ban, the ban belongs to no time that will come soon.
func TestBansAndAClockSetBack(t *testing.T) {
	l := banning(t, "r", counters.SlidingWindow)
	for back, banned := range map[time.Duration]bool{time.Second: true, 30 * time.Second: true, 61 * time.Second: false,
		time.Hour: false} {
		table := small(1)
		until := provoke(t, table, l, 1, start)
		now := after(-back)
		if d := table.Take(l, 1, 1, now); d.Banned != banned || banned && now+int64(d.RetryAfter) != until {
			t.Errorf("%v back: %+v", back, d)
		}
		if !banned {
			if until := provoke(t, table, l, 1, now); until != now+int64(30*time.Second) {
				t.Errorf("%v back another ban lasts %v", back, time.Duration(until-now))
			}
		}
	}
}

func TestInvalidBans(t *testing.T) {
	l := limitNamed(t, "r", 3)
	if m := l.BanMeter(); m != nil {
		t.Errorf("a limit without a ban has the meter %+v", m)
	}
	for _, lasts := range []time.Duration{-time.Second, time.Millisecond - 1, 1500 * time.Microsecond,
		counters.MaxWindow + time.Millisecond} {
		if _, err := l.With(func(c *counters.LimitConfig) { c.Ban = lasts }); err == nil {
			t.Errorf("a ban of %v is valid", lasts)
		}
	}
	for _, lasts := range []time.Duration{time.Millisecond, counters.MaxWindow} {
		l, err := l.With(func(c *counters.LimitConfig) { c.Ban = lasts })
		testkit.Must(t, err)
		table := small(1)
		if until := provoke(t, table, l, 1, start); until < start+int64(lasts) ||
			until > start+int64(max(lasts, 11*time.Second)) {
			t.Errorf("a ban of %v lasts %v", lasts, time.Duration(until-start))
		}
	}
	meter := counters.Meter{Rule: "r", Algorithm: counters.Ban, Window: time.Second, Sub: time.Second}
	if _, err := counters.NewLimit(meter, 1); err == nil {
		t.Error("bans are a limit")
	}
	if meter.Sub /= 2; meter.Validate() == nil {
		t.Error("a ban has sub-windows")
	}
}

func BenchmarkTakeWithABan(b *testing.B) {
	for _, banned := range []bool{false, true} {
		b.Run(fmt.Sprintf("banned=%v", banned), func(b *testing.B) {
			l := penalized(b, newLimit(b, counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), 1000), true,
				false, time.Hour)
			table, now := least(1), start
			if banned {
				provoke(b, table, l, 7, now)
			}
			b.ReportAllocs()
			for b.Loop() {
				now += 1000
				if !banned {
					now += int64(time.Second) / 50 // below the limit
				}
				table.Take(l, 7, 1, now)
			}
		})
	}
}

// A ban is of its limit's scope: a region's is another's than another region's, and of a node's own nothing is sent.
func TestBansHaveTheScopeOfTheirLimit(t *testing.T) {
	l := banning(t, "r", counters.SlidingWindow)
	for scope, rule := range map[counters.Scope]string{counters.Global: "r", counters.Region: "r%@eu",
		counters.Alone: "r%@"} {
		here := scoped(t, l, scope, "eu")
		if m := here.BanMeter(); m.Rule != rule || here.Meter().Rule != rule {
			t.Errorf("%v: the meter of counts is %s, that of bans %s", scope, here.Meter().Rule, m.Rule)
		}
		table := counters.NewTable(counters.Config{Origin: 1, Region: "eu", Memory: counters.MinMemory})
		until := provoke(t, table, here, 1, start)
		sent, held := table.DrainDirty(start).Slots, table.Snapshot(start, 100)
		if want := 2; scope == counters.Alone && len(sent)+len(held) != 0 ||
			scope != counters.Alone && (len(sent) != want || len(held) != want) {
			t.Errorf("%v: told %+v, held %+v", scope, sent, held)
		}
		wantBan(t, table, here, 1, start, until)
		for region, banned := range map[string]bool{"eu": scope != counters.Alone, "us": scope == counters.Global} {
			other := counters.NewTable(counters.Config{Origin: 2, Region: region, Memory: counters.MinMemory})
			other.Merge(sent, start)
			if d := other.Take(scoped(t, l, scope, region), 1, 0, start); d.Banned != banned {
				t.Errorf("%v, told in %s: %+v", scope, region, d)
			}
		}
	}
}
