package strict

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func quick(c *Config) { within(300 * time.Millisecond)(c) }

// within has calls fail after so long.
func within(d time.Duration) func(*Config) {
	return func(c *Config) { c.MinTimeout, c.MaxTimeout = d, d }
}

// settle waits until the stores have given back what failed calls may have charged.
func settle(t *testing.T, stores ...*Store) {
	t.Helper()
	testkit.Eventually(t, "refunds are done", func() bool {
		return !slices.ContainsFunc(stores, func(s *Store) bool { return s.leases.count() > 0 || s.pending.Load() > 0 })
	})
}

func mustTake(t *testing.T, s *Store, asks []Ask) counters.Decision {
	t.Helper()
	ds, _, err := s.Take(t.Context(), asks, nil)
	testkit.Must(t, err)
	return ds[0]
}

// tryAll has 64 clients of the stores try so often in all, errors or not, and returns the cost that was admitted. They
// wait while the breaker is open: each try is a call, or a local decision.
func tryAll(t *testing.T, stores []*Store, asks []Ask, tries int) uint64 {
	var admitted, failed, left atomic.Int64
	left.Store(int64(tries))
	var clients sync.WaitGroup
	for i := range 64 {
		clients.Go(func() {
			for left.Add(-1) >= 0 {
				ds, _, err := stores[i%len(stores)].Take(t.Context(), asks, nil)
				switch {
				case err == nil && ds[0].Allowed:
					admitted.Add(int64(asks[0].Cost))
				case err != nil && !errors.Is(err, ErrUnavailable):
					t.Errorf("take: %v", err)
				case err != nil:
					failed.Add(1)
					awaitBreaker(t, stores[i%len(stores)])
				}
			}
		})
	}
	clients.Wait()
	t.Logf("%d of %d tries failed", failed.Load(), tries)
	return uint64(admitted.Load())
}

// Every tenth answer is lost: nothing is charged twice, and what failed is given back, to the last permit. A bucket
// does not give back what it refilled meanwhile, and a queue its last place only.
func TestLostAnswers(t *testing.T) {
	server := regionstest.StartRedis(t)
	for _, a := range algorithms {
		for _, cost := range []uint64{1, 7} {
			for _, lease := range []uint64{0, 20} {
				t.Run(fmt.Sprintf("%v of %d, lease %d", a, cost, lease), func(t *testing.T) {
					t.Parallel()
					for range *races {
						raceWithLosses(t, server, a, cost, lease)
					}
				})
			}
		}
	}
}

func raceWithLosses(t *testing.T, server *regionstest.Server, a counters.Algorithm, cost, lease uint64) {
	proxy := newLossy(t, server.Addr(), 10)
	var stores []*Store
	for range 4 {
		stores = append(stores, open(t, regions.DefaultRedisConfig(proxy.Addr().String()), quick))
	}
	asks := ask(raceLimit(t, a), counters.Key(rand.Uint64()), cost)
	asks[0].Lease = lease
	admitted := tryAll(t, stores, asks, *tries/8)
	proxy.every.Store(0)
	settle(t, stores...)
	direct := open(t, single(server))
	asks[0].Lease = 0
	for mustTake(t, direct, asks).Allowed {
		admitted += cost
	}
	want, least := raced/cost*cost, raced/cost*cost
	switch {
	case a == counters.LeakyQueue:
		least = 1
	case a >= counters.TokenBucket && lease == 0:
		least = want - cost
	case lease > 0:
		least = want * 97 / 100
	}
	if admitted > want || admitted < least {
		t.Errorf("%d admitted, want %d; %d answers lost; %+v", admitted, want, proxy.lost.Load(), stores[0].Stats())
	}
	if proxy.lost.Load() == 0 {
		t.Error("no answer was lost")
	}
	closeAll(t, stores)
}

// A server that does not answer for a while executes nothing of what was given up, or has it refunded.
func TestPausedServer(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	for _, lease := range []uint64{0, 20} {
		s := open(t, single(server), within(60*time.Millisecond))
		asks := ask(newLimit(t, counters.SlidingWindow, 100, time.Hour), counters.Key(lease), 1)
		asks[0].Lease = lease
		if got := mustTake(t, s, asks).Remaining; got < 79 || got > 99 {
			t.Fatalf("%d remain", got)
		}
		server.Pause()
		var clients sync.WaitGroup
		for range 20 {
			clients.Go(func() {
				began := time.Now()
				if _, _, err := s.Take(t.Context(), asks, nil); !errors.Is(err, ErrUnavailable) {
					t.Errorf("take: %v, want unavailable", err)
				}
				if took := time.Since(began); took > testkit.Patience/4 {
					t.Errorf("a take took %v", took)
				}
			})
		}
		clients.Wait()
		server.Resume()
		settle(t, s)
		asks[0].Cost, asks[0].Lease = 0, 0
		testkit.Eventually(t, "the store is back", func() bool {
			ds, _, err := s.Take(t.Context(), asks, nil)
			return err == nil && ds[0].Remaining == 99
		})
	}
}

