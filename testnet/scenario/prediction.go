package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/sim"
)

// maxDeviation bounds how far the measured excess may be from the simulator's, in points of the limit.
const maxDeviation = 3.0

// predictions is the number of simulations, each with another seed: they draw delays, losses and the nodes' phases.
const predictions = 5

// gossipInterval is the nodes'.
var gossipInterval = sim.DefaultOptions().Interval

// measureHold derives when the partition took hold: when the nodes that receive nothing across it received the last
// frame.
func (p *partitionFault) measureHold(ctx context.Context, r *Run) (err error) {
	if p.wan, err = r.Cluster.WAN(); err != nil {
		return err
	}
	var sum, nodes time.Duration
	for _, n := range r.Nodes {
		if inside := n.Region == faultRegion; inside == (p.way == cluster.Out) {
			continue // the others of a region off the network lose each of its nodes at another moment
		}
		sent := time.Now()
		o, err := r.Cluster.Observe(ctx, n)
		if err != nil {
			return err
		}
		sum += sent.Add(-o.Staleness).Sub(p.began)
		nodes++
	}
	// Staleness counts from when the last frame was sent. The frame was under way for the WAN's delay. The next one
	// would have been sent an interval later, half of that on average.
	p.held = p.began.Add(sum/nodes + p.wan.Latency + p.wan.Jitter/2 + gossipInterval/2)
	r.Observed("the partition took hold after %.2f s", p.held.Sub(p.began).Seconds())
	return nil
}

// checkPrediction compares the maximal excess over the limit with the simulator's for the same requests, at the same
// moments and nodes, through the same WAN and the same partition.
func (p *partitionFault) checkPrediction(r *Run) {
	const what = "the simulator predicts the excess at the end of the partition"
	// The greedy client's requests until the partition ended, in the order in which they were sent.
	sent := r.decisions(func(d record.Decision) bool {
		return d.Identity == r.ID("greedy") && d.Error == "" && d.Sent < p.ended
	})
	slices.SortStableFunc(sent, func(a, b record.Decision) int { return cmp.Compare(a.Sent, b.Sent) })
	oracle, measured := judge.NewTracker(r.rule.Limit, 0), 0.0
	for _, d := range sent {
		measured = max(measured, 100*oracle.Add(d.Identity, d.Cost, d.Sent, d.Sent, d.Allowed).Excess)
	}
	predicted, err := p.predict(r, sent)
	if err != nil {
		r.Assert(what, false, "a prediction", "%v", err)
		return
	}
	lowest, median, highest := predicted[0], predicted[len(predicted)/2], predicted[len(predicted)-1]
	r.Assert(what, measured >= median-maxDeviation && measured <= median+maxDeviation,
		fmt.Sprintf("%.1f %% (%.1f to %.1f) and %.0f points either way", median, lowest, highest, maxDeviation),
		"%.1f %%", measured)
	r.Figure("cut_end_excess_pct", measured)
	r.Figure("predicted_excess_pct", median)
}

// predict returns the simulated excess in percent, in ascending order.
func (p *partitionFault) predict(r *Run, sent []record.Decision) (excess []float64, err error) {
	if len(sent) == 0 {
		return nil, errors.New("no request was answered before the end of the partition")
	}
	trace, region, err := traceOf(sent)
	if err != nil {
		return nil, err
	}
	o, limit, from := sim.DefaultOptions(), r.rule.Limit, sent[0].Sent
	o.Trace, o.Regions, o.Nodes = trace, trace.Regions, trace.Nodes
	o.Start, o.Duration = from, time.Duration(p.ended-from)
	o.Limit, o.Window, o.Method = limit.Max(), limit.Meter().Window, limit.Meter().Algorithm
	o.WANDelay, o.Loss, o.Jitter = p.wan.Latency+p.wan.Jitter/2, p.wan.Loss, 0
	if o.WANDelay > 0 {
		o.Jitter = float64(p.wan.Jitter/2) / float64(o.WANDelay)
	}
	simulated := sim.Partition{A: region, OneWay: p.way != cluster.Both, From: time.Duration(p.held.UnixNano() - from),
		Until: o.Duration}
	if p.way == cluster.In {
		simulated.A, simulated.B = simulated.B, simulated.A
	}
	o.Partitions = []sim.Partition{simulated}
	for o.Seed = 1; o.Seed <= predictions; o.Seed++ {
		report, err := sim.Run(context.Background(), o, nil)
		if err != nil {
			return nil, err
		}
		excess = append(excess, report.ObservedPct)
	}
	slices.Sort(excess)
	return excess, nil
}

// traceOf returns the requests as a trace for the simulator, and the number that it gives faultRegion there.
func traceOf(sent []record.Decision) (trace *sim.Trace, region int, err error) {
	byNode := slices.SortedStableFunc(slices.Values(sent), func(a, b record.Decision) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Node, b.Node))
	})
	var lines strings.Builder
	regions := 0
	for i, d := range byNode { // the simulator numbers regions in the order of the trace
		if i == 0 || byNode[i-1].Region != d.Region {
			regions++
		}
		if d.Region == faultRegion {
			region = regions
		}
		fmt.Fprintf(&lines, "%.9f,%s,%s\n", time.Duration(d.Sent-sent[0].Sent).Seconds(), d.Region, d.Node)
	}
	trace, err = sim.ReadTrace(strings.NewReader(lines.String()))
	return trace, region, err
}
