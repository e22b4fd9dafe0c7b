package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/testnet/multiregion"
)

func redisLoss() Scenario {
	c := new(redisRun)
	return Scenario{
		Name: "redis-loss", What: "a region's Redis ends and comes back empty: decisions go on, and the nodes restore what it held",
		Rule: accounts, Streams: accountLoad(), Takes: 45 * time.Second,
		Steps: []Step{
			wait("load in all regions", 6*time.Second),
			{"mark what Redis holds", c.mark},
			{"stop the Redis of " + faultRegion, c.stop},
			{"Redis is away", func(ctx context.Context, r *Run) error { return c.away(ctx, r, 6*time.Second) }},
			{"start it again, empty", c.restart},
			wait("load after that", 3*time.Second),
		},
		Check: func(r *Run) { c.checkRestored(r); c.checkLatency(r, false) },
	}
}

func (c *redisRun) stop(ctx context.Context, r *Run) error {
	c.began = time.Now().UnixNano()
	name := multiregion.RedisName(faultRegion)
	return r.Begin(ctx, "redis-loss", faultRegion, func(ctx context.Context) error { return r.Net.Stop(ctx, name) },
		func(ctx context.Context) error { return r.Net.Restart(ctx, name) })
}

// away waits for the nodes of the region to notice, and lets the fault last.
func (c *redisRun) away(ctx context.Context, r *Run, lasts time.Duration) error {
	if err := c.awaitBreaker(ctx, r, time.Unix(0, c.began)); err != nil {
		return err
	}
	return sleep(ctx, lasts-time.Since(time.Unix(0, c.began)))
}

// awaitBreaker waits until every node of the region has stopped calling Redis.
func (c *redisRun) awaitBreaker(ctx context.Context, r *Run, since time.Time) error {
	opened := make(map[string]bool)
	for len(opened) < 2 {
		for _, n := range r.Nodes {
			if n.Region != faultRegion || opened[n.Name] {
				continue
			}
			// Half-open is an open one that is being tried.
			if o, err := r.Net.Observe(ctx, n); err == nil && o.Breaker != "closed" && o.Breaker != "" {
				opened[n.Name], c.opened = true, time.Since(since)
			}
		}
		if time.Since(since) > 15*time.Second {
			return fmt.Errorf("the nodes of %s do not notice that their Redis is away: breakers open at %v", faultRegion, opened)
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	r.Evidence("the breakers of both nodes were open %.2f s after the fault was made", c.opened.Seconds())
	return nil
}

func (c *redisRun) restart(ctx context.Context, r *Run) error {
	if err := r.End(ctx); err != nil {
		return err
	}
	c.ended = time.Now().UnixNano()
	var err error
	c.restored, err = r.awaitRedis(ctx, r.ID("mark"), primeCost, 20*time.Second)
	return err
}
