package counters_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// Where owners add up, no view exceeds the truth: whatever is lost, doubled, late or in another order, whoever takes
// whom for an owner, and whatever tables evict. A cluster that grows begins as a mesh.
func TestNoSumExceedsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := unlimited(t, "r", rapid.SampledFrom([]counters.Algorithm{counters.SlidingWindow, counters.FixedWindow,
			counters.SlidingLog, counters.TokenBucket}).Draw(t, "algorithm"))
		evicts := rapid.Bool().Draw(t, "evicts")
		table := wide
		if evicts {
			table = func(cfg counters.Config) *counters.Table { return counters.NewTinyIn(cfg, 3) }
		}
		w := newWAN(t, rapid.IntRange(1, 3).Draw(t, "regions"), rapid.IntRange(1, 3).Draw(t, "members"), table)
		truth, others := oracle.NewModel(l), newCrowd(t)
		others.limit = scoped(t, others.limit, counters.Alone, "")
		if rapid.Bool().Draw(t, "mesh") {
			for _, n := range w.nodes {
				n.mesh = true
				n.setOwners()
			}
		}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			n := w.draw(t, w.nodes, "node")
			key := counters.Key(rapid.IntRange(0, wanPartitions-1).Draw(t, "key"))
			switch step := rapid.IntRange(0, 15).Draw(t, "step"); {
			case step < 4:
				if cost := rapid.Uint64Range(1, 5).Draw(t, "cost"); n.Take(l, key, cost, w.now).Allowed {
					truth.Charge(key, cost, w.now)
				}
			case step < 7:
				w.flush(n)
			case step < 11 && len(w.parcels) > 0:
				i := rapid.IntRange(0, len(w.parcels)-1).Draw(t, "parcel")
				w.deliver(w.parcels[i])
				if !rapid.Bool().Draw(t, "again") {
					w.parcels = append(w.parcels[:i:i], w.parcels[i+1:]...)
				}
			case step == 11:
				w.now += rapid.OneOf(rapid.Just(int64(100*time.Millisecond)),
					rapid.Int64Range(0, int64(4*time.Second))).Draw(t, "pause")
			case step == 12: // one node takes another one for the owner
				region := rapid.IntRange(0, w.regions-1).Draw(t, "region")
				if of := w.members(region); len(of) > 0 {
					n.owners[region][int(key)] = w.draw(t, of, "owner").origin
					n.setOwners()
					n.refreshAll()
				}
			case step == 13 && rapid.Bool().Draw(t, "snapshot"):
				to := w.draw(t, w.nodes, "to")
				w.parcels = append(w.parcels, parcel{n, to, n.Snapshot(w.now, 1000), true})
			case step == 13:
				n.mesh = !n.mesh
				n.setOwners()
				n.refreshAll()
			case step == 14 && evicts && n.View(l, key, w.now) > 0:
				w.route(n, others.pushOut(t, n.Table, l, key, w.now))
			case step == 15 && len(w.nodes) > 2: // it crashes, and starts again
				w.leave(n)
				w.join(n.region, table)
			}
			w.wantTruth(l, truth, wanPartitions)
		}
	})
}

// When nothing is on its way any more, every table that counted a key has the truth of it, though nodes changed their
// minds about owners, messages came in any order, and the cluster may have been a mesh before.
func TestSumsReachAllThatCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := unlimited(t, "r", rapid.SampledFrom([]counters.Algorithm{counters.SlidingWindow,
			counters.FixedWindow}).Draw(t, "algorithm"))
		w := newWAN(t, rapid.IntRange(1, 4).Draw(t, "regions"), rapid.IntRange(1, 3).Draw(t, "members"), wide)
		truth, counted := oracle.NewModel(l), make(map[*wanNode]map[counters.Key]bool)
		for _, n := range w.nodes {
			counted[n] = make(map[counters.Key]bool)
		}
		if rapid.Bool().Draw(t, "mesh") {
			for _, n := range w.nodes {
				n.mesh = true
				n.setOwners()
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			n := w.draw(t, w.nodes, "node")
			key := counters.Key(rapid.IntRange(0, wanPartitions-1).Draw(t, "key"))
			switch step := rapid.IntRange(0, 12).Draw(t, "step"); {
			case step < 4:
				n.Take(l, key, 1, w.now)
				truth.Charge(key, 1, w.now)
				counted[n][key] = true
			case step < 7:
				w.flush(n)
			case step < 10 && len(w.parcels) > 0:
				i := rapid.IntRange(0, len(w.parcels)-1).Draw(t, "parcel")
				w.deliver(w.parcels[i])
				w.parcels = append(w.parcels[:i:i], w.parcels[i+1:]...)
			case step == 10:
				w.now += rapid.Int64Range(0, int64(300*time.Millisecond)).Draw(t, "pause")
			case step == 11:
				region := rapid.IntRange(0, w.regions-1).Draw(t, "region")
				n.owners[region][int(key)] = w.draw(t, w.members(region), "owner").origin
				n.setOwners()
				n.refreshAll()
			case step == 12 && n.mesh:
				for _, n := range w.nodes {
					n.mesh = false
					n.setOwners()
					n.refreshAll()
				}
			}
		}
		for _, n := range w.nodes {
			n.mesh = false
		}
		for region := range w.regions {
			for p := range wanPartitions {
				w.agree(region, p, w.draw(t, w.members(region), "last owner").origin)
			}
		}
		w.settle()
		w.wantTruth(l, truth, wanPartitions)
		for n, keys := range counted {
			for key := range keys {
				if view, want := n.View(l, key, w.now), truth.View(key, w.now); view != want {
					t.Fatalf("node %d of region %d has a view of %d of key %d, of which there are %d\n%+v", n.origin,
						n.region, view, key, want, n.Slots(l, key, w.now))
				}
			}
		}
	})
}

