package strict

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Refunds do not wait for each other's round trips: all are on their way before the first answer. Close waits for them.
func TestRefundsGoAtOnce(t *testing.T) {
	t.Parallel()
	const keys = 50
	server := regionstest.StartRedis(t)
	s, other := open(t, single(server)), open(t, single(server))
	l := newLimit(t, counters.SlidingWindow, 1000, 24*time.Hour)
	var receipts []Receipt
	for key := range counters.Key(keys) {
		_, receipt, err := s.Take(t.Context(), ask(l, key, 1), nil)
		testkit.Must(t, err)
		receipts = append(receipts, receipt)
	}
	server.Pause()
	for _, r := range receipts {
		s.Refund(r)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close(t.Context()) }()
	testkit.Eventually(t, "no refund waits for another one", func() bool { return len(s.refunds) == 0 })
	if n := s.pending.Load(); n != keys {
		t.Errorf("%d refunds are on their way, want %d", n, keys)
	}
	server.Resume()
	testkit.Must(t, <-closed)
	for key := range counters.Key(keys) {
		if d := mustTake(t, other, ask(l, key, 0)); d.Remaining != 1000 {
			t.Errorf("key %d: %d remain", key, d.Remaining)
		}
	}
	if st := s.Stats(); st.Refunded != keys || st.Abandoned != 0 {
		t.Errorf("%+v", st)
	}
}
