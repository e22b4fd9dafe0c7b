package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

const (
	steadyRate    = 5_000 // checks per second
	maxAddedMS    = 2.0   // goal of what our checks add to the p99 of the round trip
	maxLeaseRatio = 0.1   // goal of the CPU of Redis with a lease, of that without
)

// report holds the results of a run.
type report struct {
	duration duration
	redis    string // its version
	results  []*result
}

// result has a value per round of each figure.
type result struct {
	*contestant
	clients      []rig.Client
	fast, steady costs // as fast as the clients can, and at the steady rate
	latencies    []time.Duration
	addedMS      []float64 // p99 above that of the round trip in the same round
}

// costs are nanoseconds of CPU time per check, and checks per second.
type costs struct{ redis, client, rate []float64 }

// measure has all contestants take turns.
func measure(ctx context.Context, d duration, progress io.Writer) (*report, error) {
	addr, version, stop, err := rig.StartRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	r := &report{duration: d, redis: version}
	server := redis.NewClient(&redis.Options{Addr: addr})
	defer server.Close()
	for i := range contestants {
		clients, err := contestants[i].clients(ctx, addr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", contestants[i].name, err)
		}
		defer rig.CloseAll(clients)
		r.results = append(r.results, &result{contestant: &contestants[i], clients: clients})
	}
	if err := r.fast(ctx, server, 0); err != nil { // warms up
		return nil, err
	}
	for _, c := range r.results {
		c.fast = costs{}
	}
	for round := range d.rounds {
		fmt.Fprintf(progress, "round %d of %d\n", round+1, d.rounds)
		if err := errors.Join(r.fast(ctx, server, round), r.steady(ctx, server, round)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// fast has each contestant ask as fast as it can. Each round begins with another one.
func (r *report) fast(ctx context.Context, server *redis.Client, round int) error {
	for turn := range r.results {
		i := (turn + round) % len(r.results)
		c := r.results[i]
		err := c.fast.add(ctx, server, func() (int, error) {
			return rig.ClosedLoop(ctx, c.clients, 1, 1, r.duration.slice)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// steady has each contestant ask at the steady rate.
func (r *report) steady(ctx context.Context, server *redis.Client, round int) error {
	p99 := make([]float64, len(r.results))
	for turn := range r.results {
		i := (turn + round) % len(r.results)
		c := r.results[i]
		err := c.steady.add(ctx, server, func() (int, error) {
			latencies, err := rig.OpenLoop(ctx, c.clients, 1, steadyRate, r.duration.steady)
			if err == nil {
				p99[i] = rig.Quantile(latencies, 0.99)
			}
			c.latencies = append(c.latencies, latencies...)
			return len(latencies), err
		})
		if err != nil {
			return fmt.Errorf("%s at %d/s: %w", c.name, steadyRate, err)
		}
	}
	for i, c := range r.results {
		c.addedMS = append(c.addedMS, p99[i]-p99[0])
	}
	return nil
}

// add measures what a load costs.
func (c *costs) add(ctx context.Context, server *redis.Client, load func() (checks int, err error)) error {
	before, err := rig.RedisCPU(ctx, server)
	if err != nil {
		return err
	}
	own, start := rig.CPUTime(), time.Now()
	checks, err := load()
	if err != nil {
		return err
	}
	own, took := rig.CPUTime()-own, time.Since(start)
	after, err := rig.RedisCPU(ctx, server)
	if err != nil {
		return err
	}
	n := float64(max(1, checks))
	c.redis = append(c.redis, float64(after-before)/n)
	c.client = append(c.client, float64(own)/n)
	c.rate = append(c.rate, n/took.Seconds())
	return nil
}

// find returns the result of a contestant; there is one.
func (r *report) find(name string) *result {
	i := slices.IndexFunc(r.results, func(c *result) bool { return c.name == name })
	return r.results[i]
}

// spread prints a median, and in brackets the least and the most.
func spread(values []float64) string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", rig.Median(values), slices.Min(values), slices.Max(values))
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Cost of strict checks

By `+"`make bench-strict`"+`, on %s, with %s.
Redis and the clients share the machine. %d clients have one check each in flight, for %d identities under limits that
deny nobody. All take turns, %d rounds of %.0f ms and then of %.0f ms each. Figures are medians of the rounds; ratios
and differences are of values of the same round, with the least and the most.

CPU time per check, user and system time, while the clients ask as fast as they can: of Redis, and of the process that
asks, load generator included. `+"`%s`"+` is what envoyproxy/ratelimit sends: both commands of a check in one
pipeline, or in pipelines of concurrent checks. It and redis_rate use the same client library as the strict store, which
sends concurrent checks in pipelines too. A sliding log keeps every request of the window.

| | Redis | client | Redis, of redis_rate's | checks a second |
|---|---|---|---|---|
`, rig.Machine(), r.redis, rig.NumClients, identities, r.duration.rounds, r.duration.slice.Seconds()*1e3,
		r.duration.steady.Seconds()*1e3, nameEnvoy)
	rate := r.find(nameRedisRate)
	for _, c := range r.results {
		fmt.Fprintf(&b, "| %s | %.2f us | %.2f us | %s | %.0f |\n", c.name, rig.Median(c.fast.redis)/1e3,
			rig.Median(c.fast.client)/1e3, spread(rig.Ratios(c.fast.redis, rate.fast.redis)), rig.Median(c.fast.rate))
	}
	fmt.Fprintf(&b, `
The same at %d checks a second, where Redis' own upkeep counts more, and the latency of a check from when it was due,
which includes the client's own time.

| | Redis | client | median | p99 | longest | p99 above the round trip's | goal |
|---|---|---|---|---|---|---|---|
`, steadyRate)
	for _, c := range r.results {
		goal := ""
		if c.ours {
			goal = fmt.Sprintf("%.0f ms: %s", maxAddedMS, rig.Verdict(rig.Median(c.addedMS) <= maxAddedMS))
		}
		slices.Sort(c.latencies)
		fmt.Fprintf(&b, "| %s | %.2f us | %.2f us | %.2f ms | %.2f ms | %.1f ms | %s ms | %s |\n", c.name,
			rig.Median(c.steady.redis)/1e3, rig.Median(c.steady.client)/1e3, rig.Quantile(c.latencies, 0.5),
			rig.Quantile(c.latencies, 0.99), rig.Quantile(c.latencies, 1), spread(c.addedMS), goal)
	}
	b.WriteString(`
What Redis computes for a check with a lease, of that without:

| | as fast as they can | at the steady rate | goal |
|---|---|---|---|
`)
	for _, c := range r.results {
		if c.base == "" {
			continue
		}
		base := r.find(c.base)
		fast, steady := rig.Ratios(c.fast.redis, base.fast.redis), rig.Ratios(c.steady.redis, base.steady.redis)
		met := max(rig.Median(fast), rig.Median(steady)) <= maxLeaseRatio
		fmt.Fprintf(&b, "| %s | %s | %s | %.1f: %s |\n", c.name, spread(fast), spread(steady), maxLeaseRatio,
			rig.Verdict(met))
	}
	return b.String()
}
