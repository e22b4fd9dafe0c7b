package counterstest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// What the laws draw slots from, and how they compare them.

var (
	lawMeters = []*counters.Meter{
		{Rule: "edge/a", Algorithm: counters.SlidingWindow, Window: 10 * time.Second, Sub: time.Second},
		// equal, elsewhere in memory
		{Rule: "edge/a", Algorithm: counters.SlidingWindow, Window: 10 * time.Second, Sub: time.Second},
		{Rule: "edge/a", Algorithm: counters.SlidingWindow, Window: 10 * time.Second, Sub: 5 * time.Second},
		{Rule: "edge/b", Algorithm: counters.SlidingWindow, Window: 10 * time.Second, Sub: time.Second},
		{Rule: "edge/b", Algorithm: counters.SlidingWindow, Window: time.Minute, Sub: time.Minute},
		{Rule: "edge/a", Algorithm: counters.SlidingWindow, Window: time.Minute, Sub: time.Second},
		{Rule: "edge/b", Algorithm: counters.FixedWindow, Window: time.Minute, Sub: time.Minute},
		{Rule: "edge/a", Algorithm: counters.SlidingLog, Window: 10 * time.Second, Sub: time.Second},
		{Rule: "edge/a", Algorithm: counters.TokenBucket, Window: 10 * time.Second, Sub: time.Second},
		{Rule: "edge/b", Algorithm: counters.LeakyBucket, Window: time.Minute, Sub: time.Minute},
		{Rule: "edge/b", Algorithm: counters.LeakyQueue, Window: 10 * time.Second, Sub: 5 * time.Second},
		{Rule: "edge/a", Algorithm: counters.Ban, Window: 10 * time.Second, Sub: 10 * time.Second},
		{Rule: "edge/a", Algorithm: counters.Ban + 1, Window: 10 * time.Second, Sub: 10 * time.Second},
	}
	lawKeys    = []counters.Key{0, 1, 2, math.MaxUint64}
	lawOrigins = []counters.Origin{1<<63 | 1, 1<<63 | 2, math.MaxUint64}
	lawBirths  = []uint32{0, 1, 1<<30 - 1}
)

// drawNow draws a time, often at the very beginning or end of a sub-window.
func drawNow(t *rapid.T) int64 {
	minute := rapid.Int64Range(20e6, 40e6).Draw(t, "minute") * int64(time.Minute)
	into := rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, int64(time.Second) - 1, int64(5 * time.Second), int64(time.Minute) - 1}),
		rapid.Int64Range(0, int64(time.Minute)-1))
	return minute + into.Draw(t, "into")
}

// drawPause draws how long nothing happens: from no time at all to more than a window.
func drawPause(t *rapid.T) int64 {
	return rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, int64(time.Second), int64(5 * time.Second), int64(11 * time.Second),
			int64(time.Hour)}),
		rapid.Int64Range(0, int64(2*time.Minute)),
	).Draw(t, "pause")
}

// drawSlots draws slots that count at the time now, often of the sub-windows at the edge. Half of them differ from an
// earlier one in a single field: slots that have to stay apart, or have to merge.
func drawSlots(t *rapid.T, name string, now int64) []counters.Slot {
	fresh := rapid.Custom(func(t *rapid.T) counters.Slot {
		return drawSlot(t, func(m *counters.Meter) int64 {
			n := int64(m.SubWindows())
			return m.Index(now) + rapid.OneOf(rapid.SampledFrom([]int64{-n, 1 - n, -1, 0, 1}),
				rapid.Int64Range(-n, 1)).Draw(t, "age")
		})
	})
	var slots []counters.Slot
	for range rapid.IntRange(0, 24).Draw(t, name) {
		s := fresh.Draw(t, "slot")
		if len(slots) > 0 && rapid.Bool().Draw(t, "variant") {
			v := variant(t, rapid.SampledFrom(slots).Draw(t, "of"), s)
			if idOf(v).counts(now) { // another meter may number its sub-windows otherwise
				s = v
			}
		}
		slots = append(slots, s)
	}
	return slots
}

// variant is base with one field of other.
func variant(t *rapid.T, base, other counters.Slot) counters.Slot {
	rapid.SampledFrom([]func(){
		func() { base.Meter = other.Meter },
		func() { base.Key = other.Key },
		func() { base.Index = other.Index },
		func() { base.Origin = other.Origin },
		func() { base.Birth = other.Birth },
		func() { base.Count = other.Count },
	}).Draw(t, "field")()
	return base
}

