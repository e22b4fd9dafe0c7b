package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// What one peer with the key can do to a table: each of these was an attack that worked.

// sentBy returns the slot as one that the origin sender sent.
func sentBy(sender counters.Origin, s counters.Slot) counters.Slot {
	s.Sender = sender
	return s
}

// Origins that a sender makes up do not keep the counts of members out.
func TestMadeUpOriginsLeaveRoomForMembers(t *testing.T) {
	l := limitOf(t, time.Hour, time.Hour/10, 100)
	table := least(1)
	table.Know([]*counters.Limit{l})
	for o := range counters.Origin(70000) {
		table.Merge([]counters.Slot{sentBy(666, slotOf(l, counters.Key(o%1000), start, 1000+o, 0, 1))}, start)
	}
	for member := counters.Origin(2); member < 500; member++ {
		table.SetMember(member, true)
		key := 1<<32 + counters.Key(member)
		if table.Merge([]counters.Slot{sentBy(member, slotOf(l, key, start, member, 0, 1))}, start) != 1 {
			t.Fatalf("the count of member %d is refused: %+v", member, table.Stats())
		}
	}
	st := table.Stats()
	if largest := uint64(70000 - numbersOfOrigins/4); st.OriginsRefused < largest {
		t.Errorf("%d slots of made-up origins are refused, want at least %d", st.OriginsRefused, largest)
	}
	// Those that another sender reports find numbers as well.
	if table.Merge([]counters.Slot{sentBy(777, slotOf(l, 1, start, 99, 0, 1))}, start) != 1 {
		t.Error("an origin that another sender speaks of is refused")
	}
}

// A flood of made-up keys from one peer pushes out no key that clients ask this table for, whatever it counts of them.
func TestMadeUpKeysPushOutNoLocalOnes(t *testing.T) {
	for _, a := range []counters.Algorithm{counters.SlidingWindow, counters.SlidingLog, counters.TokenBucket} {
		l := newLimit(t, counters.NewMeter("r", a, time.Minute), 100)
		table := least(1)
		table.Know([]*counters.Limit{l})
		table.SetCluster(1, 100*time.Millisecond)
		flood := func(round int, now int64) {
			for key := range counters.Key(10000) {
				made := key<<20 | counters.Key(round)<<40 | 1<<19
				table.Merge([]counters.Slot{sentBy(7, slotOf(l, made, now, 7, 0, 100))}, now)
			}
		}
		passed := make(map[counters.Key]int)
		now := start
		for round := range 10 {
			for key := range counters.Key(200) {
				for range 15 {
					if table.Take(l, key, 1, now).Allowed {
						passed[key]++
					}
				}
			}
			now += int64(100 * time.Millisecond)
			flood(round, now)
			table.DrainDirty(now)
		}
		for key, n := range passed {
			if n > 110 { // some of a bucket comes back meanwhile
				t.Errorf("%v: %d requests of key %d pass a limit of 100", a, n, key)
				break
			}
		}
		if st := table.Stats(); st.EvictedRemote == 0 {
			t.Errorf("%v: nothing tells that keys of peers went: %+v", a, st)
		}
	}
}

// Of the keys that only peers count, those of the one that sends most go first.
func TestMadeUpKeysPushOutTheirSendersOwn(t *testing.T) {
	l := limitOf(t, time.Hour, time.Hour/10, 100)
	table := least(1)
	table.Know([]*counters.Limit{l})
	table.SetMember(2, true)
	table.SetMember(7, true)
	const honest = 1000
	for key := range counters.Key(honest) {
		table.Merge([]counters.Slot{sentBy(2, slotOf(l, key, start, 2, 0, 20))}, start)
	}
	for key := range counters.Key(200000) {
		table.Merge([]counters.Slot{sentBy(7, slotOf(l, key<<20|1<<19, start, 7, 0, 100))}, start)
	}
	if n := kept(table, l, 0, honest, start); n < honest*95/100 {
		t.Errorf("%d of %d keys of the honest peer are left", n, honest)
	}
}