// partsAndSums draws slots of one key in one sub-window: of nodes of both regions, of the sums over them, and of a node
// whose region is unknown.
func partsAndSums(t *rapid.T, l *counters.Limit, unplaced bool) (slots []counters.Slot) {
	places := map[counters.Origin]counters.Place{
		2: counters.Near, 3: counters.Near, 4: counters.Far(0), 5: counters.Far(1), 6: counters.Far(1),
		sumOf(regionSum, 0).Of(1): counters.Near.Sum(), sumOf(regionSum, 1).Of(1): counters.Far(0).Sum(),
		sumOf(regionSum, 2).Of(1): counters.Far(1).Sum(), sumOf(elsewhereSum, 0).Of(1): counters.Elsewhere,
	}
	if unplaced {
		places[7] = counters.Unplaced
	}
	origins := slices.Sorted(maps.Keys(places))
	for range rapid.IntRange(1, 30).Draw(t, "slots") {
		origin := rapid.SampledFrom(origins).Draw(t, "origin")
		s := sentBy(2, slotOf(l, 1, start, origin, 0, rapid.Uint64Range(1, 20).Draw(t, "count")))
		s.Place = places[origin]
		slots = append(slots, s)
	}
	return slots
}

// A sum counts what it exceeds its parts by, in whatever order they come.
func TestASumCountsWhatItExceedsItsPartsBy(t *testing.T) {
	for _, a := range []counters.Algorithm{counters.SlidingWindow, counters.FixedWindow, counters.TokenBucket} {
		l := unlimited(t, "r", a)
		rapid.Check(t, func(t *rapid.T) {
			table := least(1)
			table.Take(l, 1, 5, start)
			largest := make(map[counters.Place]map[counters.Origin]uint64)
			for _, s := range partsAndSums(t, l, false) {
				table.Merge([]counters.Slot{s}, start)
				if largest[s.Place] == nil {
					largest[s.Place] = make(map[counters.Origin]uint64)
				}
				largest[s.Place][s.Origin] = max(largest[s.Place][s.Origin], s.Count)
			}
			sum := func(p counters.Place) (n uint64) {
				for _, count := range largest[p] {
					n += count
				}
				return n
			}
			larger := func(p counters.Place) uint64 { return max(sum(p), sum(p.Sum())) }
			want := 5 + larger(counters.Near) +
				max(sum(counters.Elsewhere), larger(counters.Far(0))+larger(counters.Far(1)))
			if got := table.View(l, 1, start); got != want {
				t.Fatalf("%v: the view is %d, want %d of %v", a, got, want, largest)
			}
			var own uint64
			for _, s := range table.Own(start) {
				own += s.Count
			}
			if own != 5 {
				t.Fatalf("%v: %d are the table's own, want 5", a, own)
			}
		})
	}
}

