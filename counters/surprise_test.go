package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A key that is asked for much of its limit before its table was ever drained is sent early, by who has peers: they may
// be asked for as much. One that is asked for little, or of a small limit, waits for the interval.
func TestSurprisesAreSentEarly(t *testing.T) {
	for _, test := range []struct {
		name            string
		peers           int
		limit, requests uint64
		early           bool
	}{
		{"an eighth of what is left, shared by six", 5, 1000, 30, true},
		{"less", 5, 1000, 15, false},
		{"with twice the nodes", 11, 1000, 16, true},
		{"of a small limit", 5, 15, 12, false},
		{"alone", 0, 1000, 900, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			table, l := small(
				1,
			), newLimit(t, counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), test.limit)
			table.Know([]*counters.Limit{l})
			table.SetCluster(test.peers, 100*time.Millisecond)
			now := start
			for range test.requests {
				now += int64(time.Millisecond)
				if !table.Take(l, 1, 1, now).Allowed {
					t.Fatal("denied")
				}
			}
			early := false
			select {
			case <-table.EarlyFlush():
				early = true
			default:
			}
			if slots := table.DrainEarly(now).Slots; early != test.early || len(slots) > 0 != test.early {
				t.Errorf("told early: %v, %v; want %v", early, slots, test.early)
			}
		})
	}
}
