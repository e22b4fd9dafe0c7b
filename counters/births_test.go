package counters_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// small makes a table of which a few dozen keys fill a shard.
func small(origin counters.Origin) *counters.Table { return counters.NewTiny(origin, 3) }

// filler is a limit with cells as large as can be, so that few of them fill a table.
func filler(t rapid.TB) *counters.Limit {
	t.Helper()
	m := counters.Meter{Rule: "filler", Algorithm: counters.SlidingWindow, Window: time.Hour, Sub: time.Minute}
	return newLimit(t, m, counters.MaxLimit)
}

// crowd is a stream of keys that nobody asks for again.
type crowd struct {
	limit *counters.Limit
	next  counters.Key
}

func newCrowd(t rapid.TB) *crowd { return &crowd{filler(t), 1 << 32} }

// pushOut charges new keys until the table has let go of the one given, which has to count something. It drains as
// often as a node would at such a rate, and returns what was sent of the limit.
func (c *crowd) pushOut(
	t rapid.TB, table *counters.Table, l *counters.Limit, key counters.Key, now int64,
) (sent []counters.Slot) {
	t.Helper()
	for i := range 1 << 10 {
		for c.next++; counters.ShardOf(c.limit, c.next) != counters.ShardOf(l, key); {
			c.next++
		}
		table.Take(c.limit, c.next, 1<<20, now) // more than any cell of a test counts
		if table.View(l, key, now) == 0 {
			return sent
		}
		if i%4 == 3 {
			sent = append(sent, of(l, table.DrainDirty(now).Slots)...)
		}
	}
	t.Fatalf("a thousand keys do not push out one that shares their shard: %+v", table.Stats())
	return nil
}

// of returns the slots of the limit's meter.
func of(l *counters.Limit, slots []counters.Slot) (own []counters.Slot) {
	for _, s := range slots {
		if *s.Meter == l.Meter() {
			own = append(own, s)
		}
	}
	return own
}

// limitsOf is one limit of each algorithm, so large that nothing is denied, and without a refill worth speaking of.
func limitsOf(t rapid.TB) (limits []*counters.Limit) {
	t.Helper()
	for _, a := range algorithms {
		m := counters.NewMeter("r/"+a.String(), a, time.Hour)
		if isBucket(a) {
			limits = append(limits, newBucket(t, m, 1000, 1))
			continue
		}
		limits = append(limits, newLimit(t, m, 1000))
	}
	return limits
}

// A cell that was evicted and comes again counts from zero, under another birth: its peers add up both. What it had not
// sent yet is sent all the same.
func TestBirthsAddUpAtAPeer(t *testing.T) {
	for _, l := range limitsOf(t) {
		table, peer, others := small(9), small(2), newCrowd(t)
		now, sum := after(5*time.Minute), uint64(0)
		for i := range uint64(5) {
			now += int64(500 * time.Millisecond)
			table.Take(l, 1, 10+i, now)
			if sum += 10 + i; i%2 == 0 {
				peer.Merge(of(l, table.DrainDirty(now).Slots), now)
			}
			peer.Merge(others.pushOut(t, table, l, 1, now), now)
		}
		peer.Merge(of(l, table.DrainDirty(now).Slots), now)
		if view := peer.View(l, 1, now); view != sum {
			t.Errorf("%v: the peer's view is %d, want %d", l.Meter().Algorithm, view, sum)
		}
		seen := make(map[uint32]bool)
		for _, s := range peer.Snapshot(now, 100) {
			seen[s.Birth] = true
		}
		if len(seen) != 5 {
			t.Errorf("%v: %d births of one cell, want 5", l.Meter().Algorithm, len(seen))
		}
		if left := of(l, table.DrainDirty(now).Slots); len(left) != 0 {
			t.Errorf("%v: told twice: %+v", l.Meter().Algorithm, left)
		}
	}
}

