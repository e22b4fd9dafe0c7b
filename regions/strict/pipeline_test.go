package strict

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A store that is slow gets all of the time for the first attempt: a second one would only add to its work.
func TestSlowStoreIsNotAskedTwice(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	s := open(t, single(server), quick)
	asks := ask(newLimit(t, counters.FixedWindow, 100, time.Hour), 1, 1)
	mustTake(t, s, asks)
	server.Pause()
	defer server.Resume()
	if _, _, err := s.Take(t.Context(), asks, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("take: %v", err)
	}
	if st := s.Stats(); st.Retried != 0 {
		t.Errorf("%+v", st)
	}
}

// A call whose caller has gone before it was sent is not sent, and its error says so.
func TestGoneCallerIsNotSent(t *testing.T) {
	t.Parallel()
	p := &pipeline{calls: make(chan *sending, maxWaiting)} // it sends nothing yet
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	cmd := redis.NewCmd(ctx, "ping")
	if err := p.process(ctx, cmd); ambiguous(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("process: %v", err)
	}
	if s := <-p.calls; s.claim() {
		t.Error("it would be sent")
	}
}

// While answers are on their way, as of a store that is far away, further calls do not wait for them.
func TestFurtherPipelines(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	s := open(t, single(server))
	asks := ask(newLimit(t, counters.FixedWindow, 1e6, time.Hour), 1, 1)
	mustTake(t, s, asks)
	server.Pause()
	var clients sync.WaitGroup
	for range 4 * eager * maxPipeline {
		clients.Go(func() {
			if _, _, err := s.Take(t.Context(), asks, nil); err != nil {
				t.Error(err)
			}
		})
	}
	p := s.link.Load().pipe
	testkit.Eventually(t, "all are sent", func() bool {
		return len(p.calls) == 0 && len(p.turn) == 0 && p.busy.Load() >= 4*eager
	})
	server.Resume()
	clients.Wait()
}
