package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

const (
	steadyRate = 20_000 // checks per second
	proxyRate  = 5_000  // of the reverse proxy, which also has to wait for the upstream
	maxP99Ms   = 5.0    // goal of the latency at these rates
	maxAddedMs = 0.5    // goal of what the reverse proxy adds to the p99 of the bare one
)

// report holds the results of a run.
type report struct {
	duration duration
	costs    []cost
}

// cost is the result of one protocol.
type cost struct {
	protocol            *protocol
	ratio, lowest, max  float64 // node to bare server within a round: the median, the least and the most
	nodeNS, bareNS      float64 // CPU time per check, the medians of the rounds
	p50MS, p99MS, worst float64 // latency at the steady rate
	checks              int     // at the steady rate
	// addedMS is by how much the p99 is above that of the bare server within a round: the median, the least, the most.
	addedMS, leastAddedMS, mostAddedMS float64
}

func measure(ctx context.Context, d duration, only string, progress io.Writer) (*report, error) {
	upstream, err := start(ctx, "upstream", "")
	if err != nil {
		return nil, err
	}
	defer upstream.stop()
	node, err := start(ctx, "node", upstream.addrs["http"])
	if err != nil {
		return nil, err
	}
	defer node.stop()
	bare, err := start(ctx, "bare", upstream.addrs["http"])
	if err != nil {
		return nil, err
	}
	defer bare.stop()
	r := &report{duration: d}
	for i := range protocols {
		if p := &protocols[i]; only == "" || p.name == only {
			fmt.Fprintln(progress, p.name)
			c, err := compare(ctx, d, p, node, bare)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			r.costs = append(r.costs, c)
		}
	}
	if len(r.costs) == 0 {
		return nil, fmt.Errorf("unknown protocol %q", only)
	}
	return r, nil
}

// compare measures one protocol, node and bare server in turns.
func compare(ctx context.Context, d duration, p *protocol, servers ...*child) (c cost, err error) {
	var clients [2][]rig.Client
	for i, s := range servers {
		if clients[i], err = p.dial(ctx, s.addrs[p.server]); err != nil {
			return c, err
		}
		defer func() { err = errors.Join(err, rig.CloseAll(clients[i])) }()
	}
	var ns [2][]float64
	var ratios []float64
	for round := range d.rounds + 1 {
		var took [2]float64
		for turn := range 2 {
			i := (turn + round) % 2 // they also take turns in going first
			if took[i], err = slice(ctx, p, servers[i], clients[i], d.slice); err != nil {
				return c, err
			}
		}
		if round > 0 { // the first warms up
			ratios = append(ratios, took[0]/took[1])
			ns[0], ns[1] = append(ns[0], took[0]), append(ns[1], took[1])
		}
	}
	var all []time.Duration // of the node
	var added []float64
	for round := range d.rounds {
		var p99 [2]float64
		for turn := range 2 {
			i := (turn + round) % 2
			latencies, err := rig.OpenLoop(ctx, clients[i], p.depth, p.rate, d.steady/time.Duration(d.rounds))
			if err != nil {
				return c, err
			}
			if p99[i] = rig.Quantile(latencies, 0.99); i == 0 {
				all = append(all, latencies...)
			}
		}
		added = append(added, p99[0]-p99[1])
	}
	slices.Sort(all)
	return cost{
		protocol: p, ratio: rig.Median(ratios), lowest: slices.Min(ratios), max: slices.Max(ratios),
		nodeNS: rig.Median(ns[0]), bareNS: rig.Median(ns[1]),
		p50MS: rig.Quantile(all, 0.5), p99MS: rig.Quantile(all, 0.99), worst: rig.Quantile(all, 1),
		checks:  len(all) * p.depth,
		addedMS: rig.Median(added), leastAddedMS: slices.Min(added), mostAddedMS: slices.Max(added),
	}, nil
}

// slice returns the CPU time of a server per check while all clients load it.
func slice(ctx context.Context, p *protocol, server *child, all []rig.Client, d time.Duration) (ns float64, err error) {
	before, err := server.cpuTime()
	if err != nil {
		return 0, err
	}
	checks, err := rig.ClosedLoop(ctx, all, p.depth, identities/rig.NumClients, d)
	if err != nil {
		return 0, err
	}
	after, err := server.cpuTime()
	return float64(after-before) / float64(max(1, checks)), err
}

// cpuGoal is the goal of the CPU time, and whether it is met.
func (c *cost) cpuGoal() string {
	goal := c.protocol.goal
	if c.protocol.depth > 1 {
		return fmt.Sprintf("%.1f us: %s", goal, rig.Verdict(c.nodeNS <= goal*1e3))
	}
	return fmt.Sprintf("%.2f: %s", goal, rig.Verdict(c.ratio <= goal))
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Cost of the APIs

By `+"`make bench-doors`"+`, on %s. Node, bare server and clients share the machine. %d clients have one request each
in flight, for %d identities under one rule that denies nobody. They load node and bare server of each protocol in
turns, %d rounds of %.0f ms each.

CPU time of the server per check, user and system time. The bare server decodes the same requests and returns the same
answers without deciding: a plain server with net/http and encoding/json, one with grpc-go, this project's own server
of the Redis protocol before a limiter that admits everything, and a httputil.ReverseProxy before the same upstream, a
third process.

| API | node | bare | ratio | rounds | goal |
|---|---|---|---|---|---|
`, rig.Machine(), rig.NumClients, identities, r.duration.rounds, r.duration.slice.Seconds()*1e3)
	for _, c := range r.costs {
		fmt.Fprintf(&b, "| %s | %.2f us | %.2f us | %.2f | %.2f to %.2f | %s |\n", c.protocol.name, c.nodeNS/1e3,
			c.bareNS/1e3, c.ratio, c.lowest, c.max, c.cpuGoal())
	}
	fmt.Fprintf(&b, `
Latency of a check at %d a second, of the reverse proxy at %d, from when it was due. It includes the client's own time.
Node and bare server are asked in turns, %d rounds of %.0f ms each; the p99 added is the median of the differences
within the rounds.

| API | median | p99 | goal | longest | checks | p99 added | rounds | goal |
|---|---|---|---|---|---|---|---|---|
`, steadyRate, proxyRate, r.duration.rounds, r.duration.steady.Seconds()*1e3/float64(r.duration.rounds))
	for _, c := range r.costs {
		goal := ""
		if c.protocol.server == "proxy" {
			goal = fmt.Sprintf("%.1f ms: %s", maxAddedMs, rig.Verdict(c.addedMS < maxAddedMs))
		}
		fmt.Fprintf(&b, "| %s | %.2f ms | %.2f ms | %.0f ms: %s | %.1f ms | %d | %.2f ms | %.2f to %.2f | %s |\n",
			c.protocol.name, c.p50MS, c.p99MS, maxP99Ms, rig.Verdict(c.p99MS < maxP99Ms), c.worst, c.checks, c.addedMS,
			c.leastAddedMS, c.mostAddedMS, goal)
	}
	return b.String()
}
