package counterstest

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Merger keeps replicated slots; a counters.Table is one.
type Merger interface {
	// Merge raises slots to the counts given, where those are larger, and returns how many it raised. At the time now,
	// in a sub-window c of n a window, it takes the slots of c-n (of which part still counts) to c+1 (of a peer whose
	// clock is ahead), and no others. It does not keep the slice.
	Merge(slots []counters.Slot, now int64) (novel int)
	// Snapshot returns the slots that Merge would still take at the time now, in any order, each once; at most max of
	// them.
	Snapshot(now int64, max int) []counters.Slot
}

// everything is more slots than the laws ever merge.
const everything = 1 << 10

// Run checks that what open returns keeps the merge laws: a subtest each, with random slots of meters of every
// algorithm, keys, origins and births around now. Every call of open returns an empty Merger of its own, with room for
// all of it (48 keys in all), whose own origin, if it has one, is below 1<<63.
func Run(t *testing.T, open func() Merger) {
	t.Helper()
	for _, l := range mergeLaws {
		t.Run(l.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				testkit.Must(t, l.check(t, open))
			})
		})
	}
}

// Check checks all laws once, with slots drawn from t. The error names every law that did not hold, and how.
func Check(t *rapid.T, open func() Merger) error {
	var broken []error
	for _, l := range mergeLaws {
		if err := l.check(t, open); err != nil {
			broken = append(broken, fmt.Errorf("%s: %w", l.name, err))
		}
	}
	return errors.Join(broken...)
}

type mergeLaw struct {
	name  string
	check func(t *rapid.T, open func() Merger) error
}

var mergeLaws = []mergeLaw{
	{"commutative", commutative},
	{"associative", associative},
	{"idempotent", idempotent},
	{"batches", batches},
	{"sums", sums},
	{"novelty", novelty},
	{"refusal", refusal},
	{"passing time", passingTime},
}

// merged is a new Merger that has merged the batches, one after the other.
func merged(open func() Merger, now int64, batches ...[]counters.Slot) Merger {
	m := open()
	for _, b := range batches {
		m.Merge(b, now)
	}
	return m
}

// commutative: a then b is b then a.
func commutative(t *rapid.T, open func() Merger) error {
	now := drawNow(t)
	p := drawParts(t, now, 2)
	return sameSlots("a, b", merged(open, now, p[0], p[1]), "b, a", merged(open, now, p[1], p[0]), now)
}

// associative: (a and b) and c is a and (b and c), where what a Merger holds travels on as its snapshot.
func associative(t *rapid.T, open func() Merger) error {
	now := drawNow(t)
	p := drawParts(t, now, 3)
	ab := merged(open, now, p[0], p[1]).Snapshot(now, everything)
	bc := merged(open, now, p[1], p[2]).Snapshot(now, everything)
	return sameSlots("(a and b) and c", merged(open, now, ab, p[2]), "a and (b and c)", merged(open, now, p[0], bc),
		now)
}

// idempotent: what is known already is no news, in whatever order it comes again, and changes nothing.
func idempotent(t *rapid.T, open func() Merger) error {
	now := drawNow(t)
	slots := drawSlots(t, "slots", now)
	m := merged(open, now, slots)
	if novel := m.Merge(rapid.Permutation(slots).Draw(t, "again"), now); novel != 0 {
		return fmt.Errorf("the same slots again: %d are novel, want 0", novel)
	}
	if novel := m.Merge(m.Snapshot(now, everything), now); novel != 0 {
		return fmt.Errorf("its own snapshot: %d slots are novel, want 0", novel)
	}
	return sameSlots("once", merged(open, now, slots), "again", m, now)
}

// batches: into what batches slots are split, in what order these come, and how often, makes no difference.
func batches(t *rapid.T, open func() Merger) error {
	now := drawNow(t)
	slots := drawSlots(t, "slots", now)
	split := merged(open, now, nil)
	for rest := rapid.Permutation(slots).Draw(t, "shuffled"); len(rest) > 0; {
		n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
		for range rapid.IntRange(1, 2).Draw(t, "times") {
			split.Merge(rest[:n], now)
		}
		rest = rest[n:]
	}
	return sameSlots("one batch", merged(open, now, slots), "batches", split, now)
}

// sums: a slot is the largest count that came; meters, keys, sub-windows and origins stay apart; births add up.
func sums(t *rapid.T, open func() Merger) error {
	now := drawNow(t)
	slots := drawSlots(t, "slots", now)
	want := make(maxCounts)
	for _, s := range slots {
		want.raise(s)
	}
	return sameSums(want.sums(now), sumsOf(merged(open, now, slots).Snapshot(now, everything)))
}

// novelty: a slot is novel if it is larger than all that came before.
func novelty(t *rapid.T, open func() Merger) error {
	now := drawNow(t)
	m, known := open(), make(maxCounts)
	for i, s := range drawSlots(t, "slots", now) {
		want := 0
		if known.raise(s) {
			want = 1
		}
		if novel := m.Merge([]counters.Slot{s}, now); novel != want {
			return fmt.Errorf("slot %d alone: %d are novel, want %d", i, novel, want)
		}
	}
	return nil
}

// refusal: slots whose window has passed or that come from the future change nothing, alone or among others.
func refusal(t *rapid.T, open func() Merger) error {
	now := drawNow(t)
	good, bad := drawSlots(t, "good", now), drawRefused(t, now)
	m := merged(open, now, good)
	if novel := m.Merge(bad, now); novel != 0 {
		return fmt.Errorf("slots of no time that counts: %d are novel, want 0", novel)
	}
	pure := merged(open, now, good)
	if err := sameSlots("without", pure, "with refused slots after them", m, now); err != nil {
		return err
	}
	mixed := rapid.Permutation(append(bad, good...)).Draw(t, "mixed")
	return sameSlots("without", pure, "with refused slots among them", merged(open, now, mixed), now)
}

// passingTime: a slot never decreases while it counts, is gone afterwards, and leaves nothing to those that come.
func passingTime(t *rapid.T, open func() Merger) error {
	now := drawNow(t)
	m, known := open(), make(maxCounts)
	var before map[slotID]uint64
	for step := range rapid.IntRange(2, 5).Draw(t, "steps") {
		now += drawPause(t)
		slots := drawSlots(t, "slots", now)
		m.Merge(slots, now)
		for _, s := range slots {
			known.raise(s)
		}
		after := sumsOf(m.Snapshot(now, everything))
		for id, count := range before {
			if id.counts(now) && after[id] < count {
				return fmt.Errorf("step %d: %v fell from %d to %d", step, id, count, after[id])
			}
		}
		if err := sameSums(known.sums(now), after); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		before = after
	}
	return nil
}
