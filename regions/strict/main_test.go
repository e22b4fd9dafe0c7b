package strict

import (
	"log/slog"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) {
	regions.LogRedisClient(slog.New(slog.DiscardHandler)) // servers are made to fail here
	testkit.MainWithoutLeaks(m)
}

// open returns a store that is as patient as a busy machine needs.
func open(t testing.TB, redis regions.RedisConfig, changes ...func(*Config)) *Store {
	t.Helper()
	cfg := Config{Redis: redis, MinTimeout: testkit.Patience, MaxTimeout: testkit.Patience}
	for _, change := range changes {
		change(&cfg)
	}
	s, err := Open(cfg)
	testkit.Must(t, err)
	t.Cleanup(func() {
		if err := s.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func single(s *regionstest.Server) regions.RedisConfig { return regions.DefaultRedisConfig(s.Addr()) }

func newLimit(t testing.TB, a counters.Algorithm, limit uint64, window time.Duration) *counters.Limit {
	t.Helper()
	l, err := counters.NewLimit(counters.NewMeter("r", a, window), limit)
	testkit.Must(t, err)
	return l
}

var algorithms = []counters.Algorithm{
	counters.SlidingWindow, counters.FixedWindow, counters.SlidingLog, counters.TokenBucket, counters.LeakyBucket,
	counters.LeakyQueue,
}

func isBucket(a counters.Algorithm) bool { return a >= counters.TokenBucket }

// ask is a request of a single layer.
func ask(l *counters.Limit, key counters.Key, cost uint64) []Ask {
	return []Ask{{Charge: counters.Charge{Limit: l, Key: key, Cost: cost}}}
}
