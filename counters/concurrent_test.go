package counters_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

const goroutines = 8

// Of many goroutines that take the same key at one time, exactly the limit is admitted.
func TestConcurrentTakeAdmitsExactlyTheLimit(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 1000)
	table := least(1)
	var admitted atomic.Uint64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range 500 {
				if table.Take(l, 1, 1, start).Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := admitted.Load(); got != 1000 {
		t.Errorf("%d of %d were admitted, want 1000", got, goroutines*500)
	}
	if view := table.View(l, 1, start); view != 1000 {
		t.Errorf("view = %d, want 1000", view)
	}
}

// Of many goroutines that ask for the same keys, one request of each key begins its ban.
func TestConcurrentBans(t *testing.T) {
	const keys = 200
	l, table := penalized(t, limitOf(t, 10*time.Second, time.Second, 5), true, false, time.Hour), least(1)
	var admitted, began, banned atomic.Uint64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range counters.Key(10 * keys) {
				switch d := table.Take(l, i%keys, 1, start); {
				case d.Allowed:
					admitted.Add(1)
				case d.Banned:
					banned.Add(1)
				default:
					began.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 5*keys || began.Load() != keys || banned.Load() != (10*goroutines-6)*keys {
		t.Errorf("of %d keys %d were admitted, %d began a ban and %d were banned", keys, admitted.Load(), began.Load(),
			banned.Load())
	}
}

// Requests with random layers in random order, beside all else that a table does: nobody waits for ever, no limit is
// passed, and each view is what was admitted.
func TestConcurrentLayers(t *testing.T) {
	const keys, most = 40, 60
	var limits []*counters.Limit
	for i := range 3 {
		limits = append(limits, penalized(t, limitNamed(t, fmt.Sprint("r", i), most), i == 2, false, time.Hour))
	}
	table := least(1)
	var admitted [3][keys]atomic.Uint64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			var charges []counters.Charge
			var ds []counters.Decision
			for range 1500 {
				charges = charges[:0]
				for range 1 + r.IntN(8) {
					charges = append(charges,
						counters.Charge{Limit: limits[r.IntN(3)], Key: counters.Key(r.IntN(keys)), Cost: 1})
				}
				ds = table.TakeAll(charges, start, ds[:0])
				if allAllowed(ds) {
					for i := range charges {
						admitted[ds[i].Rule[1]-'0'][charges[i].Key].Add(1)
					}
				}
			}
		})
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() { disturb(table, limits[0], stop) })
	wg.Wait()
	close(stop)
	others.Wait()

	full := 0
	for rule := range admitted {
		for key := range admitted[rule] {
			got := admitted[rule][key].Load()
			if view := table.View(limits[rule], counters.Key(key), start); got > most || view != got {
				t.Errorf("rule %d, key %d: %d admitted, view %d, limit %d", rule, key, got, view, most)
			}
			if got == most {
				full++
			}
		}
	}
	if full == 0 {
		t.Error("no limit was reached: the test asks for too little")
	}
}

func allAllowed(ds []counters.Decision) bool {
	for _, d := range ds {
		if !d.Allowed {
			return false
		}
	}
	return true
}

// disturb does what the rest of a node does with a table, on keys of its own, until stop is closed.
func disturb(table *counters.Table, l *counters.Limit, stop chan struct{}) {
	for i := counters.Key(0); ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		table.Merge([]counters.Slot{slotOf(l, 1e6+i%50, start, 2, 0, uint64(i+1))}, start)
		table.DrainDirty(start + int64(i))
		table.View(l, i%40, start)
		table.Snapshot(start, 10)
		table.Own(start)
		table.Stats()
	}
}

// What many goroutines charged while others drained was drained once, in all: the counts only rise, and the last of
// each is the sum.
func TestConcurrentDrain(t *testing.T) {
	const keys = 5
	l := limitOf(t, 10*time.Second, time.Second, counters.MaxLimit)
	table := least(1)
	last := make(map[counters.Key]uint64)
	note := func(slots []counters.Slot) {
		for _, s := range slots {
			if s.Count <= last[s.Key] {
				t.Errorf("key %d: drained %d after %d", s.Key, s.Count, last[s.Key])
			}
			last[s.Key] = s.Count
		}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range 1000 {
				table.Take(l, counters.Key(i%keys), 1, start)
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	for now := start; ; now++ {
		note(table.DrainDirty(now).Slots)
		select {
		case <-done:
			note(table.DrainDirty(now + 1).Slots)
			for key := range counters.Key(keys) {
				if last[key] != goroutines*1000/keys {
					t.Errorf("key %d: %d were drained in the end, want %d", key, last[key], goroutines*1000/keys)
				}
			}
			return
		default:
		}
	}
}

// Under a budget, with time passing, cells come and go beneath everybody. Nothing is admitted beyond what was
// forgotten.
func TestConcurrentEviction(t *testing.T) {
	const keys = 60000
	l := limitOf(t, time.Hour, time.Minute, 3)
	table := least(1)
	var admitted, clock atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 9))
			for i := range 6000 {
				if table.Take(l, counters.Key(r.IntN(keys)), 1, start).Allowed {
					admitted.Add(1)
				}
				if i%100 == 0 {
					table.DrainDirty(start + clock.Add(1))
				}
			}
		})
	}
	wg.Wait()
	st := table.Stats()
	var held uint64
	for key := range counters.Key(keys) {
		held += table.View(l, key, start)
	}
	if st.Bytes > counters.MinMemory || st.Evicted == 0 || held+st.Forgotten != uint64(admitted.Load()) {
		t.Errorf("%d admitted, %d held, %+v: what is not held has to be forgotten", admitted.Load(), held, st)
	}
}