// While the breaker is open requests fail at once. It closes within a second after the store is back.
func TestBreaker(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	s := open(t, single(server), quick)
	asks := ask(newLimit(t, counters.FixedWindow, 1e6, time.Hour), 1, 1)
	mustTake(t, s, asks)
	for range 2 {
		server.Kill()
		testkit.Eventually(t, "the breaker opens", func() bool {
			_, _, err := s.Take(t.Context(), asks, nil)
			return err != nil && s.Stats().Open
		})
		calls := s.Stats().Calls
		for range 1000 {
			if _, _, err := s.Take(t.Context(), asks, nil); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("take: %v", err)
			}
		}
		if more := s.Stats().Calls - calls; more > 100 {
			t.Errorf("%d calls while the breaker is open", more)
		}
		server.Restart(regionstest.Empty)
		began := time.Now()
		testkit.Eventually(t, "the store is back", func() bool {
			_, _, err := s.Take(t.Context(), asks, nil)
			return err == nil
		})
		if took := time.Since(began); took > time.Second {
			t.Errorf("back after %v", took)
		}
	}
}

// A replica takes over what it had received: charges and tokens alike.
func TestFailover(t *testing.T) {
	t.Parallel()
	sentinels := regionstest.StartSentinel(t)
	cfg := regions.DefaultRedisConfig(sentinels.Sentinel.Addr())
	cfg.MasterName = sentinels.Name
	stores := []*Store{open(t, cfg, quick), open(t, cfg, quick)}
	asks := ask(raceLimit(t, counters.SlidingWindow), 1, 1)
	admitted := tryAll(t, stores, asks, 500)
	if got := sentinels.Master.Do("WAIT", 1, 5000); got != "1" {
		t.Fatalf("%s replicas have everything", got)
	}
	sentinels.Master.Kill()
	testkit.EventuallyWithin(t, 3*testkit.Patience, "the replica answers", func() bool {
		ds, _, err := stores[0].Take(t.Context(), asks, nil)
		if err == nil && ds[0].Allowed {
			admitted++
		}
		return err == nil
	})
	testkit.Eventually(t, "both stores use it", func() bool { return !stores[1].Stats().Open })
	admitted += tryAll(t, stores, asks, 2000)
	settle(t, stores...)
	for mustTake(t, stores[0], asks).Allowed {
		admitted++
	}
	if admitted != raced {
		t.Errorf("%d admitted, want %d", admitted, raced)
	}
}

// A server whose script was forgotten learns it again.
func TestNoScript(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	s := open(t, single(server))
	asks := ask(newLimit(t, counters.TokenBucket, 100, time.Hour), 1, 1)
	for i := range 5 {
		if got := mustTake(t, s, asks).Remaining; got != uint64(99-i) {
			t.Errorf("%d remain after %d", got, i+1)
		}
		server.Do("SCRIPT", "FLUSH")
	}
	if st := s.Stats(); st.Retried != 0 || st.Open {
		t.Errorf("%+v", st)
	}
}

// rights are those that DESIGN.md says are needed.
var rights = []string{
	"~el2:*", "+evalsha", "+script|load", "+time", "+get", "+set", "+pexpire", "+zadd", "+zrange", "+zrangebyscore",
	"+zremrangebyscore", "+zrem", "+zscore", "+zrank", "+del", "+info",
}

// everyCall makes every kind of call, by every algorithm.
func everyCall(t *testing.T, s *Store, key counters.Key) error {
	for _, a := range algorithms {
		asks := ask(newLimit(t, a, 100, time.Hour), key, 1)
		for range 40 {
			ds, receipt, err := s.Take(t.Context(), asks, nil)
			if err != nil {
				return fmt.Errorf("%v: %w", a, err)
			}
			if !ds[0].Allowed {
				return fmt.Errorf("%v: denied", a)
			}
			s.Refund(receipt)
		}
		asks[0].Lease = 20
		for range 3 {
			if _, _, err := s.Take(t.Context(), asks, nil); err != nil {
				return fmt.Errorf("%v with a lease: %w", a, err)
			}
		}
		if err := s.Report(t.Context(), asks); err != nil {
			return err
		}
	}
	return nil
}

