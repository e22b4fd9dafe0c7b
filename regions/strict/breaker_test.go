package strict

import (
	"context"
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Requests whose own deadlines end before the store answers say nothing of the store, and one that comes too late is
// not sent.
func TestDeadlinesOfCallers(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	s := open(t, single(server))
	asks := ask(newLimit(t, counters.FixedWindow, 100, time.Hour), 1, 1)
	mustTake(t, s, asks)
	calls := s.Stats().Calls
	take := func(timeout time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		if _, _, err := s.take(ctx, asks, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("take: %v", err)
		}
	}
	for range 2 * maxFailures {
		take(-1)
	}
	if more := s.Stats().Calls - calls; more != 0 {
		t.Errorf("%d calls of requests that came too late", more)
	}
	server.Pause()
	for range 2 * maxFailures {
		take(5 * time.Millisecond)
	}
	server.Resume()
	if failures := s.breaker.failures.Load(); failures != 0 || s.Stats().Open {
		t.Errorf("%d failures, %+v", failures, s.Stats())
	}
	settle(t, s)
	if d := mustTake(t, s, asks); d.Remaining != 98 {
		t.Errorf("%+v", d)
	}
}

// After a step back of the wall clock the breaker opens as ever.
func TestBreakerAndWallClock(t *testing.T) {
	var b breaker
	for i := range maxFailures {
		began := time.Now()
		if i > 0 {
			*(*uint64)(unsafe.Pointer(&began)) -= 3600 << 30 // the wall clock's part of a time.Time
		}
		if opens := b.failed(began); opens != (i == maxFailures-1) {
			t.Errorf("failure %d: opens is %v", i, opens)
		}
	}
}

// An answer that makes no sense is a failure, and what it may have charged is given back.
func TestSenselessAnswer(t *testing.T) {
	t.Parallel()
	s := open(t, single(regionstest.StartRedis(t)))
	s.script = newScript("return 'nonsense'")
	r := request{store: s, asks: ask(newLimit(t, counters.FixedWindow, 100, time.Hour), 1, 1)}
	testkit.Must(t, r.group())
	err := r.take(t.Context(), make([]counters.Decision, 1))
	if !errors.Is(err, errSent) || len(r.undos) != 1 || s.breaker.failures.Load() == 0 {
		t.Errorf("%v, %d undos, %d failures", err, len(r.undos), s.breaker.failures.Load())
	}
}
