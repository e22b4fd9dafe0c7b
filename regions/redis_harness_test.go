package regions_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// patient gives calls as long as a busy machine may take.
func patient(cfg regions.RedisConfig) regions.RedisConfig {
	cfg.DialTimeout, cfg.CallTimeout, cfg.PoolTimeout = testkit.Patience, testkit.Patience, testkit.Patience
	return cfg
}

func single(s *regionstest.Server) regions.RedisConfig { return regions.DefaultRedisConfig(s.Addr()) }

func cluster(c *regionstest.Cluster) regions.RedisConfig {
	cfg := regions.DefaultRedisConfig(c.Addrs()...)
	cfg.Cluster = true
	return cfg
}

func open(t testing.TB, cfg regions.RedisConfig) *regions.Redis {
	t.Helper()
	r, err := regions.OpenRedis(cfg)
	testkit.Must(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// often has a reconciler flush as often as a test has no time to wait, and be as patient with its store as it is.
func often(c *regions.Config) {
	c.Interval, c.Cooldown, c.Timeout, c.LastFlush = 20*time.Millisecond, 20*time.Millisecond, testkit.Patience,
		testkit.Patience
}

// wall is the time by which windows are indexed.
func wall() int64 { return time.Now().UnixNano() }

func mustMerge(t *testing.T, s regions.Store, slots ...counters.Slot) regions.Merged {
	t.Helper()
	merged, err := s.Merge(t.Context(), slots, wall())
	testkit.Must(t, err)
	return merged
}

func loaded(t *testing.T, s regions.Store) map[counters.Key]uint64 {
	t.Helper()
	counts := make(map[counters.Key]uint64)
	if err := s.Load(t.Context(), wall(), func(page []counters.Slot) {
		for _, s := range page {
			counts[s.Key] += s.Count
		}
	}); err != nil {
		t.Fatal(err)
	}
	return counts
}

// spread takes small numbers all over the range of keys, as hashes are.
func spread(n int) []counters.Key {
	out := make([]counters.Key, n)
	for i := range out {
		out[i] = counters.Key(i) * 0x9e3779b97f4a7c15
	}
	return out
}

// thisHour is fixed, so that slots made one after the other are of one sub-window.
var thisHour = hour.Index(time.Now().UnixNano())

// mine is a slot of the hour that counts now.
func mine(key counters.Key, origin counters.Origin, count uint64) counters.Slot {
	return counters.Slot{Meter: &hour, Key: key, Index: thisHour, Origin: origin, Birth: 1, Count: count}
}

// union is what the nodes own.
func union(nodes ...node) map[id]uint64 {
	all := make(map[id]uint64)
	for _, n := range nodes {
		for _, s := range n.Own(time.Now().UnixNano()) {
			all[identify(s)] = s.Count
		}
	}
	return all
}

// holds waits until the store holds exactly what the nodes own, those that are gone among them: nothing lost, nothing
// twice.
func holds(t *testing.T, store regions.Store, nodes ...node) {
	t.Helper()
	want := union(nodes...)
	testkit.Eventually(t, "the store holds what the nodes own", func() bool {
		counts := make(map[id]uint64)
		err := store.Load(context.Background(), wall(), func(page []counters.Slot) {
			for _, s := range page {
				counts[identify(s)] = max(counts[identify(s)], s.Count)
				if s.Count > want[identify(s)] {
					t.Fatalf("the store holds %d of key %x, its origin counted %d", s.Count, s.Key, want[identify(s)])
				}
			}
		})
		return err == nil && maps.Equal(counts, want)
	})
}

// is waits for a state of the breaker.
func (n node) is(t *testing.T, want regions.BreakerState) {
	t.Helper()
	testkit.Eventually(t, "the breaker is "+want.String(), func() bool { return n.Reconciler.Stats().Breaker == want })
}