func TestRightsAndTLS(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedisTLS(t)
	args := []any{"ACL", "SETUSER", "edge", "on", ">secret"}
	for _, right := range rights {
		args = append(args, right)
	}
	server.Do(args...)
	cfg := single(server.Server)
	cfg.Username, cfg.Password = "edge", "secret"
	var err error
	files := certs.Client{CAFile: server.CAFile, CertFile: server.CertFile, KeyFile: server.KeyFile}
	if cfg.TLS, err = files.Config(); err != nil {
		t.Fatal(err)
	}
	s := open(t, cfg)
	testkit.Must(t, everyCall(t, s, 1))
	settle(t, s)
	if denied := server.Do("ACL", "LOG"); denied != "[]" {
		t.Errorf("rights are missing: %s", denied)
	}
	server.Do("ACL", "SETUSER", "edge", "-time")
	_, _, err = s.Take(t.Context(), ask(newLimit(t, counters.FixedWindow, 1, time.Hour), 1, 1), nil)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "DESIGN.md") {
		t.Errorf("without a right: %v", err)
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := regionstest.StartRedisCluster(t, 3)
	for _, s := range c.Nodes {
		args := []any{"ACL", "SETUSER", "edge", "on", ">secret", "+cluster|slots"}
		for _, right := range rights {
			args = append(args, right)
		}
		s.Do(args...)
	}
	cfg := regions.DefaultRedisConfig(c.Addrs()...)
	cfg.Cluster, cfg.Username, cfg.Password = true, "edge", "secret"
	var stores []*Store
	for range 4 {
		stores = append(stores, open(t, cfg))
	}
	for key := range counters.Key(5) {
		testkit.Must(t, everyCall(t, stores[0], key<<60|key))
	}
	if got := race(t, stores, raceLimit(t, counters.SlidingWindow), 77, 1, 0, 2000); got != raced {
		t.Errorf("%d admitted, want %d", got, raced)
	}
	// Two layers in two slots: the second denies, and the first is given back.
	roomy := newLimit(t, counters.FixedWindow, 50, time.Hour)
	tight := newLimit(t, counters.TokenBucket, 5, 240*time.Hour)
	both := append(ask(roomy, 1<<60, 1), ask(tight, 9<<60, 1)...)
	admitted := 0
	for range 40 {
		ds, _, err := stores[0].Take(t.Context(), both, nil)
		testkit.Must(t, err)
		if counters.VerdictOf(ds).Allowed {
			admitted++
		}
		settle(t, stores[0])
	}
	if d := mustTake(t, stores[1], ask(roomy, 1<<60, 0)); admitted != 5 || d.Remaining != 45 {
		t.Errorf("%d admitted, %d remain, want 5 and 45", admitted, d.Remaining)
	}
}

// A refund gives back what was charged, once.
func TestRefundOnce(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	s := open(t, single(server))
	for _, a := range algorithms {
		l := raceLimit(t, a)
		asks := ask(l, 3, 10)
		var receipts []Receipt
		for range 20 {
			_, receipt, err := s.Take(t.Context(), asks, nil)
			testkit.Must(t, err)
			receipts = append(receipts, receipt)
		}
		for _, i := range []int{19, 18, 18, 19} {
			s.Refund(receipts[i])
			settle(t, s)
		}
		if got := mustTake(t, s, ask(l, 3, 0)).Remaining; got != raced-180 && !(isBucket(a) && got == raced-181) {
			t.Errorf("%v: %d remain after two refunds, want %d", a, got, raced-180)
		}
		s.Refund(receipts[0]) // of a queue nothing: others are behind it
		settle(t, s)
		want := uint64(raced - 170)
		if a == counters.LeakyQueue {
			want -= 10
		}
		if got := mustTake(t, s, ask(l, 3, 0)).Remaining; got != want && !(isBucket(a) && got == want-1) {
			t.Errorf("%v: %d remain after a third, want %d", a, got, want)
		}
	}
}

// A request whose client went away is not charged.
func TestCanceled(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	s := open(t, single(server))
	asks := ask(newLimit(t, counters.FixedWindow, 10, time.Hour), 1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Take(ctx, asks, nil); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("take: %v", err)
	}
	settle(t, s)
	asks[0].Cost = 0
	if d := mustTake(t, s, asks); d.Remaining != 10 || s.Stats().Open {
		t.Errorf("%+v, %+v", d, s.Stats())
	}
}

// A server that may evict counts is reported.
func TestEviction(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	log := &testkit.Log{}
	s := open(t, single(server), func(c *Config) { c.Log = log.Logger() })
	testkit.Eventually(t, "it says so", func() bool {
		return s.Stats().Evicts && log.HasLine("noeviction", "allkeys-lru")
	})
}
