package rowtable_test

import (
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

const spread = 0x9e3779b97f4a7c15

// fill asks for so many new keys that the table is full.
func fill(table *rowtable.Table, l *rowtable.Limit) {
	for key := range uint64(20_000) {
		table.Take(l, key*spread, 1, start)
	}
}

// A layer's new head must not evict that of another layer of the same request: it would be admitted untracked.
func TestLayersDoNotEvictEachOther(t *testing.T) {
	l, table := smallLimit(1), rowtable.New(tableSize, 1)
	fill(table, smallLimit(1000))
	for n := range uint64(200) {
		charges := make([]rowtable.Charge, rowtable.MaxLayers)
		for i := range charges {
			charges[i] = rowtable.Charge{Limit: l, Key: (1_000_000 + n*100 + uint64(i)) * spread, Cost: 1}
		}
		for i, d := range table.TakeAll(charges, start+int64(n), nil) {
			if !d.Allowed {
				t.Fatalf("layer %d: %+v", i, d)
			}
		}
		for i, ch := range charges {
			if table.View(l, ch.Key, start+int64(n)) != 1 {
				t.Fatalf("request %d, layer %d was charged and is forgotten", n, i)
			}
		}
	}
}

// A denied request makes no head and evicts nobody. After any request, its heads may be evicted as others are.
func TestDeniedLayersEvictNobody(t *testing.T) {
	l, none, table := smallLimit(1000), smallLimit(0), rowtable.New(tableSize, 1)
	fill(table, l)
	var kept []uint64
	for key := range uint64(20_000) {
		if table.View(l, key*spread, start) > 0 {
			kept = append(kept, key*spread)
		}
	}
	for key := range uint64(1000) {
		table.TakeAll([]rowtable.Charge{{Limit: l, Key: (1_000_000 + key) * spread, Cost: 1},
			{Limit: l, Key: kept[key], Cost: 1}, {Limit: none, Key: 1, Cost: 1}}, start, nil)
	}
	for _, key := range kept {
		if table.View(l, key, start) != 1 {
			t.Fatal("a denied request evicted a key, or was counted")
		}
	}
	for key := range uint64(40_000) {
		table.Take(l, (2_000_000+key)*spread, 2, start)
	}
	left := 0
	for _, key := range kept {
		left += int(table.View(l, key, start))
	}
	if left > len(kept)/10 {
		t.Errorf("%d of %d keys are left: their heads are pinned", left, len(kept))
	}
}

// Requests of several layers allocate nothing, and many at once neither deadlock nor lose a count.
func TestTakeAllIsSafeForConcurrentUse(t *testing.T) {
	table, l := rowtable.New(tableSize, 1), smallLimit(1<<30)
	const workers, requests, keys = 4, 3000, 8
	var all sync.WaitGroup
	for worker := range uint64(workers) {
		all.Go(func() {
			decisions := make([]rowtable.Decision, 0, 3)
			for i := range uint64(requests) {
				charges := [3]rowtable.Charge{}
				for j := range charges {
					charges[j] = rowtable.Charge{Limit: l, Key: (i*worker + uint64(j)) % keys * spread, Cost: 1}
				}
				decisions = table.TakeAll(charges[:], start, decisions[:0])
			}
		})
	}
	all.Wait()
	sum := uint64(0)
	for key := range uint64(keys) {
		sum += table.View(l, key*spread, start)
	}
	if sum != 3*workers*requests {
		t.Errorf("%d are counted, want %d", sum, 3*workers*requests)
	}
}

func TestLayersAllocateNothing(t *testing.T) {
	table, l := rowtable.New(tableSize, 1), smallLimit(3)
	meter := rowtable.Meter{ID: 3, Sub: int64(time.Minute), N: 1, Algorithm: rowtable.LeakyQueue}
	queue := rowtable.NewLimit(meter, 100)
	decisions, now := make([]rowtable.Decision, 0, 8), int64(start)
	n := testing.AllocsPerRun(1000, func() {
		now += int64(time.Second) / 4
		charges := [8]rowtable.Charge{}
		for i := range charges {
			charges[i] = rowtable.Charge{Limit: l, Key: uint64(i+1) * spread, Cost: 1, Mode: rowtable.Mode(i % 6)}
		}
		charges[4].Lender, charges[7].Limit = 1, queue
		decisions = table.Ask(charges[:], now, decisions[:0])
		decisions = table.TakeAll(charges[:], now, decisions[:0])
		table.Report(charges[:], now)
		table.Withdraw(queue, charges[7].Key, 1, now)
		decisions = table.TakeAll(charges[:2], now, decisions[:0])
	})
	if n != 0 {
		t.Errorf("%.1f allocations", n)
	}
}

// What left a queue is forgotten with it: no line is left.
func TestFreedTimeGoesWithItsQueue(t *testing.T) {
	table := rowtable.New(tableSize, 1)
	meter := rowtable.Meter{ID: 3, Sub: int64(time.Minute), N: 1, Algorithm: rowtable.LeakyQueue}
	l := rowtable.NewLimit(meter, 60)
	for key := range uint64(1000) {
		table.Take(l, key*spread, 30, start)
		table.Withdraw(l, key*spread, 20, start)
		if d := table.Take(l, key*spread, 1, start); d.Delay() != 10*int64(time.Second) {
			t.Fatalf("%+v, want to wait for the 10 before it that are left of 30", d)
		}
	}
	if n := table.Lines(); n != 2000 {
		t.Errorf("%d lines, want a head and its freed time each", n)
	}
	for range 3 {
		table.Expire(start + 10*int64(time.Minute))
	}
	if n := table.Lines(); n != 0 {
		t.Errorf("%d lines are left", n)
	}
}

func TestMaxLayers(t *testing.T) {
	table, l := rowtable.New(tableSize, 1), smallLimit(1000)
	defer func() {
		if recover() == nil {
			t.Errorf("%d layers did not panic", rowtable.MaxLayers+1)
		}
		if d := table.Take(l, 0, 1, start); d.Remaining() != 999 {
			t.Errorf("after the panic: %+v, want nothing charged and nothing locked", d)
		}
	}()
	charges := make([]rowtable.Charge, rowtable.MaxLayers+1)
	for i := range charges {
		charges[i].Limit = l
	}
	table.TakeAll(charges, start, nil)
}
