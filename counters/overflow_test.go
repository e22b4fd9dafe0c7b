package counters_test

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A cost beyond all limits is never admitted, whatever is pending beside it.
func TestHugeCostsNeverFit(t *testing.T) {
	for a := counters.SlidingWindow; a <= counters.LeakyQueue; a++ {
		l, err := counters.NewLimit(counters.NewMeter("r", a, time.Minute), 10)
		testkit.Must(t, err)
		table := counters.NewTable(counters.Config{Origin: 1})
		now := time.Unix(1_000_000, 0).UnixNano()
		table.Take(l, 1, 3, now)
		for _, cost := range []uint64{math.MaxUint64, math.MaxUint64 - 5, counters.MaxLimit + 1} {
			ch := []counters.Charge{{Limit: l, Key: 1, Cost: cost, Pending: 7}}
			if d := table.TakeAll(ch, now, nil)[0]; d.Allowed || d.RetryAfter != counters.Never {
				t.Errorf("%v, cost %d: %+v", a, cost, d)
			}
		}
		if d := table.Take(l, 1, 0, now); d.Remaining != 7 {
			t.Errorf("%v: %d remain", a, d.Remaining)
		}
	}
}