// When nothing of a cell can count any more anywhere, its successor may be born as it was: peers need no row more.
func TestBirthsAreSpared(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	table := small(9)
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

// Births wrap around at MaxBirth, those of the table and those that come.
func TestBirthsWrapAround(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	table, peer, others := small(9), small(2), newCrowd(t)
	counters.SetBirths(table, counters.MaxBirth)
	for range 2 {
		table.Take(l, 1, 10, start)
		peer.Merge(of(l, table.DrainDirty(start).Slots), start)
		others.pushOut(t, table, l, 1, start)
	}
	at := func(birth uint32, count uint64) counters.Slot { return slotOf(l, 1, start, 9, birth, count) }
	wantSlots(t, "births", peer.Snapshot(start, 10), at(counters.MaxBirth, 10), at(1, 10))

	peer.SetOwners(&counters.Owners{Owned: only(1)}) // it marks what rises
	near := at(math.MaxUint32, 12)
	near.Place = counters.Near
	peer.Merge([]counters.Slot{near}, start)
	for range 2 {
		wantSlots(t, "births after a larger one", peer.Snapshot(start, 10), at(counters.MaxBirth, 12), at(1, 10))
		peer.DrainDirty(start)
	}
}

// sentCounts holds what was drained of one meter, each slot at its largest.
type sentCounts map[drained]uint64

type drained struct {
	key   counters.Key
	index int64
	birth uint32
}

func (d sentCounts) note(t rapid.TB, l *counters.Limit, slots []counters.Slot) {
	t.Helper()
	for _, s := range of(l, slots) {
		at := drained{s.Key, s.Index, s.Birth}
		if s.Count <= d[at] {
			t.Fatalf("%+v: drained %d after %d", at, s.Count, d[at])
		}
		d[at] = s.Count
	}
}

func (d sentCounts) sum(key counters.Key) (sum uint64) {
	for at, count := range d {
		if at.key == key {
			sum += count
		}
	}
	return sum
}

// However cells come and go, and wherever the clock jumps: no two lives of a cell share a slot. What was drained,
// merged by max, adds up to what was admitted.
func TestNoBirthSwallowsAnother(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, counters.MaxLimit)
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 11))
		table, others, sent, admitted := small(9), newCrowd(t), make(sentCounts), make(map[counters.Key]uint64)
		now, undrained := start, int64(math.MaxInt64) // since when something may wait to be drained
		drain := func() {
			sent.note(t, l, table.DrainDirty(now).Slots)
			undrained = math.MaxInt64
		}
		for range 150 {
			second := int64(time.Second)
			next := now + pick(r, 0, 1, -1, second, -second, -10*second, -11*second, r.Int64N(60*second)-30*second,
				r.Int64N(4*second)-2*second)
			if undrained != math.MaxInt64 && next > undrained+9*second {
				drain() // what is older than its window need not be sent
			}
			now = next
			key := counters.Key(1 + r.IntN(3))
			switch r.IntN(12) {
			case 0:
				drain()
			case 1:
				if table.View(l, key, now) > 0 {
					sent.note(t, l, others.pushOut(t, table, l, key, now))
				}
			case 2:
				table.Merge([]counters.Slot{slotOf(l, key, now, 2, 0, 1)}, now)
			default:
				if cost := 1 + r.Uint64N(5); table.Take(l, key, cost, now).Allowed {
					admitted[key] += cost
					undrained = min(undrained, now)
				}
			}
		}
		drain()
		for key, want := range admitted {
			if got := sent.sum(key); got != want {
				t.Fatalf("seed %d: of key %d %d were admitted, and %d told: %v", seed, key, want, got, sent)
			}
		}
	}
}

// Two tables that forget and tell each other all the same: neither believes in more than there is, and one that forgets
// nothing and hears of all knows all.
func TestTablesThatForgetTellEverything(t *testing.T) {
	for i, l := range limitsOf(t) {
		r := rand.New(rand.NewPCG(uint64(i), 12))
		tables, restored, others := [2]*counters.Table{small(1), small(2)}, small(3), newCrowd(t)
		truth, now := oracle.NewModel(l), start
		for range 120 {
			now += r.Int64N(int64(20 * time.Second))
			who, key := r.IntN(2), counters.Key(r.IntN(3))
			switch r.IntN(8) {
			case 0:
				if tables[who].View(l, key, now) > 0 {
					slots := others.pushOut(t, tables[who], l, key, now)
					tables[1-who].Merge(slots, now)
					restored.Merge(slots, now)
				}
			case 1, 2, 3:
				slots := of(l, tables[who].DrainDirty(now).Slots)
				tables[1-who].Merge(slots, now)
				restored.Merge(slots, now)
			default:
				if cost := r.Uint64N(5); tables[who].Take(l, key, cost, now).Allowed {
					truth.Charge(key, cost, now)
				}
			}
			for key := range counters.Key(3) {
				if view, largest := tables[who].View(l, key, now), truth.View(key, now); view > largest {
					t.Fatalf("%v: a view of %d, of which there are %d", l.Meter().Algorithm, view, largest)
				}
			}
		}
		for _, table := range tables {
			restored.Merge(of(l, table.DrainDirty(now).Slots), now)
		}
		for key := range counters.Key(3) {
			got, want := restored.View(l, key, now), truth.View(key, now)
			if exact := l.Meter().Algorithm; got > want ||
				got < want && (exact == counters.SlidingWindow || exact == counters.FixedWindow) {
				t.Errorf("%v: the witness knows %d of key %d, of which there are %d", l.Meter().Algorithm, got, key,
					want)
			}
		}
	}
}
