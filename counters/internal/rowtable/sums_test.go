package rowtable_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

// In whatever order parts and sums come, old or new, of few members or many, a view never exceeds what was admitted.
// Once the last sums have come, it is what was admitted.
func TestSumsInAnyOrder(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		table, l := rowtable.New(tableSize, 1), smallLimit(1<<30)
		members := []int{2, 20}[r.IntN(2)] // of each region; the second region's are far
		places := []rowtable.Place{rowtable.Near, rowtable.Far(0), rowtable.Far(1)}
		var slots []rowtable.Slot
		send := func(origin int, place rowtable.Place, count uint64) {
			slots = append(slots, rowtable.Slot{Key: 1, Index: start / l.Sub, Origin: uint16(2 + origin),
				Place: place, Count: count})
		}
		var counts [3][20]uint64
		var near, elsewhere uint64
		for range 30 {
			var sums [3]uint64
			for region := range places {
				for i := range members {
					counts[region][i] += r.Uint64N(5)
					sums[region] += counts[region][i]
					send(100*region+i, places[region], counts[region][i])
				}
				if region > 0 {
					send(100*region+50, places[region].Sum(), sums[region])
				}
			}
			near, elsewhere = sums[0], sums[1]+sums[2]
			send(50, rowtable.Near.Sum(), near)
			send(51, rowtable.Elsewhere, elsewhere)
		}
		r.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
		for i := range slots[:r.IntN(len(slots))] {
			table.Merge(&l.Meter, slots[i:i+1], start)
			if view := table.View(l, 1, start); view > near+elsewhere {
				t.Fatalf("seed %d: view %d of %d that were admitted", seed, view, near+elsewhere)
			}
		}
		table.Merge(&l.Meter, slots, start)
		if view := table.View(l, 1, start); view != near+elsewhere {
			t.Fatalf("seed %d: view %d, want %d", seed, view, near+elsewhere)
		}
	}
}

// A sum may count what all nodes that it is over can have admitted.
func TestImplausibleSums(t *testing.T) {
	table := rowtable.New(tableSize, 1)
	m := rowtable.Meter{ID: 0x9e3779b97f4a7c15, Sub: int64(time.Second), N: 10, MaxSlot: 160}
	table.SetOwners(&rowtable.Owners{Members: []int{3, 5, 7}})
	for i, c := range []struct {
		place   rowtable.Place
		members uint64
	}{
		{rowtable.Near, 1}, {rowtable.Near.Sum(), 3}, {rowtable.Far(0).Sum(), 5}, {rowtable.Far(1).Sum(), 7},
		{rowtable.Elsewhere, 12},
	} {
		slot := rowtable.Slot{Key: uint64(i), Index: start / m.Sub, Origin: 2, Place: c.place,
			Count: c.members * m.MaxSlot}
		if table.Merge(&m, []rowtable.Slot{slot}, start) != 1 || table.Implausible() != uint64(i) {
			t.Errorf("a sum over %d members was refused", c.members)
		}
		slot.Count++
		if table.Merge(&m, []rowtable.Slot{slot}, start) != 0 || table.Implausible() != uint64(i+1) {
			t.Errorf("a sum of more than %d members can have admitted was not refused", c.members)
		}
	}
}

// Of the demand that an owner added up and that of the members it is over, a table takes the larger.
func TestDemandOfSums(t *testing.T) {
	type report struct {
		place  rowtable.Place
		origin uint16
		rate   float32
	}
	sum, member := report{rowtable.Near.Sum(), 7, 900}, report{rowtable.Near, 8, 450}
	admitted := func(reports ...report) (n int) {
		table, l := rowtable.New(tableSize, 1), smallLimit(1000)
		table.SetCluster(rowtable.Global, 10, 200*time.Millisecond)
		table.SetOwners(&rowtable.Owners{})
		table.Drain(nil, start)
		now := start + 10*int64(time.Second)
		slots := []rowtable.Slot{{Key: 1, Index: now / l.Sub, Origin: 7, Place: sum.place, Count: 950}}
		for _, r := range reports {
			slots = append(slots, rowtable.Slot{Key: 1, Index: now / l.Sub, Origin: r.origin, Place: r.place,
				Demand: r.rate, SentAt: now})
		}
		table.Merge(&l.Meter, slots, now)
		for range 100 {
			if table.Take(l, 1, 1, now).Allowed {
				n++
			}
		}
		return n
	}
	none, both, sums, members := admitted(), admitted(member, sum), admitted(sum), admitted(member)
	if none != 50 || both != sums || sums >= members || members >= none || sums < 5 {
		t.Errorf("%d were admitted without demands, %d with both, %d with the sum's, %d with the member's", none, both,
			sums, members)
	}
	var all rowtable.PartitionSet
	for p := range rowtable.Partitions {
		all.Add(p)
	}
	table, l := rowtable.New(tableSize, 1), smallLimit(1000)
	table.SetCluster(rowtable.Global, 10, 200*time.Millisecond)
	table.SetSumWatermarks(7, all, rowtable.Gone) // unknown: nothing happens
	table.Merge(&l.Meter, []rowtable.Slot{{Key: 1, Index: start / l.Sub, Origin: 7, Place: sum.place, Count: 950,
		Demand: 900, SentAt: start}}, start)
	table.SetSumWatermarks(7, all, rowtable.Gone)
	for i := range 50 {
		if !table.Take(l, 1, 1, start).Allowed {
			t.Fatalf("request %d was held back for a sum that is gone", i)
		}
	}
}
