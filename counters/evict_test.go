package counters_test

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// sweep drains often enough that every part of a small table has had its expired cells taken out.
func sweep(table *counters.Table, now int64) {
	for range 16 {
		table.DrainDirty(now)
	}
}

// least makes a table of the least budget.
func least(origin counters.Origin) *counters.Table {
	return counters.NewTable(counters.Config{Origin: origin, Memory: counters.MinMemory})
}

// fill charges new keys from the first on, a nanosecond apart, until one is evicted, and returns how many fitted in.
func fill(t *testing.T, table *counters.Table, l *counters.Limit, first counters.Key, now int64) counters.Key {
	t.Helper()
	for n := range counters.Key(1 << 20) {
		table.Take(l, first+n, 1, now+int64(n))
		if table.Stats().Evicted > 0 {
			return n
		}
	}
	t.Fatalf("a million keys do not fill a table: %+v", table.Stats())
	return 0
}

// heap is how many bytes are held.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// An attacker who changes identity with every request gets a cell each, and no more memory than the budget: keys that
// are over their limit are kept all the same.
func TestIdentityRotationStaysWithinTheBudget(t *testing.T) {
	const offenders = 100
	l := limitOf(t, time.Hour, time.Hour/10, 2)
	table := least(1)
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
			if key%1000 == 0 {
				table.DrainDirty(now)
				if st := table.Stats(); st.Bytes > counters.MinMemory {
					t.Fatalf("after %d keys: %+v, at most %d bytes are allowed", key, st, counters.MinMemory)
				}
			}
		}
	}
	rotate(1e5, 1.3e5)
	before := heap()
	rotate(1.3e5, 2e5)
	if grown := heap() - before; grown > counters.MinMemory/4 {
		t.Errorf("70000 keys later there are %d bytes more", grown)
	}
	for key := range counters.Key(offenders) {
		if d := table.Take(l, key, 0, start+2e5); d.Allowed {
			t.Errorf("offender %d was forgotten: %+v", key, d)
		}
	}
	st := table.Stats()
	if st.Keys < counters.MinMemory/400 || st.Evicted != 100+100000-uint64(st.Keys) || st.Forgotten != st.Evicted ||
		st.Expired != 0 ||
		st.EvictedDenied != 0 {
		t.Errorf("%+v, want a full table, and all others evicted with a count of 1 each", st)
	}
}

// Nor do peers get more: whatever keys, origins and births they invent.
func TestMergesStayWithinTheBudget(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var limits []*counters.Limit
	for _, a := range algorithms {
		limits = append(limits, newLimit(t, counters.NewMeter("r/"+a.String(), a, time.Hour), 10))
	}
	table, before := least(1), heap()
	slots := make([]counters.Slot, 100)
	for i := range 1000 {
		l := limits[r.IntN(len(limits))]
		for j := range slots {
			at := start - r.Int64N(int64(time.Hour))
			slots[j] = slotOf(l, counters.Key(r.IntN(1<<(i%20))), at, counters.Origin(2+r.IntN(1<<(i%10))),
				r.Uint32N(3), 1+r.Uint64N(9))
		}
		table.Merge(slots, start)
		if st := table.Stats(); st.Bytes > counters.MinMemory {
			t.Fatalf("%+v, at most %d bytes are allowed", st, counters.MinMemory)
		}
	}
	if st := table.Stats(); st.Evicted == 0 {
		t.Errorf("%+v: too little was told for this to be a test", st)
	}
	if grown := heap() - before; grown > counters.MinMemory*5/4 {
		t.Errorf("%d bytes are held, at most %d are allowed", grown, counters.MinMemory)
	}
	runtime.KeepAlive(table)
}