// drawParts draws slots and cuts them into so many parts, which may be empty.
func drawParts(t *rapid.T, now int64, n int) [][]counters.Slot {
	slots := drawSlots(t, "slots", now)
	parts := make([][]counters.Slot, n)
	for _, s := range slots {
		i := rapid.IntRange(0, n-1).Draw(t, "part")
		parts[i] = append(parts[i], s)
	}
	return parts
}

// drawRefused draws slots whose window has passed at the time now, or that come from the future.
func drawRefused(t *rapid.T, now int64) []counters.Slot {
	slot := rapid.Custom(func(t *rapid.T) counters.Slot {
		return drawSlot(t, func(m *counters.Meter) int64 {
			n, c := int64(m.SubWindows()), m.Index(now)
			return rapid.OneOf(
				rapid.SampledFrom([]int64{c - n - 1, c - n - 2, c - 2*n - 2, c + 2, c + 3, c + n, c + n + 2}),
				rapid.SampledFrom([]int64{math.MinInt64, -1, 0, math.MaxInt64 - 1, math.MaxInt64}),
			).Filter(func(i int64) bool { return i < c-n || i > c+1 }).Draw(t, "index")
		})
	})
	return rapid.SliceOfN(slot, 1, 8).Draw(t, "refused")
}

func drawSlot(t *rapid.T, index func(*counters.Meter) int64) counters.Slot {
	m := rapid.SampledFrom(lawMeters).Draw(t, "meter")
	return counters.Slot{
		Meter:  m,
		Key:    rapid.SampledFrom(lawKeys).Draw(t, "key"),
		Index:  index(m),
		Origin: rapid.SampledFrom(lawOrigins).Draw(t, "origin"),
		Birth:  rapid.SampledFrom(lawBirths).Draw(t, "birth"),
		Count:  rapid.OneOf(rapid.Uint64Range(1, 9), rapid.Uint64Range(1, counters.MaxLimit)).Draw(t, "count"),
		// no part of what a slot is
		CompleteThrough: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, math.MaxInt64)).Draw(t, "since"),
	}
}

// slotID is what a slot counts, whatever its birth.
type slotID struct {
	meter  counters.Meter
	key    counters.Key
	index  int64
	origin counters.Origin
}

func idOf(s counters.Slot) slotID { return slotID{*s.Meter, s.Key, s.Index, s.Origin} }

func (id slotID) String() string {
	return fmt.Sprintf("slot of %v, key %x, sub-window %d, origin %x", id.meter, uint64(id.key), id.index,
		uint64(id.origin))
}

// counts reports whether the slot is of a sub-window that Merge takes at the time now.
func (id slotID) counts(now int64) bool {
	c := id.meter.Index(now)
	return c-int64(id.meter.SubWindows()) <= id.index && id.index <= c+1
}

// maxCounts are the largest counts so far, by slot and birth.
type maxCounts map[slotID]map[uint32]uint64

// raise records the slot, and reports whether it is the largest so far.
func (y maxCounts) raise(s counters.Slot) bool {
	id := idOf(s)
	if y[id] == nil {
		y[id] = make(map[uint32]uint64)
	}
	if s.Count <= y[id][s.Birth] {
		return false
	}
	y[id][s.Birth] = s.Count
	return true
}

// sums adds up the births of the slots that count at the time now.
func (y maxCounts) sums(now int64) map[slotID]uint64 {
	sums := make(map[slotID]uint64)
	for id, births := range y {
		if id.counts(now) {
			for _, count := range births {
				sums[id] += count
			}
		}
	}
	return sums
}

func sumsOf(slots []counters.Slot) map[slotID]uint64 {
	sums := make(map[slotID]uint64)
	for _, s := range slots {
		sums[idOf(s)] += s.Count
	}
	return sums
}

func sameSums(want, got map[slotID]uint64) error {
	if !maps.Equal(want, got) {
		return fmt.Errorf("the births of slots add up to %v, want %v", got, want)
	}
	return nil
}

// sameSlots compares what two Mergers hold, as sets.
func sameSlots(nameA string, a Merger, nameB string, b Merger, now int64) error {
	slotsA, slotsB := describe(a, now), describe(b, now)
	if slices.Equal(slotsA, slotsB) {
		return nil
	}
	return fmt.Errorf("%s:\n%s\n%s:\n%s", nameA, strings.Join(slotsA, "\n"), nameB, strings.Join(slotsB, "\n"))
}

// describe returns a line for each slot that a Merger holds, in alphabetical order.
func describe(m Merger, now int64) (lines []string) {
	for _, s := range m.Snapshot(now, everything) {
		lines = append(lines, fmt.Sprintf("%v, birth %d: %d", idOf(s), s.Birth, s.Count))
	}
	slices.Sort(lines)
	return lines
}
