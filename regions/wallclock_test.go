package regions_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// stepped is a node's wall clock, which is ahead of the machine's by what it was set by.
type stepped struct{ ahead atomic.Int64 }

func (c *stepped) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *stepped) now() int64     { return c.Now().UnixNano() }

// counting is a node of the counting engine's own table, which goes by a clock that is set.
type counting struct {
	*stepped
	*regions.Reconciler
	*counters.Table
	limits []*counters.Limit
	stop   func() error
}

func startCounting(t *testing.T, origin counters.Origin, store regions.Store, change func(*regions.Config)) *counting {
	t.Helper()
	n := &counting{
		stepped: &stepped{},
		Table:   counters.NewTable(counters.Config{Origin: origin, Memory: counters.MinMemory}),
	}
	for _, m := range []counters.Meter{tenSeconds, hour, counters.NewMeter("minute", counters.SlidingWindow,
		time.Minute)} {
		limit, err := counters.NewLimit(m, 1<<30)
		testkit.Must(t, err)
		n.limits = append(n.limits, limit)
	}
	cfg := regions.DefaultConfig()
	change(&cfg)
	cfg.Now, cfg.MinWindow = n.Now, 0
	var err error
	if n.Reconciler, err = regions.NewReconciler(cfg, store, n.Table); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	n.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = n.stop() })
	return n
}

// take takes a request of each of some keys under every limit, and offers what rose.
func (n *counting) take(keys ...counters.Key) {
	for _, limit := range n.limits {
		for _, key := range keys {
			n.Table.Take(limit, key, 1, n.now())
		}
	}
	n.Enqueue(n.DrainDirty(n.now()).Slots)
}

// A node's clock is set by an hour and set back: nothing that the store holds goes before its time, and nothing is
// taken for a loss.
func TestTheNodesClockIsSet(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, 3 * time.Minute, -3 * time.Minute, 15 * time.Second,
		-15 * time.Second} {
		t.Run(step.String(), func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				store := regions.NewEmbedded(0, time.Now)
				var out *bytes.Buffer
				n := startCounting(t, 1, store, func(c *regions.Config) { out = logged(c) })
				other := startCounting(t, 2, store, func(*regions.Config) {}) // whose clock nobody sets
				minutes := func(d time.Duration) {
					for range int(d / time.Second) {
						n.take(1, 2, 3)
						other.take(1, 4)
						time.Sleep(time.Second)
					}
				}
				minutes(2 * time.Minute)
				before := atTime(t, store, other.now())
				n.ahead.Store(int64(step))
				minutes(time.Second)
				for id, count := range before {
					if left := (id.index+1)*int64(id.meter.Sub) + int64(id.meter.Window) - other.now(); left < 0 {
						continue
					}
					if got := atTime(t, store, other.now())[id]; got < count {
						t.Errorf("of %d in sub-window %d of %s, %d are left", count, id.index, id.meter.Rule, got)
					}
				}
				minutes(4 * time.Minute)
				n.ahead.Store(0)
				minutes(2 * time.Minute)
				for name, r := range map[string]*counting{"that was set": n, "that was not": other} {
					if s := r.Reconciler.Stats(); s.Lost != 0 || s.Failed != 0 {
						t.Errorf("the node whose clock %s: %+v", name, s)
					}
				}
				if err := n.stop(); err != nil || strings.Contains(out.String(), "lost") {
					t.Errorf("%v; it logged\n%s", err, out)
				}
			})
		})
	}
}

// atTime is what a store gives a reader whose clock shows now.
func atTime(t *testing.T, store regions.Store, now int64) map[id]uint64 {
	t.Helper()
	counts := make(map[id]uint64)
	if err := store.Load(t.Context(), now, func(page []counters.Slot) {
		for _, s := range page {
			counts[identify(s)] = s.Count
		}
	}); err != nil {
		t.Fatal(err)
	}
	return counts
}

// The same over Redis: whoever writes there with a clock that is off by an hour shortens nobody's time to live, and
// finds what it wrote.
func TestRedisHashesOutliveAStep(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t)
	r := open(t, patient(single(s)))
	write := func(origin counters.Origin, ahead time.Duration) counters.Slot {
		t.Helper()
		now := time.Now().Add(ahead).UnixNano()
		slot := counters.Slot{
			Meter: &tenSeconds, Key: 1, Index: tenSeconds.Index(now), Origin: origin, Birth: 1, Count: uint64(origin),
		}
		if _, err := r.Merge(t.Context(), []counters.Slot{slot}, now); err != nil {
			t.Fatal(err)
		}
		slot.Count = 0
		merged, err := r.Merge(t.Context(), []counters.Slot{slot}, now)
		if err != nil || merged.Before[0] != uint64(origin) {
			t.Errorf("with a clock %v ahead it finds %+v of what it wrote (%v)", ahead, merged, err)
		}
		return slot
	}
	for i, ahead := range []time.Duration{0, time.Hour, -time.Hour, 15 * time.Second, -15 * time.Second} {
		slot := write(counters.Origin(i+1), ahead)
		for _, name := range strings.Fields(strings.Trim(s.Do("KEYS", fmt.Sprintf("el1:*:%d:*", slot.Index)), "[]")) {
			if ttl := pttl(t, s, name); ttl < 10_000 || ttl > 20_000 {
				t.Errorf("with a clock %v ahead it lives for %d ms, want 10 to 20 s", ahead, ttl)
			}
		}
	}
	// Of one sub-window, by clocks that are 8 s apart: the later one, which needs it for longer, comes first and last.
	now := wall()
	slot := counters.Slot{Meter: &tenSeconds, Key: 2, Index: tenSeconds.Index(now), Origin: 1, Birth: 1, Count: 1}
	var last int64
	for i, ahead := range []time.Duration{8 * time.Second, 0, 8 * time.Second} {
		slot.Origin = counters.Origin(i + 1)
		if _, err := r.Merge(t.Context(), []counters.Slot{slot}, now+int64(ahead)); err != nil {
			t.Fatal(err)
		}
		name := strings.Trim(s.Do("KEYS", fmt.Sprintf("el1:*:%016x:%d:*", uint64(slot.Key), slot.Index)), "[]")
		ttl := pttl(t, s, name)
		if i == 1 && ttl < last+6000 || i == 2 && ttl < last-5000 {
			t.Errorf("after writer %d it lives for %d ms, before %d", i, ttl, last)
		}
		last = ttl
	}
}

