package rowtable_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

func smallLimit(maximum uint64) *rowtable.Limit {
	return rowtable.NewLimit(rowtable.Meter{ID: 0x9e3779b97f4a7c15, Sub: int64(time.Second), N: 10}, maximum)
}

const (
	start     = 1_700_000_000_000_000_000
	tableSize = 1 << 20 // some 13,000 lines
)

// A full table admits no key untracked: it evicts those that count least, and keeps those that were denied.
func TestFullTableEvictsTheLeast(t *testing.T) {
	table, l := rowtable.New(tableSize, 1), smallLimit(3)
	denied := uint64(1 << 63)
	for range 4 {
		table.Take(l, denied, 1, start)
	}
	for key := range uint64(100_000) {
		if d := table.Take(l, key*0x9e3779b97f4a7c15, 1, start+int64(key)); !d.Allowed || d.Remaining() != 2 {
			t.Fatalf("key %d: %+v, want a new key admitted", key, d)
		}
	}
	if d := table.Take(l, denied, 1, start+1e9); d.Allowed {
		t.Errorf("a key that was denied was evicted")
	}
	if n := table.Lines(); n < 10_000 || n > 14_000 {
		t.Errorf("%d lines", n)
	}
}

// A table that others fill evicts as well, and forgets no line: when all has passed, none is left.
func TestNothingIsLeft(t *testing.T) {
	table, l := rowtable.New(tableSize, 1), smallLimit(1<<20)
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		slot := rowtable.Slot{Key: r.Uint64N(2000) * 0x9e3779b97f4a7c15, Index: start/l.Sub - r.Int64N(10),
			Origin: uint16(2 + r.IntN(40)), Count: r.Uint64N(1 << r.IntN(40)), Birth: uint32(max(0, r.IntN(6)-4))}
		table.Merge(&l.Meter, []rowtable.Slot{slot}, start)
		if r.IntN(4) == 0 {
			table.Take(l, slot.Key, 1+r.Uint64N(1000), start)
		}
	}
	if n := table.Lines(); n < 10_000 {
		t.Errorf("%d lines are no full table", n)
	}
	for range 3 { // heads, what belonged to them, and what came before those
		table.Expire(start + 20*l.Sub)
	}
	if n := table.Lines(); n != 0 {
		t.Errorf("%d lines are left", n)
	}
}

// A table that is full of lines beside heads evicts keys, and loses no count of those that stay.
func TestNoCountOfAWideKeyIsLost(t *testing.T) {
	const keys, subs = 2000, 50
	wide := rowtable.Meter{ID: spread, Sub: int64(time.Second), N: 60}
	log := wide
	log.Algorithm = rowtable.SlidingLog
	for name, m := range map[string]rowtable.Meter{"window": wide, "log": log} {
		table, l := rowtable.New(tableSize, 1), rowtable.NewLimit(m, 1000)
		var counted [keys]uint64
		evicted, lost := 0, 0
		for i := range int64(subs) {
			now := start + i*l.Sub
			for key := range uint64(keys) {
				table.Take(l, key*spread, 1, now)
				view := table.View(l, key*spread, now)
				switch counted[key]++; {
				case view == counted[key]:
				case view == 1:
					evicted++
				default:
					lost++
				}
				counted[key] = view
			}
			table.Drain(nil, now)
			table.Expire(now)
		}
		if lost > 0 || evicted == 0 {
			t.Errorf("%s: %d times counts were lost, and %d times keys were evicted", name, lost, evicted)
		}
	}
}

// However often a key is evicted before a scan removes its lines, they are not taken for those that it has now.
func TestLinesOfEvictedKeysAreNotFound(t *testing.T) {
	table, l := rowtable.New(tableSize, 1), smallLimit(1<<20)
	const origins = 5 // in blocks
	for i := range 100 {
		for origin := range uint16(origins) {
			table.Merge(&l.Meter, []rowtable.Slot{{Key: 1, Index: start / l.Sub, Origin: 2 + origin, Count: 1}}, start)
		}
		if view := table.View(l, 1, start); view != origins {
			t.Fatalf("round %d: view %d", i, view)
		}
		table.Take(l, 1, 1, start-30*l.Sub) // the clock steps back by more than the window
	}
}

// What a table counted itself is not lost in what others claim to have counted, however much that is.
func TestOwnCountsBesideLies(t *testing.T) {
	for name, m := range map[string]rowtable.Meter{
		"window": {ID: spread, Sub: int64(time.Second), N: 10}, "wide": {ID: spread, Sub: int64(time.Second), N: 60},
		"bucket": {ID: spread, Sub: int64(time.Second), N: 1, Algorithm: rowtable.TokenBucket},
	} {
		for origins := range uint16(20) { // in slots, rows and blocks
			table, l := rowtable.New(tableSize, 1), rowtable.NewLimit(m, 1<<40)
			table.Take(l, 1, 5, start)
			for _, age := range []int64{0, -1, 1} {
				for origin := range origins {
					slot := rowtable.Slot{Key: 1, Index: start/l.Sub - age, Origin: 2 + origin, Count: 1 << 63}
					table.Merge(&l.Meter, []rowtable.Slot{slot}, start)
				}
			}
			if origins > 0 && table.Take(l, 1, 1, start).Allowed {
				t.Errorf("%s: a request is admitted beside %d lies", name, origins)
			}
			want := []rowtable.Slot{{Key: 1, Index: start / l.Sub, Count: 5, Meter: 1}}
			if got := table.Drain(nil, start+l.Sub); !slices.Equal(got, want) {
				t.Fatalf("%s: drained %v beside %d lies", name, got, origins)
			}
		}
	}
}

