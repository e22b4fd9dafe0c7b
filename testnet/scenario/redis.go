package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/load"
	"github.com/edgelimit/edgelimit/testnet/multiregion"
)

// restoredWithin is how long a Redis that came back empty may lack what the nodes count: the breaker's cool-down of a second, two
// flushes of 750 ms with time-outs of 250 ms each, and what asking a container takes.
const restoredWithin = 5 * time.Second

// faultRegion is the region whose Redis or node is harmed, faultNode the node.
const (
	faultRegion = "eu-west"
	faultNode   = "eu-west-1"
)

// accountLoad is what scenarios offer in which every single count matters: each client far below its limit, everywhere.
func accountLoad() []load.Stream {
	return []load.Stream{{Identity: "first", Rate: 60}, {Identity: "second", Rate: 60}}
}

// redisRun is what a run with a fault of a Redis finds out.
type redisRun struct {
	began, ended int64 // of the fault, Unix ns
	restored     time.Duration
	opened       time.Duration
	origins      map[string][]string // the region's nodes, by what was offered
}

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

// mark has something admitted once that nobody adds to, and waits until Redis holds it: what is there again after a loss.
func (c *redisRun) mark(ctx context.Context, r *Run) error {
	if err := r.Prime(ctx, faultNode, r.ID("mark")); err != nil {
		return err
	}
	took, err := r.awaitRedis(ctx, r.ID("mark"), primeCost, 15*time.Second)
	if err == nil {
		err = c.findOrigins(ctx, r)
	}
	if err == nil {
		r.Evidence("the Redis of %s held what %s had admitted after %.1f s", faultRegion, faultNode, took.Seconds())
	}
	return err
}

// findOrigins looks under which origins the Redis has what is offered. Nodes tell a Redis what they admitted themselves, and what others did
// only when it has lost data: so before the fault these are the region's own.
func (c *redisRun) findOrigins(ctx context.Context, r *Run) error {
	c.origins = make(map[string][]string)
	for _, identity := range r.Streams() {
		counts, err := r.Net.RedisCounts(ctx, faultRegion, r.rule, identity)
		if err != nil {
			return err
		}
		c.origins[identity] = slices.Collect(maps.Keys(counts))
	}
	return nil
}

// redisCount is how much the Redis of the region holds of the identity, of all origins.
func (r *Run) redisCount(ctx context.Context, identity string) (total uint64, err error) {
	counts, err := r.Net.RedisCounts(ctx, faultRegion, r.rule, identity)
	for _, n := range counts {
		total += n
	}
	return total, err
}