func pttl(t *testing.T, s *regionstest.Server, name string) int64 {
	t.Helper()
	ms, err := strconv.ParseInt(s.Do("PTTL", name), 10, 64)
	testkit.Must(t, err)
	return ms
}

// A server's clock that is wrong is nothing to windows of ten seconds: nothing is lost, and a cold node reads it all.
func TestRedisClockIsWrong(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{15 * time.Second, -15 * time.Second, time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			s := regionstest.StartRedisWithClock(t, ahead)
			n := startCounting(t, 1, open(t, patient(single(s))), often)
			testkit.Eventually(t, "the store's clock is known", func() bool {
				n.take(1)
				got, ok := n.ClockAhead()
				return ok && (got-ahead).Abs() < time.Second
			})
			flushed := n.Reconciler.Stats().Flushed
			testkit.Eventually(t, "many flushes", func() bool {
				n.take(1, 2, 3)
				return n.Reconciler.Stats().Flushed > flushed+500
			})
			if stats := n.Reconciler.Stats(); stats.Lost != 0 {
				t.Errorf("a server that is %v ahead was found to lose data %d times in %d slots", ahead, stats.Lost,
					stats.Flushed)
			}
			if err := n.stop(); err != nil {
				t.Error(err)
			}
			cold := startCounting(t, 2, open(t, patient(single(s))), often)
			testkit.Must(t, cold.Warm(t.Context()))
			if got, want := cold.Table.View(cold.limits[0], 1, wall()),
				n.Table.View(n.limits[0], 1, wall()); got < want {
				t.Errorf("a cold node counts %d of %d", got, want)
			}
		})
	}
}

// A server's clock that is set while it runs: forth by an hour, it drops what lies there, which is noticed once and
// made good; back, nothing.
func TestRedisClockIsSet(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			s := regionstest.StartRedisWithClock(t, 0)
			r := open(t, patient(single(s)))
			n := start(t, 1, r, often)
			n.take(&hour, spread(300)...)
			holds(t, r, n)
			s.SetClock(step)
			n.take(&hour, spread(10)...)
			holds(t, r, n)
			flushed := n.Reconciler.Stats().Flushed
			testkit.Eventually(t, "many flushes", func() bool {
				n.take(&hour, spread(10)...)
				return n.Reconciler.Stats().Flushed > flushed+500
			})
			holds(t, r, n)
			want := uint64(0)
			if step > 0 {
				want = 1
			}
			if stats := n.Reconciler.Stats(); stats.Lost != want {
				t.Errorf("%d losses were noticed, want %d", stats.Lost, want)
			}
		})
	}
}

// forgetful loses everything with every call.
type forgetful struct {
	*regions.Embedded
	pushes atomic.Int64 // of 100 slots or more
}

func (f *forgetful) Merge(ctx context.Context, slots []counters.Slot, now int64) (regions.Merged, error) {
	written := 0
	for i := range slots {
		if slots[i].Count > 0 {
			written++
		}
	}
	if written >= 100 {
		f.pushes.Add(1)
	}
	merged, err := f.Embedded.Merge(ctx, slots, now)
	f.Flush()
	return merged, err
}

// A store that loses data all the time is not sent everything all the time, nor is every time a line in the log; a loss
// long after is one.
func TestLossAfterLoss(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := &forgetful{Embedded: regions.NewEmbedded(0, time.Now)}
		var out *bytes.Buffer
		n := start(t, 1, f, func(c *regions.Config) { out = logged(c) })
		n.take(&hour, keys(200)...)
		for range 600 {
			n.take(&hour, 1)
			time.Sleep(time.Second)
		}
		// 20 at once, then one in 10 s for ten minutes, and the first flush.
		if got := f.pushes.Load(); got < 60 || got > 85 {
			t.Errorf("everything was sent %d times in ten minutes, want 60 to 85", got)
		}
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		once, again := strings.Count(out.String(), "lost data"), strings.Count(out.String(), "again and again")
		if once < 1 || once > 20 || again != 1 {
			t.Errorf("%d lines about a loss and %d that it goes on, want a few and one:\n%s", once, again, out)
		}
	})
}
