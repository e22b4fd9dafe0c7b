package rowtable_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

// counted is a slot of either table.
type counted struct {
	meter  string
	key    uint64
	index  int64
	origin uint16
	birth  uint32
	count  uint64
}

func inOrder(slots []counted) []counted {
	slices.SortFunc(slots, func(a, b counted) int {
		return cmp.Or(cmp.Compare(a.meter, b.meter), cmp.Compare(a.key, b.key), cmp.Compare(a.index, b.index),
			cmp.Compare(a.origin, b.origin), cmp.Compare(a.birth, b.birth), cmp.Compare(a.count, b.count))
	})
	return slots
}

// ofOld converts slots. Own births are each table's.
func ofOld(slots []counters.Slot) (all []counted) {
	for _, s := range slots {
		c := counted{nameOf(s.Meter), uint64(s.Key), s.Index, uint16(s.Origin), s.Birth, s.Count}
		if c.origin == 1 {
			c.origin, c.birth = 0, 0
		}
		all = append(all, c)
	}
	return inOrder(all)
}

func (p *pair) ofNew(slots []rowtable.Slot) (all []counted) {
	for _, s := range slots {
		c := counted{p.ruleOf(s), s.Key, s.Index, s.Origin, s.Birth, s.Count}
		if c.origin == 0 {
			c.birth = 0
		}
		all = append(all, c)
	}
	return inOrder(all)
}

// scan compares what both return of all keys, of their own slots, of those of a part of the keys, and of one key.
func (p *pair) scan() {
	all := func(sc *rowtable.Scan) (slots []rowtable.Slot) {
		for more := true; more; {
			slots, more = sc.Next(slots, p.now)
		}
		return slots
	}
	for _, l := range p.limits { // counters.Table.Snapshot has logs forget what has left, the clock may step back
		for _, key := range p.keys {
			if l.new.Algorithm == rowtable.SlidingLog && l.new.Scope != rowtable.Alone {
				p.new.View(l.new, key, p.now)
			}
		}
	}
	want, wantTimes := p.apart(ofOld(p.old.Snapshot(p.now, math.MaxInt)))
	got, gotTimes := p.apart(p.ofNew(all(p.new.Scan())))
	p.same("all", got, want)
	for of, latest := range wantTimes {
		if latest*uint64(time.Millisecond) > uint64(p.now) && gotTimes[of] != latest {
			p.Fatalf("seed %d, step %d: the latest time of %v is %d, want %d", p.seed, p.n, of, gotTimes[of], latest)
		}
	}
	own := p.new.Scan()
	own.Own = true
	p.same("own", p.ofNew(all(own)), ofOld(p.old.Own(p.now)))

	l, key := p.limits[p.IntN(len(p.limits))], p.keys[p.IntN(len(p.keys))]
	one := slices.DeleteFunc(p.old.Slots(l.old, counters.Key(key), p.now), isSum)
	p.same("one key", p.ofNew(p.new.Slots(&l.new.Meter, key, p.now)), ofOld(one))
	p.refresh(key)
}

// refresh compares what drains return again of some keys, and with that a scan of their own slots.
func (p *pair) refresh(key uint64) {
	p.drain()
	var partition counters.PartitionSet
	var again rowtable.PartitionSet
	partition.Add(counters.Key(key).Partition())
	again.Add(counters.Key(key).Partition())
	var want []counters.Slot
	for p.old.Refresh(partition); !p.old.Refreshed(); {
		want = append(want, p.old.DrainDirty(p.now).Slots...)
	}
	if p.owned { // what others sent to this table as to the owner is not drained yet
		want = slices.DeleteFunc(want, func(s counters.Slot) bool { return s.Origin != p.old.Origin() })
	}
	var got []rowtable.Slot
	for p.new.Refresh(again); !p.new.Refreshed(); {
		got = p.new.Drain(got, p.now)
	}
	p.same("refreshed", slices.Compact(p.ofNew(got)), slices.Compact(ofOld(want)))
	if p.shares { // then drains return demands, too, and nothing that is nobody else's
		return
	}
	sc := p.new.Scan()
	sc.Own = true
	sc.Of = func(_ *rowtable.Meter, key uint64) bool { return partition.Has(counters.Key(key).Partition()) }
	got = got[:0]
	for more := true; more; {
		got, more = sc.Next(got, p.now)
	}
	p.same("of the partition", p.ofNew(got), slices.Compact(ofOld(want)))
}

