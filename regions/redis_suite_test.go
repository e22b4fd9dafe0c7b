package regions_test

import (
	"testing"

	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
)

// patient gives calls as long as a busy machine may take.
func patient(cfg regions.RedisConfig) regions.RedisConfig {
	cfg.DialTimeout, cfg.CallTimeout, cfg.PoolTimeout = regionstest.Patience, regionstest.Patience, regionstest.Patience
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

func TestRedis(t *testing.T) {
	s := regionstest.StartRedis(t)
	regionstest.Run(t, func(t *testing.T) regions.Store {
		s.Do("FLUSHALL")
		return open(t, patient(single(s)))
	})
}

func TestRedisCluster(t *testing.T) {
	c := regionstest.StartRedisCluster(t, 3)
	regionstest.Run(t, func(t *testing.T) regions.Store {
		for _, s := range c.Nodes {
			s.Do("FLUSHALL")
		}
		return open(t, patient(cluster(c)))
	})
}
