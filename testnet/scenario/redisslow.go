package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"
)

func redisSlow() Scenario {
	c := new(redisRun)
	return Scenario{
		Name: "redis-slow", What: "a region's Redis stands still for 5 s: the breakers open within a second, " +
			"decisions are as fast as before",
		// With this load one region decides a thousand times in 5 s, enough for a 99th percentile.
		Rule: accountRule, Streams: accountLoad(300), Takes: 40 * time.Second,
		Steps: []Step{
			wait("load in all regions", 6*time.Second),
			{"mark what Redis holds", c.mark},
			{"pause the Redis of " + faultRegion, func(ctx context.Context, r *Run) error {
				c.began = time.Now().UnixNano()
				err := r.Begin(ctx, "redis-slow", faultRegion, onRedis(r.Cluster.Pause), onRedis(r.Cluster.Unpause))
				if err != nil {
					return err
				}
				return c.away(ctx, r, 5*time.Second)
			}},
			{"Redis goes on", c.restart},
			wait("load after that", 3*time.Second),
		},
		Check: func(r *Run) {
			r.AssertWithin("the breakers open", "breaker_open_s", c.opened, time.Second)
			c.checkRestored(r)
			c.checkLatency(r)
		},
	}
}

// latencies are those of decisions, in ns: in the region before and during the fault, and elsewhere during it.
type latencies struct{ before, during, elsewhere []int64 }

// measureLatency records the latencies as figures.
func (c *redisRun) measureLatency(r *Run) (l latencies) {
	decisions, _ := r.recorded()
	for _, d := range decisions {
		switch in := d.Region == faultRegion; {
		case d.Error != "":
		case in && d.Sent < c.began:
			l.before = append(l.before, d.Done-d.Sent)
		case d.Sent < c.began || d.Sent >= c.ended:
		case in:
			l.during = append(l.during, d.Done-d.Sent)
		default:
			l.elsewhere = append(l.elsewhere, d.Done-d.Sent)
		}
	}
	for name, ns := range map[string][]int64{"before": l.before, "in_fault": l.during, "elsewhere": l.elsewhere} {
		r.Figure("p50_"+name+"_ms", quantile(ns, 50))
		r.Figure("p99_"+name+"_ms", quantile(ns, 99))
	}
	r.Figure("breaker_open_s", c.opened.Seconds())
	return l
}

// checkLatency compares the region's decisions during the fault with those elsewhere at the same time, which share the
// machine and its noise, but not the Redis.
func (c *redisRun) checkLatency(r *Run) {
	l := c.measureLatency(r)
	p50, limit := quantile(l.during, 50), 2*quantile(l.elsewhere, 50)+2
	r.Assert("half of the decisions do not even notice", p50 <= limit,
		fmt.Sprintf("a median of at most %.1f ms, twice that elsewhere and 2 ms", limit), "%.2f ms", p50)
	p99, limit := quantile(l.during, 99), 2*quantile(l.elsewhere, 99)+5
	r.Assert("decisions beside the slow Redis are as fast as elsewhere at that time", p99 <= limit,
		fmt.Sprintf("a 99th percentile of at most %.1f ms, twice that elsewhere and 5 ms", limit), "%.1f ms", p99)
}

// quantile returns the latency in milliseconds that so many percent of ns stay below.
func quantile(ns []int64, percent int) float64 {
	if len(ns) == 0 {
		return 0
	}
	slices.Sort(ns)
	return float64(ns[len(ns)*percent/100]) / float64(time.Millisecond)
}