// isSum reports whether a slot is a sum: those are in no scan.
func isSum(s counters.Slot) bool {
	return s.Place == counters.Near.Sum() || s.Place == counters.Elsewhere
}

func (p *pair) same(what string, got, want []counted) {
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			p.Fatalf("seed %d, step %d at %d: of %s, %d slots, want %d, from the %d-th on:\n%v, want\n%v", p.seed, p.n,
				p.now, what, len(got), len(want), i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
		}
	}
}

// apart separates the counts from the bans and lifts: of those, the latest counts alone.
func (p *pair) apart(slots []counted) (counts []counted, latest map[counted]uint64) {
	latest = make(map[counted]uint64)
	timed := make(map[string]bool)
	for _, b := range p.bans {
		m := b.old.Meter()
		timed[nameOf(&m)] = true
		m.Algorithm = counters.Lift
		timed[nameOf(&m)] = true
	}
	for _, s := range slots {
		if of := (counted{meter: s.meter, key: s.key}); timed[s.meter] {
			latest[of] = max(latest[of], s.count)
		} else {
			counts = append(counts, s)
		}
	}
	return counts, latest
}

// A scan returns all that counts the whole time at least once, though keys come, go and move to other lines between its
// parts, and other scans are under way.
func TestScanReturnsAllThatStays(t *testing.T) {
	table, l := rowtable.New(32*tableSize, 1), smallLimit(1<<20)
	r := rand.New(rand.NewPCG(1, 2))
	type id struct {
		key    uint64
		origin uint16
		index  int64
	}
	count := func(x id) {
		slot := rowtable.Slot{Key: x.key, Index: x.index, Origin: x.origin, Count: 1}
		table.Merge(&l.Meter, []rowtable.Slot{slot}, start)
	}
	draw := func() id {
		return id{r.Uint64N(20_000) * 0x9e3779b97f4a7c15, uint16(2 + r.IntN(6)), start/l.Sub - r.Int64N(3)}
	}
	stay := make(map[id]bool)
	for range 50_000 { // some keys have slots that are about to become blocks
		x := draw()
		count(x)
		stay[x] = true
	}
	other := table.Scan()
	defer other.Stop()
	var slots []rowtable.Slot
	sc := table.Scan()
	for more := true; more; {
		slots, more = sc.Next(slots, start)
		if r.IntN(30) == 0 {
			other.Next(nil, start)
		}
		for range 50 {
			count(draw())
		}
	}
	for _, s := range slots {
		delete(stay, id{s.Key, s.Origin, s.Index})
	}
	if len(stay) > 0 || len(slots) < 40_000 {
		t.Errorf("of %d slots that a scan returned, %d are missing", len(slots), len(stay))
	}
}

// BenchmarkScan scans a million keys, each with slots of others, some in all sub-windows. It reports how long all but a
// hundredth of the parts held a shard: other programs interrupt some.
func BenchmarkScan(b *testing.B) {
	table, l, keys := rowtable.New(counters.DefaultMemory, 1), smallLimit(1<<30), randomKeys(1<<20)
	for i, key := range keys {
		table.Take(l, key, 1, start)
		slot := rowtable.Slot{Key: key, Origin: 2, Count: 1}
		for at := range int64(1 + i%16/15*9) {
			slot.Index = start/l.Sub - at
			table.Merge(&l.Meter, []rowtable.Slot{slot}, start)
		}
	}
	var slots []rowtable.Slot
	var parts []time.Duration
	found := 0
	for b.Loop() {
		sc := table.Scan()
		for more := true; more; {
			began := time.Now()
			slots, more = sc.Next(slots[:0], start)
			parts = append(parts, time.Since(began))
			found += len(slots)
		}
	}
	slices.Sort(parts)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(found), "ns/slot")
	b.ReportMetric(float64(parts[len(parts)*99/100].Microseconds()), "us-part")
}