// A node that a snapshot reported is in the sum of some region, nobody knows of which: it is never counted twice.
func TestAnUnknownRegionIsNotCountedTwice(t *testing.T) {
	l := unlimited(t, "r", counters.SlidingWindow)
	rapid.Check(t, func(t *rapid.T) {
		table := least(1)
		sums, known := make(map[counters.Place]uint64), uint64(0)
		for _, s := range partsAndSums(t, l, true) {
			switch {
			case s.Place == counters.Unplaced:
				known = max(known, s.Count)
			case s.Place == s.Place.Sum():
				sums[s.Place] = max(sums[s.Place], s.Count)
			default:
				continue
			}
			table.Merge([]counters.Slot{s}, start)
			largest := sums[counters.Near.Sum()] +
				max(sums[counters.Elsewhere], sums[counters.Far(0).Sum()]+sums[counters.Far(1).Sum()])
			if view := table.View(l, 1, start); view > max(largest, known+largest-min(largest, known)) {
				t.Fatalf("the view is %d: %d of an unknown region, sums of %v", view, known, sums)
			}
		}
	})
}

// What an owner had to pass on of a cell that it evicts is passed on all the same.
func TestAnEvictedCellIsPassedOn(t *testing.T) {
	l := unlimited(t, "r", counters.SlidingWindow)
	w := newWAN(t, 3, 2, func(cfg counters.Config) *counters.Table { return counters.NewTinyIn(cfg, 3) })
	others := newCrowd(t)
	others.limit = scoped(t, others.limit, counters.Alone, "")
	const key = 1
	for _, n := range []*wanNode{w.nodes[1], w.nodes[3], w.nodes[5]} { // members of each region ask for the key
		n.Take(l, key, 1, w.now)
	}
	w.settle()
	owner := w.nodes[0]
	owner.Take(l, key, 10, w.now)
	w.nodes[1].Take(l, key, 100, w.now)
	w.flush(w.nodes[1])
	for _, p := range w.parcels {
		w.deliver(p)
	}
	w.parcels = nil
	w.route(owner, others.pushOut(t, owner.Table, l, key, w.now))
	w.settle()
	for i, want := range map[int]uint64{1: 113, 3: 113, 5: 113} {
		if view := w.nodes[i].View(l, key, w.now); view != want {
			t.Errorf("node %d has a view of %d, want %d", i, view, want)
		}
	}
}

// Bans and lifts reach all tables, whoever began them; those of a region, all of the region.
func TestBansAndLiftsReachAll(t *testing.T) {
	base := banning(t, "r", counters.SlidingWindow)
	rapid.Check(t, func(t *rapid.T) {
		w := newWAN(t, 3, 2, wide)
		scope := rapid.SampledFrom([]counters.Scope{counters.Global, counters.Region}).Draw(t, "scope")
		limits := make(map[int]*counters.Limit)
		for _, n := range w.nodes {
			limits[n.region] = scoped(t, base, scope, fmt.Sprint("r", n.region))
			n.Know([]*counters.Limit{limits[n.region]})
		}
		key := counters.Key(rapid.IntRange(0, wanPartitions-1).Draw(t, "key"))
		began, ended := w.draw(t, w.nodes, "began"), w.draw(t, w.nodes, "ended")
		for range 4 {
			began.Take(limits[began.region], key, 1, w.now)
		}
		if moved := w.draw(t, w.nodes, "moved"); rapid.Bool().Draw(t, "moves") {
			w.flush(began)
			w.parcels = nil // lost with the owner
			w.agree(moved.region, int(key), moved.origin)
		}
		w.settle()
		for _, n := range w.nodes {
			want := scope == counters.Global || n.region == began.region
			if got := n.Take(limits[n.region], key, 0, w.now).Banned; got != want {
				t.Fatalf("node %d of region %d: banned %v, want %v", n.origin, n.region, got, want)
			}
		}
		w.now += int64(time.Second)
		counters.LiftBanOf(ended.Table, limits[ended.region], key, w.now)
		w.settle()
		for _, n := range w.nodes {
			want := scope == counters.Region && n.region == began.region && began.region != ended.region
			if got := n.Take(limits[n.region], key, 0, w.now).Banned; got != want {
				t.Fatalf("node %d of region %d: banned %v after a lift, want %v", n.origin, n.region, got, want)
			}
		}
	})
}

