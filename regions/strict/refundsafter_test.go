package strict

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A refund that Redis has no memory for is made when it has some again.
func TestRefundWithoutMemory(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	s := open(t, single(server))
	l := newLimit(t, counters.FixedWindow, 100, 24*time.Hour)
	_, receipt, err := s.Take(t.Context(), ask(l, 1, 10), nil)
	testkit.Must(t, err)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	s.Refund(receipt)
	testkit.Eventually(t, "the refund has failed", func() bool { return s.Stats().Failed > 0 })
	server.Do("CONFIG", "SET", "maxmemory", "0")
	settle(t, s)
	if st := s.Stats(); st.Refunded != 1 || st.Abandoned != 0 {
		t.Errorf("%+v", st)
	}
	if got := mustTake(t, s, ask(l, 1, 0)).Remaining; got != 100 {
		t.Errorf("%d remain, want 100", got)
	}
}

// A request of a lease that is given back while the store closes, after its lease was, is given back too.
func TestRefundWhileClosing(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	s, other := open(t, single(server)), open(t, single(server))
	l := newLimit(t, counters.FixedWindow, 100, 24*time.Hour)
	asks := ask(l, 1, 1)
	asks[0].Lease = 50
	mustTake(t, s, ask(l, 1, 1))
	(&waiting{Store: s, limit: l}).busy()
	_, receipt, err := s.Take(t.Context(), asks, nil)
	testkit.Must(t, err)
	s.closed.Store(true)
	s.returnAll()
	s.Refund(receipt)
	testkit.Must(t, s.awaitRefunds(t.Context()))
	if got := mustTake(t, other, ask(l, 1, 0)).Remaining; got != 99 || s.leases.count() > 0 {
		t.Errorf("%d remain, want 99", got)
	}
	s.closed.Store(false)
}
