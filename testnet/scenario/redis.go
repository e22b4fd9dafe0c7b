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
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// restoredWithin bounds the time that a Redis which came back empty may lack what the nodes count: the breaker's
// cool-down of a second, and two flushes of 750 ms with time-outs of 250 ms each; twice that on a busy machine.
const restoredWithin = 4 * time.Second

// redisFault is what a run with a fault of a Redis measures.
type redisFault struct {
	began, ended int64 // of the fault, Unix ns
	restored     time.Duration
	opened       time.Duration       // until both breakers were open
	origins      map[string][]string // the region's nodes, by identity
}

// redisScenario returns what the scenarios with a fault of a Redis have in common: every single count matters, as each
// of two clients stays far below its limit.
func redisScenario(name, what string, rate float64, check func(r *Run), steps ...Step) Scenario {
	steps = append([]Step{wait("load in all regions", 6*time.Second), {"mark what Redis holds", markRedis}}, steps...)
	return Scenario{
		Name: name, What: what, Rule: accountRule, Takes: 45 * time.Second, Check: check,
		Streams: []traffic.Stream{{Identity: "first", Rate: rate}, {Identity: "second", Rate: rate}},
		Steps:   append(steps, wait("load after that", 3*time.Second)),
	}
}

func redisLoss() Scenario {
	return redisScenario("redis-loss",
		"a region's Redis ends and comes back empty: decisions go on, and the nodes restore what it held", 60,
		func(r *Run) {
			checkRestored(r)
			measureLatency(r)
		},
		harmRedis("stop", "redis-loss", Cluster.Stop, Cluster.Restart),
		redisAway(6*time.Second),
		Step{"start it again, empty", redisBack})
}

func redisSlow() Scenario {
	// With this load one region decides a thousand times in 5 s, enough for a 99th percentile.
	return redisScenario("redis-slow", "a region's Redis stands still for 5 s: the breakers open within a second, "+
		"decisions are as fast as before", 300,
		func(r *Run) {
			r.AssertWithin("the breakers open", "breaker_open_s", r.redis.opened, time.Second)
			checkRestored(r)
			checkLatency(r)
		},
		harmRedis("pause", "redis-slow", Cluster.Pause, Cluster.Unpause),
		redisAway(5*time.Second),
		Step{"Redis goes on", redisBack})
}

func redisFlush() Scenario {
	return redisScenario("redis-flush", "a region's Redis loses everything three times under load (FLUSHALL): nothing "+
		"is lost, nothing is counted twice", 60,
		checkRestored,
		Step{"FLUSHALL, three times", func(ctx context.Context, r *Run) error {
			for range 3 {
				if err := flushRedis(ctx, r); err != nil {
					return err
				}
			}
			return nil
		}})
}

// harmRedis is a step that injects a fault of the region's Redis.
func harmRedis(what, name string, do, undo action) Step {
	onRedis := func(do action) action {
		return func(c Cluster, ctx context.Context, region string) error {
			return do(c, ctx, cluster.RedisName(region))
		}
	}
	return Step{what + " the Redis of " + faultRegion, func(ctx context.Context, r *Run) error {
		r.redis.began = time.Now().UnixNano()
		return r.Begin(ctx, name, faultRegion, onRedis(do), onRedis(undo))
	}}
}

// markRedis has a node admit a cost that nothing adds to, and waits until Redis holds it: the mark has to be there
// again after a loss. Then it finds the origins of each identity in Redis. Nodes write what they admitted themselves,
// and what others admitted only after a data loss: so before the fault these are the region's own.
func markRedis(ctx context.Context, r *Run) error {
	if err := r.Prime(ctx, faultNode, r.ID("mark"), primeCost); err != nil {
		return err
	}
	took, err := r.awaitMark(ctx, 15*time.Second)
	if err != nil {
		return err
	}
	r.redis.origins = make(map[string][]string)
	for _, identity := range r.identities() {
		counts, err := r.Cluster.RedisCounts(ctx, faultRegion, r.rule, identity)
		if err != nil {
			return err
		}
		r.redis.origins[identity] = slices.Collect(maps.Keys(counts))
	}
	r.Observed("the Redis of %s lacked what %s had admitted for %.1f s at least", faultRegion, faultNode,
		took.Seconds())
	return nil
}

// awaitMark waits until the Redis of the region holds the mark. It returns how long that took at least: until the last
// look began that did not find it, as a look at a container takes seconds on a busy machine.
func (r *Run) awaitMark(ctx context.Context, patience time.Duration) (lacked time.Duration, err error) {
	began, missed := time.Now(), time.Duration(0)
	_, err = poll(ctx, 50*time.Millisecond, patience, func() (done bool, err error) {
		looked := time.Since(began)
		counts, err := r.Cluster.RedisCounts(ctx, faultRegion, r.rule, r.ID("mark"))
		held := uint64(0)
		for _, n := range counts {
			held += n
		}
		if held != primeCost {
			missed = looked
		}
		return held == primeCost, fmt.Errorf("the Redis of %s holds %d of %d%s", faultRegion, held, primeCost,
			errorText(err))
	})
	return missed, err
}

