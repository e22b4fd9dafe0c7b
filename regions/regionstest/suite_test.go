package regionstest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The properties are made to fail here: neither worth a file nor half a minute of shrinking.
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "10ms"} {
		if err := flag.Set(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	testkit.MainWithoutLeaks(m)
}

func embedded() regions.Store { return regions.NewEmbedded(20_000, time.Now) }

// broken is a store with one thing wrong.
type broken struct {
	regions.Store
	merge func(inner regions.Store, ctx context.Context, slots []counters.Slot, now int64) (regions.Merged, error)
	load  func(inner regions.Store, ctx context.Context, now int64, page func([]counters.Slot)) error

	restore func(inner regions.Store, ctx context.Context, slots []counters.Slot, now int64) error
}

func (b broken) Merge(ctx context.Context, slots []counters.Slot, now int64) (regions.Merged, error) {
	if b.merge == nil {
		return b.Store.Merge(ctx, slots, now)
	}
	return b.merge(b.Store, ctx, slots, now)
}

func (b broken) Load(ctx context.Context, now int64, page func([]counters.Slot)) error {
	if b.load == nil {
		return b.Store.Load(ctx, now, page)
	}
	return b.load(b.Store, ctx, now, page)
}

func (b broken) Restore(ctx context.Context, slots []counters.Slot, now int64) error {
	if b.restore == nil {
		return b.Store.Restore(ctx, slots, now)
	}
	return b.restore(b.Store, ctx, slots, now)
}

// given has the store merge other slots than it was given.
func given(change func([]counters.Slot)) broken {
	return broken{
		merge: func(inner regions.Store, ctx context.Context, slots []counters.Slot, now int64) (regions.Merged,
			error) {
			slots = slices.Clone(slots)
			change(slots)
			return inner.Merge(ctx, slots, now)
		},
	}
}

// answered has the store answer something else.
func answered(change func([]counters.Slot, *regions.Merged)) broken {
	return broken{
		merge: func(inner regions.Store, ctx context.Context, slots []counters.Slot, now int64) (regions.Merged,
			error) {
			merged, err := inner.Merge(ctx, slots, now)
			if err == nil {
				change(slots, &merged)
			}
			return merged, err
		},
	}
}

// TestSuiteRejects shows that each law can be broken, and that the suite notices.
func TestSuiteRejects(t *testing.T) {
	calls := 0
	adding := &adder{counts: map[id]uint64{}}
	for _, c := range []struct {
		broken string
		law    string
		store  broken
	}{
		{"epoch of every call", "an empty store holds nothing", answered(func(_ []counters.Slot, m *regions.Merged) {
			calls++
			m.Epoch = fmt.Sprint(calls)
		})},
		{"adds counts up", "the largest count stays", broken{merge: adding.merge}},
		{"before is after", "the largest count stays", answered(func(s []counters.Slot, m *regions.Merged) {
			for i := range s {
				m.Before[i] = max(m.Before[i], s[i].Count)
			}
		})},
		{"looks all up before it merges any", "slots of one call are merged in order",
			answered(func(_ []counters.Slot, m *regions.Merged) {
				clear(m.Before)
			})},
		{"keeps zeros", "a count of zero leaves no trace", given(func(s []counters.Slot) {
			for i := range s {
				s[i].Count = max(1, s[i].Count)
			}
		})},
		{"writes to the caller's slots", "the caller's slots stay the caller's", broken{
			merge: func(inner regions.Store, ctx context.Context, slots []counters.Slot, now int64) (regions.Merged,
				error) {
				merged, err := inner.Merge(ctx, slots, now)
				for i := range slots {
					slots[i].Birth++
				}
				return merged, err
			}}},
		{"tells the caller its own", "others are all but the slots given",
			answered(func(s []counters.Slot, m *regions.Merged) {
				m.Others = append(m.Others, s...)
			})},
		{"hides the origin's other births", "others are all but the slots given",
			answered(func(s []counters.Slot, m *regions.Merged) {
				m.Others = slices.DeleteFunc(m.Others, func(o counters.Slot) bool { return o.Origin == s[0].Origin })
			})},
		{"tells others twice", "others are all but the slots given",
			answered(func(_ []counters.Slot, m *regions.Merged) {
				m.Others = append(m.Others, m.Others...)
			})},
		{"takes what others restore for the origin's word", "what was restored is given, and proves nothing to its " +
			"origin", broken{
			restore: func(inner regions.Store, ctx context.Context, slots []counters.Slot, now int64) error {
				_, err := inner.Merge(ctx, slots, now)
				return err
			}}},
		{"restores nothing", "what was restored is given, and proves nothing to its origin", broken{
			restore: func(regions.Store, context.Context, []counters.Slot, int64) error { return nil }}},
		{"a rule by its first byte", "meters are kept apart", given(func(s []counters.Slot) {
			for i := range s {
				m := *s[i].Meter
				m.Rule = m.Rule[:1]
				s[i].Meter = &m
			}
		})},
		{"a meter by its rule and sub-window", "meters are kept apart", given(func(s []counters.Slot) {
			for i := range s {
				m := *s[i].Meter
				m.Window = 60 * m.Sub
				s[i].Meter = &m
			}
		})},
		{"counts as doubles", "large numbers are exact", given(func(s []counters.Slot) {
			for i := range s {
				s[i].Count = uint64(float64(s[i].Count)) &^ (1 << 63)
			}
		})},
		{"keys as signed numbers of 53 bits", "large numbers are exact", given(func(s []counters.Slot) {
			for i := range s {
				s[i].Key = counters.Key(float64(s[i].Key / 2))
			}
		})},
		{"keeps the dead", "what has expired is not given", given(func(s []counters.Slot) {
			for i := range s {
				s[i].Index = max(s[i].Index, s[i].Meter.Index(time.Now().UnixNano())-5)
			}
		})},
		{"ignores the context", "a context that ended is an error", broken{
			merge: func(inner regions.Store, ctx context.Context, slots []counters.Slot, now int64) (regions.Merged,
				error) {
				return inner.Merge(context.WithoutCancel(ctx), slots, now)
			}}},
		{"loads in spite of the context", "a context that ended is an error", broken{
			load: func(inner regions.Store, ctx context.Context, now int64, page func([]counters.Slot)) error {
				return inner.Load(context.WithoutCancel(ctx), now, page)
			}}},
		{"loads the first page", "many slots at once", broken{
			load: func(inner regions.Store, ctx context.Context, now int64, page func([]counters.Slot)) error {
				pages := 0
				return inner.Load(ctx, now, func(s []counters.Slot) {
					if pages++; pages == 1 {
						page(s)
					}
				})
			}}},
		{"refuses much", "many slots at once", broken{
			merge: func(inner regions.Store, ctx context.Context, slots []counters.Slot, now int64) (regions.Merged,
				error) {
				if len(slots) > 1000 {
					return regions.Merged{}, regions.ErrFull
				}
				return inner.Merge(ctx, slots, now)
			}}},
		{"loses one write of many", "concurrent merges lose nothing", given(func(s []counters.Slot) {
			for i := range s {
				if s[i].Count == callers*rounds {
					s[i].Count = 0
				}
			}
		})},
		{"forgets a key's second origin", "it behaves as the model", given(func(s []counters.Slot) {
			for i := range s {
				if s[i].Origin == 3 && s[i].Birth == 1 {
					s[i].Count = 0
				}
			}
		})},
		{"keeps the first of each call", "order, grouping and repetition change nothing",
			given(func(s []counters.Slot) {
				for i := range s {
					if i > 0 && s[i].Key == spread(2) {
						s[i].Count = 0
					}
				}
			})},
	} {
		t.Run(c.broken, func(t *testing.T) {
			i := slices.IndexFunc(laws, func(l law) bool { return l.name == c.law })
			if i < 0 {
				t.Fatalf("no law %q", c.law)
			}
			c.store.Store = embedded()
			verdict := &verdict{name: t.Name()}
			verdict.run(func() { laws[i].check(t.Context(), verdict, c.store) })
			if !verdict.failed {
				t.Errorf("%q did not notice a store that %s", c.law, c.broken)
			}
		})
	}
}

// adder counts as a store would that knows INCRBY alone.
type adder struct{ counts map[id]uint64 }

func (a *adder) merge(
	inner regions.Store, ctx context.Context, slots []counters.Slot, now int64,
) (regions.Merged, error) {
	slots = slices.Clone(slots)
	for i := range slots {
		a.counts[identify(slots[i])] += slots[i].Count
		slots[i].Count = a.counts[identify(slots[i])]
	}
	return inner.Merge(ctx, slots, now)
}

// verdict is a testing.TB that takes note of a failure instead of failing.
type verdict struct {
	rapid.TB
	name   string
	failed bool
}

func (v *verdict) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (v *verdict) Helper()               {}
func (v *verdict) Name() string          { return v.name }
func (v *verdict) Failed() bool          { return v.failed }
func (v *verdict) Log(...any)            {}
func (v *verdict) Logf(string, ...any)   {}
func (v *verdict) Errorf(string, ...any) { v.failed = true }
func (v *verdict) Error(...any)          { v.failed = true }
func (v *verdict) Fail()                 { v.failed = true }
func (v *verdict) Fatalf(string, ...any) { v.FailNow() }
func (v *verdict) Fatal(...any)          { v.FailNow() }
func (v *verdict) FailNow()              { v.failed = true; runtime.Goexit() }

func TestFaulty(t *testing.T) {
	ctx := t.Context()
	f := NewFaulty(embedded)
	a, b := slot("r", 1, 0, 1, 1, 5), slot("r", 1, 0, 2, 1, 6)
	first := merge(ctx, t, f, a)
	testkit.Must(t, f.Save())
	merge(ctx, t, f, b)

	f.Set(Fails)
	if _, err := f.Merge(ctx, []counters.Slot{a}, wall()); !errors.Is(err, ErrFault) {
		t.Errorf("Fails: %v", err)
	}
	if err := f.Load(ctx, wall(), nil); !errors.Is(err, ErrFault) {
		t.Errorf("Fails: load: %v", err)
	}
	raised := a
	raised.Count = 7
	for _, fault := range []Fault{Hangs, AnswerLost} {
		f.Set(fault)
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		if _, err := f.Merge(short, []counters.Slot{raised}, wall()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("fault %d: %v", fault, err)
		}
		if err := f.Load(short, wall(), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("fault %d: load: %v", fault, err)
		}
		cancel()
		held, err := f.Slots()
		testkit.Must(t, err)
		if fault == Hangs {
			expect(t, held, a, b)
		} else {
			expect(t, held, raised, b)
		}
	}

	f.Set(Works)
	testkit.Must(t, f.RollBack())
	expect(t, load(ctx, t, f, ""), a)
	f.Flush()
	expect(t, load(ctx, t, f, ""))
	if got := merge(ctx, t, f, a); got.Epoch != first.Epoch {
		t.Errorf("losing data changed the epoch to %q", got.Epoch)
	}
	f.Restart()
	if got := merge(ctx, t, f, b); got.Epoch == first.Epoch || got.Before[0] != 0 || len(got.Others) != 0 {
		t.Errorf("after a restart the store answered %+v", got)
	}
	if f.Calls() != 12 {
		t.Errorf("%d calls counted, want 12", f.Calls())
	}
}

func TestFaultyIsAStore(t *testing.T) {
	Run(t, func(*testing.T) regions.Store { return NewFaulty(embedded) })
}
