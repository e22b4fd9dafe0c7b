// Package regionstest holds every regions.Store to the same laws, and makes stores fail on purpose.
package regionstest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
)

// Run holds a store to the laws of regions.Store. Each call of open returns an empty store that tells the time by the
// wall clock, has room for 20,000 slots, and is closed by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) regions.Store) {
	for _, law := range laws {
		t.Run(law.name, func(t *testing.T) {
			law.check(t.Context(), t, open(t))
		})
	}
}

// law is something that every store has to keep to; it gets an empty one.
type law struct {
	name  string
	check func(ctx context.Context, t rapid.TB, store regions.Store)
}

var laws = []law{
	{"an empty store holds nothing", empty},
	{"the largest count stays", largest},
	{"slots of one call are merged in order", inOrder},
	{"a count of zero leaves no trace", zero},
	{"the caller's slots stay the caller's", callersOwn},
	{"others are all but the slots given", others},
	{"what was restored is given, and proves nothing to its origin", restore},
	{"meters are kept apart", meters},
	{"large numbers are exact", large},
	{"the time is returned", clock},
	{"what has expired is not given", dead},
	{"a context that ended is an error", cancelled},
	{"many slots at once", many},
	{"concurrent merges lose nothing", concurrent},
	{"it behaves as the model", asModel},
	{"order, grouping and repetition change nothing", anyOrder},
}

func empty(ctx context.Context, t rapid.TB, store regions.Store) {
	expect(t, load(ctx, t, store, ""))
	for range 2 {
		expect(t, merge(ctx, t, store).Others)
	}
	s := slot("r", 1, 0, 1, 1, 7)
	first := merge(ctx, t, store, s)
	wantBefore(t, first, 0)
	expect(t, first.Others)
	if again := merge(ctx, t, store, s); again.Epoch != first.Epoch {
		t.Fatalf("the epoch went from %q to %q though nothing happened to the store", first.Epoch, again.Epoch)
	}
}

func clock(ctx context.Context, t rapid.TB, store regions.Store) {
	before := time.Now()
	merged := merge(ctx, t, store, slot("r", 1, 0, 1, 1, 7))
	if at, after := merged.Time, time.Now(); at.Before(before.Truncate(time.Microsecond)) || at.After(after) {
		t.Fatalf("between %v and %v the store says it is %v", before, after, at)
	}
}

func largest(ctx context.Context, t rapid.TB, store regions.Store) {
	before := uint64(0)
	for _, count := range []uint64{5, 9, 3, 9, 10, 1} {
		merged := merge(ctx, t, store, slot("r", 1, 0, 1, 1, count))
		wantBefore(t, merged, before)
		before = max(before, count)
		expect(t, load(ctx, t, store, ""), slot("r", 1, 0, 1, 1, before))
	}
}

func inOrder(ctx context.Context, t rapid.TB, store regions.Store) {
	merged := merge(ctx, t, store, slot("r", 1, 0, 1, 1, 4), slot("r", 2, 0, 1, 1, 5), slot("r", 1, 0, 1, 1, 2),
		slot("r", 1, 0, 1, 1, 8), slot("r", 1, 0, 1, 1, 9))
	wantBefore(t, merged, 0, 0, 4, 4, 8)
	expect(t, merged.Others)
	expect(t, load(ctx, t, store, ""), slot("r", 1, 0, 1, 1, 9), slot("r", 2, 0, 1, 1, 5))
}

func zero(ctx context.Context, t rapid.TB, store regions.Store) {
	merge(ctx, t, store, slot("r", 1, 0, 1, 1, 0))
	expect(t, load(ctx, t, store, ""))
	merge(ctx, t, store, slot("r", 1, 0, 1, 1, 6), slot("r", 1, 0, 2, 1, 3))
	merged := merge(ctx, t, store, slot("r", 1, 0, 1, 1, 0))
	wantBefore(t, merged, 6)
	expect(t, merged.Others, slot("r", 1, 0, 2, 1, 3))
	expect(t, load(ctx, t, store, ""), slot("r", 1, 0, 1, 1, 6), slot("r", 1, 0, 2, 1, 3))
}

func callersOwn(ctx context.Context, t rapid.TB, store regions.Store) {
	given := []counters.Slot{slot("r", 1, 0, 1, 1, 5), slot("r", 1, 0, 2, 1, 6)}
	mine := slices.Clone(given)
	merged := merge(ctx, t, store, mine...)
	if !slices.Equal(mine, given) {
		t.Fatalf("the merge changed the caller's slots from %v to %v", given, mine)
	}
	merged.Before[0] = 99
	asked := merge(ctx, t, store, slot("r", 1, 0, 3, 1, 0))
	for i := range asked.Others {
		asked.Others[i].Count = 99
	}
	for i := range mine {
		mine[i].Count, mine[i].Key = 99, 99
	}
	expect(t, load(ctx, t, store, ""), given...)
}

