package strict

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/regions"
)

const (
	evictionEvery = time.Minute
	noEviction    = "noeviction"
)

// watchEviction asks the servers now and then whether they may evict counts: each evicted count admits up to a limit
// again.
func (s *Store) watchEviction() {
	for s.ctx.Err() == nil {
		if !s.breaker.open.Load() {
			if policy, ok := s.evictionPolicy(); ok {
				evicts := policy != noEviction
				if evicts && !s.stats.evicts.Swap(true) {
					s.cfg.Log.Warn("the strict store may evict counts, and then admits too much: set its "+
						"maxmemory-policy to noeviction", "policy", policy)
				}
				s.stats.evicts.Store(evicts)
			}
		}
		s.pause(evictionEvery)
	}
}

// evictionPolicy returns the policy of one of the servers that does evict, else noeviction. ok is false if not all
// answer: the user may have no right to ask.
func (s *Store) evictionPolicy() (policy string, ok bool) {
	ctx, cancel := context.WithTimeout(s.ctx, probeConnect)
	defer cancel()
	var mu sync.Mutex
	policy = noEviction
	client := s.link.Load().UniversalClient
	err := regions.EachMaster(ctx, client, func(ctx context.Context, server *redis.Client) error {
		info, err := server.Info(ctx, "memory").Result()
		_, is, _ := strings.Cut(info, "maxmemory_policy:")
		is, _, found := strings.Cut(is, "\r\n")
		mu.Lock()
		defer mu.Unlock()
		if found && is != noEviction {
			policy = is
		}
		return err
	})
	return policy, err == nil
}
