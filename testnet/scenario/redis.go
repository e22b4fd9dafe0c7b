package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// restoredWithin bounds the time that a Redis which came back empty may lack what the nodes count: the breaker's
// cool-down of a second, two flushes of 750 ms with time-outs of 250 ms each, and the time to query a container.
const restoredWithin = 4 * time.Second

// accountLoad returns the load of scenarios in which every single count matters: each client far below its limit.
func accountLoad(rate float64) []traffic.Stream {
	return []traffic.Stream{{Identity: "first", Rate: rate}, {Identity: "second", Rate: rate}}
}

// redisRun is what a run with a fault of a Redis measures.
type redisRun struct {
	began, ended int64 // of the fault, Unix ns
	restored     time.Duration
	opened       time.Duration       // until both breakers were open
	origins      map[string][]string // the region's nodes, by identity
}

// onRedis makes an action on a service one on the Redis of a region.
func onRedis(do action) action {
	return func(ctx context.Context, region string) error { return do(ctx, cluster.RedisName(region)) }
}

// mark has a node admit a cost that nothing adds to, and waits until Redis holds it: the mark has to be there again
// after a loss.
func (c *redisRun) mark(ctx context.Context, r *Run) error {
	if err := r.Prime(ctx, faultNode, r.ID("mark")); err != nil {
		return err
	}
	took, err := r.awaitMark(ctx, 15*time.Second)
	if err == nil {
		err = c.findOrigins(ctx, r)
	}
	if err == nil {
		r.Observed("the Redis of %s held what %s had admitted after %.1f s", faultRegion, faultNode, took.Seconds())
	}
	return err
}

// findOrigins finds the origins of each identity in Redis. Nodes write what they admitted themselves, and what others
// admitted only after a data loss: so before the fault these are the region's own.
func (c *redisRun) findOrigins(ctx context.Context, r *Run) error {
	c.origins = make(map[string][]string)
	for _, identity := range r.identities() {
		counts, err := r.Cluster.RedisCounts(ctx, faultRegion, r.rule, identity)
		if err != nil {
			return err
		}
		c.origins[identity] = slices.Collect(maps.Keys(counts))
	}
	return nil
}

// awaitMark waits until the Redis of the region holds the mark, and returns the time that this took.
func (r *Run) awaitMark(ctx context.Context, patience time.Duration) (time.Duration, error) {
	return poll(ctx, 50*time.Millisecond, patience, func() (done bool, err error) {
		counts, err := r.Cluster.RedisCounts(ctx, faultRegion, r.rule, r.ID("mark"))
		held := uint64(0)
		for _, n := range counts {
			held += n
		}
		if err == nil && held == primeCost {
			return true, nil
		}
		return held > primeCost, fmt.Errorf("the Redis of %s holds %d of %d%s", faultRegion, held, primeCost,
			errorText(err))
	})
}

// checkRestored asserts that Redis has all that was admitted, and that the nodes count nothing twice.
func (c *redisRun) checkRestored(r *Run) {
	r.AssertWithin("Redis holds again what it had lost", "restored_s", c.restored, restoredWithin)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, identity := range r.identities() {
		c.checkExact(ctx, r, identity)
	}
}

// checkExact asserts that every node counts exactly what was admitted everywhere, and Redis what was in its region.
func (c *redisRun) checkExact(ctx context.Context, r *Run, identity string) {
	admitted, inRegion, inRedis := r.Admitted(identity, ""), uint64(0), uint64(0)
	counts, err := r.Counts(ctx, r.rule.Name, identity)
	exact := err == nil
	for _, n := range r.Nodes {
		exact = exact && counts[n.Name] == admitted
		if n.Region == faultRegion {
			inRegion += r.Admitted(identity, n.Name)
		}
	}
	byOrigin, redisErr := r.Cluster.RedisCounts(ctx, faultRegion, r.rule, identity)
	for _, origin := range c.origins[identity] {
		inRedis += byOrigin[origin]
	}
	r.Assert("nothing is lost or counted twice of "+strings.TrimPrefix(identity, r.name+"-"),
		exact && redisErr == nil && inRedis == inRegion,
		fmt.Sprintf("%d in every node, of them the region's %d in Redis", admitted, inRegion),
		"%v, Redis %d%s", slices.Sorted(maps.Values(counts)), inRedis, errorText(errors.Join(err, redisErr)))
}

// identities returns those of all requests so far.
func (r *Run) identities() (identities []string) {
	decisions, _ := r.recorded()
	for _, d := range decisions {
		if !slices.Contains(identities, d.Identity) {
			identities = append(identities, d.Identity)
		}
	}
	slices.Sort(identities)
	return identities
}