// identities returns those of all requests so far.
func (r *Run) identities() []string {
	seen := make(map[string]bool)
	for _, d := range r.decisions(nil) {
		seen[d.Identity] = true
	}
	return slices.Sorted(maps.Keys(seen))
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

// redisAway waits until the breakers of the region's nodes are open, and then until the fault has lasted long enough.
func redisAway(lasts time.Duration) Step {
	return Step{"Redis is away", func(ctx context.Context, r *Run) error {
		began, opened := time.Unix(0, r.redis.began), make(map[string]bool)
		_, err := poll(ctx, 20*time.Millisecond, 15*time.Second, func() (done bool, err error) {
			observations, err := r.observeRegion(ctx)
			for name, o := range observations {
				// An open breaker is half-open while it tries Redis again.
				if !opened[name] && o.Breaker != "closed" && o.Breaker != "" {
					opened[name], r.redis.opened = true, time.Since(began)
				}
			}
			return len(opened) == 2, fmt.Errorf("the nodes of %s do not notice that their Redis is away: breakers "+
				"open: %v%s", faultRegion, opened, errorText(err))
		})
		if err != nil {
			return err
		}
		r.Observed("the breakers of both nodes were open after %.2f s", r.redis.opened.Seconds())
		return sleep(ctx, lasts-time.Since(began))
	}}
}

// redisBack ends the fault and waits until Redis holds the mark again.
func redisBack(ctx context.Context, r *Run) (err error) {
	if err := r.End(ctx); err != nil {
		return err
	}
	r.redis.ended = time.Now().UnixNano()
	r.redis.restored, err = r.awaitMark(ctx, 20*time.Second)
	return err
}

// flushRedis makes Redis lose everything once, and waits until it holds the mark again and every node of the region has
// found the loss. Redis may be restored before the test looks, so the mark alone would not show the fault.
func flushRedis(ctx context.Context, r *Run) error {
	before, err := r.observeRegion(ctx)
	if err != nil {
		return err
	}
	if err := r.Begin(ctx, "redis-flush", faultRegion, Cluster.FlushRedis, nil); err != nil {
		return err
	}
	took, err := r.awaitMark(ctx, 20*time.Second)
	if err != nil {
		return err
	}
	r.redis.restored = max(r.redis.restored, took)
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
	r.Observed("the nodes of %s found the data loss; Redis lacked the mark for %.2f s at least", faultRegion,
		took.Seconds())
	if err := r.End(ctx); err != nil {
		return err
	}
	return sleep(ctx, time.Second)
}

// checkRestored asserts that Redis has all that was admitted, and that the nodes count nothing twice.
func checkRestored(r *Run) {
	r.AssertWithin("Redis holds again what it had lost", "restored_s", r.redis.restored, restoredWithin)
	for _, identity := range r.identities() {
		checkExact(context.Background(), r, identity)
	}
}

// checkExact asserts that every node counts exactly what was admitted everywhere, and Redis what was in its region.
func checkExact(ctx context.Context, r *Run, identity string) {
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
	for _, origin := range r.redis.origins[identity] {
		inRedis += byOrigin[origin]
	}
	r.Assert("nothing is lost or counted twice of "+strings.TrimPrefix(identity, r.name+"-"),
		exact && redisErr == nil && inRedis == inRegion,
		fmt.Sprintf("%d in every node, of them the region's %d in Redis", admitted, inRegion),
		"%v, Redis %d%s", slices.Sorted(maps.Values(counts)), inRedis, errorText(errors.Join(err, redisErr)))
}

// measureLatency records quantiles of latencies as figures: in the region before and during the fault, and elsewhere
// during it. It returns the latter two, by percent.
func measureLatency(r *Run) (during, elsewhere map[int]float64) {
	quantiles := func(name string, in bool, from, until int64) map[int]float64 {
		var ns []int64
		for _, d := range r.decisions(func(d record.Decision) bool {
			return d.Error == "" && d.Sent >= from && d.Sent < until && (d.Region == faultRegion) == in
		}) {
			ns = append(ns, d.Done-d.Sent)
		}
		slices.Sort(ns)
		ms := make(map[int]float64)
		for _, percent := range []int{50, 99} {
			if len(ns) > 0 {
				ms[percent] = float64(ns[len(ns)*percent/100]) / float64(time.Millisecond)
			}
			r.Figure(fmt.Sprintf("p%d_%s_ms", percent, name), ms[percent])
		}
		return ms
	}
	quantiles("before", true, 0, r.redis.began)
	r.Figure("breaker_open_s", r.redis.opened.Seconds())
	return quantiles("in_fault", true, r.redis.began, r.redis.ended),
		quantiles("elsewhere", false, r.redis.began, r.redis.ended)
}

// checkLatency compares the region's decisions during the fault with those elsewhere at the same time, which share the
// machine and its noise, but not the Redis.
func checkLatency(r *Run) {
	during, elsewhere := measureLatency(r)
	limit := 2*elsewhere[50] + 2
	r.Assert("half of the decisions do not even notice", during[50] <= limit,
		fmt.Sprintf("a median of at most %.1f ms, twice that elsewhere and 2 ms", limit), "%.2f ms", during[50])
	limit = 2*elsewhere[99] + 5
	r.Assert("decisions beside the slow Redis are as fast as elsewhere at that time", during[99] <= limit,
		fmt.Sprintf("a 99th percentile of at most %.1f ms, twice that elsewhere and 5 ms", limit), "%.1f ms",
		during[99])
}
