package counters_test

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// What an owner with the key can do that lies about its region.

// summed is a slot of a sum, as the peer 7 sent it.
func summed(l *counters.Limit, key counters.Key, place counters.Place, count uint64, now int64) counters.Slot {
	s := sentBy(7, slotOf(l, key, now, sumOf(regionSum, int(place&0xff)).Of(key.Partition()), 0, count))
	s.Place = place
	return s
}

// ofThree is a table in the first of three regions of so many members, which knows the limit.
func ofThree(l *counters.Limit, near, far, further int) *counters.Table {
	table := least(1)
	table.Know([]*counters.Limit{l})
	table.SetCluster(near+far+further-1, 100*time.Millisecond)
	table.SetMember(7, true)
	o := &counters.Owners{Regions: 3, Members: []int{near, far, further},
		Region: sumOf(regionSum, 9), Elsewhere: sumOf(elsewhereSum, 9), Lost: sumOf(lostSum, 9)}
	for p := range counters.Partitions {
		o.Owned.Add(p)
	}
	table.SetOwners(o)
	return table
}

// A sum is plausible up to what the members of its region can have admitted. What is above is refused, counted and
// named, opens the floor of its rule, and of no other.
func TestASumBeyondItsMembersIsRefused(t *testing.T) {
	other := limitNamed(t, "other", 80)
	for _, a := range []counters.Algorithm{counters.SlidingWindow, counters.FixedWindow, counters.TokenBucket} {
		l := newLimit(t, counters.NewMeter("r", a, time.Hour), 80)
		each := counters.Believed(l)
		for place, members := range map[counters.Place]uint64{
			counters.Near.Sum(): 2, counters.Far(0).Sum(): 3, counters.Far(1).Sum(): 5, counters.Elsewhere: 8,
		} {
			for _, lie := range []uint64{members*each + 1, 1 << 40, 1 << 60, math.MaxUint64} {
				table := ofThree(l, 2, 3, 5)
				table.Know([]*counters.Limit{l, other})
				if table.Merge([]counters.Slot{summed(l, 1, place, members*each, start)}, start) != 1 {
					t.Errorf("%v: a sum of what %d members can have admitted is refused", a, members)
				}
				if n := admitted(table, l, 80, start); n != 0 {
					t.Errorf("%v: beside a plausible sum %d are admitted, want 0", a, n)
				}
				table.Merge([]counters.Slot{summed(l, 2, place, lie, start), summed(other, 1, place, 80, start)}, start)
				if view := table.View(l, 2, start); view != 0 {
					t.Errorf("%v: a sum of %d: the view is %d, want 0", a, lie, view)
				}
				if st := table.Stats(); st.Implausible != 1 || st.LastImplausible.Sender != 7 {
					t.Errorf("%v: a sum of %d: %+v", a, lie, st)
				}
				if n := admitted(table, l, 80, start); n != 4 { // half of an even share
					t.Errorf("%v: under the rule concerned %d are admitted, want its floor of 4", a, n)
				}
				if n := admitted(table, other, 80, start); n != 0 {
					t.Errorf("%v: under another rule %d are admitted, want 0", a, n)
				}
			}
		}
	}
}

// An owner whose members report more than is plausible sends a sum that is: it is not refused with all that the others
// counted.
func TestAnOwnerSendsPlausibleSums(t *testing.T) {
	l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, time.Hour), 100)
	owner, far := ofThree(l, 3, 3, 3), ofThree(l, 3, 3, 3)
	member := sentBy(8, slotOf(l, 1, start, 8, 0, 5))
	member.Place = counters.Near
	slots := []counters.Slot{member, summed(l, 1, counters.Far(0).Sum(), 1, start)}
	for birth := range uint32(60) {
		s := sentBy(7, slotOf(l, 1, start, 7, birth, counters.Believed(l)))
		s.Place = counters.Near
		slots = append(slots, s)
	}
	owner.Merge(slots, start)
	across := 0
	for _, s := range owner.DrainDirty(start).Slots {
		switch {
		case s.To >= regionSum:
			across++
			s.Place, s.Sender = counters.Far(0).Sum(), 1
			far.Merge([]counters.Slot{s}, start)
		case s.To == 8 && s.Count > 3*counters.Believed(l):
			t.Errorf("a member is sent %+v", s)
		}
	}
	if view := far.View(l, 1, start); across == 0 || view != 3*counters.Believed(l) || far.Stats().Implausible != 0 {
		t.Errorf("%d slots go across: a view of %d, %+v", across, view, far.Stats())
	}
}

