package counters_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

const shards = 64 // the same number as in the package

// sweep drains often enough that every shard has had its expired cells taken out.
func sweep(table *counters.Table, now int64) {
	for range shards {
		table.DrainDirty(now)
	}
}

// An attacker who changes identity with every request gets a cell each, and no more memory than the cap: keys that are over
// their limit are kept all the same.
func TestIdentityRotationStaysWithinTheCap(t *testing.T) {
	const most, offenders = 1000, 100
	l := limitOf(t, time.Hour, time.Hour/10, 2)
	table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
	for key := range counters.Key(offenders) {
		for range 3 {
			table.Take(l, key, 1, start)
		}
	}
	rotate := func(from, to counters.Key) {
		for key := from; key < to; key++ {
			now := start + int64(key)
			if d := table.Take(l, key, 1, now); !d.Allowed || d.Remaining != 1 {
				t.Fatalf("key %d: %+v", key, d)
			}
			if key%500 == 0 {
				table.DrainDirty(now)
				if keys := table.Stats().Keys; keys > most {
					t.Fatalf("after %d keys there are %d cells, at most %d are allowed", key, keys, most)
				}
			}
		}
	}
	rotate(1e4, 2e4)
	before := heap()
	rotate(2e4, 12e4)
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("100000 keys later there are %d bytes more", grown)
	}
	for key := range counters.Key(offenders) {
		if d := table.Take(l, key, 0, start+1e6); d.Allowed {
			t.Errorf("offender %d was forgotten: %+v", key, d)
		}
	}
	if st := table.Stats(); st.Keys < most*9/10 || st.Evicted != 100+110000-uint64(st.Keys) || st.Forgotten != st.Evicted || st.Expired != 0 {
		t.Errorf("%+v, want a full table, and all others evicted with a count of 1 each", st)
	}
}

// heap is how many bytes are held.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Requests that no wait can admit need no cell: neither a rule that blocks nor costs beyond the limit push out keys that count.
func TestWhatIsNeverAdmittedTakesNoRoom(t *testing.T) {
	l, block := limitNamed(t, "r", 5), limitNamed(t, "block", 0)
	table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
	table.Take(l, 1, 3, start)
	for key := range counters.Key(5000) {
		if d := table.Take(block, key, 1, start+1); d.Allowed || d.RetryAfter != counters.Never {
			t.Fatalf("a rule that blocks: %+v", d)
		}
		if d := table.Take(l, key+2, 6, start+1); d.Allowed || d.RetryAfter != counters.Never || d.Remaining != 5 {
			t.Fatalf("6 of 5: %+v", d)
		}
	}
	if st := table.Stats(); st.Keys != 1 || st.Evicted != 0 {
		t.Errorf("%+v, want the one cell that counts", st)
	}
	if view := table.View(l, 1, start+1); view != 3 {
		t.Errorf("view = %d, want 3", view)
	}
}

// shardOf is a table whose shards hold so many cells each, and keys that share one: one more than it holds.
func shardOf(t *testing.T, l *counters.Limit, cells int) (*counters.Table, []counters.Key) {
	t.Helper()
	return counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory}), rivals(t, l, cells+1)
}

func held(table *counters.Table, l *counters.Limit, keys []counters.Key, now int64) (views []uint64) {
	for _, key := range keys {
		views = append(views, table.View(l, key, now))
	}
	return views
}

func wantHeld(t *testing.T, table *counters.Table, l *counters.Limit, keys []counters.Key, now int64, want ...uint64) {
	t.Helper()
	for i, view := range held(table, l, keys, now) {
		if view != want[i] {
			t.Errorf("key %d of the shard counts %d, want %d", i, view, want[i])
		}
	}
}

// The cell that was idle longest goes; a request, admitted or not, and a remote count are use, a peek is none.
func TestTheIdlestGoes(t *testing.T) {
	l := limitOf(t, time.Hour, time.Minute, 100)
	table, keys := shardOf(t, l, 4)
	for i, key := range keys[:4] {
		table.Take(l, key, uint64(i+1), start+int64(i))
	}
	table.Take(l, keys[0], 10, start+10)
	table.Merge([]counters.Slot{slotOf(l, keys[1], start, 2, 0, 20)}, start+11)
	table.Take(l, keys[2], 0, start+12)
	table.Take(l, keys[4], 5, start+13)
	wantHeld(t, table, l, keys, start+13, 11, 22, 0, 4, 5)
	table.Take(l, keys[2], 7, start+14)
	wantHeld(t, table, l, keys, start+14, 11, 22, 7, 0, 5)
	if st := table.Stats(); st.Evicted != 2 || st.Forgotten != 3+4 || st.Keys != 4 {
		t.Errorf("%+v, want two evicted, which counted 3 and 4", st)
	}
}

