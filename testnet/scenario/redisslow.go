package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/testnet/load"
	"github.com/edgelimit/edgelimit/testnet/multiregion"
)

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

func redisSlow() Scenario {
	c := new(redisRun)
	return Scenario{
		Name: "redis-slow", What: "a region's Redis stands still for 5 s: the breakers open within a second, decisions are as fast as before",
		// Enough that the 99th percentile of one region in 5 s is that of a thousand decisions, not of the two slowest.
		Rule: accounts, Streams: []load.Stream{{Identity: "first", Rate: 300}, {Identity: "second", Rate: 300}}, Takes: 40 * time.Second,
		Steps: []Step{
			wait("load in all regions", 6*time.Second),
			{"mark what Redis holds", c.mark},
			{"pause the Redis of " + faultRegion, c.pause},
			{"Redis goes on", c.restart},
			wait("load after that", 3*time.Second),
		},
		Check: func(r *Run) {
			r.Promise("the breakers open", c.opened <= time.Second+r.Pause, fmt.Sprintf("within 1 s, and the %d ms by which this machine was late", r.Pause.Milliseconds()), fmt.Sprintf("%.2f s", c.opened.Seconds()))
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