func others(ctx context.Context, t rapid.TB, store regions.Store) {
	mine := slot("r", 1, 0, 1, 2, 10)
	earlier := slot("r", 1, 0, 1, 1, 20) // the same origin's cell before it was evicted
	later := slot("r", 1, 0, 1, 3, 21)
	peer := slot("r", 1, 0, 2, 2, 30)
	elsewhere := []counters.Slot{
		slot("r", 2, 0, 2, 2, 40),  // another key
		slot("r", 1, -1, 2, 2, 41), // another sub-window
		slot("r", 1, 1, 2, 2, 42),
		slot("s", 1, 0, 2, 2, 43), // another rule
	}
	merge(ctx, t, store, elsewhere...)
	expect(t, merge(ctx, t, store, earlier, later, peer).Others)
	expect(t, merge(ctx, t, store, mine).Others, earlier, later, peer)
	mine.Count++
	expect(t, merge(ctx, t, store, mine).Others, earlier, later, peer)
	// Each is sent once, however many of the slots given it lies beside.
	expect(t, merge(ctx, t, store, mine, earlier).Others, later, peer)
	expect(t, merge(ctx, t, store, mine, elsewhere[0], earlier, later, peer).Others)
	// A count that the store raised past the caller's shows in Before alone.
	low := mine
	low.Count = 1
	merged := merge(ctx, t, store, low)
	expect(t, merged.Others, earlier, later, peer)
	wantBefore(t, merged, mine.Count)
}

func restore(ctx context.Context, t rapid.TB, store regions.Store) {
	gone, alive := slot("r", 1, 0, 1, 1, 5), slot("r", 1, 0, 2, 1, 6)
	for range 2 { // the second time as the first
		if err := store.Restore(ctx, []counters.Slot{gone, alive, slot("r", 2, 0, 1, 1, 0)}, wall()); err != nil {
			t.Fatalf("restore: %v", err)
		}
		expect(t, load(ctx, t, store, ""), gone, alive)
	}
	// The origin that lives finds nothing of its own, and what was restored of it is not sent to it as another's.
	less := alive
	less.Count = 4
	merged := merge(ctx, t, store, less)
	wantBefore(t, merged, 0)
	expect(t, merged.Others, gone)
	expect(t, load(ctx, t, store, ""), gone, alive)
	wantBefore(t, merge(ctx, t, store, alive), 4)
	// The larger count is given, once, whoever told it.
	more := alive
	more.Count = 9
	merge(ctx, t, store, more)
	if err := store.Restore(ctx, []counters.Slot{alive}, wall()); err != nil {
		t.Fatalf("restore: %v", err)
	}
	expect(t, load(ctx, t, store, ""), gone, more)
	expect(t, merge(ctx, t, store, gone).Others, more)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := store.Restore(ended, []counters.Slot{gone}, wall()); !errors.Is(err, context.Canceled) {
		t.Fatalf("Restore under a cancelled context: %v, want context.Canceled", err)
	}
}

func meters(ctx context.Context, t rapid.TB, store regions.Store) {
	var all []counters.Slot
	// Names that a careless encoding would run into each other.
	for i, rule := range []string{"a", "a:1", "a:1:2", "a|1", "a}", "{a}", "a b", "a\n", "a\x00", "ä", "\xff", "*",
		"a*", "A", "1"} {
		s := slot(rule, 1, 0, 1, 1, uint64(i+1))
		all = append(all, s)
	}
	// Of these, the second differs in its window alone and shares the number of its sub-window.
	for i, length := range [][2]time.Duration{{time.Hour, time.Minute}, {2 * time.Hour, 6 * time.Minute},
		{30 * time.Minute, 3 * time.Minute}} {
		s := slot("a", 1, 0, 1, 1, uint64(100+i))
		m := *s.Meter
		m.Window, m.Sub = length[0], length[1]
		s.Meter, s.Index = &m, m.Index(time.Now().UnixNano())
		all = append(all, s)
	}
	for _, s := range all {
		merged := merge(ctx, t, store, s)
		wantBefore(t, merged, 0)
		expect(t, merged.Others)
	}
	expect(t, load(ctx, t, store, ""), all...)
}

