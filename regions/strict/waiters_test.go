package strict

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// waiting is a store whose server is paused, with a call for permits under way and requests that wait for it.
type waiting struct {
	*Store
	server  *regionstest.Server
	limit   *counters.Limit
	asks    []Ask
	clients sync.WaitGroup
}

// await has the first request call for permits, by ctx, and n others wait for them.
func await(ctx context.Context, t *testing.T, max, lease uint64, n int) (w *waiting, first <-chan error) {
	server := regionstest.StartRedis(t)
	l := newLimit(t, counters.FixedWindow, max, 24*time.Hour) // its leases last a second
	w = &waiting{Store: open(t, single(server)), server: server, limit: l, asks: ask(l, 1, 1)}
	w.asks[0].Lease = lease
	mustTake(t, w.Store, w.asks)
	w.busy()
	server.Pause()
	ended := make(chan error, 1)
	w.clients.Go(func() {
		_, _, err := w.Take(ctx, w.asks, nil)
		ended <- err
	})
	testkit.Eventually(t, "permits are called for", func() bool {
		return w.read(func(e *leasedKey) bool { return e.fetch != nil })
	})
	for range n {
		w.clients.Go(func() {
			if ds, _, err := w.Take(t.Context(), w.asks, nil); err != nil || !ds[0].Allowed {
				t.Errorf("a request that waited: %v, %v", ds, err)
			}
		})
	}
	testkit.Eventually(t, "others wait", func() bool { return w.waits() == uint64(n) })
	return w, ended
}

func (w *waiting) read(f func(*leasedKey) bool) bool {
	y, err := w.shapes.of(w.limit)
	if err != nil {
		panic(err) // it was taken of
	}
	k := leaseKey{y, 1}
	shard := w.leases.shard(k)
	shard.Lock()
	defer shard.Unlock()
	return f(shard.key(k))
}

// busy makes the key a busy one, however slow the machine is.
func (w *waiting) busy() {
	w.read(func(e *leasedKey) bool { e.seen = time.Now().Add(time.Hour); return true })
}

// waits is how many permits of the last call are waited for, but by the request that began it.
func (w *waiting) waits() (n uint64) {
	w.read(func(e *leasedKey) bool { n = w.asks[0].Lease - 1 - e.fetch.room; return true })
	return n
}

// remains gives all leases back, and returns what remains.
func (w *waiting) remains(t *testing.T) uint64 {
	settle(t, w.Store)
	return mustTake(t, w.Store, ask(w.limit, 1, 0)).Remaining
}

// A request that hangs up does so at once, is not charged, and does not concern those that wait for the same permits.
func TestHangUpWhileOthersWait(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 20} {
		ctx, hangUp := context.WithCancel(t.Context())
		w, first := await(ctx, t, 100, 30, n)
		hangUp()
		if err := <-first; !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("the one that hung up: %v", err)
		}
		w.server.Resume()
		w.clients.Wait()
		if got := w.remains(t); got != uint64(99-n) {
			t.Errorf("%d remain after one request and %d that waited", got, n)
		}
	}
}

// A call has room for as many as a lease has permits, those that have gone not among them. Then another one begins.
func TestRoomOfCalls(t *testing.T) {
	t.Parallel()
	w, _ := await(t.Context(), t, 2000, 20, 19)
	last := func() (f *fetch) {
		w.read(func(e *leasedKey) bool { f = e.fetch; return true })
		return f
	}
	full := last()
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, _, err := w.Take(ctx, w.asks, nil)
		gone <- err
	}()
	testkit.Eventually(t, "another call is under way", func() bool { return last() != full && w.waits() == 0 })
	second := last()
	hangUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("one that has gone: %v", err)
	}
	for range 20 {
		w.clients.Go(func() { mustTake(t, w.Store, w.asks) })
	}
	testkit.Eventually(t, "its room is taken", func() bool { return w.waits() == 19 })
	if last() != second {
		t.Error("who has gone took room")
	}
	w.server.Resume()
	w.clients.Wait()
	if got := w.remains(t); got != 2000-41 {
		t.Errorf("%d remain after 41 requests", got)
	}
}

// Close gives back what a call brings that nobody waits for any more.
func TestCloseAwaitsPermits(t *testing.T) {
	t.Parallel()
	ctx, hangUp := context.WithCancel(t.Context())
	w, first := await(ctx, t, 100, 30, 0)
	hangUp()
	<-first
	closed := make(chan error, 1)
	go func() { closed <- w.Close(t.Context()) }()
	testkit.Eventually(t, "it is closing", w.closed.Load)
	w.server.Resume()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if d := mustTake(t, open(t, single(w.server)), ask(w.limit, 1, 0)); d.Remaining != 99 {
		t.Errorf("%d remain, want 99", d.Remaining)
	}
}
