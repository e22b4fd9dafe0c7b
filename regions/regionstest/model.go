package regionstest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/text"
	"github.com/edgelimit/edgelimit/regions"
)

// id is what makes two slots the same.
type id struct {
	meter  counters.Meter
	key    counters.Key
	index  int64
	origin counters.Origin
	birth  uint32
}

func identify(s counters.Slot) id { return id{*s.Meter, s.Key, s.Index, s.Origin, s.Birth} }

// model is a store so plain that it is right at sight: it looks at every slot it has for every slot it is given.
type model map[id]counters.Slot

func (m model) merge(slots []counters.Slot) (before []uint64, others []counters.Slot) {
	given := make(map[id]bool)
	for _, s := range slots {
		given[identify(s)] = true
		known := m[identify(s)]
		before = append(before, known.Count)
		if s.Count > known.Count {
			m[identify(s)] = s
		}
	}
	for at, s := range m {
		beside := slices.ContainsFunc(slots, func(g counters.Slot) bool {
			return *g.Meter == at.meter && g.Key == at.key && g.Index == at.index
		})
		if beside && !given[at] {
			others = append(others, s)
		}
	}
	return before, others
}

// fresh numbers rules, so that every run of a property has a part of the store to itself.
var fresh atomic.Uint64

func freshRule() string { return fmt.Sprintf("fresh-%d", fresh.Add(1)) }

// slots draws few keys, sub-windows, origins and births, so that they meet.
func slots(rule string) *rapid.Generator[[]counters.Slot] {
	count := rapid.OneOf(rapid.Uint64Range(0, 5), rapid.Uint64Range(0, 5), rapid.Uint64Range(1<<53-2, 1<<53+2),
		rapid.Uint64Range(1<<63-2, math.MaxUint64))
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) counters.Slot {
		return slot(rule+rapid.SampledFrom([]string{"", ":0"}).Draw(t, "rule"),
			counters.Key(rapid.Uint64Range(0, 2).Draw(t, "key")),
			rapid.Int64Range(-2, 0).Draw(t, "age"),
			counters.Origin(rapid.Uint64Range(1, 3).Draw(t, "origin")),
			rapid.Uint32Range(0, 1).Draw(t, "birth"),
			count.Draw(t, "count"))
	}), 0, 12)
}

func asModel(ctx context.Context, t rapid.TB, store regions.Store) {
	rapid.Check(t, func(t *rapid.T) {
		rule, m := freshRule(), model{}
		for range rapid.IntRange(1, 6).Draw(t, "merges") {
			batch := slots(rule).Draw(t, "slots")
			merged := merge(ctx, t, store, batch...)
			before, others := m.merge(batch)
			wantBefore(t, merged, before...)
			expect(t, merged.Others, others...)
		}
		expect(t, load(ctx, t, store, rule), slices.Collect(maps.Values(m))...)
	})
}

func anyOrder(ctx context.Context, t rapid.TB, store regions.Store) {
	rapid.Check(t, func(t *rapid.T) {
		rule := freshRule()
		given := slots(rule).Draw(t, "slots")
		merge(ctx, t, store, given...)
		want := load(ctx, t, store, rule)

		// The same slots under another rule: in another order, in other groups, some of them twice.
		other := freshRule()
		again := append(slices.Clone(given), given[:rapid.IntRange(0, len(given)).Draw(t, "repeated")]...)
		again = rapid.Permutation(again).Draw(t, "order")
		again = renamed(again, rule, other)
		for len(again) > 0 {
			n := rapid.IntRange(1, len(again)).Draw(t, "group")
			merge(ctx, t, store, again[:n]...)
			again = again[n:]
		}
		expect(t, renamed(load(ctx, t, store, other), other, rule), want...)
		merge(ctx, t, store, given...)
		expect(t, load(ctx, t, store, rule), want...)
	})
}

