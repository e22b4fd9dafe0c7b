package counterstest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// mapMerger is the plainest Merger: a map from a slot's identity to its largest count. Its fields replace parts of it,
// to break the laws.
type mapMerger struct {
	slots map[any]counters.Slot

	identify func(counters.Slot) any
	join     func(old, new uint64) uint64
	takes    func(s counters.Slot, now int64) bool
	answer   func(novel int, slots []counters.Slot) int
	show     func(s counters.Slot, now int64) bool
}

type identity struct {
	slotID
	birth uint32
}

func newMapMerger() *mapMerger {
	return &mapMerger{
		slots: make(map[any]counters.Slot), identify: func(s counters.Slot) any { return identity{idOf(s), s.Birth} },
		join:   func(old, new uint64) uint64 { return max(old, new) },
		takes:  func(s counters.Slot, now int64) bool { return idOf(s).counts(now) },
		answer: func(novel int, _ []counters.Slot) int { return novel },
		show:   func(s counters.Slot, now int64) bool { return idOf(s).counts(now) },
	}
}

func (h *mapMerger) Merge(slots []counters.Slot, now int64) int {
	novel := 0
	for _, s := range slots {
		if !h.takes(s, now) {
			continue
		}
		id := h.identify(s)
		old := h.slots[id]
		s.Count = h.join(old.Count, s.Count)
		if s.Count != old.Count {
			novel++
		}
		h.slots[id] = s
	}
	return h.answer(novel, slots)
}

func (h *mapMerger) Snapshot(now int64, most int) []counters.Slot {
	var slots []counters.Slot
	for _, s := range h.slots {
		if h.show(s, now) && len(slots) < most {
			slots = append(slots, s)
		}
	}
	return slots
}

func TestMergeLawsHoldForAMap(t *testing.T) {
	Run(t, func() Merger { return newMapMerger() })
}

func TestCheckMergeLawsHoldsForAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		testkit.Must(t, Check(t, func() Merger { return newMapMerger() }))
	})
}

// ringed forgets, as a ring of sub-windows that is one too small would: a slot takes the place of the one n+1 before.
type ringed struct{ *mapMerger }

func (r ringed) Merge(slots []counters.Slot, now int64) int {
	novel := 0
	for _, s := range slots {
		novel += r.mapMerger.Merge([]counters.Slot{s}, now)
		for id, other := range r.slots {
			if *other.Meter == *s.Meter && other.Key == s.Key && s.Index-other.Index == int64(s.Meter.SubWindows())+1 {
				delete(r.slots, id)
			}
		}
	}
	return novel
}

// stale keeps what a place in a ring held before, when time has gone around it.
type stale struct{ *mapMerger }

func (r stale) Merge(slots []counters.Slot, now int64) int {
	for id, other := range r.slots {
		if size := int64(other.Meter.SubWindows()) + 2; !idOf(other).counts(now) &&
			other.Index+size <= other.Meter.Index(now)+1 {
			delete(r.slots, id)
			other.Index += size
			r.slots[r.identify(other)] = other
		}
	}
	return r.mapMerger.Merge(slots, now)
}

// latestBirth drops a cell's counts when a later birth comes, and earlier births when they are late.
type latestBirth struct{ *mapMerger }

func (l latestBirth) Merge(slots []counters.Slot, now int64) int {
	novel := 0
	for _, s := range slots {
		known, ok := l.slots[idOf(s)]
		if ok && s.Birth < known.Birth {
			continue
		}
		if ok && s.Birth > known.Birth {
			delete(l.slots, idOf(s))
		}
		novel += l.mapMerger.Merge([]counters.Slot{s}, now)
	}
	return novel
}

// folding tells others the sum of all births, as a slot of the latest.
type folding struct{ *mapMerger }

func (f folding) Snapshot(now int64, most int) []counters.Slot {
	sums := make(map[slotID]counters.Slot)
	for _, s := range f.mapMerger.Snapshot(now, most) {
		sum := sums[idOf(s)]
		s.Count += sum.Count
		s.Birth = max(s.Birth, sum.Birth)
		sums[idOf(s)] = s
	}
	return slices.Collect(maps.Values(sums))
}

