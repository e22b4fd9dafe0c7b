package counters_test

import (
	"math/rand/v2"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// TestRemainingIsAdmitted: under every algorithm, what a decision calls remaining is admitted at once, and a unit more
// is not.
func TestRemainingIsAdmitted(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(54, uint64(a)))
			table := small(1)
			for range testkit.Tenth(2_000) {
				l, key, now := randomLimit(t, r, a), counters.Key(r.Uint64()), start
				if a >= counters.TokenBucket && r.IntN(2) == 0 {
					l = newBucket(t, l.Meter(), 1+r.Uint64N(1000), 1+r.Uint64N(1000))
				}
				for range 20 {
					d := table.Take(l, key, r.Uint64N(min(l.Max(), 1<<30)+2), now)
					if more := table.Take(l, key, d.Remaining+1, now); more.Allowed {
						t.Fatalf("%d per %v: %d remain, and one more is admitted", l.Max(), l.Meter(), d.Remaining)
					}
					if r.IntN(3) == 0 && d.Remaining > 0 {
						if all := table.Take(l, key, d.Remaining, now); !all.Allowed || all.Remaining != 0 {
							t.Fatalf("%d per %v: %d remain: %+v", l.Max(), l.Meter(), d.Remaining, all)
						}
					}
					now += r.Int64N(int64(l.Meter().Window) / 4)
				}
			}
		})
	}
}