// Births of which a table knows the same are one, however many slots its key has. So none is lost or counted twice when
// they move to other lines.
func TestBirthsThatAreTheSame(t *testing.T) {
	l := smallLimit(1 << 20)
	for others := range uint16(20) { // the slots are in slots, rows and blocks
		table := rowtable.New(tableSize, 1)
		slots := []rowtable.Slot{{Key: 1, Origin: 2, Birth: 2, Count: 5}, {Key: 1, Origin: 2, Birth: 1025, Count: 6}}
		for i := range others {
			slots = append(slots, rowtable.Slot{Key: 1, Origin: 3 + i, Count: 1})
		}
		for i := range slots {
			slots[i].Index = start / l.Sub
		}
		table.Take(l, 1, 1, start)
		table.Merge(&l.Meter, slots, start)
		if view := table.View(l, 1, start); view != uint64(1+6+others) {
			t.Errorf("view %d beside %d others", view, others)
		}
		if own := table.Drain(nil, start); len(own) != 1 || own[0].Count != 1 {
			t.Errorf("drained %v beside %d others", own, others)
		}
	}
}

// Many goroutines ask, merge and drain at once. What all of them admitted is what the drains return.
func TestTableIsSafeForConcurrentUse(t *testing.T) {
	table := rowtable.New(tableSize, 1)
	l := rowtable.LimitConfig{Meter: smallLimit(1).Meter, Max: 1 << 30, MaxUnsent: 100}.New()
	table.SetCluster(rowtable.Global, 3, time.Second)
	table.Know([]*rowtable.Limit{l})
	const workers, requests, keys = 4, 5000, 100
	var all sync.WaitGroup
	sum := make(map[uint64]uint64)
	drain := func() {
		for _, s := range table.Drain(table.DrainEarly(nil, start), start) {
			sum[s.Key] = max(sum[s.Key], s.Count)
		}
	}
	for worker := range workers {
		all.Go(func() {
			for i := range requests {
				key := uint64(i%keys) * 0x9e3779b97f4a7c15
				table.Take(l, key, 1, start)
				table.Merge(&l.Meter, []rowtable.Slot{{Key: key, Index: start / l.Sub, Origin: uint16(2 + worker),
					Count: uint64(i), Demand: float32(i % 7)}}, start)
				table.SetWatermark(uint16(2+worker), start)
			}
		})
	}
	for range 100 {
		drain()
		table.Expire(start)
	}
	all.Wait()
	drain()
	for key, n := range sum {
		if n != workers*requests/keys {
			t.Errorf("key %x: %d were drained, want %d", key, n, workers*requests/keys)
		}
	}
	if len(sum) != keys {
		t.Errorf("%d keys were drained, want %d", len(sum), keys)
	}
}

// Requests, merges and drains of known keys allocate nothing.
func TestNothingIsAllocated(t *testing.T) {
	table, l := rowtable.New(tableSize, 1), smallLimit(1<<30)
	slots, own := make([]rowtable.Slot, 40), make([]rowtable.Slot, 0, 10)
	now := int64(start)
	n := testing.AllocsPerRun(1000, func() {
		now += int64(time.Millisecond)
		table.Take(l, 42, 1, now)
		for i := range slots {
			slots[i] = rowtable.Slot{Key: 42, Index: now / l.Sub, Origin: uint16(2 + i), Count: uint64(now)}
		}
		table.Merge(&l.Meter, slots, now)
		own = table.Drain(own[:0], now)
	})
	if n != 0 {
		t.Errorf("%.1f allocations", n)
	}
}

// A key that others count takes few bytes, on average over how its sub-windows lie in lines.
func TestOthersTakeFewBytes(t *testing.T) {
	for _, c := range []struct{ origins, subs, most int }{{1, 1, 160}, {1, 10, 317}, {2, 10, 480}, {12, 10, 1280}} {
		const keys, begins = 100, 16
		lines := 0
		for begin := range int64(begins) {
			table, l := rowtable.New(64<<20, 1), smallLimit(1<<30)
			now := start + begin*l.Sub
			for i := range keys * c.origins * c.subs {
				key := uint64(i%keys) * 0x9e3779b97f4a7c15
				slot := rowtable.Slot{Key: key, Index: now/l.Sub - int64(i/keys%c.subs), Count: 9,
					Origin: uint16(2 + i/keys/c.subs)}
				table.Merge(&l.Meter, []rowtable.Slot{slot}, now)
				table.Take(l, key, 1, now)
			}
			table.Expire(now)
			lines += table.Lines()
		}
		if each := lines * 64 * 16 / 13 / (keys * begins); each > c.most {
			t.Errorf("%d origins in %d sub-windows: %d bytes a key, want at most %d", c.origins, c.subs, each, c.most)
		}
	}
}
