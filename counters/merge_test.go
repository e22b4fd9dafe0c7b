package counters_test

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// Slots merged in one call do what they do one by one: in a table that is full as well, and among slots that are
// refused or change nothing.
func TestMergeTogetherAsOneByOne(t *testing.T) {
	sliding, fixed := counters.NewMeter("r", counters.SlidingWindow,
		10*time.Second), counters.NewMeter("f", counters.FixedWindow, time.Minute)
	// its cells are large
	wide := counters.Meter{Rule: "w", Algorithm: counters.SlidingWindow, Window: time.Hour, Sub: time.Minute}
	meters := []*counters.Meter{&sliding, &fixed, &wide, &wide, {Rule: "invalid"}, nil}
	var keys []counters.Key // more of one shard than it has room for, and some of others
	l := newLimit(t, wide, 10)
	for k := counters.Key(1); len(keys) < 150; k++ {
		if k <= 50 || counters.ShardOf(l, k) == counters.ShardOf(l, 1) {
			keys = append(keys, k)
		}
	}
	check := func(t *rapid.T, full bool) {
		together, oneByOne := small(9), small(9)
		now := start
		if full {
			for _, key := range keys {
				slot := []counters.Slot{slotOf(l, key, now, 2, 0, 1)}
				together.Merge(slot, now)
				oneByOne.Merge(slot, now)
			}
			if together.Stats().Evicted == 0 {
				t.Fatal("the table is not full")
			}
		}
		for range rapid.IntRange(1, 4).Draw(t, "calls") {
			now += rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "pause")
			var slots []counters.Slot
			for range rapid.IntRange(1, 6).Draw(t, "runs") {
				m := rapid.SampledFrom(meters).Draw(t, "meter")
				origin := counters.Origin(rapid.SampledFrom([]uint64{1, 2, 3, 9, 0}).Draw(t, "origin"))
				index := now / int64(time.Second)
				if m != nil && m.Sub > 0 {
					index = m.Index(now)
				}
				for range rapid.IntRange(1, 60).Draw(t, "slots") {
					slots = append(slots, counters.Slot{Meter: m, Origin: origin,
						Key:   rapid.SampledFrom(keys).Draw(t, "key"),
						Index: index - rapid.Int64Range(-3, 12).Draw(t, "age"),
						Birth: rapid.Uint32Range(0, 1).Draw(t, "birth"),
						Count: rapid.Uint64Range(0, 5).Draw(t, "count")})
				}
			}
			novel := 0
			for i := range slots {
				novel += oneByOne.Merge(slots[i:i+1], now)
			}
			if got := together.Merge(slots, now); got != novel {
				t.Fatalf("%d of %d slots are news, one by one %d", got, len(slots), novel)
			}
			a, b := together.Stats(), oneByOne.Stats()
			if a != b {
				t.Fatalf("together: %+v\none by one: %+v", a, b)
			}
			wantSlots(t, "together", together.Snapshot(now, 1<<20), oneByOne.Snapshot(now, 1<<20)...)
		}
	}
	rapid.Check(t, func(t *rapid.T) { check(t, false) })
	rapid.Check(t, func(t *rapid.T) { check(t, true) })
}

// Merges lock several shards at once, as layered requests and batches do: none waits for another in a ring.
func TestConcurrentMergesAndRequests(t *testing.T) {
	l := limitNamed(t, "r", counters.MaxLimit)
	m := l.Meter()
	table := least(1)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			var slots []counters.Slot
			var charges []counters.Charge
			for i := range 64 {
				key := counters.Key(i*(2*w+1)+1) * 0x9e3779b97f4a7c15
				slots = append(slots,
					counters.Slot{Meter: &m, Key: key, Index: m.Index(start), Origin: counters.Origin(2 + w)})
				charges = append(charges, counters.Charge{Limit: l, Key: key, Cost: 1})
			}
			var ds []counters.Decision
			for round := range uint64(200) {
				for i := range slots {
					slots[i].Count = round + 1
				}
				table.Merge(slots, start)
				ds = table.TakeAll(charges[:16], start, ds[:0])
				for _, c := range charges {
					table.Take(c.Limit, c.Key, c.Cost, start)
				}
			}
		})
	}
	all.Wait()
	for i := range 64 { // whom each worker asked for, and told of
		var want uint64
		key := counters.Key(i+1) * 0x9e3779b97f4a7c15
		for w := range 4 {
			if i%(2*w+1) == 0 && i/(2*w+1) < 64 {
				if want += 200 + 200; i/(2*w+1) < 16 {
					want += 200
				}
			}
		}
		if got := table.View(l, key, start); got != want {
			t.Errorf("key %d counts %d, want %d", i, got, want)
		}
	}
}