// Counts of a region stay in it, and counts of a node at the node: they are in no parcel.
func TestScopesStayWhereTheyAre(t *testing.T) {
	for _, scope := range []counters.Scope{counters.Region, counters.Alone} {
		w := newWAN(t, 3, 3, wide)
		limits := make([]*counters.Limit, w.regions)
		for r := range limits {
			limits[r] = scoped(t, banning(t, "r", counters.SlidingWindow), scope, fmt.Sprint("r", r))
		}
		for i, n := range w.nodes {
			n.Know([]*counters.Limit{limits[n.region]})
			for range 1 + i%2*4 {
				n.Take(limits[n.region], 1, 1, w.now)
			}
		}
		for range 5 {
			for _, n := range w.nodes {
				n.refreshAll()
				w.flush(n)
			}
			for _, p := range w.parcels {
				if scope == counters.Alone || p.from.region != p.to.region {
					t.Fatalf("scope %v: region %d sends %+v to region %d", scope, p.from.region, p.slots[0],
						p.to.region)
				}
				w.deliver(p)
			}
			w.parcels = nil
		}
		for _, n := range w.nodes {
			want := uint64(3 + 1 + 3) // at most: 1 or 3 of each
			if scope == counters.Region {
				if view := n.View(limits[n.region], 1, w.now); view < 3 || view > want {
					t.Errorf("node %d has a view of %d of its region", n.origin, view)
				}
			}
		}
	}
}

// Each table knows the demand of all, and counts nobody's twice: with one owner in each region, with two, and after the
// owner has changed.
func TestDemandIsCountedOnce(t *testing.T) {
	l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), 1000)
	const key, tick = 1, int64(100 * time.Millisecond)
	for name, change := range map[string]func(*wan, *rand.Rand, int){
		"one owner": func(*wan, *rand.Rand, int) {},
		"two owners": func(w *wan, r *rand.Rand, step int) {
			if step%60 == 50 {
				for _, n := range w.nodes[:3] {
					n.owners[0][key] = w.nodes[r.IntN(2)].origin
					n.setOwners()
					n.refreshAll()
				}
			}
		},
		"the owner changes": func(w *wan, _ *rand.Rand, step int) {
			if step%60 == 50 {
				w.agree(0, key, w.nodes[step/60%2].origin)
			}
		},
		"a mesh before": func(w *wan, _ *rand.Rand, step int) {
			if step == 0 || step == 60 {
				for _, n := range w.nodes {
					n.mesh = step == 0
					n.setOwners()
					n.refreshAll()
				}
			}
		},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		w := newWAN(t, 3, 3, wide)
		for _, n := range w.nodes {
			n.Know([]*counters.Limit{l})
			n.SetCluster(len(w.nodes)-1, 200*time.Millisecond)
		}
		for step := range 300 { // each node is asked for 20 a second, all for 180
			change(w, r, step)
			w.now += tick
			for _, n := range w.nodes {
				n.Take(l, key, 2, w.now)
				w.flush(n)
			}
			for _, p := range w.parcels {
				w.deliver(p)
				p.to.SetWatermark(p.from.origin, w.now)
			}
			for _, n := range w.nodes { // from each, all was received
				for _, m := range w.nodes {
					n.SetWatermark(m.origin, w.now)
				}
				for region := range w.regions {
					n.SetSumWatermarks(sumOf(regionSum, region), only(key), w.now)
				}
				n.SetSumWatermarks(sumOf(elsewhereSum, n.region), only(key), w.now)
				n.SetSumWatermarks(sumOf(lostSum, n.region), only(key), w.now)
			}
			w.parcels = nil
			if step < 100 || step%60 > 40 { // rates take a while to settle
				continue
			}
			for i, n := range w.nodes {
				n.Take(l, key, 0, w.now)
				state := n.HotKeyState(l, key)
				if state == nil {
					if name != "two owners" { // they are sent little of each other's
						t.Fatalf("%s: node %d has no demand", name, i)
					}
					continue
				}
				rate := state.Reachable + state.Unreachable
				if rate > 1.1*180 || name != "two owners" && step%60 > 45 && rate < 0.9*180 {
					t.Fatalf("%s: step %d: node %d knows a demand of %.0f (%+v), want 180", name, step, i, rate, *state)
				}
			}
		}
	}
}

// Where several members of a region ask for a key, all of them know how much of its limit is used once it runs short:
// all that was counted before as well, and all that is afterwards. Of a key that one node asks for, the others know
// nothing.
func TestAllKnowALimitThatRunsShort(t *testing.T) {
	l := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), 1000)
	w := newWAN(t, 2, maxWANMembers, wide)
	for _, n := range w.nodes {
		n.Know([]*counters.Limit{l})
		n.SetCluster(len(w.nodes)-1, 200*time.Millisecond)
	}
	const wideKey, narrowKey = 1, 2
	last := w.members(0)[maxWANMembers-1]
	for step := range 60 {
		w.now += int64(100 * time.Millisecond)
		for _, n := range w.members(0)[1:4] {
			n.Take(l, wideKey, 4, w.now)
		}
		w.members(0)[1].Take(l, narrowKey, 12, w.now)
		w.settle()
		used, view := uint64(12*(step+1)), last.View(l, wideKey, w.now)
		if want := used*2 > l.Max(); want && view != used || !want && view != 0 {
			t.Fatalf("of %d, a node that was not asked knows %d", used, view)
		}
		if view := last.View(l, narrowKey, w.now); view != 0 {
			t.Fatalf("of a key that one node is asked for, another knows %d", view)
		}
	}
}

