package strict

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A refund whose answer was lost is repeated by its token alone: by its time it would be made again where the script
// has forgotten the token meanwhile, for the sake of many others.
func TestRepeatedRefund(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	for _, a := range []counters.Algorithm{counters.FixedWindow, counters.SlidingWindow, counters.SlidingLog} {
		s := open(t, single(server))
		l := newLimit(t, a, 1000, 24*time.Hour)
		var receipt Receipt
		for range 2 {
			var err error
			if _, receipt, err = s.Take(t.Context(), ask(l, 1, 100), nil); err != nil {
				t.Fatal(err)
			}
		}
		u := receipt.undos[0]
		mustSend(t, s, callRefund, &u.call)
		for range 1100 {
			other := u.call
			other.token = s.newToken()
			mustSend(t, s, callRefund, other.byToken())
		}
		mustSend(t, s, callRefund, u.byToken())
		if left := mustTake(t, s, ask(l, 1, 0)).Remaining; left != 900 {
			t.Errorf("%v: %d remain after a repeated refund, want 900", a, left)
		}
	}
}

// After its answer was lost, a refund that was made by its time is not made again, though the script forgets its token.
func TestLostAnswerOfRefund(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	p := newLossy(t, server.Addr(), 0)
	cfg := single(server)
	cfg.Addrs = []string{p.Addr().String()}
	// With more patience the store would wait for one of the answers for longer than it tries to refund.
	s, other := open(t, cfg, within(refundFor/4)), open(t, single(server))
	l := newLimit(t, counters.FixedWindow, 1000, 24*time.Hour)
	var receipt Receipt
	for range 2 {
		var err error
		if _, receipt, err = s.Take(t.Context(), ask(l, 1, 100), nil); err != nil {
			t.Fatal(err)
		}
	}
	u := *receipt.undos[0]
	u.token = s.newToken() // of a charge so old that its own is forgotten
	p.every.Store(1)
	s.enqueue(&u)
	testkit.Eventually(t, "an answer is lost", func() bool { return p.lost.Load() > 0 })
	for range 1100 {
		c := u.call
		c.token = other.newToken()
		mustSend(t, other, callRefund, c.byToken())
	}
	p.every.Store(0)
	settle(t, s)
	if left := mustTake(t, other, ask(l, 1, 0)).Remaining; left != 900 {
		t.Errorf("%d remain after one refund, want 900", left)
	}
}

// Layers on the same state have tokens of their own, whatever the request's is.
func TestLayersHaveTheirTokens(t *testing.T) {
	s := open(t, single(regionstest.StartRedis(t)))
	for range 1000 {
		if token := s.newToken(); token[7] <= counters.MaxLayers {
			t.Fatalf("the token %x may be that of a layer", token)
		}
	}
}
