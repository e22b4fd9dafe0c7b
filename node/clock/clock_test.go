package clock

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// alone is what a clock knows of other nodes' clocks where there are none.
func alone() (time.Duration, bool) { return 0, false }

// run runs a clock until the returned function is called.
func run(t *testing.T, c *Clock) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return func() {
		cancel()
		ended.Wait()
	}
}

// The coarse time is never ahead, and while it is kept at most a tick behind.
func TestCoarseIsATickOldAtMost(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		c := New(nil, slog.New(slog.DiscardHandler), alone)
		stop := run(t, c)
		defer stop()
		kept := 0
		for i := range 3000 {
			now, coarse := time.Now().UnixNano(), c.Coarse()
			if now != c.Now() || coarse > now || now-coarse > int64(Tick) {
				t.Fatalf("at %d it is %d, or coarsely %d", now, c.Now(), coarse)
			}
			if coarse < now {
				kept++
			}
			time.Sleep(time.Duration(300+i) * time.Microsecond)
		}
		if kept < 1000 {
			t.Errorf("only %d of 3000 times were coarse", kept)
		}
	})
}

// Without calls of Coarse the clock does not tick, and the first call again returns the exact time.
func TestNobodyAsks(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		var readings atomic.Int64
		c := New(nil, slog.New(slog.DiscardHandler), alone)
		mono := c.mono
		c.mono = func() int64 { readings.Add(1); return mono() }
		stop := run(t, c)
		defer stop()
		c.Coarse()
		time.Sleep(time.Minute)
		const followed = 60 // times the wall clock was followed
		if n := readings.Load() - followed; n > coarseTicks+10 || n < coarseTicks-10 {
			t.Errorf("%d readings in a minute after somebody asked once, want some %d", n, coarseTicks)
		}
		time.Sleep(time.Microsecond)
		if now, coarse := time.Now().UnixNano(), c.Coarse(); coarse != now {
			t.Errorf("the first call again returns a time %v old", time.Duration(now-coarse))
		}
	})
}

// Without Run, before it and after, the time is exact.
func TestCoarseWithoutRun(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		c := New(nil, slog.New(slog.DiscardHandler), alone)
		exact := func(when string) {
			t.Helper()
			for range 10 {
				time.Sleep(123 * time.Microsecond)
				if now, coarse := time.Now().UnixNano(), c.Coarse(); coarse != now {
					t.Errorf("%s Run the time is %v old", when, time.Duration(now-coarse))
				}
			}
		}
		exact("before")
		stop := run(t, c)
		c.Coarse()
		time.Sleep(5 * time.Millisecond)
		stop()
		exact("after")
	})
}

// A machine whose clock is set while the clock runs: the log says so, and the time follows.
func TestRunFollows(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		var set, ahead atomic.Int64
		wall := func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
		var text bytes.Buffer
		c := New(wall, slog.New(slog.NewTextHandler(&text, nil)),
			func() (time.Duration, bool) { return time.Duration(ahead.Load()), true })
		off := func() time.Duration { return time.Duration(c.Now() - time.Now().UnixNano()) }
		stop := run(t, c)
		set.Store(int64(time.Second))
		time.Sleep(25 * time.Second)
		if got := off(); got < 400*time.Millisecond || got > 600*time.Millisecond {
			t.Errorf("of a second, %v is made up for after 25 s", got)
		}
		time.Sleep(time.Minute)
		ahead.Store(int64(-time.Hour))
		set.Store(int64(time.Hour))
		time.Sleep(5 * time.Second)
		if got := off(); got != time.Second {
			t.Errorf("it is off by %v", got)
		}
		time.Sleep(10 * time.Second)
		if got := off(); got != time.Hour || c.Coarse() < time.Now().UnixNano() {
			t.Errorf("it is off by %v", got)
		}
		synctest.Wait()
		stop()
		for _, word := range []string{"WARN", "machine's clock was set", "off=59m59s", "jumped"} {
			if !strings.Contains(text.String(), word) {
				t.Errorf("no %q in the log:\n%s", word, text.String())
			}
		}
	})
}

// Many who ask at a time, while the clock follows the machine's: for the race detector. What one of them reads never
// goes back.
func TestConcurrentReaders(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		var set atomic.Int64
		wall := func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
		c := New(wall, slog.New(slog.DiscardHandler), alone)
		stop := run(t, c)
		var readers sync.WaitGroup
		for i := range 4 {
			readers.Go(func() {
				last := int64(0)
				for range 2000 {
					now := c.Now()
					if now < last || c.Coarse() > c.Now() {
						t.Errorf("it went back from %d to %d, or is coarsely later", last, now)
						return
					}
					last = now
					time.Sleep(time.Duration(1000+i) * time.Microsecond)
				}
			})
		}
		set.Store(int64(-500 * time.Millisecond))
		readers.Wait()
		stop()
	})
}

func BenchmarkCoarse(b *testing.B) {
	c := New(nil, slog.New(slog.DiscardHandler), alone)
	ctx, cancel := context.WithCancel(b.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = c.Run(ctx) })
	var sum int64
	b.ReportAllocs()
	for b.Loop() {
		sum += c.Coarse()
	}
	cancel()
	ended.Wait()
	if sum == 0 {
		b.Error("no time passed")
	}
}

func BenchmarkNow(b *testing.B) {
	c := New(nil, slog.New(slog.DiscardHandler), alone)
	b.ReportAllocs()
	for b.Loop() {
		if c.Now() == 0 {
			b.Fatal("no time")
		}
	}
}
