package regions_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func batch(n int, count uint64) []counters.Slot {
	var slots []counters.Slot
	for _, key := range spread(n) {
		slots = append(slots, mine(key, 1, count))
	}
	return slots
}

// A server that forgot the script is given it once, and what it did not run is run once more.
func TestRedisForgetsTheScript(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t)
	r := open(t, patient(single(s)))
	slots := batch(1000, 5) // 16 runs of the script in one pipeline
	for round := range 3 {
		s.Do("SCRIPT", "FLUSH")
		s.Do("CONFIG", "RESETSTAT")
		merged := mustMerge(t, r, slots...)
		for i, before := range merged.Before {
			if want := uint64(5 * min(round, 1)); before != want {
				t.Fatalf("round %d: slot %d was at %d, want %d", round, i, before, want)
			}
		}
		calls := s.Calls()
		if calls["script|load"] != 1 || calls["eval"] != 0 || calls["evalsha"] > 32 {
			t.Errorf("round %d: want one load of the script, no EVAL, and each of 16 runs at most twice: %v", round,
				calls)
		}
	}
}

// The same, with the script forgotten while pipelines are under way.
func TestRedisForgetsTheScriptMeanwhile(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t)
	r := open(t, patient(single(s)))
	slots := batch(1000, 7)
	mustMerge(t, r, slots...)
	ctx, cancel := context.WithCancel(t.Context())
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for ctx.Err() == nil {
			if _, err := s.Try("SCRIPT", "FLUSH"); err != nil {
				t.Errorf("SCRIPT FLUSH: %v", err)
				return
			}
		}
	})
	merged, refused := 0, 0
	testkit.Eventually(
		t,
		"30 merges with the script forgotten all the time, and one that got through",
		func() bool {
			m, err := r.Merge(t.Context(), slots, wall())
			switch {
			case err == nil:
				merged++
				for i, before := range m.Before {
					if before != 7 {
						t.Fatalf("slot %d was at %d, want 7", i, before)
					}
				}
			case strings.Contains(err.Error(), "NOSCRIPT"): // forgotten between the load and the run
				refused++
			default:
				t.Fatal(err)
			}
			return merged > 0 && merged+refused >= 30
		},
	)
	cancel()
	flushing.Wait()
	mustMerge(t, r, slots...)
}

func TestRedisReplica(t *testing.T) {
	t.Parallel()
	master, replica := regionstest.StartRedis(t, "--repl-diskless-sync-delay", "0"), regionstest.StartRedis(t)
	r := open(t, patient(single(master)))
	mustMerge(t, r, mine(1, 1, 5))
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica.Do("REPLICAOF", host, port)
	testkit.Eventually(t, "the replica follows", func() bool {
		return replica.Reply("master_link_status:up", "INFO", "replication")
	})

	ro := open(t, patient(single(replica)))
	_, err := ro.Merge(t.Context(), []counters.Slot{mine(1, 1, 6)}, wall())
	if err == nil || !strings.Contains(err.Error(), "READONLY") ||
		!strings.Contains(err.Error(), "wait for the failover") ||
		errors.Is(err, regions.ErrFull) {
		t.Errorf("a merge into a replica: %v", err)
	}
	if merged := mustMerge(t, ro, mine(1, 1, 0)); merged.Before[0] != 5 {
		t.Errorf("a replica told %d, want 5", merged.Before[0])
	}
	n := start(t, 2, ro, often)
	n.take(&hour, spread(1000)...)
	n.is(t, regions.BreakerOpen)
	replica.Do("REPLICAOF", "NO", "ONE")
	n.is(t, regions.BreakerClosed)
	testkit.Eventually(t, "nothing is pending", func() bool { return n.Reconciler.Stats().Pending == 0 })
}

func TestRedisIsFull(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t, "--maxmemory-policy", "noeviction")
	r := open(t, patient(single(s)))
	n := start(t, 1, r, often)
	n.take(&hour, spread(500)...)
	holds(t, r, n)
	s.Do("CONFIG", "SET", "maxmemory", "1") // less than it takes already
	n.take(&hour, spread(1000)...)
	testkit.Eventually(t, "the server is full", func() bool { return n.Reconciler.Stats().Failed > 0 })

	_, err := r.Merge(t.Context(), []counters.Slot{mine(1, 7, 1)}, wall())
	if !errors.Is(err, regions.ErrFull) || !strings.Contains(err.Error(), "maxmemory") {
		t.Errorf("a merge into a server that is full: %v, want ErrFull", err)
	}
	if err := r.Restore(t.Context(), []counters.Slot{mine(1, 7, 1)}, wall()); !errors.Is(err, regions.ErrFull) {
		t.Errorf("restoring in a server that is full: %v, want ErrFull", err)
	}
	mustMerge(t, r, mine(1, 7, 0)) // to ask takes no room
	if b := n.Reconciler.Stats().Breaker; b != regions.BreakerClosed {
		t.Errorf("the breaker of a server that is full is %v: it answers", b)
	}
	s.Do("CONFIG", "SET", "maxmemory", "0")
	holds(t, r, n)
	if lost := n.Reconciler.Stats().Lost; lost != 0 {
		t.Errorf("a server that was full was found to have lost data %d times", lost)
	}
}

// A server that is stopped costs one call and then one a cool-down; a server that goes on is noticed.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(*regionstest.Server) (goOn func()){
		"stopped": func(s *regionstest.Server) func() { s.Pause(); return s.Resume },
		"5 s slow": func(s *regionstest.Server) func() {
			s.Do("CLIENT", "PAUSE", testkit.Patience.Milliseconds(), "WRITE")
			return func() { s.Do("CLIENT", "UNPAUSE") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := regionstest.StartRedis(t)
			r := open(t, single(s)) // with the time-outs that nodes have
			n := start(t, 1, r, nil)
			n.take(&hour, spread(2000)...)
			holds(t, open(t, patient(single(s))), n)
			n.is(t, regions.BreakerClosed)

			began := nowMillis()
			goOn := hang(s)
			n.is(t, regions.BreakerOpen)
			t.Logf("open after %d ms", nowMillis()-began)
			failed := n.Reconciler.Stats().Failed
			n.take(&hour, spread(3000)...)
			testkit.Eventually(t, "three trials", func() bool { return n.Reconciler.Stats().Failed >= failed+3 })
			if took := nowMillis() - began; took < 2700 {
				t.Errorf("three trials within %d ms, want one a second", took)
			}
			testkit.Eventually(t, "5 s have passed", func() bool { return nowMillis()-began >= 5000 })
			goOn()
			began = nowMillis()
			n.is(t, regions.BreakerClosed)
			t.Logf("closed after %d ms", nowMillis()-began)
			holds(t, open(t, patient(single(s))), n)
		})
	}
}

func TestRedisIsDown(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t)
	s.Kill()
	r := open(t, patient(single(s))) // which does not fail
	if _, err := r.Merge(t.Context(), batch(10, 1), wall()); err == nil {
		t.Error("a merge into a server that is down succeeded")
	}
	if err := r.Load(t.Context(), wall(), nil); err == nil {
		t.Error("a server that is down was loaded")
	}
	n := start(t, 1, r, often)
	n.take(&hour, spread(100)...)
	n.is(t, regions.BreakerOpen)
	s.Restart(regionstest.Empty)
	holds(t, r, n)
	n.is(t, regions.BreakerClosed)
}
