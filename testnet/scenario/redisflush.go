package scenario

import (
	"context"
	"fmt"
	"time"
)

func redisFlush() Scenario {
	c := new(redisRun)
	return Scenario{
		Name: "redis-flush", What: "a region's Redis forgets everything three times under load (FLUSHALL): nothing is lost, nothing is counted twice",
		Rule: accounts, Streams: accountLoad(), Takes: 40 * time.Second,
		Steps: []Step{
			wait("load in all regions", 5*time.Second),
			{"mark what Redis holds", c.mark},
			{"FLUSHALL, three times", c.flush},
			wait("load after that", 3*time.Second),
		},
		Check: c.checkRestored,
	}
}

func (c *redisRun) flush(ctx context.Context, r *Run) error {
	c.restored = 0
	for range 3 {
		before, err := r.losses(ctx)
		if err != nil {
			return err
		}
		err = r.Begin(ctx, "redis-flush", faultRegion, func(ctx context.Context) error { return r.Net.FlushRedis(ctx, faultRegion) },
			func(context.Context) error { return nil })
		if err != nil {
			return err
		}
		took, err := r.awaitRedis(ctx, r.ID("mark"), primeCost, 20*time.Second)
		if err != nil {
			return err
		}
		c.restored = max(c.restored, took)
		if err := r.awaitLoss(ctx, before); err != nil {
			return err
		}
		r.Evidence("the nodes of %s found that Redis had lost data, which was there again after %.2f s", faultRegion, took.Seconds())
		if err := r.End(ctx); err != nil {
			return err
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// losses is how often each node of the region has found its Redis to have lost data.
func (r *Run) losses(ctx context.Context) (map[string]int64, error) {
	found := make(map[string]int64)
	for _, n := range r.Nodes {
		if n.Region != faultRegion {
			continue
		}
		o, err := r.Net.Observe(ctx, n)
		if err != nil {
			return nil, err
		}
		found[n.Name] = o.StoreLost
	}
	return found, nil
}

// awaitLoss waits until every node of the region has found that its Redis lost data. Redis itself may be whole again before anybody looks.
func (r *Run) awaitLoss(ctx context.Context, before map[string]int64) error {
	for began := time.Now(); ; {
		now, err := r.losses(ctx)
		noticed := 0
		for name, n := range before {
			if now[name] > n {
				noticed++
			}
		}
		switch {
		case noticed == len(before):
			return nil
		case time.Since(began) > 20*time.Second:
			return fmt.Errorf("FLUSHALL did not take hold: losses found before %v, after %v (%v)", before, now, err)
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