func renamed(slots []counters.Slot, from, to string) []counters.Slot {
	out := slices.Clone(slots)
	for i := range out {
		m := *out[i].Meter
		m.Rule = to + strings.TrimPrefix(m.Rule, from)
		out[i].Meter = &m
	}
	return out
}

// started fixes which sub-window is the current one, for all slots of a run to agree.
var started = time.Now().UnixNano()

// slot makes one of a sub-window so many after the current one, of a window long enough that it outlives the suite.
func slot(
	rule string, key counters.Key, later int64, origin counters.Origin, birth uint32, count uint64,
) counters.Slot {
	m := counters.NewMeter(rule, counters.SlidingWindow, time.Hour)
	return counters.Slot{
		Meter: &m, Key: spread(key), Index: m.Index(started) + later, Origin: origin, Birth: birth, Count: count,
	}
}

// spread takes numbers that lie side by side all over the range of keys, each somewhere else: keys are hashes.
func spread(n counters.Key) counters.Key { return n * 0x9e3779b97f4a7c15 }

// wall is the time by which the suite's windows are indexed.
func wall() int64 { return time.Now().UnixNano() }

func merge(ctx context.Context, t rapid.TB, store regions.Store, slots ...counters.Slot) regions.Merged {
	t.Helper()
	merged, err := store.Merge(ctx, slots, wall())
	if err != nil {
		t.Fatalf("merge %d slots: %v", len(slots), err)
	}
	if len(merged.Before) != len(slots) {
		t.Fatalf("merge %d slots: the answer has %d counts", len(slots), len(merged.Before))
	}
	return merged
}

// load returns the slots of the rules that begin so, each once and with its largest count.
func load(ctx context.Context, t rapid.TB, store regions.Store, prefix string) []counters.Slot {
	t.Helper()
	held := model{}
	err := store.Load(ctx, wall(), func(page []counters.Slot) {
		for _, s := range page {
			// A rule of one run of a property may begin like that of another; the names go on with a colon only.
			if rest, ok := strings.CutPrefix(s.Meter.Rule, prefix); ok &&
				(prefix == "" || rest == "" || rest[0] == ':') {
				if known, ok := held[identify(s)]; !ok || known.Count < s.Count {
					held[identify(s)] = s
				}
			}
		}
		clear(page) // it is the callee's
	})
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return slices.Collect(maps.Values(held))
}

// wantBefore fails unless the store held these counts before.
func wantBefore(t rapid.TB, merged regions.Merged, want ...uint64) {
	t.Helper()
	if !slices.Equal(merged.Before, want) {
		t.Fatalf("before: %d, want %d", merged.Before, want)
	}
}

// expect fails unless both are the same slots with the same counts, each once, in any order.
func expect(t rapid.TB, got []counters.Slot, want ...counters.Slot) {
	t.Helper()
	g, w := sorted(got), sorted(want)
	if slices.Equal(g, w) {
		return
	}
	missing := slices.DeleteFunc(slices.Clone(w), func(s string) bool { return slices.Contains(g, s) })
	surplus := slices.DeleteFunc(slices.Clone(g), func(s string) bool { return slices.Contains(w, s) })
	t.Fatalf("%d slots, want %d\n%d missing: %s\n%d not wanted: %s", len(g), len(w), len(missing), few(missing),
		len(surplus), few(surplus))
}

func sorted(slots []counters.Slot) []string {
	var out []string
	for _, s := range slots {
		out = append(out, describe(s))
	}
	slices.Sort(out)
	return out
}

func describe(s counters.Slot) string {
	return fmt.Sprintf("%q/%s/%s key=%x index=%d origin=%x birth=%d count=%d",
		s.Meter.Rule, text.Duration(s.Meter.Window), text.Duration(s.Meter.Sub),
		s.Key, s.Index, s.Origin, s.Birth, s.Count)
}

// few keeps a failure readable.
func few(lines []string) string { return strings.Join(lines[:min(len(lines), 10)], "\n") }