// What was forgotten of a key is sent as long as its limit is asked for: it may be admitted once more.
func TestWhatIsForgottenIsDrained(t *testing.T) {
	l := limitOf(t, time.Minute, 6*time.Second, 2)
	table := least(1)
	table.Know([]*counters.Limit{l})
	var forgot uint64
	for key := range counters.Key(60000) {
		table.Take(l, key, 2, start+int64(key))
		if key%5000 == 0 {
			for _, d := range table.DrainDirty(start + int64(key)).Forgotten {
				forgot = max(forgot, d.Count)
			}
		}
	}
	if forgot != 2 {
		t.Errorf("the most that was forgotten of a key is %d, want 2: %+v", forgot, table.Stats())
	}
}

// Slots that are implausible under one rule open the floor of that rule alone, and leave the bans of others in force.
func TestTheFloorIsOfTheRuleConcerned(t *testing.T) {
	l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, time.Minute), 80)
	l = penalized(t, l, true, false, time.Minute)
	other := newLimit(t, counters.NewMeter("other", counters.SlidingWindow, time.Minute), 80)
	table := least(1)
	table.Know([]*counters.Limit{l, other})
	table.SetCluster(3, 100*time.Millisecond)
	ban := *l.BanMeter()
	until := uint64(start+int64(30*time.Second)) / 1e6
	table.Merge([]counters.Slot{slotOf(other, 1, start, 7, 0, 80), slotOf(l, 1, start, 7, 0, 80),
		{Meter: &ban, Key: 2, Index: ban.Index(start), Origin: 7, Count: until}}, start)
	table.Merge([]counters.Slot{sentBy(9, slotOf(other, 2, start, 7, 0, 1<<63))}, start)
	if n := admitted(table, other, 80, start); n != 10 {
		t.Errorf("under the rule concerned %d are admitted, want its floor of 10", n)
	}
	if n := admitted(table, l, 80, start); n != 0 {
		t.Errorf("under another rule %d are admitted, want 0", n)
	}
	if d := table.Take(l, 2, 1, start); !d.Banned {
		t.Errorf("a ban of another rule is not in force: %+v", d)
	}
	if im := table.Stats().LastImplausible; im.Sender != 9 || im.Origin != 7 || im.Rule != "other" {
		t.Errorf("the last implausible slot: %+v", im)
	}
}

// A peer that claims a demand that nothing supports, and vanishes, takes no more than a part from clients over their
// limit.
func TestAClaimedDemandThatNothingSupports(t *testing.T) {
	for _, vanishes := range []bool{false, true} {
		l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), 1000)
		table := least(1)
		table.Know([]*counters.Limit{l})
		table.SetCluster(1, 200*time.Millisecond)
		table.SetMember(7, true)
		from := 500 // when the limit is used up
		if vanishes {
			from = 1100
		}
		var now int64
		allowed := 0
		for step := range 4000 { // twice the limit, for 40 s
			now = start + int64(step)*int64(10*time.Millisecond)
			if step%10 == 0 && (!vanishes || step < 1000) {
				claim := sentBy(7, slotOf(l, 1, now, 7, 0, 1))
				claim.Demand, claim.SentAt = 1e8, now
				table.Merge([]counters.Slot{claim}, now)
				table.SetWatermark(7, now)
			}
			for range 2 {
				if table.Take(l, 1, 1, now).Allowed && step >= from && step < from+1000 {
					allowed++
				}
			}
			if step%10 == 0 {
				table.DrainDirty(now)
			}
		}
		if allowed < 250 { // a limit without the claim
			t.Errorf("vanishes %v: in a window %d are admitted, want at least 250 of 1000", vanishes, allowed)
		}
	}
}

// A flood of new identities under rules of different shapes, whose cells lie on pages of their own, pushes out nobody
// who is over a limit.
func TestAFloodOfManyShapesKeepsOffenders(t *testing.T) {
	sliding := newLimit(t, counters.NewMeter("sliding", counters.SlidingWindow, time.Minute), 3)
	fixed := newLimit(t, counters.NewMeter("fixed", counters.FixedWindow, time.Minute), 30)
	table := least(1)
	now := start
	ask := func() (n uint64) {
		for key := range counters.Key(10) {
			for range 4 {
				if table.Take(sliding, key*7919, 1, now).Allowed {
					n++
				}
			}
		}
		return n
	}
	if n := ask(); n != 30 {
		t.Fatalf("%d are admitted, want 30", n)
	}
	for i := range counters.Key(100_000) {
		now += int64(50 * time.Microsecond)
		key := (1e6 + i) * 0x9e3779b97f4a7c15
		table.TakeAll([]counters.Charge{{Limit: sliding, Key: key, Cost: 1}, {Limit: fixed, Key: key, Cost: 1}}, now,
			nil)
	}
	if n, st := ask(), table.Stats(); n != 0 || st.EvictedDenied != 0 || st.Evicted < 100_000 {
		t.Errorf("%d are admitted again, want none: %+v", n, st)
	}
}

