package strict

import (
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Requests that came while a lease lasted are answered together by the call that they waited for, though its answer
// came after the lease had ended. Then the key has no leases for a while: they would all be late.
func TestLateLeaseServesWaiters(t *testing.T) {
	t.Parallel()
	for _, a := range []counters.Algorithm{counters.SlidingWindow, counters.SlidingLog, counters.TokenBucket} {
		server := regionstest.StartRedis(t)
		s := open(t, single(server))
		l := newLimit(t, a, 100, 10*time.Second)
		asks := ask(l, 1, 1)
		asks[0].Lease = 50
		y, err := s.shapes.of(l)
		testkit.Must(t, err)
		k := leaseKey{y, 1}
		shard := s.leases.shard(k)
		shard.Lock()
		f := &fetch{done: make(chan struct{}), until: time.Now().Add(time.Hour), cost: 1, room: 49}
		shard.key(k).fetch = f
		shard.Unlock()
		var waiters sync.WaitGroup
		for range 49 {
			waiters.Go(func() { mustTake(t, s, asks) })
		}
		testkit.Eventually(t, "all wait", func() bool {
			shard.Lock()
			defer shard.Unlock()
			return f.room == 0
		})
		// The grant is of a call that was sent a second before the waiters came, and ended since.
		before := s.Stats().Calls
		shard.Lock()
		g := &grant{key: k, call: newCall(t, s, asks), total: 50, left: 50, at: 1, sent: time.Now(),
			until: time.Now(), back: time.Now().Add(time.Hour), end: time.Now().Add(time.Hour)}
		e := shard.key(k)
		e.grants, e.fetch = append(e.grants, g), nil
		shard.active[k] = e
		f.decision.Allowed = true
		close(f.done)
		shard.Unlock()
		waiters.Wait()
		if calls := s.Stats().Calls - before; calls > 0 {
			t.Errorf("%v: %d calls by requests that waited", a, calls)
		}
		shard.Lock()
		if g.left != 1 {
			t.Errorf("%v: %d permits left, want 1", a, g.left)
		}
		e.grants = nil
		shard.Unlock()
	}
}

// Where an answer takes longer than a lease lasts, a busy key is decided on as without leases: by a call for each
// request, and none that gives permits back.
func TestLeaseShorterThanTheWay(t *testing.T) {
	t.Parallel()
	w, _ := await(t.Context(), t, 1_000_000, 4, 0)
	y, err := w.shapes.of(w.limit)
	testkit.Must(t, err)
	testkit.Eventually(t, "a lease would be over", func() bool {
		return w.read(func(e *leasedKey) bool { return time.Now().After(e.fetch.until) })
	})
	w.server.Resume()
	w.clients.Wait()
	w.read(func(e *leasedKey) bool {
		if !e.alone.After(time.Now()) {
			t.Errorf("a lease of %v that came late is followed by others", y.lasts())
		}
		e.alone = time.Now().Add(time.Hour) // however slow the machine is
		return true
	})
	settle(t, w.Store)
	before := w.Stats()
	const requests = 64
	for range requests {
		w.clients.Go(func() { mustTake(t, w.Store, w.asks) })
	}
	w.clients.Wait()
	if after := w.Stats(); after.Calls-before.Calls != requests || after.Local > before.Local {
		t.Errorf("%d calls and %d local decisions for %d requests", after.Calls-before.Calls,
			after.Local-before.Local, requests)
	}
}
