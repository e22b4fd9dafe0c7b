package regions_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestReconcilerWritesTheStoreAndTheTable(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		a, b := start(t, 1, f, nil), start(t, 2, f, nil)
		a.take(&hour, 1, 2)
		a.take(&hour, 1)
		if n := a.Reconciler.Stats().Pending; n != 2 {
			t.Errorf("%d slots are pending, want 2", n)
		}
		flushes(1)
		agree(t, f, a, b)
		b.take(&hour, 1) // which b's table has not known
		flushes(1)
		agree(t, f, a, b)
		for at, count := range b.counts() {
			if at.origin == 1 && (at.key != 1 || count != 2) {
				t.Errorf("b learned of key %d at %d, want key 1 at 2", at.key, count)
			}
		}
		if len(b.counts()) != 2 {
			t.Errorf("b knows %v, want its own slot and a's beside it", b.counts())
		}
		flushes(1) // a receives b's again
		if len(a.counts()) != 3 {
			t.Errorf("a knows %v, want its own two slots and b's", a.counts())
		}
		if s := a.Stats(); s.Pending != 0 || s.Flushed < 2 || s.Failed != 0 || s.Dropped != 0 || s.Lost != 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

// An owner of keys drains sums as well. They are no part of what a store counts.
func TestSumsGoToNoStore(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		n := start(t, 1, f, nil)
		sum := counters.Slot{Meter: &hour, Key: 1, Index: hour.Index(time.Now().UnixNano()), Origin: 9, Count: 5, To: 3}
		n.Enqueue([]counters.Slot{sum})
		if pending := n.Reconciler.Stats().Pending; pending != 0 {
			t.Errorf("%d slots are pending, want none", pending)
		}
		n.take(&hour, 1)
		if pending := n.Reconciler.Stats().Pending; pending != 1 {
			t.Errorf("%d slots are pending, want the node's own", pending)
		}
	})
}

// A node that gossips with nobody says once that another one counts in its Redis: beside it, not before it.
func TestAloneBesideOthers(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		before := start(t, 1, f, nil)
		before.take(&hour, 1, 2, 3)
		flushes(1)
		testkit.Must(t, before.stop())
		var log testkit.Log
		alone := start(t, 2, f, func(c *regions.Config) { c.Alone, c.Log = true, log.Logger() })
		for range 5 {
			alone.take(&hour, 1, 2, 3)
			flushes(1)
		}
		if n := alone.Reconciler.Stats().Others; n != 0 || log.HasLine("another node counts") {
			t.Errorf("an earlier process is taken for another node: %d counts\n%s", n, &log)
		}
		replica := start(t, 3, f, nil)
		for range 5 {
			replica.take(&hour, 1)
			alone.take(&hour, 1)
			flushes(1)
		}
		if n := alone.Reconciler.Stats().Others; n == 0 || !log.HasLine("WARN", "another node counts in this Redis") {
			t.Errorf("another node is not noticed: %d counts\n%s", n, &log)
		}
		if n := replica.Reconciler.Stats().Others; n != 0 {
			t.Errorf("a node of a cluster counts %d of others", n)
		}
	})
}

func TestReconcilerFlushesEveryInterval(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		n := start(t, 1, f, nil)
		flushes(10)
		idle := f.Calls()
		if idle < 10 || idle > 12 {
			t.Errorf("with nothing to write the store was called %d times in 10 intervals", idle)
		}
		for range 600 {
			n.take(&hour, 1)
			time.Sleep(100 * time.Millisecond)
		}
		if c := f.Calls() - idle; c < 80 || c > 90 {
			t.Errorf("%d calls in a minute, want one every 675 to 750 ms", c)
		}
		before := f.Calls()
		n.take(&hour, keys(2000)...)
		flushes(1)
		if c := f.Calls() - before; c < 4 || c > 5 {
			t.Errorf("2000 slots took %d calls, want chunks of 512", c)
		}
		agree(t, f, n)
	})
}

func TestReconcilerSkipsShortWindows(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		n := start(t, 1, f, nil)
		n.take(&nineSeconds, 1)
		n.take(&tenSeconds, 2)
		flushes(1)
		f.Restart() // so that it pushes what the table owns
		flushes(2)
		for at := range held(t, f) {
			if at.meter != tenSeconds {
				t.Errorf("the store was told of a window of %v", at.meter.Window)
			}
		}
		if len(held(t, f)) != 1 || n.Reconciler.Stats().Lost != 1 {
			t.Errorf("the store holds %v after a restart", held(t, f))
		}
	})
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		n := start(t, 1, f, func(c *regions.Config) { c.MinWindow = 0 })
		n.take(&nineSeconds, 1)
		flushes(1)
		if len(held(t, f)) != 1 {
			t.Errorf("with no shortest window the store holds %v, want a slot", held(t, f))
		}
	})
}

