package strict

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// TestRemainingIsAdmitted: under every script, what a decision calls remaining is admitted at once, and a unit more is
// not.
func TestRemainingIsAdmitted(t *testing.T) {
	c := newClocked(t)
	c.now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	for _, a := range algorithms {
		r := rand.New(rand.NewPCG(54, uint64(a)))
		for range testkit.Tenth(100) {
			window := time.Duration(1+r.IntN(100_000)) * time.Millisecond
			l, key := newLimit(t, a, 1+r.Uint64N(1+r.Uint64N(10_000)), window), counters.Key(r.Uint64())
			for range 10 {
				d := c.takeAll(ask(l, key, r.Uint64N(l.Max()+2)))[0]
				if more := c.takeAll(ask(l, key, d.Remaining+1))[0]; more.Allowed {
					t.Fatalf("%d per %v: %d remain, and one more is admitted", l.Max(), l.Meter(), d.Remaining)
				}
				if r.IntN(3) == 0 && d.Remaining > 0 {
					if all := c.takeAll(ask(l, key, d.Remaining))[0]; !all.Allowed {
						t.Fatalf("%d per %v: %d remain: %+v", l.Max(), l.Meter(), d.Remaining, all)
					}
				}
				c.now += r.Int64N(window.Microseconds() / 4)
			}
		}
	}
}
