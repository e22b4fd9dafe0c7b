package regions_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestBreaker(t *testing.T) {
	for _, fault := range []regionstest.Fault{regionstest.Fails, regionstest.Hangs, regionstest.AnswerLost} {
		testkit.VirtualTime(t, func(t *testing.T) {
			f := regionstest.NewFaulty(embedded)
			var out *bytes.Buffer
			n := start(t, 1, f, func(c *regions.Config) { out = logged(c) })
			n.take(&hour, keys(1000)...)
			flushes(2)
			if s := n.Reconciler.Stats().Breaker; s != regions.BreakerClosed {
				t.Fatalf("the breaker of a store that works is %v", s)
			}
			goroutines := runtime.NumGoroutine()
			f.Set(fault)
			time.Sleep(time.Second)
			synctest.Wait()
			if s := n.Reconciler.Stats().Breaker; s != regions.BreakerOpen {
				t.Errorf("fault %d: after 1 s the breaker is %v, want open", fault, s)
			}
			calls := f.Calls()
			for range 600 {
				n.take(&hour, keys(1000)...)
				time.Sleep(100 * time.Millisecond)
				if s := n.Reconciler.Stats().Breaker; s == regions.BreakerClosed {
					t.Fatalf("fault %d: the breaker closed", fault)
				}
				if now := runtime.NumGoroutine(); now > goroutines+3 {
					t.Fatalf("fault %d: %d goroutines, %d before", fault, now, goroutines)
				}
			}
			if c := f.Calls() - calls; c < 45 || c > 68 {
				t.Errorf("fault %d: %d calls in a minute, want one a cool-down", fault, c)
			}
			f.Set(regionstest.Works)
			time.Sleep(1250 * time.Millisecond) // a call under way and the cool-down
			synctest.Wait()
			if s := n.Reconciler.Stats().Breaker; s != regions.BreakerClosed {
				t.Errorf("fault %d: the breaker of a store that is back is %v", fault, s)
			}
			agree(t, f, n)
			if err := n.stop(); err != nil {
				t.Error(err)
			}
			if c := strings.Count(out.String(), "\n"); c != 2 {
				t.Errorf("fault %d: want a line that it fails and one that it is back, got %d:\n%s", fault, c, out)
			}
		})
	}
}

// While it is half-open the breaker lets through one call of a few slots.
func TestBreakerHalfOpen(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		n := start(t, 1, f, nil)
		f.Set(regionstest.Fails)
		n.take(&hour, keys(1000)...)
		flushes(1)
		f.Set(regionstest.AnswerLost) // does what it is asked, and answers nothing
		// The trial begins 675 to 750 ms and 900 to 1000 ms after the start, and hangs for 250 ms.
		time.Sleep(1020 * time.Millisecond)
		synctest.Wait()
		if s := n.Reconciler.Stats().Breaker; s != regions.BreakerHalfOpen {
			t.Errorf("with the trial under way the breaker is %v, want half-open", s)
		}
		if written := len(held(t, f)); written == 0 || written > 64 {
			t.Errorf("the trial told %d slots, want a few", written)
		}
	})
}

// A store that fails is tried with nothing to send as well: or nobody would know that it is back.
func TestBreakerClosesWithNothingToWrite(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		f.Set(regionstest.Fails)
		n := start(t, 1, f, nil)
		n.take(&tenSeconds, 1)
		time.Sleep(time.Minute)
		if s := n.Reconciler.Stats(); s.Breaker != regions.BreakerOpen || s.Pending != 0 {
			t.Errorf("with a store that fails: %+v", s)
		}
		f.Set(regionstest.Works)
		time.Sleep(time.Second)
		synctest.Wait()
		if s := n.Reconciler.Stats(); s.Breaker != regions.BreakerClosed {
			t.Errorf("with a store that is back: %+v", s)
		}
	})
}

// A store that is full answers: the breaker stays closed. But it is not asked as often.
func TestFullStoreIsAskedLessOften(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(func() regions.Store { return regions.NewEmbedded(1, time.Now) })
		n := start(t, 1, f, nil)
		n.take(&hour, 1, 2, 3)
		time.Sleep(time.Minute)
		if s := n.Reconciler.Stats(); s.Breaker != regions.BreakerClosed || s.Pending == 0 {
			t.Errorf("with a store that is full: %+v", s)
		}
		if c := f.Calls(); c < 10 || c > 14 {
			t.Errorf("a store that is full was called %d times in a minute, want one every 6 s", c)
		}
	})
}

func TestBreakerStateString(t *testing.T) {
	for state, want := range map[regions.BreakerState]string{
		regions.BreakerClosed: "closed", regions.BreakerOpen: "open", regions.BreakerHalfOpen: "half-open",
		7: "breaker(7)",
	} {
		if state.String() != want {
			t.Errorf("state %d is %q, want %q", state, state, want)
		}
	}
}
