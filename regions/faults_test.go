package regions_test

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestStoreFails(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		var out *bytes.Buffer
		n := start(t, 1, f, func(c *regions.Config) { out = logged(c) })
		n.take(&hour, keys(10)...)
		flushes(1)
		f.Set(regionstest.Fails)
		calls := f.Calls()
		for range 600 {
			n.take(&hour, keys(700)...)
			time.Sleep(100 * time.Millisecond)
		}
		// One call a second, up to a tenth less.
		if c := f.Calls() - calls; c < 60 || c > 68 {
			t.Errorf("a store that failed for a minute was called %d times, want 60 to 68", c)
		}
		if s := n.Reconciler.Stats(); s.Failed != uint64(f.Calls()-calls) || s.Dropped != 0 {
			t.Errorf("after %d failed calls: %+v", f.Calls()-calls, s)
		}
		f.Set(regionstest.Works)
		time.Sleep(time.Second) // the cool-down: the first flush that finds it back
		synctest.Wait()
		agree(t, f, n)
		if s := n.Reconciler.Stats(); s.Pending != 0 || s.Lost != 0 {
			t.Errorf("after the store was back: %+v", s)
		}
		calls = f.Calls()
		flushes(5)
		if c := f.Calls() - calls; c < 5 || c > 6 {
			t.Errorf("once the store was back it was called %d times in 5 intervals: the cool-down goes on", c)
		}
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		if fails, back := strings.Count(out.String(), "Redis does not answer"),
			strings.Count(out.String(), "works again"); fails != 1 ||
			back != 1 ||
			!strings.Contains(out.String(), regionstest.ErrFault.Error()) {
			t.Errorf("want one line that it fails, with the reason, and one that it is back:\n%s", out)
		}
	})
}

func TestStoreHangs(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		const cap = 100
		f := regionstest.NewFaulty(embedded)
		var out *bytes.Buffer
		var last atomic.Int64 // how long the last call took
		n := start(t, 1, f, func(c *regions.Config) {
			c.MaxPending, out = cap, logged(c)
			c.OnCall = func(took time.Duration, err error) {
				last.Store(int64(took))
				if (err != nil) != (took == 250*time.Millisecond) {
					t.Errorf("a call took %v and ended with %v", took, err)
				}
			}
		})
		f.Set(regionstest.Hangs)
		n.take(&hour, keys(10)...)
		time.Sleep(interval)
		synctest.Wait()
		if f.Calls() != 1 {
			t.Fatalf("%d calls, want one that is under way", f.Calls())
		}
		// With a call under way: offering takes no time, whatever there is room for.
		for range 600 {
			began := time.Now()
			n.take(&hour, keys(500)...)
			if took := time.Since(began); took != 0 {
				t.Fatalf("Offer waited %v while the store hung", took)
			}
			if p := n.Reconciler.Stats().Pending; p > cap {
				t.Fatalf("%d slots are pending, the cap is %d", p, cap)
			}
			time.Sleep(100 * time.Millisecond)
		}
		s := n.Reconciler.Stats()
		synctest.Wait()
		if s.Pending != cap || s.Dropped != 600*400 || last.Load() != int64(250*time.Millisecond) {
			t.Errorf("after a minute: %+v, want %d pending, %d dropped, and a last call of 250ms", s, cap, 600*400)
		}
		f.Set(regionstest.Works)
		time.Sleep(time.Second + 250*time.Millisecond)
		synctest.Wait()
		agree(t, f, n) // what found no room as well
		if s := n.Reconciler.Stats(); s.Pending != 0 || s.Lost != 0 {
			t.Errorf("after the store was back: %+v", s)
		}
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		if c := strings.Count(out.String(), "too many slots"); c != 1 {
			t.Errorf("want one line that slots found no room, got %d:\n%s", c, out)
		}
	})
}

func TestAnswersAreLost(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		n := start(t, 1, f, nil)
		n.take(&hour, 1, 2)
		flushes(1)
		f.Set(regionstest.AnswerLost)
		for range 300 {
			n.take(&hour, 1)
			time.Sleep(100 * time.Millisecond)
		}
		if s := n.Reconciler.Stats(); s.Failed == 0 || s.Pending != 1 {
			t.Errorf("calls without an answer count as done: %+v", s)
		}
		f.Set(regionstest.Works)
		time.Sleep(time.Second + 250*time.Millisecond)
		synctest.Wait()
		agree(t, f, n)
		if s := n.Reconciler.Stats(); s.Lost != 0 || s.Pending != 0 {
			t.Errorf("a store that knew more than it had acknowledged was taken for one that lost data: %+v", s)
		}
	})
}

func TestStoreIsFull(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		small := regions.NewEmbedded(600, time.Now)
		f := regionstest.NewFaulty(func() regions.Store { return small })
		n := start(t, 1, f, func(c *regions.Config) { c.Chunk = 100 })
		n.take(&tenSeconds, keys(600)...)
		flushes(1)
		n.take(&tenSeconds, keys(600)...) // the next sub-window: no room
		n.take(&hour, 1)
		flushes(1)
		if s := n.Reconciler.Stats(); s.Pending == 0 || s.Failed == 0 || s.Lost != 0 {
			t.Errorf("with a store that is full: %+v", s)
		}
		if small.Len() != 600 {
			t.Errorf("a store that is full holds %d slots, want the 600 it had", small.Len())
		}
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if got := held(t, f); len(got) != 1 {
			t.Errorf("when its slots had expired the store held %d, want the one of the hour", len(got))
		}
		if s := n.Reconciler.Stats(); s.Pending != 0 {
			t.Errorf("slots wait for a store that has room again: %+v", s)
		}
	})
}

// A store that is full goes on raising what it knows, whatever else is pending.
func TestFullStoreIsSentTheRest(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		small := regions.NewEmbedded(50, time.Now)
		f := regionstest.NewFaulty(func() regions.Store { return small })
		n := start(t, 1, f, func(c *regions.Config) { c.Chunk = 10 })
		n.take(&hour, keys(50)...)
		flushes(2)
		n.take(&hour, keys(500)...)
		flushes(1)
		for at, count := range held(t, f) {
			if count != 2 {
				t.Errorf("key %d stands at %d in a store that is full, want 2", at.key, count)
			}
		}
		if err := n.stop(); !errors.Is(err, regions.ErrFull) {
			t.Errorf("the last flush to a store that is full: %v", err)
		}
	})
}
