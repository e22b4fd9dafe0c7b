package strict

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A charge that counted for less than its cost, as there was no room beyond twice the limit, is found by its token
// alone: its repetition charges nothing, though there is room by then, and it can be given back. So whether its token
// is in the state or has moved to the second key.
func TestPartialChargeIsFound(t *testing.T) {
	t.Parallel()
	s := open(t, single(regionstest.StartRedis(t)))
	for _, kind := range []byte{callTake, callReport} {
		for _, moved := range []bool{false, true} {
			eachOver(t, s, func(t *testing.T, asks []Ask) {
				a, key := asks[0].Limit.Meter().Algorithm, asks[0].Key
				large := newLimit(t, a, 1000, time.Hour)
				used := func() float64 {
					return 1000 - mustSend(t, s, callTake, newCall(t, s, ask(large, key, 0)))[0].remaining
				}
				mustSend(t, s, callTake, newCall(t, s, ask(large, key, 4)))
				asks[0].Cost = 5 // of which 2 count
				c := newCall(t, s, asks)
				mustSend(t, s, kind, c)
				if got := used(); got != 6 {
					t.Fatalf("%v used, want twice the limit", got)
				}
				others := 0.0
				if moved {
					for range 16 {
						mustSend(t, s, callTake, newCall(t, s, ask(large, key, 1)))
					}
					others = 16
				}
				roomy := []Ask{asks[0]}
				roomy[0].Limit = newLimit(t, a, 1000, time.Hour)
				again := newCall(t, s, roomy)
				again.token = c.token
				mustSend(t, s, map[byte]byte{callTake: callAgain, callReport: callReportAgain}[kind], again)
				if got := used(); got != 6+others {
					t.Errorf("%v used after the repetition, want %v", got, 6+others)
				}
				s.Refund(Receipt{undos: []*undo{s.undoAll(asks, c, time.Now())}})
				settle(t, s)
				want := 4 + others
				if a == counters.LeakyQueue && moved {
					want = 6 + others // others are behind it
				}
				if got := used(); got > want || got < want-1 {
					t.Errorf("%v used after the refund, want %v", got, want)
				}
			})
		}
	}
}

// A lease whose answer is lost is given back by its token, however much of it was granted.
func TestPartialLeaseIsFound(t *testing.T) {
	t.Parallel()
	s := open(t, single(regionstest.StartRedis(t)))
	for _, a := range []counters.Algorithm{counters.SlidingWindow, counters.FixedWindow, counters.SlidingLog} {
		for _, moved := range []bool{false, true} {
			l, key := newLimit(t, a, 7, 24*time.Hour), counters.Key(s.tokens.next.Load())
			y, err := s.shapes.of(l)
			testkit.Must(t, err)
			asks := ask(l, key, 1)
			asks[0].Lease = 5000
			g, _, err := s.lease(t.Context(), y, &asks[0], 5000)
			if err != nil || g.total != 7 {
				t.Fatalf("%v: %+v granted, %v, want 7", a, g, err)
			}
			used := func() float64 {
				peek := ask(newLimit(t, a, 1000, 24*time.Hour), key, 0)
				return 1000 - mustSend(t, s, callTake, newCall(t, s, peek))[0].remaining
			}
			others := 0.0
			if moved {
				one := ask(newLimit(t, a, 1000, 24*time.Hour), key, 1)
				for range 16 {
					mustSend(t, s, callTake, newCall(t, s, one))
				}
				others = 16
			}
			lost := newCall(t, s, asks)
			lost.token = g.call.token
			asks[0].Cost = 5000
			s.Refund(Receipt{undos: []*undo{s.undoAll(asks, lost, time.Now())}})
			settle(t, s)
			if got := used(); got != others {
				t.Errorf("%v, moved %v: %v used after the refund, want %v", a, moved, got, others)
			}
		}
	}
}