// The names of sums that somebody makes up take a part of the numbers: members find theirs.
func TestMadeUpSumsLeaveRoomForMembers(t *testing.T) {
	l := limitOf(t, time.Hour, time.Hour/10, 100)
	table := ofThree(l, 3, 3, 3)
	for o := range counters.Origin(20000) {
		s := summed(l, counters.Key(o%1000), counters.Far(int(o)%8000).Sum(), 1, start)
		s.Origin = regionSum | o<<8 | s.Origin&0xff
		table.Merge([]counters.Slot{s}, start)
	}
	if refused := table.Stats().OriginsRefused; refused < 20000-numbersOfOrigins/8 {
		t.Errorf("%d sums are refused", refused)
	}
	for member := counters.Origin(10); member < 2000; member++ {
		table.SetMember(member, true)
		if table.Merge([]counters.Slot{sentBy(member, slotOf(l, 1, start, member, 0, 1))}, start) != 1 {
			t.Fatalf("the count of member %d is refused: %+v", member, table.Stats())
		}
	}
}

// Nor do names of a region's sums over other partitions: a key is in one.
func TestNamesOfASumDoNotAddUp(t *testing.T) {
	l := limitOf(t, time.Hour, time.Hour/10, 1000)
	table := ofThree(l, 3, 300, 3)
	for partition := range counters.Partitions {
		s := summed(l, 1, counters.Far(0).Sum(), 10+uint64(partition%2), start)
		s.Origin = sumOf(regionSum, 1).Of(partition)
		table.Merge([]counters.Slot{s}, start)
	}
	if view, refused := table.View(l, 1, start), table.Stats().Refused; view != 11 || refused != counters.Partitions-1 {
		t.Errorf("a view of %d, %d slots refused, want 11 and %d", view, refused, counters.Partitions-1)
	}
}

// Births of a sum do not add up.
func TestBirthsOfASumDoNotAddUp(t *testing.T) {
	l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, time.Hour), 100)
	for _, place := range []counters.Place{counters.Near.Sum(), counters.Far(0).Sum(), counters.Elsewhere} {
		table := ofThree(l, 3, 3, 3)
		for birth := range uint32(1000) {
			s := summed(l, 1, place, 10+uint64(birth%2), start)
			s.Birth = birth
			table.Merge([]counters.Slot{s}, start)
		}
		if view, slots := table.View(l, 1, start), table.Slots(l, 1, start); view != 11 || len(slots) != 1 {
			t.Errorf("a view of %d in %d slots, want 11 in 1", view, len(slots))
		}
	}
}

// An owner that claims a demand that nothing supports takes no more than a part from clients over their limit, by
// whichever sum it claims it.
func TestADemandThatAnOwnerMakesUp(t *testing.T) {
	for _, place := range []counters.Place{
		counters.Near.Sum(), counters.Far(0).Sum(), counters.Elsewhere, counters.Lost,
	} {
		l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), 1000)
		table, allowed := ofThree(l, 3, 3, 3), 0
		for step := range 2000 { // twice the limit, for 20 s
			now := start + int64(step)*int64(10*time.Millisecond)
			if step%10 == 0 {
				claim := summed(l, 1, place, 1, now)
				claim.Demand, claim.SentAt = 1e8, now
				table.Merge([]counters.Slot{claim}, now)
				sum, partition := claim.Origin.Sum()
				table.SetSumWatermarks(sum, only(partition), now)
			}
			for range 2 {
				if table.Take(l, 1, 1, now).Allowed && step >= 1000 {
					allowed++
				}
			}
			if step%10 == 0 {
				table.DrainDirty(now)
			}
		}
		if allowed < 250 { // a limit without the claim
			t.Errorf("place %d: in a window %d are admitted, want at least 250 of 1000", place, allowed)
		}
	}
}

// Who is no member is sent no sums, whoever names it: the names that one makes up are no work for the owner.
func TestMadeUpMembersAreSentNothing(t *testing.T) {
	l := limitOf(t, time.Hour, time.Hour/10, 100)
	table := ofThree(l, 3, 3, 3)
	for o := range counters.Origin(100) {
		s := sentBy(7, slotOf(l, 1, start, 1000+o, 0, 1))
		s.Place = counters.Near
		table.Merge([]counters.Slot{s}, start)
	}
	member := sentBy(7, slotOf(l, 1, start, 7, 0, 1))
	member.Place = counters.Near
	table.Merge([]counters.Slot{member}, start)
	to := make(map[counters.Origin]int)
	for _, s := range table.DrainDirty(start).Slots {
		to[s.To]++
	}
	delete(to, counters.AllRegions)
	if len(to) != 1 || to[7] == 0 {
		t.Errorf("slots by receiver: %v, want some for 7 alone", to)
	}
}
