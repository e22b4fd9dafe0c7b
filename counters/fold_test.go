package counters_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// numbersOfOrigins is how many origins a table can number at a time.
const numbersOfOrigins = 8191

// boots is a table and boots of nodes that count for it, one after the other.
type boots struct {
	t     testing.TB
	table *counters.Table
	limit *counters.Limit
	now   int64
	next  counters.Origin
}

// run has so many boots count one each, and go for good.
func (b *boots) run(n int) {
	for range n {
		b.next++
		b.now += int64(100 * time.Millisecond)
		b.table.SetMember(b.next, true)
		s := sentBy(b.next, slotOf(b.limit, counters.Key(b.next%500), b.now, b.next, 0, 1))
		if s.Place = counters.Near; b.next%3 == 0 {
			s.Place = counters.Far(int(b.next % 2))
		}
		if b.table.Merge([]counters.Slot{s}, b.now) != 1 {
			b.t.Fatalf("the count of boot %d is refused: %+v", b.next, b.table.Stats())
		}
		b.table.SetWatermark(b.next, counters.Gone)
		b.table.SetMember(b.next, false)
		if b.next%10 == 0 {
			b.table.DrainDirty(b.now)
		}
	}
}

// view is what the table knows of all keys.
func (b *boots) view() (sum uint64) {
	for key := range counters.Key(500) {
		sum += b.table.View(b.limit, key, b.now)
	}
	return sum
}

// Three times as many boots as there are numbers, within a window: none is refused, and none forgotten.
func TestBootsThatAreGoneAreFolded(t *testing.T) {
	b := &boots{t: t, table: least(1), limit: limitOf(t, 24*time.Hour, time.Hour, 1<<30), now: start, next: 1}
	b.run(3 * numbersOfOrigins)
	if st := b.table.Stats(); st.Forgotten != 0 || st.Refused != 0 || st.OriginsRetired < 2*numbersOfOrigins-4096 {
		t.Errorf("%+v", st)
	}
	if view := b.view(); view != 3*numbersOfOrigins {
		t.Errorf("the views are %d, want %d", view, 3*numbersOfOrigins)
	}
	if own := b.table.Own(b.now); len(own) != 0 {
		t.Errorf("counts of others became own ones: %v", own)
	}
}

// What is folded and comes again is not counted again. What its origin counts later is.
func TestAFoldedOriginThatComesBack(t *testing.T) {
	b := &boots{t: t, table: least(1), limit: limitOf(t, 24*time.Hour, time.Hour, 1<<30), now: start, next: 1}
	b.run(2 * numbersOfOrigins)
	began, before := b.now, b.view()
	for boot := counters.Origin(2); boot < 1000; boot++ { // folded long ago
		b.table.Merge([]counters.Slot{sentBy(7, slotOf(b.limit, counters.Key(boot%500), start, boot, 0, 1)),
			sentBy(boot, slotOf(b.limit, counters.Key(boot%500), start, boot, 0, 2))}, b.now)
	}
	if view := b.view(); view != before {
		t.Errorf("slots of folded origins come again: the views are %d, want %d", view, before)
	}
	b.now = began + int64(time.Hour) // in a later sub-window
	b.table.SetMember(2, true)
	b.table.Merge([]counters.Slot{sentBy(2, slotOf(b.limit, 2, b.now, 2, 0, 5))}, b.now)
	if view := b.view(); view != before+5 {
		t.Errorf("an origin is back, and counts 5: the views are %d, want %d", view, before+5)
	}
	b.now += int64(48 * time.Hour) // nothing counts any more, and nothing is remembered
	b.table.Merge([]counters.Slot{sentBy(3, slotOf(b.limit, 3, b.now, 3, 0, 1))}, b.now)
	if view := b.view(); view != 1 {
		t.Errorf("after the window the views are %d, want 1", view)
	}
}

// No snapshot has folds: who merges one has no more than the truth.
func TestFoldsStayInTheirTable(t *testing.T) {
	b := &boots{t: t, table: least(1), limit: limitOf(t, 24*time.Hour, time.Hour, 1<<30), now: start, next: 1}
	b.run(2 * numbersOfOrigins)
	other := &boots{t: t, table: least(2), limit: b.limit, now: b.now}
	slots := b.table.Snapshot(b.now, 1<<20)
	for i := range slots {
		if slots[i].Sender = 1; slots[i].Origin == 0 {
			t.Fatalf("a snapshot has the fold %+v", slots[i])
		}
	}
	if len(slots) == 0 || len(slots) > numbersOfOrigins {
		t.Errorf("a snapshot has %d slots", len(slots))
	}
	other.table.Merge(slots, b.now)
	if a, b := other.view(), b.view(); a > b || a == 0 {
		t.Errorf("a view of %d by a snapshot of %d", a, b)
	}
}

// Folding changes no view, nor what sums count beyond their parts, whatever the cells hold.
func TestFoldingChangesNoView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := unlimited(t, "r", rapid.SampledFrom([]counters.Algorithm{counters.SlidingWindow, counters.FixedWindow,
			counters.SlidingLog, counters.TokenBucket}).Draw(t, "algorithm"))
		folding, plain := least(1), least(1) // which alone folds
		places := []counters.Place{counters.Unplaced, counters.Near, counters.Far(0), counters.Far(1)}
		now := start
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause")
			key := counters.Key(rapid.IntRange(0, 1).Draw(t, "key"))
			var s counters.Slot
			switch step := rapid.IntRange(0, 9).Draw(t, "step"); step {
			case 0:
				folding.Take(l, key, 1, now)
				plain.Take(l, key, 1, now)
			case 1:
				for _, table := range []*counters.Table{folding, plain} {
					table.DrainDirty(now)
				}
			case 2:
				folded := counters.Origin(rapid.IntRange(2, 20).Draw(t, "folded"))
				counters.FoldOrigin(folding, folded, now)
			case 3, 4:
				place := rapid.SampledFrom(places[1:]).Draw(t, "sum")
				total := rapid.Uint64Range(1, 60).Draw(t, "total")
				s = slotOf(l, key, now, sumOf(regionSum, int(place)).Of(key.Partition()), 0, total)
				s.Place = place.Sum()
			default:
				origin := counters.Origin(rapid.IntRange(2, 20).Draw(t, "origin"))
				s = slotOf(l, key, now-rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "age"), origin,
					rapid.Uint32Range(0, 1).Draw(t, "birth"), rapid.Uint64Range(1, 9).Draw(t, "count"))
				s.Place = places[origin%4]
			}
			if s.Meter != nil && !counters.IsFolded(folding, s.Origin) {
				folding.Merge([]counters.Slot{sentBy(30, s)}, now)
				plain.Merge([]counters.Slot{sentBy(30, s)}, now)
			}
			for key := range counters.Key(2) {
				if a, b := folding.View(l, key, now), plain.View(l, key, now); a != b {
					t.Fatalf("a view of %d where origins are folded, %d where not", a, b)
				}
			}
			wantSlots(t, "own slots", folding.Own(now), plain.Own(now)...)
		}
	})
}