// awaitRedis waits until the Redis holds so much of the identity.
func (r *Run) awaitRedis(ctx context.Context, identity string, want uint64, patience time.Duration) (time.Duration, error) {
	began := time.Now()
	for {
		got, err := r.redisCount(ctx, identity)
		took := time.Since(began)
		switch {
		case err == nil && got == want:
			return took, nil
		case err == nil && got > want:
			return took, fmt.Errorf("the Redis of %s holds %d of %s, of which only %d were admitted", faultRegion, got, identity, want)
		case took > patience:
			return took, fmt.Errorf("after %v the Redis of %s holds %d of %s, want %d (%v)", patience, faultRegion, got, identity, want, err)
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return took, err
		}
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
	if err := c.awaitBreaker(ctx, r, "open", time.Unix(0, c.began)); err != nil {
		return err
	}
	return sleep(ctx, lasts-time.Since(time.Unix(0, c.began)))
}

// awaitBreaker waits until every node of the region has stopped calling Redis.
func (c *redisRun) awaitBreaker(ctx context.Context, r *Run, state string, since time.Time) error {
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
	r.Evidence("the breakers of both nodes were %s %.2f s after the fault was made", state, c.opened.Seconds())
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

// checkRestored holds that the Redis has all that was admitted, and the nodes count nothing twice.
func (c *redisRun) checkRestored(r *Run) {
	r.Promise("Redis holds again what it had lost", c.restored <= restoredWithin, "within 5 s: the breaker's second, and two flushes", fmt.Sprintf("%.2f s", c.restored.Seconds()))
	r.Figure("restored_s", c.restored.Seconds())
	c.checkExact(r, r.Streams()...)
}

// checkExact holds that every node counts exactly what was admitted everywhere, and Redis what was in its region.
func (c *redisRun) checkExact(r *Run, identities ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, identity := range identities {
		admitted, inRegion, held := r.Admitted(identity, ""), uint64(0), uint64(0)
		counts, err := r.Counts(ctx, r.Nodes, r.rule.Name, identity)
		exact := err == nil
		for _, n := range r.Nodes {
			exact = exact && counts[n.Name] == admitted
			if n.Region == faultRegion {
				inRegion += r.Admitted(identity, n.Name)
			}
		}
		byOrigin, redisErr := r.Net.RedisCounts(ctx, faultRegion, r.rule, identity)
		for _, origin := range c.origins[identity] {
			held += byOrigin[origin]
		}
		r.Promise(fmt.Sprintf("nothing is lost or counted twice of %s", strings.TrimPrefix(identity, r.name+"-")), exact && redisErr == nil && held == inRegion,
			fmt.Sprintf("%d in every node, of them the region's %d in Redis", admitted, inRegion),
			fmt.Sprintf("%v, Redis %d%s", slices.Sorted(maps.Values(counts)), held, errorText(errors.Join(err, redisErr))))
	}
}

// checkLatency compares decisions of the region during the fault with those of the others at the same time, which share the machine and
// its noise, but not the Redis.
func (c *redisRun) checkLatency(r *Run, promise bool) {
	var before, there, elsewhere []int64
	decisions, _ := r.recorded()
	for _, d := range decisions {
		switch in := d.Region == faultRegion; {
		case d.Error != "":
		case in && d.Sent < c.began:
			before = append(before, d.Done-d.Sent)
		case d.Sent < c.began || d.Sent >= c.ended:
		case in:
			there = append(there, d.Done-d.Sent)
		default:
			elsewhere = append(elsewhere, d.Done-d.Sent)
		}
	}
	r.Figure("p50_before_ms", quantile(before, 50))
	r.Figure("p99_before_ms", quantile(before, 99))
	r.Figure("p50_in_fault_ms", quantile(there, 50))
	r.Figure("p99_in_fault_ms", quantile(there, 99))
	r.Figure("p50_elsewhere_ms", quantile(elsewhere, 50))
	r.Figure("p99_elsewhere_ms", quantile(elsewhere, 99))
	r.Figure("breaker_open_s", c.opened.Seconds())
	if promise {
		p50, p99, other := quantile(there, 50), quantile(there, 99), quantile(elsewhere, 99)
		r.Promise("half of the decisions do not even notice", p50 <= 2*quantile(elsewhere, 50)+2,
			fmt.Sprintf("a median of at most %.1f ms, twice that elsewhere and 2 ms", 2*quantile(elsewhere, 50)+2), fmt.Sprintf("%.2f ms", p50))
		r.Promise("decisions beside the slow Redis are as fast as elsewhere at that time", p99 <= 2*other+5,
			fmt.Sprintf("a 99th percentile of at most %.1f ms, twice that elsewhere and 5 ms", 2*other+5), fmt.Sprintf("%.1f ms", p99))
	}
}

// quantile is the latency, in milliseconds, that so many in a hundred stay below.
func quantile(ns []int64, percent int) float64 {
	if len(ns) == 0 {
		return 0
	}
	slices.Sort(ns)
	return float64(ns[len(ns)*percent/100]) / float64(time.Millisecond)
}

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

func redisSlow() Scenario {
	c := new(redisRun)
	return Scenario{
		Name: "redis-slow", What: "a region's Redis stands still for 5 s: the breakers open within a second, decisions are as fast as before",
		Rule: accounts, Streams: accountLoad(), Takes: 40 * time.Second,
		Steps: []Step{
			wait("load in all regions", 6*time.Second),
			{"mark what Redis holds", c.mark},
			{"pause the Redis of " + faultRegion, c.pause},
			{"Redis goes on", c.restart},
			wait("load after that", 3*time.Second),
		},
		Check: func(r *Run) {
			r.Promise("the breakers open", c.opened <= time.Second, "within 1 s", fmt.Sprintf("%.2f s", c.opened.Seconds()))
			c.checkRestored(r)
			c.checkLatency(r, true)
		},
	}
}

func (c *redisRun) pause(ctx context.Context, r *Run) error {
	name := multiregion.RedisName(faultRegion)
	c.began = time.Now().UnixNano()
	err := r.Begin(ctx, "redis-slow", faultRegion, func(ctx context.Context) error { return r.Net.Pause(ctx, name) },
		func(ctx context.Context) error { return r.Net.Unpause(ctx, name) })
	if err != nil {
		return err
	}
	return c.away(ctx, r, 5*time.Second)
}

// Streams are the identities that load was offered for.
func (r *Run) Streams() (identities []string) {
	decisions, _ := r.recorded()
	for _, d := range decisions {
		if !slices.Contains(identities, d.Identity) {
			identities = append(identities, d.Identity)
		}
	}
	slices.Sort(identities)
	return identities
}