// Every law has to catch somebody, and everybody has to be caught by the laws named, whatever others do not hold
// either.
func TestMergeLawsCatch(t *testing.T) {
	with := func(change func(*mapMerger)) func() Merger {
		return func() Merger {
			h := newMapMerger()
			change(h)
			return h
		}
	}
	ignoring := func(forget func(*identity)) func() Merger {
		return with(func(h *mapMerger) {
			h.identify = func(s counters.Slot) any {
				id := identity{idOf(s), s.Birth}
				forget(&id)
				return id
			}
		})
	}
	broken := []struct {
		name string
		open func() Merger
		laws string
	}{
		{"adds", with(func(h *mapMerger) { h.join = func(old, new uint64) uint64 { return old + new } }),
			"idempotent, batches, sums, novelty, passing time"},
		{"the last one wins", with(func(h *mapMerger) { h.join = func(_, new uint64) uint64 { return new } }),
			"commutative, idempotent, batches, sums, novelty, passing time"},
		{"the first one wins", with(func(h *mapMerger) {
			h.join = func(old, new uint64) uint64 {
				if old > 0 {
					return old
				}
				return new
			}
		}), "commutative, batches, sums, novelty, passing time"},
		{"the smallest wins",
			with(func(h *mapMerger) { h.join = func(old, new uint64) uint64 { return min(old-1, new-1) + 1 } }),
			"sums, novelty, passing time"},
		{"forgets births", ignoring(func(id *identity) { id.birth = 0 }), "sums, novelty, passing time"},
		{"only the latest birth", func() Merger {
			h := newMapMerger()
			h.identify = func(s counters.Slot) any { return idOf(s) }
			return latestBirth{h}
		}, "sums, novelty, passing time"},
		{"mixes origins", ignoring(func(id *identity) { id.origin = 0 }), "sums, novelty"},
		{"mixes keys", ignoring(func(id *identity) { id.key = 0 }), "sums, novelty"},
		{"mixes sub-windows", ignoring(func(id *identity) { id.index = 0 }), "sums, novelty"},
		{"mixes meters of one rule", ignoring(func(id *identity) { id.meter = counters.Meter{Rule: id.meter.Rule} }),
			"sums, novelty"},
		{"keeps equal meters apart", with(func(h *mapMerger) {
			h.identify = func(s counters.Slot) any { return [2]any{s.Meter, identity{idOf(s), s.Birth}} }
		}), "sums, novelty"},
		{"counts keys of zero as none", with(func(h *mapMerger) {
			h.takes = func(s counters.Slot, now int64) bool { return s.Key != 0 && idOf(s).counts(now) }
		}), "sums, novelty, passing time"},
		{"takes nothing", with(func(h *mapMerger) { h.takes = func(counters.Slot, int64) bool { return false } }),
			"sums, novelty, passing time"},
		{"refuses the oldest sub-window", with(func(h *mapMerger) {
			h.takes = func(s counters.Slot, now int64) bool {
				return idOf(s).counts(now) && s.Index > s.Meter.Index(now)-int64(s.Meter.SubWindows())
			}
		}), "sums, novelty, passing time"},
		{"refuses the next sub-window", with(func(h *mapMerger) {
			h.takes = func(s counters.Slot, now int64) bool {
				return idOf(s).counts(now) &&
					s.Index <= s.Meter.Index(now)
			}
		}), "sums, novelty, passing time"},
		{"takes the future", with(func(h *mapMerger) {
			h.takes = func(s counters.Slot, now int64) bool {
				return s.Index >= s.Meter.Index(now)-int64(s.Meter.SubWindows())
			}
		}), "refusal"},
		{"takes and shows the past", with(func(h *mapMerger) {
			h.takes = func(s counters.Slot, now int64) bool { return s.Index <= s.Meter.Index(now)+1 }
			h.show = h.takes
		}), "refusal, passing time"},
		{"shows what has passed", with(func(h *mapMerger) { h.show = func(counters.Slot, int64) bool { return true } }),
			"passing time"},
		{"hides the next sub-window", with(func(h *mapMerger) {
			h.show = func(s counters.Slot, now int64) bool {
				return idOf(s).counts(now) &&
					s.Index <= s.Meter.Index(now)
			}
		}), "sums, passing time"},
		{"a ring one too small", func() Merger { return ringed{newMapMerger()} },
			"commutative, batches, sums, passing time"},
		{"a ring that is not cleared", func() Merger { return stale{newMapMerger()} }, "passing time"},
		{"reports all as novel",
			with(func(h *mapMerger) { h.answer = func(_ int, slots []counters.Slot) int { return len(slots) } }),
			"idempotent, novelty, refusal"},
		{"reports nothing as novel",
			with(func(h *mapMerger) { h.answer = func(int, []counters.Slot) int { return 0 } }), "novelty"},
		{"reports the sum of all births as one", func() Merger { return folding{newMapMerger()} },
			"associative, idempotent"},
	}

	unused := make(map[string]bool)
	for _, l := range mergeLaws {
		unused[l.name] = true
	}
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			caught := make(map[string]bool)
			named := slices.Collect(strings.SplitSeq(b.laws, ", "))
			// A law may be unlucky with its draws for a while: only one that never catches is too weak.
			for range 10 {
				rapid.Check(t, func(t *rapid.T) {
					for _, l := range mergeLaws {
						caught[l.name] = caught[l.name] || l.check(t, b.open) != nil
					}
				})
				if !slices.ContainsFunc(named, func(name string) bool { return !caught[name] }) {
					break
				}
			}
			for _, name := range named {
				if !caught[name] {
					t.Errorf("the law %q did not catch it; caught by: %v", name, caught)
				}
				delete(unused, name)
			}
		})
	}
	if len(unused) > 0 {
		t.Errorf("no broken Merger is named for %v: does anything break them?", unused)
	}
}

func TestCheckMergeLawsNamesTheLaw(t *testing.T) {
	adds := func() Merger {
		h := newMapMerger()
		h.join = func(old, new uint64) uint64 { return old + new }
		return h
	}
	named := false
	rapid.Check(t, func(t *rapid.T) {
		if err := Check(t, adds); err != nil {
			named = named || strings.Contains(err.Error(), "idempotent: the same slots again")
		}
	})
	if !named {
		t.Error("a Merger that adds was never said to break idempotence")
	}
}