// observeRegion observes each node of the region.
func (r *Run) observeRegion(ctx context.Context) (map[string]cluster.Observation, error) {
	observations := make(map[string]cluster.Observation)
	for _, n := range r.Nodes {
		if n.Region != faultRegion {
			continue
		}
		o, err := r.Cluster.Observe(ctx, n)
		if err != nil {
			return nil, err
		}
		observations[n.Name] = o
	}
	return observations, nil
}

func redisLoss() Scenario {
	c := new(redisRun)
	return Scenario{
		Name: "redis-loss",
		What: "a region's Redis ends and comes back empty: decisions go on, and the nodes restore what it held",
		Rule: accountRule, Streams: accountLoad(60), Takes: 45 * time.Second,
		Steps: []Step{
			wait("load in all regions", 6*time.Second),
			{"mark what Redis holds", c.mark},
			{"stop the Redis of " + faultRegion, func(ctx context.Context, r *Run) error {
				c.began = time.Now().UnixNano()
				return r.Begin(ctx, "redis-loss", faultRegion, onRedis(r.Cluster.Stop), onRedis(r.Cluster.Restart))
			}},
			{"Redis is away", func(ctx context.Context, r *Run) error { return c.away(ctx, r, 6*time.Second) }},
			{"start it again, empty", c.restart},
			wait("load after that", 3*time.Second),
		},
		Check: func(r *Run) { c.checkRestored(r); c.measureLatency(r) },
	}
}

// away waits until the breakers of the region's nodes are open, and then until the fault has lasted long enough.
func (c *redisRun) away(ctx context.Context, r *Run, lasts time.Duration) error {
	began := time.Unix(0, c.began)
	opened := make(map[string]bool)
	_, err := poll(ctx, 20*time.Millisecond, 15*time.Second, func() (done bool, err error) {
		observations, err := r.observeRegion(ctx)
		for name, o := range observations {
			// An open breaker is half-open while it tries Redis again.
			if !opened[name] && o.Breaker != "closed" && o.Breaker != "" {
				opened[name], c.opened = true, time.Since(began)
			}
		}
		if len(opened) == 2 {
			return true, nil
		}
		return false, fmt.Errorf("the nodes of %s do not notice that their Redis is away: breakers open: %v%s",
			faultRegion, opened, errorText(err))
	})
	if err != nil {
		return err
	}
	r.Observed("the breakers of both nodes were open after %.2f s", c.opened.Seconds())
	return sleep(ctx, lasts-time.Since(began))
}

// restart ends the fault and waits until Redis holds the mark again.
func (c *redisRun) restart(ctx context.Context, r *Run) error {
	if err := r.End(ctx); err != nil {
		return err
	}
	c.ended = time.Now().UnixNano()
	var err error
	c.restored, err = r.awaitMark(ctx, 20*time.Second)
	return err
}

func redisFlush() Scenario {
	c := new(redisRun)
	return Scenario{
		Name: "redis-flush", What: "a region's Redis loses everything three times under load (FLUSHALL): nothing is " +
			"lost, nothing is counted twice",
		Rule: accountRule, Streams: accountLoad(60), Takes: 40 * time.Second,
		Steps: []Step{
			wait("load in all regions", 5*time.Second),
			{"mark what Redis holds", c.mark},
			{"FLUSHALL, three times", func(ctx context.Context, r *Run) error {
				c.restored = 0
				for range 3 {
					if err := c.flush(ctx, r); err != nil {
						return err
					}
				}
				return nil
			}},
			wait("load after that", 3*time.Second),
		},
		Check: c.checkRestored,
	}
}

// flush makes Redis lose everything once, and waits until it holds the mark again and every node of the region has
// found the loss. Redis may be restored before the test looks, so the mark alone would not show the fault.
func (c *redisRun) flush(ctx context.Context, r *Run) error {
	before, err := r.observeRegion(ctx)
	if err != nil {
		return err
	}
	if err := r.Begin(ctx, "redis-flush", faultRegion, r.Cluster.FlushRedis, nil); err != nil {
		return err
	}
	took, err := r.awaitMark(ctx, 20*time.Second)
	if err != nil {
		return err
	}
	c.restored = max(c.restored, took)
	if _, err := poll(ctx, 50*time.Millisecond, 20*time.Second, func() (done bool, err error) {
		now, err := r.observeRegion(ctx)
		for name, o := range before {
			if now[name].StoreLost <= o.StoreLost {
				return false, fmt.Errorf("FLUSHALL did not take hold: %s found %d losses before, now %d%s", name,
					o.StoreLost, now[name].StoreLost, errorText(err))
			}
		}
		return true, nil
	}); err != nil {
		return err
	}
	r.Observed("the nodes of %s found the data loss; Redis was restored after %.2f s", faultRegion, took.Seconds())
	if err := r.End(ctx); err != nil {
		return err
	}
	return sleep(ctx, time.Second)
}
