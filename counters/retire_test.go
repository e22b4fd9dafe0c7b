package counters_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// numbersOfOrigins is how many origins a table can number at a time.
const numbersOfOrigins = 65535

// bootKeys is how many keys boots count.
const bootKeys = 5000

// boots is a table and boots of nodes that count for it, one after the other.
type boots struct {
	t     testing.TB
	table *counters.Table
	limit *counters.Limit
	now   int64
	next  counters.Origin

	forgotten uint64 // the most of a key that a drain reported as forgotten
}

func newBoots(t testing.TB) *boots {
	b := &boots{t: t, table: least(1), limit: limitOf(t, 24*time.Hour, time.Hour, 1<<30), now: start, next: 1}
	b.table.Know([]*counters.Limit{b.limit})
	return b
}

// run has so many boots count one each and leave, some of them for good.
func (b *boots) run(n int, gone bool) {
	for range n {
		b.next++
		b.now += int64(100 * time.Millisecond)
		b.table.SetMember(b.next, true)
		if b.table.Merge([]counters.Slot{b.slot(b.next)}, b.now) != 1 {
			b.t.Fatalf("the count of boot %d is refused: %+v", b.next, b.table.Stats())
		}
		b.table.SetMember(b.next, false)
		if gone {
			b.table.SetWatermark(b.next, counters.Gone)
		}
		if b.next%100 == 0 {
			for _, f := range b.table.DrainDirty(b.now).Forgotten {
				b.forgotten = max(b.forgotten, f.Count)
			}
		}
	}
}

// slot is what a boot counts.
func (b *boots) slot(boot counters.Origin) counters.Slot {
	return sentBy(boot, slotOf(b.limit, b.key(boot), start, boot, 0, 1))
}

func (b *boots) key(boot counters.Origin) counters.Key { return counters.Key(boot % bootKeys) }

// has reports whether the table counts what a boot counted.
func (b *boots) has(boot counters.Origin) bool {
	for _, s := range b.table.Slots(b.limit, b.key(boot), b.now) {
		if s.Origin == boot {
			return true
		}
	}
	return false
}

// view is what the table knows of all keys.
func (b *boots) view() (sum uint64) {
	for key := range counters.Key(bootKeys) {
		sum += b.table.View(b.limit, key, b.now)
	}
	return sum
}

// Boots that have ended give their numbers up to those that come, however many there are within a window. What they
// counted is forgotten, and reported as such.
func TestBootsThatAreOverGiveUpTheirNumbers(t *testing.T) {
	for _, gone := range []bool{false, true} {
		b := newBoots(t)
		b.run(2*numbersOfOrigins, gone)
		st := b.table.Stats()
		if st.Refused != 0 || st.OriginsRetired < numbersOfOrigins || st.OriginsRetired > numbersOfOrigins*3/2 {
			t.Errorf("gone %v: %+v", gone, st)
		}
		if view := b.view(); st.Forgotten != st.OriginsRetired || view+st.Forgotten != 2*numbersOfOrigins {
			t.Errorf("gone %v: the views are %d and %d are forgotten", gone, view, st.Forgotten)
		}
		if b.forgotten == 0 || b.forgotten > numbersOfOrigins/bootKeys {
			t.Errorf("gone %v: %d of a key were forgotten at a time", gone, b.forgotten)
		}
		if own := b.table.Own(b.now); len(own) != 0 {
			t.Errorf("gone %v: counts of others became own ones: %v", gone, own)
		}
	}
}

// No count is forgotten while numbers are left. Then those that may count again stay, and of the others the latest.
func TestBootsThatAreGoneAreRetiredFirst(t *testing.T) {
	b := newBoots(t)
	b.run(1000, false)
	b.run(numbersOfOrigins*7/8-1100, true)
	if st := b.table.Stats(); st.OriginsRetired != 0 || st.Forgotten != 0 {
		t.Errorf("numbers are left: %+v", st)
	}
	b.run(numbersOfOrigins/8, true)
	st := b.table.Stats()
	if st.OriginsRetired == 0 {
		t.Fatalf("%+v", st)
	}
	for boot := counters.Origin(2); boot <= b.next; boot++ {
		retired := boot > 1001 && uint64(boot) <= 1001+st.OriginsRetired
		if b.has(boot) == retired {
			t.Fatalf("boot %d of %d, of which %d were retired: counts %v", boot, b.next, st.OriginsRetired, !retired)
		}
	}
}

// An origin that was retired may come back, and counts again. A bucket keeps what it debited.
func TestARetiredOriginThatComesBack(t *testing.T) {
	for _, a := range algorithms {
		l, left := unlimited(t, "r", a), uint64(7)
		if isBucket(a) {
			left = 12
		}
		table := least(1)
		table.Know([]*counters.Limit{l})
		slots := []counters.Slot{sentBy(2, slotOf(l, 1, start, 2, 0, 5)), sentBy(3, slotOf(l, 1, start, 3, 0, 7))}
		table.Merge(slots, start)
		counters.RetireOrigin(table, 2)
		if view, slots := table.View(l, 1, start), table.Slots(l, 1, start); view != left || len(slots) != 1 ||
			slots[0].Origin != 3 {
			t.Errorf("%v: a view of %d, want %d, and %v are left", a, view, left, slots)
		}
		table.Merge(slots, start)
		if view := table.View(l, 1, start); !isBucket(a) && view != 12 {
			t.Errorf("%v: when the slots come again, the view is %d, want 12", a, view)
		}
	}
}

// What is left when origins are retired is what the table would count without them.
func TestRetiringForgetsNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := unlimited(t, "r", rapid.SampledFrom([]counters.Algorithm{counters.SlidingWindow, counters.FixedWindow,
			counters.SlidingLog}).Draw(t, "algorithm"))
		retiring, plain := least(1), least(1) // which never merges what is retired
		now, retired := start, counters.Origin(rapid.IntRange(2, 5).Draw(t, "retired"))
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause")
			key := counters.Key(rapid.IntRange(0, 1).Draw(t, "key"))
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				retiring.Take(l, key, 1, now)
				plain.Take(l, key, 1, now)
			case 1:
				retiring.DrainDirty(now)
				plain.DrainDirty(now)
			default:
				s := slotOf(l, key, now-rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "age"),
					counters.Origin(rapid.IntRange(2, 5).Draw(t, "origin")), rapid.Uint32Range(0, 1).Draw(t, "birth"),
					rapid.Uint64Range(1, 9).Draw(t, "count"))
				if retiring.Merge([]counters.Slot{s}, now); s.Origin != retired {
					plain.Merge([]counters.Slot{s}, now)
				}
			}
		}
		counters.RetireOrigin(retiring, retired)
		for key := range counters.Key(2) {
			if a, b := retiring.View(l, key, now), plain.View(l, key, now); a != b {
				t.Fatalf("a view of %d where an origin is retired, %d where it never counted", a, b)
			}
			wantSlots(t, "slots", retiring.Slots(l, key, now), plain.Slots(l, key, now)...)
		}
	})
}
