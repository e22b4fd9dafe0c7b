package counters_test

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"pgregory.net/rapid"
)

// onePerShard makes a table so small that a shard holds a single cell.
func onePerShard(origin counters.Origin) *counters.Table {
	return counters.NewTable(counters.Config{Origin: origin, Memory: counters.MinMemory})
}

// rivals returns n keys of the limit that share a shard.
func rivals(t rapid.TB, l *counters.Limit, n int) []counters.Key {
	t.Helper()
	keys := []counters.Key{1}
	for key := counters.Key(2); len(keys) < n; key++ {
		table := onePerShard(1)
		table.Take(l, 1, 1, start)
		table.Take(l, key, 1, start)
		if table.Stats().Evicted == 1 {
			keys = append(keys, key)
		}
	}
	return keys
}

// rivalOf returns a key of another limit whose cell shares the shard of l's key.
func rivalOf(t rapid.TB, l *counters.Limit, key counters.Key, other *counters.Limit) counters.Key {
	t.Helper()
	for rival := counters.Key(1); ; rival++ {
		table := onePerShard(1)
		table.Take(l, key, 1, start)
		table.Take(other, rival, 1, start)
		if table.Stats().Evicted == 1 {
			return rival
		}
	}
}

// A cell that was evicted and comes again counts from zero, under another birth: its peers add up both.
func TestBirthsAddUpAtAPeer(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	keys := rivals(t, l, 2)
	small, peer := onePerShard(9), counters.NewTable(counters.Config{Origin: 2})
	now := start
	for i := range uint64(5) {
		now += int64(500 * time.Millisecond)
		small.Take(l, keys[0], 10+i, now)
		peer.Merge(small.DrainDirty(now).Slots, now)
		small.Take(l, keys[1], 1, now) // evicts it
		if view := small.View(l, keys[0], now); view != 0 {
			t.Fatalf("the table that evicted the cell has a view of %d", view)
		}
	}
	peer.Merge(small.DrainDirty(now).Slots, now)
	if view := peer.View(l, keys[0], now); view != 10+11+12+13+14 {
		t.Errorf("the peer's view is %d, want 60", view)
	}
	if view := peer.View(l, keys[1], now); view != 5 {
		t.Errorf("the peer's view of the other key is %d, want 5", view)
	}
	seen := make(map[uint32]bool)
	for _, s := range peer.Snapshot(now, 100) {
		if s.Key == keys[0] {
			seen[s.Birth] = true
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d births of one cell, want 5", len(seen))
	}
}

// What an evicted cell had not sent yet leaves with the next drain, beside what its successor counted.
func TestEvictedCellsStillTell(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	keys := rivals(t, l, 2)
	table := onePerShard(9)
	table.Take(l, keys[0], 7, start)
	table.Take(l, keys[1], 5, start)
	table.Take(l, keys[0], 3, start)
	var sum [2]uint64
	slots := table.DrainDirty(start).Slots
	for _, s := range slots {
		if s.Key == keys[0] {
			sum[0] += s.Count
		} else {
			sum[1] += s.Count
		}
	}
	if len(slots) != 3 || sum != [2]uint64{10, 5} {
		t.Errorf("drained %+v, want 7 and 3 of one key, and 5 of the other", slots)
	}
	wantSlots(t, "told twice", table.DrainDirty(start).Slots)
}

// When nothing of a cell can count any more anywhere, its successor may be born as it was: peers need no row more.
func TestBirthsAreSpared(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	table := counters.NewTable(counters.Config{Origin: 9})
	births := make(map[uint32]bool)
	for i := range 20 {
		now := after(time.Duration(i) * time.Minute)
		sweep(table, now)
		table.Take(l, 1, 1, now)
		for _, s := range table.DrainDirty(now).Slots {
			births[s.Birth] = true
		}
	}
	if len(births) != 1 || table.Stats().Expired != 19 {
		t.Errorf("births %v, %+v, want one birth, and 19 cells expired", births, table.Stats())
	}
}

// ledger holds what was drained of one meter, each slot at its largest.
type ledger map[drained]uint64

type drained struct {
	key   counters.Key
	index int64
	birth uint32
}

func (d ledger) note(t rapid.TB, l *counters.Limit, slots []counters.Slot) {
	t.Helper()
	for _, s := range slots {
		if *s.Meter != l.Meter() {
			continue
		}
		at := drained{s.Key, s.Index, s.Birth}
		if s.Count <= d[at] {
			t.Fatalf("%+v: drained %d after %d", at, s.Count, d[at])
		}
		d[at] = s.Count
	}
}

func (d ledger) sum(key counters.Key) (sum uint64) {
	for at, count := range d {
		if at.key == key {
			sum += count
		}
	}
	return sum
}

// However cells come and go, and wherever the clock jumps: no two lives of a cell share a slot. What was drained, merged by max, adds
// up to what was admitted.
func TestNoBirthSwallowsAnother(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, counters.MaxLimit)
	slow := newLimit(t, counters.Meter{Rule: "slow", Algorithm: counters.SlidingWindow, Window: time.Minute, Sub: 20 * time.Second}, 1e9)
	keys := rivals(t, l, 3)
	slowKey := rivalOf(t, l, keys[0], slow)
	rapid.Check(t, func(t *rapid.T) {
		table, told, admitted := onePerShard(9), make(ledger), make(map[counters.Key]uint64)
		now, undrained := start, int64(math.MaxInt64) // since when something may wait to be drained
		drain := func() {
			told.note(t, l, table.DrainDirty(now).Slots)
			undrained = math.MaxInt64
		}
		step := rapid.OneOf(
			rapid.SampledFrom([]int64{0, 1, -1, int64(time.Second), -int64(time.Second), -int64(10 * time.Second), -int64(11 * time.Second)}),
			rapid.Int64Range(-int64(30*time.Second), int64(30*time.Second)),
			rapid.Int64Range(-int64(2*time.Second), int64(2*time.Second)),
		)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			next := now + step.Draw(t, "clock")
			if undrained != math.MaxInt64 && next > undrained+int64(9*time.Second) {
				drain() // what is older than its window need not be told
			}
			now = next
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				drain()
			case 1:
				table.Take(slow, slowKey, 1, now)
			case 2:
				heard := slotOf(l, rapid.SampledFrom(keys).Draw(t, "heard"), now, 2, 0, 1)
				table.Merge([]counters.Slot{heard}, now)
			default:
				key := rapid.SampledFrom(keys).Draw(t, "key")
				if cost := rapid.Uint64Range(1, 5).Draw(t, "cost"); table.Take(l, key, cost, now).Allowed {
					admitted[key] += cost
					undrained = min(undrained, now)
				}
			}
		}
		drain()
		for key, want := range admitted {
			if got := told.sum(key); got != want {
				t.Fatalf("of key %d %d were admitted, and %d told: %v", key, want, got, told)
			}
		}
	})
}
