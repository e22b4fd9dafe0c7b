package scenario

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/ledger"
	"github.com/edgelimit/edgelimit/testnet/multiregion"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/sim"
)

// agreesBy is by how much of the limit, in points, what was measured may be off what the simulator predicts.
const agreesBy = 3.0

// predictions is how often the simulator is asked, each time with another seed: what it draws is delays, losses, and when nodes tell.
const predictions = 5

// gossipEvery is the nodes' interval.
var gossipEvery = sim.DefaultOptions().Interval

// heardLast notes when the cut took hold: when those who hear nothing from beyond it heard something for the last time.
func (c *cutRun) heardLast(ctx context.Context, r *Run) error {
	var sum time.Duration
	nodes := 0
	for _, n := range r.Nodes {
		if inside := n.Region == cutRegion; inside == (c.way == multiregion.Out) {
			continue // of a region that is off the network, the others lose each node at a moment of its own
		}
		asked := time.Now()
		o, err := r.Net.Observe(ctx, n)
		if err != nil {
			return err
		}
		sum += asked.Add(-o.Staleness).Sub(c.began)
		nodes++
	}
	// What they know is as of when it was told: it was under way for a while, and the next would have been told an interval later.
	var err error
	if c.wan, err = r.Net.Weather(); err != nil {
		return err
	}
	c.held = c.began.Add(sum/time.Duration(nodes) + c.wan.Delay + c.wan.Jitter/2 + gossipEvery/2)
	r.Evidence("the cut took hold %.2f s after it was asked for", c.held.Sub(c.began).Seconds())
	return nil
}

// asked are the greedy client's requests until the cut ended, in the order in which they were sent.
func (c *cutRun) asked(r *Run) (asked []record.Decision) {
	decisions, _ := r.recorded()
	for _, d := range decisions {
		if d.Identity == r.ID("greedy") && d.Error == "" && d.Sent < c.ended {
			asked = append(asked, d)
		}
	}
	slices.SortStableFunc(asked, func(a, b record.Decision) int { return cmp.Compare(a.Sent, b.Sent) })
	return asked
}

// checkPrediction holds the most by which the count of what was admitted was above the limit against what the simulator says of the same
// requests, at the same moments and nodes, through the same weather and the same cut.
func (c *cutRun) checkPrediction(r *Run) {
	asked := c.asked(r)
	book, measured := ledger.New(r.rule.Limit), 0.0
	for _, d := range asked {
		measured = max(measured, 100*book.Note(d.Identity, d.Cost, d.Sent, d.Allowed).Excess)
	}
	predicted, err := c.predict(r, asked)
	if err != nil {
		r.Promise("the simulator predicts it", false, "a prediction", err.Error())
		return
	}
	least, most := predicted[0], predicted[len(predicted)-1]
	median := predicted[len(predicted)/2]
	r.Promise("the simulator predicts the excess at the end of the cut", measured >= median-agreesBy && measured <= median+agreesBy,
		fmt.Sprintf("%.1f %% (%.1f to %.1f) and %.0f points either way", median, least, most, agreesBy), fmt.Sprintf("%.1f %%", measured))
	r.Figure("cut_end_excess_pct", measured)
	r.Figure("predicted_excess_pct", median)
}

// predict returns the excess that the simulator comes to, from the least to the most.
func (c *cutRun) predict(r *Run, asked []record.Decision) (excess []float64, err error) {
	if len(asked) == 0 {
		return nil, fmt.Errorf("no request was answered before the end of the cut")
	}
	o := sim.DefaultOptions()
	from := asked[0].Sent
	cutOff := 0
	if o.Trace, cutOff, err = c.trace(r, asked); err != nil {
		return nil, err
	}
	limit := r.rule.Limit
	o.Regions, o.Nodes, o.Limit, o.Window, o.Method = o.Trace.Regions, o.Trace.Nodes, limit.Max(), limit.Meter().Window, limit.Meter().Algorithm
	o.WANDelay, o.Loss, o.Duration = c.wan.Delay+c.wan.Jitter/2, c.wan.Loss, time.Duration(c.ended-from)
	o.Start = from
	if o.Jitter = 0; o.WANDelay > 0 {
		o.Jitter = float64(c.wan.Jitter/2) / float64(o.WANDelay)
	}
	cut := sim.Partition{A: cutOff, OneWay: c.way != multiregion.Both, From: time.Duration(c.held.UnixNano() - from), Until: o.Duration}
	if c.way == multiregion.In {
		cut.A, cut.B = cut.B, cut.A
	}
	o.Partitions = []sim.Partition{cut}
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

// trace makes the requests arrivals, and tells the number of the region that is cut off.
func (c *cutRun) trace(r *Run, asked []record.Decision) (trace *sim.Trace, cutOff int, err error) {
	var lines strings.Builder
	regions := 0
	for i, n := range r.Nodes { // the simulator numbers regions as they come
		if i == 0 || r.Nodes[i-1].Region != n.Region {
			regions++
		}
		if n.Region == cutRegion {
			cutOff = regions
		}
		for _, d := range asked {
			if d.Node == n.Name {
				fmt.Fprintf(&lines, "%.9f,%s,%s\n", time.Duration(d.Sent-asked[0].Sent).Seconds(), n.Region, n.Name)
			}
		}
	}
	trace, err = sim.ReadTrace(strings.NewReader(lines.String()))
	return trace, cutOff, err
}