func large(ctx context.Context, t rapid.TB, store regions.Store) {
	// Doubles stop at 2^53, signed integers at 2^63.
	before := uint64(0)
	for _, count := range []uint64{1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<63 - 1025, 1<<63 - 1, 1 << 63, 1<<63 + 1,
		math.MaxUint64 - 1, math.MaxUint64} {
		merged := merge(ctx, t, store, slot("r", 1, 0, 1, 1, count), slot("r", 1, 0, 1, 1, count-1))
		wantBefore(t, merged, before, count)
		before = count
	}
	// A larger count of fewer digits, were it written as text.
	merge(ctx, t, store, slot("r", 2, 0, 1, 1, 9), slot("r", 2, 0, 1, 1, 10))
	largest := slot("r", math.MaxUint64, 0, math.MaxUint64, math.MaxUint32, 3)
	near := []counters.Slot{
		slot("r", math.MaxUint64-1, 0, 1, 0, 4), slot("r", math.MaxUint64, 0, math.MaxUint64-1, 0, 5),
		slot("r", math.MaxUint64, 0, math.MaxUint64, math.MaxUint32-1, 6),
	}
	merge(ctx, t, store, near...)
	expect(t, merge(ctx, t, store, largest).Others, near[1], near[2])
	expect(t, load(ctx, t, store, ""),
		append(near, largest, slot("r", 1, 0, 1, 1, math.MaxUint64), slot("r", 2, 0, 1, 1, 10))...)
}

func dead(ctx context.Context, t rapid.TB, store regions.Store) {
	n := int64(slot("r", 1, 0, 1, 1, 1).Meter.SubWindows())
	live := slot("r", 1, -n+1, 1, 1, 5)
	old := slot("r", 1, -n-3, 1, 1, 6)
	ancient := slot("r", 1, 0, 1, 1, 7)
	ancient.Index = 1
	for range 2 { // the second time as the first
		merged := merge(ctx, t, store, old, ancient, live)
		wantBefore(t, regions.Merged{Before: merged.Before[:2]}, 0, 0)
	}
	expect(t, load(ctx, t, store, ""), live)
}

func cancelled(ctx context.Context, t rapid.TB, store regions.Store) {
	s := slot("r", 1, 0, 1, 1, 5)
	merge(ctx, t, store, s)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	merged, err := store.Merge(ended, []counters.Slot{slot("r", 2, 0, 1, 1, 6)}, wall())
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Merge under a cancelled context: %v, want context.Canceled", err)
	}
	if merged.Before != nil || merged.Others != nil || merged.Epoch != "" {
		t.Fatalf("Merge under a cancelled context answered %+v beside its error", merged)
	}
	if err := store.Load(ended, wall(), func([]counters.Slot) {}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Load under a cancelled context: %v, want context.Canceled", err)
	}
	late, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancel()
	if _, err := store.Merge(late, []counters.Slot{s}, wall()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Merge past its deadline: %v, want context.DeadlineExceeded", err)
	}
	wantBefore(t, merge(ctx, t, store, s), 5)
}

func many(ctx context.Context, t rapid.TB, store regions.Store) {
	var all []counters.Slot
	for key := range counters.Key(5000) {
		all = append(all, slot("r", key, -int64(key%5), 1, 1, uint64(key)+1),
			slot("r", key, -int64(key%5), 2, 1, uint64(key)+2))
	}
	mine, theirs := make([]counters.Slot, 0, len(all)/2), make([]counters.Slot, 0, len(all)/2)
	for i := 0; i < len(all); i += 2 {
		mine, theirs = append(mine, all[i]), append(theirs, all[i+1])
	}
	expect(t, merge(ctx, t, store, theirs...).Others)
	expect(t, merge(ctx, t, store, mine...).Others, theirs...)
	expect(t, load(ctx, t, store, ""), all...)
}

const callers, rounds = 8, 30

// concurrent has several callers raise the same slots. What each finds before must never go back, and the largest
// counts stay.
func concurrent(ctx context.Context, t rapid.TB, store regions.Store) {
	const keys = 5
	failures := make(chan string, callers)
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			found := make([]uint64, keys)
			for round := range rounds {
				var slots []counters.Slot
				for key := range counters.Key(keys) {
					slots = append(slots, slot("r", key, 0, 1, 1, uint64(round*callers+caller+1)))
				}
				merged, err := store.Merge(ctx, slots, wall())
				if err != nil {
					failures <- err.Error()
					return
				}
				for key, before := range merged.Before {
					if before < found[key] {
						failures <- fmt.Sprintf("caller %d found key %d at %d after it had set %d", caller, key, before,
							found[key])
						return
					}
					found[key] = max(before, slots[key].Count)
				}
				if round%10 == 0 {
					if err := store.Load(ctx, wall(), func([]counters.Slot) {}); err != nil {
						failures <- err.Error()
						return
					}
				}
			}
		})
	}
	group.Wait()
	select {
	case failure := <-failures:
		t.Fatalf("%s", failure)
	default:
	}
	var want []counters.Slot
	for key := range counters.Key(keys) {
		want = append(want, slot("r", key, 0, 1, 1, rounds*callers))
	}
	expect(t, load(ctx, t, store, ""), want...)
}