// Requests that no wait can admit need no cell: neither a rule that blocks nor costs beyond the limit push out keys
// that count.
func TestWhatIsNeverAdmittedTakesNoRoom(t *testing.T) {
	l, block := limitNamed(t, "r", 5), limitNamed(t, "block", 0)
	table := small(1)
	table.Take(l, 1, 3, start)
	for key := range counters.Key(100000) {
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

// kept is how many of the keys still count.
func kept(table *counters.Table, l *counters.Limit, from, to counters.Key, now int64) (n counters.Key) {
	for key := from; key < to; key++ {
		if table.View(l, key, now) > 0 {
			n++
		}
	}
	return n
}

// Cells that were idle long go first: a request, admitted or not, and a remote count are use, a peek is none.
func TestTheIdleGoFirst(t *testing.T) {
	l := filler(t)
	n := fill(t, small(1), l, 0, start)
	part := n / 10
	for name, c := range map[string]struct {
		use  func(table *counters.Table, key counters.Key, now int64)
		kept bool
	}{
		"requests": {func(table *counters.Table, key counters.Key, now int64) { table.Take(l, key, 1, now) }, true},
		"others' counts": {func(table *counters.Table, key counters.Key, now int64) {
			table.Merge([]counters.Slot{slotOf(l, key, now, 2, 0, uint64(now-start))}, now)
		}, true},
		"peeks": {func(table *counters.Table, key counters.Key, now int64) { table.Take(l, key, 0, now) }, false},
		"views": {func(table *counters.Table, key counters.Key, now int64) { table.View(l, key, now) }, false},
	} {
		table, now := small(1), start
		for key := range part {
			now++
			table.Take(l, key, 1, now)
		}
		for key := n; key < 6*n; key++ { // each of the first tenth is used again after every half of a table
			now++
			table.Take(l, key, 1, now)
			if part > 0 && key%5 == 0 {
				now++
				c.use(table, key/5%part, now)
			}
		}
		if got := kept(table, l, 0, part, now); c.kept && got < part*99/100 || !c.kept && got > part/10 {
			t.Errorf("%s: %d of %d cells are kept", name, got, part)
		}
	}
}

// Cells whose last request was denied go only where there are no others.
func TestTheDeniedGoLast(t *testing.T) {
	m := filler(t).Meter()
	m.Rule = "narrow"
	l, narrow := filler(t), newLimit(t, m, 1)
	n := fill(t, small(1), l, 0, start)
	table, now := small(1), start
	for key := range n / 2 {
		table.Take(narrow, key, 1, now)
		table.Take(narrow, key, 1, now)
	}
	for key := range 10 * n {
		now++
		table.Take(l, key, 1, now)
	}
	if got, st := kept(table, narrow, 0, n/2, now), table.Stats(); got < n/2*999/1000 ||
		st.EvictedDenied > uint64(n/2-got) {
		t.Errorf("%d of %d denied keys are kept, %+v", got, n/2, st)
	}
	// Where all are, some of them have to go, and are counted.
	before := table.Stats()
	for key := range 3 * n {
		now++
		table.Take(narrow, n+key, 1, now)
		table.Take(narrow, n+key, 1, now)
	}
	st := table.Stats()
	if gone := st.EvictedDenied - before.EvictedDenied; gone < uint64(n) || st.Bytes > counters.MinMemory {
		t.Errorf("%+v, was %+v: want denied keys evicted, and counted", st, before)
	}
}

// Cells in which nothing counts any more go before those that were idle for longer.
func TestTheExpiredGoFirst(t *testing.T) {
	l := filler(t)
	m := l.Meter()
	m.Rule, m.Window, m.Sub = "short", 60*time.Millisecond, time.Millisecond
	short := newLimit(t, m, 10)
	n := fill(t, small(1), l, 0, start)
	table := small(1)
	for key := range n / 2 {
		table.Take(l, key, 1, start)
	}
	for key := range n / 4 {
		table.Take(short, key, 10, start+1)
		table.Take(short, key, 1, start+1) // denied, which is no help when it has expired
	}
	for key := range n * 3 / 8 {
		table.Take(l, n+key, 1, after(time.Second))
	}
	if got := kept(table, l, 0, n/2, after(time.Second)) + kept(table, l, n, n+n*3/8,
		after(time.Second)); got < (n/2+n*3/8)*99/100 {
		t.Errorf("%d of %d cells that count are kept, %+v", got, n/2+n*3/8, table.Stats())
	}
}

// Expired cells go with the drains, those of others' counts as well, and none before its time. Looking at all cells, as
// for a snapshot, keeps none alive.
func TestExpiredCellsGoWithTime(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	for name, look := range map[string]func(table *counters.Table, now int64){
		"drained only": func(*counters.Table, int64) {},
		"snapshots":    func(table *counters.Table, now int64) { table.Snapshot(now, 1000) },
		"own":          func(table *counters.Table, now int64) { table.Own(now) },
		"views":        func(table *counters.Table, now int64) { table.View(l, 1, now); table.View(l, 1001, now) },
	} {
		table := least(1)
		for key := range counters.Key(500) {
			table.Take(l, key, 1, start)
			table.Merge([]counters.Slot{slotOf(l, 1000+key, after(time.Second), 2, 0, 1)}, start)
		}
		for second := range 15 {
			now := after(time.Duration(second) * time.Second)
			look(table, now)
			sweep(table, now)
			st := table.Stats()
			want := 1000
			switch {
			case second >= 12:
				want = 0
			case second == 11:
				want = 500 // those of the second that others were ahead
			}
			if st.Keys != want || st.Expired != uint64(1000-want) {
				t.Errorf("%s, after %d s: %+v, want %d cells", name, second, st, want)
			}
		}
	}
}

// A bucket that owes more than its window refills does not expire before it is full.
func TestABucketExpiresWhenItIsFull(t *testing.T) {
	l := newBucket(t, counters.NewMeter("r", counters.TokenBucket, time.Second), 3600, 1)
	table := small(1)
	table.Take(l, 1, 3600, start)
	for _, minutes := range []time.Duration{1, 10, 59} {
		now := after(minutes * time.Minute)
		sweep(table, now)
		if view := table.View(l, 1, now); view != 3600-60*uint64(minutes) {
			t.Errorf("after %d minutes it is short of %d", minutes, view)
		}
	}
	sweep(table, after(time.Hour+3*time.Second))
	if st := table.Stats(); st.Keys != 0 || st.Expired != 1 {
		t.Errorf("%+v, want it gone when it is full", st)
	}
}

// A drain takes out the expired cells of a part of a large table, so that none takes long; those of all go in time.
func TestADrainExpiresAPart(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	table := counters.NewTable(counters.Config{Origin: 1})
	for key := range counters.Key(6400) {
		table.Take(l, key, 1, start)
	}
	drains := 0
	for before := uint64(0); table.Stats().Keys > 0 && drains < 1000; drains++ {
		table.DrainDirty(after(time.Minute))
		expired := table.Stats().Expired
		if expired-before > 640 {
			t.Errorf("one drain expired %d cells of 6400, want a small part", expired-before)
		}
		before = expired
	}
	if st := table.Stats(); st.Keys != 0 || st.Expired != 6400 || drains < 10 {
		t.Errorf("%+v after %d drains, want all expired, not all at once", st, drains)
	}
}

// Where a clock ran far ahead and was put right, the cells of that time are no longer of use, and go first: else they
// would count as the most recently used for as long as it had run ahead.
func TestCellsOfATimeThatNeverCameGoFirst(t *testing.T) {
	l := filler(t)
	n := fill(t, small(1), l, 0, start)
	table := small(1)
	for key := range n / 2 {
		table.Take(l, n+key, 1, after(24*time.Hour))
	}
	for key := range n * 3 / 4 {
		table.Take(l, key, 1, start)
	}
	if got := kept(table, l, 0, n*3/4, start); got < n*3/4*99/100 {
		t.Errorf("%d of %d cells that count are kept, %+v", got, n*3/4, table.Stats())
	}
	if st := table.Stats(); st.Forgotten > uint64(n/100) {
		t.Errorf("%+v, want hardly anything forgotten that counts now", st)
	}
}

// A budget is what a table holds in proportion, and one that is too small a caller's bug.
func TestBudgets(t *testing.T) {
	l := filler(t)
	want := fill(t, least(1), l, 0, start)
	table := counters.NewTable(counters.Config{Origin: 1, Memory: 4 * counters.MinMemory})
	if n := fill(t, table, l, 0, start); n < 3*want || n > 5*want {
		t.Errorf("four times the budget holds %d cells, want about four times %d", n, want)
	}
	for _, memory := range []int{-1, 1, counters.MinMemory - 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a budget of %d did not panic", memory)
				}
			}()
			counters.NewTable(counters.Config{Origin: 1, Memory: memory})
		}()
	}
}
