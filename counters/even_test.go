package counters_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// The two bounds of a sliding window: what an even client is sure to get, and the most that anybody gets.

// evenLimits returns limits of small and large maxima, on windows of ten and of other numbers of sub-windows.
func evenLimits(t *testing.T) (limits []*counters.Limit) {
	add := func(largest uint64, n int) {
		m := counters.Meter{Rule: "r", Algorithm: counters.SlidingWindow, Window: 10 * time.Second}
		m.Sub = m.Window / time.Duration(n)
		m.Window = m.Sub * time.Duration(n)
		limits = append(limits, newLimit(t, m, largest))
	}
	for largest := uint64(1); largest <= 40; largest++ {
		add(largest, 10)
	}
	for _, largest := range []uint64{1, 2, 3, 10, 59, 100, 333, 1001} {
		for _, n := range []int{1, 2, 3, 10, 60} {
			add(largest, n)
		}
	}
	return limits
}

func describeLimit(l *counters.Limit) string {
	return fmt.Sprintf("a limit of %d in %v by %v", l.Max(), l.Meter().Window, l.Meter().Sub)
}

// A client that comes evenly, at 95 to 100 % of its limit, is never denied.
func TestNobodyEvenIsDenied(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, l := range evenLimits(t) {
		window, table := int64(l.Meter().Window), small(1)
		for _, percent := range []float64{95, 97.5, 99, 99.5, 99.99, 100} {
			denied, of := 0, 4*int64(l.Max())+4
			spacing := int64(float64(window)/float64(l.Max())/percent*100) + 1
			for range 10 {
				key := counters.Key(r.Uint64())
				begin := start + r.Int64N(window)
				for i := range of {
					if d := table.Take(l, key, 1, begin+i*spacing); !d.Allowed {
						denied++
					}
				}
			}
			if denied > 0 {
				t.Errorf("%s at %v %%: %d of %d denied", describeLimit(l), percent, denied, 10*of)
			}
		}
	}
}

// No window holds more than the limit and the even share of a sub-window, rounded up: of ten sub-windows and a limit of
// up to ten, one more than the limit.
func TestNoWindowHoldsMoreThanAnEvenShareMore(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, l := range evenLimits(t) {
		window, sub := int64(l.Meter().Window), int64(l.Meter().Sub)
		bound := l.Max() + (l.Max()+uint64(window/sub)-1)/uint64(window/sub)
		for range 20 {
			var log oracle.Rolling
			table, now := small(1), start+r.Int64N(window)
			share := 1 + r.Uint64N(l.Max())
			for range 300 {
				for n := pick(r, 1, 1, share, l.Max()); n > 0 && table.Take(l, 1, 1, now).Allowed; n-- {
					log.Add(now, 1)
				}
				switch r.IntN(4) {
				case 0:
					now += r.Int64N(sub)
				case 1:
					now += r.Int64N(window)
				case 2:
					now += sub - now%sub - r.Int64N(2) // the end of a sub-window, or the beginning of the next
				case 3:
					now += int64(table.Take(l, 1, 0, now).RetryAfter)
				}
			}
			if peak := log.Peak(l.Meter().Window); peak > bound {
				t.Fatalf("%s: a window holds %d, want at most %d", describeLimit(l), peak, bound)
			}
		}
	}
}

// A client that comes at random, at 95 % of its limit on average, is denied no more often than if each of its
// requests counted for exactly a window.
func TestRandomClientsAreDeniedNoMoreThanByALog(t *testing.T) {
	for _, largest := range []uint64{1, 2, 5, 10, 20, 40, 100, 1000} {
		window := newLimit(t, counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), largest)
		log := newLimit(t, counters.NewMeter("log", counters.SlidingLog, 10*time.Second), largest)
		r, table, now := rand.New(rand.NewPCG(3, largest)), small(1), start
		const n = 40_000
		denied := map[*counters.Limit]int{}
		for range n {
			now += int64(r.ExpFloat64() * 10e9 / (0.95 * float64(largest)))
			for _, l := range []*counters.Limit{window, log} {
				if !table.Take(l, 1, 1, now).Allowed {
					denied[l]++
				}
			}
		}
		byWindow, byLog := 100*float64(denied[window])/n, 100*float64(denied[log])/n
		t.Logf("a limit of %d: %.2f %% denied, by a log %.2f %%", largest, byWindow, byLog)
		if byWindow > byLog+0.1 {
			t.Errorf("a limit of %d: %.2f %% denied, by a log %.2f %%", largest, byWindow, byLog)
		}
	}
}
