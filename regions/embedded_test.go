package regions_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestEmbedded(t *testing.T) {
	regionstest.Run(t, func(*testing.T) regions.Store { return regions.NewEmbedded(20_000, time.Now) })
}

// clock is a wall clock that is set by hand.
type clock struct{ nanos atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.nanos.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) Now() time.Time              { return time.Unix(0, c.nanos.Load()) }
func (c *clock) advance(d time.Duration)     { c.nanos.Add(int64(d)) }
func (c *clock) index(s time.Duration) int64 { return c.nanos.Load() / int64(s) }

var tenSeconds = counters.NewMeter("ten", counters.SlidingWindow, 10*time.Second)

func (c *clock) slot(key counters.Key, origin counters.Origin, count uint64) counters.Slot {
	return counters.Slot{
		Meter: &tenSeconds, Key: key, Index: c.index(tenSeconds.Sub), Origin: origin, Birth: 1, Count: count,
	}
}

// mustMerge and loaded call a store by this clock.
func (c *clock) mustMerge(t *testing.T, s regions.Store, slots ...counters.Slot) regions.Merged {
	t.Helper()
	merged, err := s.Merge(t.Context(), slots, c.nanos.Load())
	testkit.Must(t, err)
	return merged
}

func (c *clock) loaded(t *testing.T, s regions.Store) map[counters.Key]uint64 {
	t.Helper()
	counts := make(map[counters.Key]uint64)
	if err := s.Load(t.Context(), c.nanos.Load(), func(page []counters.Slot) {
		for _, s := range page {
			counts[s.Key] += s.Count
		}
	}); err != nil {
		t.Fatal(err)
	}
	return counts
}

func TestEmbeddedExpires(t *testing.T) {
	c := newClock()
	e := regions.NewEmbedded(0, c.Now)
	s := c.slot(1, 1, 5)
	c.mustMerge(t, e, s)
	c.advance(11 * time.Second) // (Index+1)*Sub + Window, to the nanosecond: it still counts
	if got := c.mustMerge(t, e, s); got.Before[0] != 5 {
		t.Errorf("at its last moment the store held %d of a slot, want 5", got.Before[0])
	}
	if got := c.loaded(t, e); got[1] != 5 {
		t.Errorf("at its last moment a slot was not loaded: %v", got)
	}
	c.advance(1)
	if got := c.loaded(t, e); len(got) != 0 {
		t.Errorf("expired slots were loaded: %v", got)
	}
	if got := c.mustMerge(t, e, s, c.slot(1, 2, 3)); got.Before[0] != 0 || len(got.Others) != 0 {
		t.Errorf("of a slot that has expired the store told %+v", got)
	}
	c.advance(time.Second)
	c.mustMerge(t, e)
	if e.Len() != 1 {
		t.Errorf("%d slots take room, want the live one", e.Len())
	}
	c.advance(-time.Hour) // the clock is set back: what is there is from the future, and goes once its time has passed
	c.mustMerge(t, e, c.slot(2, 1, 1))
	c.advance(15 * time.Second)
	c.mustMerge(t, e)
	if e.Len() != 1 {
		t.Errorf("after the clock was set back %d slots take room, want 1", e.Len())
	}
	c.advance(time.Hour)
	c.mustMerge(t, e)
	if e.Len() != 0 {
		t.Errorf("%d slots take room, want none", e.Len())
	}
}

func TestEmbeddedFull(t *testing.T) {
	c := newClock()
	e := regions.NewEmbedded(3, c.Now)
	c.mustMerge(t, e, c.slot(1, 1, 1), c.slot(2, 1, 1))
	merged, err := e.Merge(t.Context(),
		[]counters.Slot{c.slot(3, 1, 1), c.slot(4, 1, 1), c.slot(1, 1, 9), c.slot(5, 1, 1), c.slot(1, 2, 1)},
		c.nanos.Load())
	if !errors.Is(err, regions.ErrFull) {
		t.Fatalf("merging above the cap: %v, want ErrFull", err)
	}
	if merged.Before != nil || merged.Others != nil {
		t.Errorf("beside its error the store answered %+v", merged)
	}
	if got := c.loaded(t, e); len(got) != 3 || got[1] != 9 || got[2] != 1 || got[3] != 1 {
		t.Errorf("a full store holds %v, want 1:9 2:1 3:1", got)
	}
	if e.Len() != 3 {
		t.Errorf("%d slots held, want 3", e.Len())
	}
	if got := c.mustMerge(t, e, c.slot(1, 1, 10)); got.Before[0] != 9 {
		t.Errorf("a full store does not raise what it has: %d before, want 9", got.Before[0])
	}
	c.advance(12 * time.Second)
	c.mustMerge(t, e, c.slot(4, 1, 1))
	if got := c.loaded(t, e); len(got) != 1 || got[4] != 1 {
		t.Errorf("when its slots had expired a full store held %v, want 4:1", got)
	}
}