// A cell whose last request was denied goes only where there are no others, and then the idlest of them.
func TestTheDeniedGoLast(t *testing.T) {
	l := limitOf(t, time.Hour, time.Minute, 10)
	table, keys := shardOf(t, l, 3)
	for i, key := range keys[:2] {
		table.Take(l, key, 10, start+int64(i))
		table.Take(l, key, 1, start+int64(i)) // denied
	}
	table.Take(l, keys[2], 3, start+100)
	table.Take(l, keys[3], 4, start+101)
	wantHeld(t, table, l, keys, start+101, 10, 10, 0, 4)
	table.Take(l, keys[3], 7, start+102) // denied: all of them are
	table.Take(l, keys[2], 5, start+103)
	wantHeld(t, table, l, keys, start+103, 0, 10, 5, 4)
	// Once it is admitted again, it is as all others.
	table.Take(l, keys[1], 10, after(2*time.Hour))
	table.Take(l, keys[3], 10, after(2*time.Hour))
	table.Take(l, keys[3], 1, after(2*time.Hour))
	table.Take(l, keys[2], 1, after(2*time.Hour)+1)
	table.Take(l, keys[0], 1, after(2*time.Hour)+2)
	wantHeld(t, table, l, keys, after(2*time.Hour)+2, 1, 0, 1, 10)
}

// A cell in which nothing counts any more goes before one that was idle for longer.
func TestTheExpiredGoFirst(t *testing.T) {
	long := newLimit(t, counters.Meter{Rule: "long", Algorithm: counters.SlidingWindow, Window: time.Hour, Sub: time.Hour}, 10)
	short := limitOf(t, time.Second, time.Second, 10)
	table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
	keys := rivals(t, long, 2)
	shortKey := rivalOf(t, long, keys[0], short)
	table.Take(long, keys[0], 1, start)
	table.Take(short, shortKey, 1, start+1)
	table.Take(short, shortKey, 10, start+2) // denied, which is no help any more
	table.Take(long, keys[1], 1, after(4*time.Second))
	if st := table.Stats(); st.Expired != 1 || st.Evicted != 0 || st.Forgotten != 0 {
		t.Errorf("%+v, want one expired, and none evicted", st)
	}
	if table.View(long, keys[0], after(4*time.Second)) != 1 || table.View(long, keys[1], after(4*time.Second)) != 1 {
		t.Error("a cell that counts has gone")
	}
}

// Expired cells go with the drains, those of others' counts as well, and none before its time. Looking at all cells, as for a
// snapshot, keeps none alive.
func TestExpiredCellsGoWithTime(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	for name, look := range map[string]func(table *counters.Table, now int64){
		"drained only": func(*counters.Table, int64) {},
		"snapshots":    func(table *counters.Table, now int64) { table.Snapshot(now, 1000) },
		"own":          func(table *counters.Table, now int64) { table.Own(now) },
		"views":        func(table *counters.Table, now int64) { table.View(l, 1, now); table.View(l, 1001, now) },
	} {
		table := counters.NewTable(counters.Config{Origin: 1})
		for key := range counters.Key(500) {
			table.Take(l, key, 1, start)
			table.Merge([]counters.Slot{slotOf(l, 1000+key, after(time.Second), 2, 0, 1)}, start)
		}
		for second := range 15 {
			now := after(time.Duration(second) * time.Second)
			look(table, now)
			sweep(table, now)
			st := table.Stats()
			if second < 12 && (st.Keys != 1000 || st.Expired != 0) {
				t.Errorf("%s, after %d s: %+v, want all, the last counts until 12 s have passed", name, second, st)
			}
			if second >= 13 && (st.Keys != 0 || st.Expired != 1000) {
				t.Errorf("%s, after %d s: %+v, want all expired", name, second, st)
			}
		}
	}
}

// A drain takes out the expired cells of a part of the table, so that none takes long.
func TestADrainExpiresAPart(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	table := counters.NewTable(counters.Config{Origin: 1})
	for key := range counters.Key(6400) {
		table.Take(l, key, 1, start)
	}
	table.DrainDirty(after(time.Minute))
	if st := table.Stats(); st.Expired == 0 || st.Expired > 640 {
		t.Errorf("one drain expired %d cells of 6400, want about a 64th", st.Expired)
	}
	sweep(table, after(time.Minute))
	if st := table.Stats(); st.Keys != 0 || st.Expired != 6400 {
		t.Errorf("%+v, want all expired", st)
	}
}

// Where a clock ran far ahead and was put right, the cells of that time are no longer of use, and go first: else they would count as
// the most recently used for as long as it had run ahead.
func TestCellsOfATimeThatNeverCameGoFirst(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	table, keys := shardOf(t, l, 3)
	table.Take(l, keys[0], 1, after(time.Hour))
	table.Take(l, keys[1], 1, after(time.Hour))
	table.Take(l, keys[2], 3, start)
	table.Take(l, keys[3], 4, start+1)
	table.Take(l, keys[1], 2, start+2)
	wantHeld(t, table, l, keys, start+2, 0, 2, 3, 4)
	if st := table.Stats(); st.Forgotten != 0 || st.Keys != 3 {
		t.Errorf("%+v, want nothing forgotten that counts now", st)
	}
}

// A small cap is at least a cell a shard.
func TestTheLeastCap(t *testing.T) {
	l := limitNamed(t, "r", 1)
	for most, want := range map[int]int{1: shards, shards - 1: shards, 2*shards - 1: shards, 2 * shards: 2 * shards} {
		table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
		for key := range counters.Key(5000) {
			table.Take(l, key, 1, start)
		}
		if keys := table.Stats().Keys; keys != want {
			t.Errorf("a cap of %d: %d cells, want %d", most, keys, want)
		}
	}
}