// What is not worth telling is not sent, and neither is it in the push that follows a loss.
func TestWorth(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		n := start(t, 1, f, func(c *regions.Config) {
			c.Worth = func(s *counters.Slot) bool { return s.Key%2 == 0 }
		})
		check := func(when string) {
			t.Helper()
			got := held(t, f)
			for id := range got {
				if id.key%2 != 0 {
					t.Errorf("%s: key %v was told", when, id.key)
				}
			}
			if len(got) != 5 {
				t.Errorf("%s: %d slots were told, want 5", when, len(got))
			}
		}
		n.take(&hour, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
		flushes(1)
		check("at first")
		f.Flush()
		flushes(2)
		check("after a loss")
	})
}

func TestReconcilerForgetsWhatExpired(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		f.Set(regionstest.Fails)
		n := start(t, 1, f, nil)
		n.take(&tenSeconds, keys(100)...)
		time.Sleep(40 * time.Second)
		if s := n.Reconciler.Stats(); s.Pending != 0 || s.Dropped != 0 {
			t.Errorf("of windows that have passed %d slots are pending, %d dropped", s.Pending, s.Dropped)
		}
		f.Set(regionstest.Works)
		flushes(2)
		calls := f.Calls()
		time.Sleep(time.Minute)
		if c := f.Calls() - calls; c < 80 || c > 90 {
			t.Errorf("with nothing to write the store was called %d times in a minute, want one every 675 to 750 ms", c)
		}
	})
}

func TestWarm(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		a, b := start(t, 1, f, nil), start(t, 2, f, nil)
		a.take(&hour, keys(3000)...)
		b.take(&hour, keys(10)...)
		flushes(1)
		cold := start(t, 3, f, nil)
		testkit.Must(t, cold.Warm(t.Context()))
		if !maps.Equal(cold.counts(), held(t, f)) {
			t.Errorf("a cold node started with %d of %d slots", len(cold.counts()), len(held(t, f)))
		}
		f.Set(regionstest.Fails)
		if err := cold.Warm(t.Context()); !errors.Is(err, regionstest.ErrFault) ||
			!strings.Contains(err.Error(), "load the regional store") {
			t.Errorf("warming from a store that fails: %v", err)
		}
		f.Set(regionstest.Hangs)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := cold.Warm(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("warming from a store that hangs: %v", err)
		}
	})
}

func TestRunFlushesOnceMore(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		n := start(t, 1, f, nil)
		n.take(&hour, keys(1000)...)
		began := time.Now()
		if err := n.stop(); err != nil {
			t.Errorf("a graceful stop: %v", err)
		}
		if time.Since(began) != 0 {
			t.Errorf("a graceful stop waited %v", time.Since(began))
		}
		agree(t, f, n)
	})
}

func TestRunStopsWhileTheStoreHangs(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		f.Set(regionstest.Hangs)
		var out *bytes.Buffer
		n := start(t, 1, f, func(c *regions.Config) {
			c.Timeout, c.LastFlush, out = time.Minute, 2*time.Second, logged(c)
		})
		n.take(&hour, keys(7)...)
		flushes(1) // a call is under way
		began := time.Now()
		err := n.stop()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "7 slots not written") {
			t.Errorf("stopped while the store hung: %v, want the deadline and 7 slots not written", err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the stop took %v, want the 2s of the last flush", took)
		}
		if s := n.Reconciler.Stats(); s.Failed != 0 || s.Pending != 7 {
			t.Errorf("a call that was cut short by the stop counts as a failure: %+v", s)
		}
		if out.Len() != 0 {
			t.Errorf("a call that was cut short by the stop was logged:\n%s", out)
		}
	})
}

// short answers about fewer slots than it was given.
type short struct{ regions.Store }

func (s short) Merge(ctx context.Context, slots []counters.Slot, now int64) (regions.Merged, error) {
	merged, err := s.Store.Merge(ctx, slots, now)
	if len(merged.Before) > 0 {
		merged.Before = merged.Before[1:]
	}
	return merged, err
}

func TestReconcilerRejectsAShortAnswer(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := start(t, 1, short{embedded()}, nil)
		n.take(&hour, 1, 2)
		flushes(1)
		if s := n.Reconciler.Stats(); s.Failed != 1 || s.Flushed != 0 || s.Pending != 2 {
			t.Errorf("an answer that says less than was asked was believed: %+v", s)
		}
	})
}
