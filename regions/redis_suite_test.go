package regions_test

import (
	"testing"

	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
)

func TestRedis(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t)
	regionstest.Run(t, func(t *testing.T) regions.Store {
		s.Do("FLUSHALL")
		return open(t, patient(single(s)))
	})
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	c := regionstest.StartRedisCluster(t, 3)
	regionstest.Run(t, func(t *testing.T) regions.Store {
		for _, s := range c.Nodes {
			s.Do("FLUSHALL")
		}
		return open(t, patient(cluster(c)))
	})
}