// Slots of made-up origins of keys that clients ask this table for take up a part of the memory, and push nothing out.
func TestSlotsOfMadeUpOriginsAreBounded(t *testing.T) {
	l := limitOf(t, time.Hour, time.Hour/10, 1e6)
	table := least(1)
	table.Know([]*counters.Limit{l})
	table.SetMember(7, true)
	const local = 1000
	for key := range counters.Key(local) {
		table.Take(l, key, 10, start)
	}
	for o := range counters.Origin(400) {
		for key := range counters.Key(local) {
			table.Merge([]counters.Slot{sentBy(7, slotOf(l, key, start, 1000+o, 0, 1))}, start)
		}
	}
	st := table.Stats()
	if n := kept(table, l, 0, local, start); n != local || st.Evicted > 0 {
		t.Errorf("%d of %d keys are left: %+v", n, local, st)
	}
	if st.Bytes > counters.MinMemory*3/4 || st.OriginsRefused == 0 {
		t.Errorf("a quarter of the memory is for them: %+v", st)
	}
	if table.Merge([]counters.Slot{sentBy(7, slotOf(l, 1, start, 7, 0, 1))}, start) != 1 {
		t.Error("a count of the member itself is refused")
	}
}

// A cost that is more than is left of a limit, of which a peer used little, is not denied because of the peer.
func TestDenialsOfLargeCosts(t *testing.T) {
	l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, time.Minute), 100)
	table := least(1)
	table.Know([]*counters.Limit{l})
	table.Merge([]counters.Slot{slotOf(l, 1, start, 7, 0, 5)}, start)
	if table.Take(l, 1, 98, start).Allowed {
		t.Error("98 are admitted, and 5 were")
	}
	if table.DrainDirty(start); table.Stats().DeniedByOne != 0 {
		t.Error("a peer that used 5 of 100 is said to have had 98 denied")
	}
}

// Who is denied because of what one peer alone reports shows, and whose word it is; where several peers, or this table,
// counted it does not.
func TestDenialsThatOnePeerCauses(t *testing.T) {
	for _, a := range algorithms {
		l := newLimit(t, counters.NewMeter("r", a, time.Minute), 100)
		for name, c := range map[string]struct {
			own    int
			slots  []counters.Slot
			denier counters.Origin
		}{
			"one peer":     {0, []counters.Slot{slotOf(l, 1, start, 8, 0, 5), slotOf(l, 1, start, 7, 0, 95)}, 7},
			"two peers":    {0, []counters.Slot{slotOf(l, 1, start, 7, 0, 50), slotOf(l, 1, start, 8, 0, 50)}, 0},
			"also here":    {20, []counters.Slot{slotOf(l, 1, start, 7, 0, 95)}, 0},
			"only here":    {100, nil, 0},
			"hardly here":  {8, []counters.Slot{slotOf(l, 1, start, 7, 0, 92)}, 7},
			"of two boots": {0, []counters.Slot{slotOf(l, 1, start, 7, 0, 50), slotOf(l, 1, start, 7, 1, 50)}, 7},
		} {
			table := least(1)
			table.Know([]*counters.Limit{l})
			table.SetCluster(3, 100*time.Millisecond)
			for range c.own {
				table.Take(l, 1, 1, start)
			}
			table.Merge(c.slots, start)
			for i := range 10 {
				if table.Take(l, 1, 1, start).Allowed {
					t.Fatalf("%v, %s: it is admitted", a, name)
				}
				if i%3 == 0 {
					table.DrainDirty(start)
				}
			}
			n, o := table.Stats().DeniedByOne, table.Stats().LastDenier
			if o != c.denier || (n == 1) != (c.denier != 0) || n > 1 {
				t.Errorf("%v, %s: %d denials, the last because of %d, want %d", a, name, n, o, c.denier)
			}
		}
	}
}