func TestEmbeddedFlush(t *testing.T) {
	c := newClock()
	e := regions.NewEmbedded(0, c.Now)
	before := c.mustMerge(t, e, c.slot(1, 1, 5))
	e.Flush()
	if e.Len() != 0 || len(c.loaded(t, e)) != 0 {
		t.Errorf("after a flush %d slots are held", e.Len())
	}
	after := c.mustMerge(t, e, c.slot(1, 1, 5))
	if after.Before[0] != 0 || after.Epoch == before.Epoch || after.Epoch == "" {
		t.Errorf("after a flush the store answered %+v; the epoch was %q", after, before.Epoch)
	}
	if another := c.mustMerge(t, regions.NewEmbedded(0, c.Now)); another.Epoch == after.Epoch {
		t.Errorf("two stores share the epoch %q", another.Epoch)
	}
}

// Stores outlive the nodes whose meters they were given.
func TestEmbeddedKeepsMetersOfItsOwn(t *testing.T) {
	c := newClock()
	e := regions.NewEmbedded(0, c.Now)
	s := c.slot(1, 1, 5)
	meter := tenSeconds
	s.Meter = &meter
	c.mustMerge(t, e, s)
	others := c.mustMerge(t, e, c.slot(1, 2, 1)).Others
	if len(others) != 1 || others[0].Meter == &meter || *others[0].Meter != meter {
		t.Errorf("others: %v, want one slot with an equal meter of the store's own", others)
	}
}

func TestEmbeddedLoadStopsBetweenPages(t *testing.T) {
	c := newClock()
	e := regions.NewEmbedded(0, c.Now)
	var all []counters.Slot
	for key := range counters.Key(5000) {
		all = append(all, c.slot(key, 1, 1))
	}
	c.mustMerge(t, e, all...)
	ctx, cancel := context.WithCancel(t.Context())
	given := 0
	err := e.Load(ctx, c.nanos.Load(), func(page []counters.Slot) {
		given += len(page)
		c.mustMerge(t, e, page[0]) // the store is not locked meanwhile
		cancel()
	})
	if !errors.Is(err, context.Canceled) || given == 0 || given >= len(all) {
		t.Errorf("cancelled at the first page, Load gave %d of %d slots and %v", given, len(all), err)
	}
}

// Nodes of one process merge, load and flush at once while time passes.
func TestEmbeddedConcurrently(t *testing.T) {
	c := newClock()
	e := regions.NewEmbedded(500, c.Now)
	var group sync.WaitGroup
	for node := range 4 {
		group.Go(func() {
			for i := range 300 {
				slots := []counters.Slot{
					c.slot(counters.Key(i%50), counters.Origin(node+1), uint64(i+1)), c.slot(counters.Key(i), 9, 1),
				}
				if _, err := e.Merge(t.Context(), slots, c.nanos.Load()); err != nil &&
					!errors.Is(err, regions.ErrFull) {
					t.Error(err)
				}
				c.advance(10 * time.Millisecond)
				switch {
				case i%40 == 0:
					c.loaded(t, e)
				case i == 150 && node == 0:
					e.Flush()
				}
			}
		})
	}
	group.Wait()
	held := 0
	testkit.Must(t, e.Load(t.Context(), c.nanos.Load(), func(page []counters.Slot) { held += len(page) }))
	if e.Len() > 500 || held > e.Len() || held == 0 {
		t.Errorf("%d slots counted and %d held, at most 500 are allowed", e.Len(), held)
	}
}

func BenchmarkEmbeddedMerge(b *testing.B) {
	e := regions.NewEmbedded(0, time.Now)
	c := newClock()
	c.nanos.Store(time.Now().Add(time.Hour).UnixNano())
	var chunk []counters.Slot
	for key := range counters.Key(512) {
		chunk = append(chunk, c.slot(key, 1, 1))
	}
	others := slices.Clone(chunk)
	for i := range others {
		others[i].Origin = 2
	}
	if _, err := e.Merge(b.Context(), others, c.nanos.Load()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range chunk {
			chunk[i].Count++
		}
		if _, err := e.Merge(b.Context(), chunk, c.nanos.Load()); err != nil {
			b.Fatal(err)
		}
	}
}