// An owner of all partitions adds up what hundreds of regions count, tells them apart by name, and knows of the sums of
// each partition by themselves how complete they are.
func TestSumsOfManyRegions(t *testing.T) {
	const regions = 256
	l := limitOf(t, time.Hour, time.Hour/10, 100_000)
	table := ofThree(l, 1, 1, 1)
	o := &counters.Owners{Regions: regions + 1, Members: slices.Repeat([]int{1}, regions+1),
		Region: sumOf(regionSum, 999), Elsewhere: sumOf(elsewhereSum, 999), Lost: sumOf(lostSum, 999)}
	for p := range counters.Partitions {
		o.Owned.Add(p)
	}
	table.SetOwners(o)
	for key := range counters.Key(counters.Partitions) {
		table.Take(l, key, 1, start)
		for region := range regions {
			s := slotOf(l, key, start, sumOf(regionSum, region).Of(key.Partition()), 0, 200)
			s.Place, s.Sender, s.Demand = counters.Far(region).Sum(), 7, 1
			table.Merge([]counters.Slot{s}, start)
		}
		if view := table.View(l, key, start); view != 1+200*regions {
			t.Fatalf("key %d: a view of %d, want %d; %+v", key, view, 1+200*regions, table.Stats())
		}
	}
	asked := make(map[counters.Origin]bool)
	for _, s := range table.DrainDirty(start).Slots {
		if s.To != 0 && s.To&0xff != counters.Origin(s.Key) {
			t.Fatalf("of key %d, a sum goes to %x", s.Key, uint64(s.To))
		}
		asked[s.To] = s.To != 0
	}
	if len(asked) != 1+regions*counters.Partitions {
		t.Errorf("sums go to %d owners, want %d", len(asked), regions*counters.Partitions)
	}
	now := after(time.Second)
	for region := range regions {
		table.SetSumWatermarks(sumOf(regionSum, region), only(5), now)
	}
	for key, reachable := range map[counters.Key]bool{5: true, 6: false} {
		table.Take(l, key, 1, now)
		if w := table.HotKeyState(l, key); reachable != (w.Unreachable == 0) || w.Reachable+w.Unreachable < regions {
			t.Errorf("key %d: %+v", key, *w)
		}
	}
}

// What was reported to an owner of other regions is forgotten when nobody adds up any more: their nodes report it
// themselves.
func TestDemandOfRegionsEndsWithOwners(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	table := ofThree(l, 3, 3, 3)
	far := summed(l, 1, counters.Far(0).Sum(), 50, start)
	far.Demand = 100
	now := start
	table.Merge([]counters.Slot{far}, now)
	for range 100 {
		table.Take(l, 1, 1, now)
	}
	step := func() {
		now += int64(100 * time.Millisecond)
		table.DrainDirty(now)
	}
	step()
	table.SetOwners(nil)
	denied := 0
	for i := range 400 { // 5 a second, half of the limit
		step()
		if i%2 == 0 && !table.Take(l, 1, 1, now).Allowed && i > 120 {
			denied++
		}
	}
	if denied > 0 {
		t.Errorf("a client that keeps to half of its limit is denied %d of 140 times", denied)
	}
}

// What an owner counted before a sub-window began is sent, too, when it is drained in the next one: in time, and early.
func TestOwnersSendWhatChangedBefore(t *testing.T) {
	l := limitNamed(t, "r", 1000)
	for name, drain := range map[string]func(table *counters.Table, now int64) counters.Drained{
		"in time": (*counters.Table).DrainDirty, "early": (*counters.Table).DrainEarly,
	} {
		table := ofThree(l, 50, 50, 50)
		far := summed(l, 1, counters.Far(0).Sum(), 1, start)
		table.Merge([]counters.Slot{far}, start)
		table.DrainDirty(start)
		table.Take(l, 1, 100, start)
		meter := l.Meter()
		var sent []uint64
		for _, s := range drain(table, start+int64(meter.Sub)).Slots {
			if s.To == far.Origin && s.Index == meter.Index(start) {
				sent = append(sent, s.Count)
			}
		}
		if !slices.Equal(sent, []uint64{100}) {
			t.Errorf("%s: %v are sent to the other region of what the owner counted before, want 100", name, sent)
		}
	}
}
