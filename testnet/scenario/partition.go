package scenario

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// After a heal, membership has to be complete, and then all nodes have to agree.
const (
	completeWithin = 30 * time.Second
	agreeWithin    = 2 * time.Second
)

// The sides of a partition share the limit. maxExcessPct bounds the excess by the algorithm's own count, in percent of
// the limit; maxShare bounds all that is admitted, which includes the algorithm's own error, as a part of the limit.
const (
	maxExcessPct = 6
	maxShare     = 1.1
)

// faultRegion is the region that is partitioned, or whose Redis or node is harmed; faultNode is the node.
const (
	faultRegion = "eu-west"
	faultNode   = "eu-west-1"
)

// markCount is how many requests each node gets during a partition to show who receives from whom.
const markCount = 20

// partitioning partitions a region while a greedy client asks for three times its limit and a modest one for less than
// half of it, everywhere.
func partitioning(name, what string, way cluster.Direction, lasts time.Duration) Scenario {
	return Scenario{
		Name: name, What: what, Rule: "per_client",
		Streams: []traffic.Stream{{Identity: "greedy", Rate: 300}, {Identity: "modest", Rate: 40}},
		Steps: []Step{
			wait("load in all regions", 8*time.Second),
			{fmt.Sprintf("partition %s (%s) for %v", faultRegion, way, lasts), func(ctx context.Context, r *Run) error {
				r.partition = partitionFault{way: way, lasts: lasts}
				return r.partition.begin(ctx, r)
			}},
			{"count what crosses the partition", markSides},
			{"the rest of the partition", func(ctx context.Context, r *Run) error {
				return sleep(ctx, lasts-time.Since(r.partition.began))
			}},
			{"heal", heal},
			wait("load after the heal", 3*time.Second),
		},
		Takes: lasts + 45*time.Second,
		Check: checkPartition,
	}
}

// partitionFault is what a run with a partition measures.
type partitionFault struct {
	way   cluster.Direction
	lasts time.Duration
	began time.Time
	held  time.Time // when the partition took hold
	ended int64     // Unix ns
	wan   netem.Link

	complete, agreed time.Duration // from the heal to complete membership, from there to agreement
}

func (p *partitionFault) begin(ctx context.Context, r *Run) error {
	p.began = time.Now()
	err := r.Begin(ctx, record.Partition, faultRegion,
		func(c Cluster, ctx context.Context, region string) error { return c.Partition(ctx, region, p.way) },
		func(c Cluster, ctx context.Context, _ string) error { return c.Heal(ctx) })
	if err != nil {
		return err
	}
	r.Observed("every node that should receive nothing across the partition reported so after %.1f s",
		time.Since(p.began).Seconds())
	return p.measureHold(ctx, r)
}

// markSides has every node admit requests that the other side cannot learn of, and verifies who counts what.
func markSides(ctx context.Context, r *Run) error {
	id := r.ID("mark")
	for _, n := range r.Nodes {
		for range markCount {
			if a, err := r.Take(ctx, n, accountRule, id, 1); err != nil || !a.Allowed {
				return fmt.Errorf("%s did not admit a request (allowed %v): %w", n.Name, a.Allowed, err)
			}
		}
	}
	if err := sleep(ctx, time.Second); err != nil { // several gossip intervals, in which a leak would show
		return err
	}
	var counts map[string]uint64
	_, err := poll(ctx, 100*time.Millisecond, agreeWithin, func() (done bool, err error) {
		if counts, err = r.Counts(ctx, accountRule, id); err != nil {
			return false, err
		}
		for _, n := range r.Nodes {
			want := uint64(0)
			for _, from := range r.Nodes {
				if r.partition.passes(from.Region == faultRegion, n.Region == faultRegion) {
					want += markCount
				}
			}
			if counts[n.Name] != want {
				return false, fmt.Errorf("%s counts %d of what was admitted in the partition, want %d: the partition "+
					"leaks or blocks too much", n.Name, counts[n.Name], want)
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	r.Observed("of %d requests admitted in the partition, each node counted those of the nodes that reach it: %v",
		markCount*len(r.Nodes), counts)
	return nil
}

// passes reports whether the partition lets frames pass from a node to another, each of which is inside or not.
func (p *partitionFault) passes(fromInside, inside bool) bool {
	return fromInside == inside || p.way == cluster.Out && inside || p.way == cluster.In && fromInside
}

func heal(ctx context.Context, r *Run) (err error) {
	p, began := &r.partition, time.Now()
	p.ended = began.UnixNano()
	if err := r.End(ctx); err != nil {
		return err
	}
	p.complete = time.Since(began)
	p.agreed, err = r.AwaitCount(ctx, accountRule, r.ID("mark"), uint64(markCount*len(r.Nodes)), completeWithin)
	return err
}

func checkPartition(r *Run) {
	p := &r.partition
	r.AssertWithin("membership is complete again", "whole_s", p.complete, completeWithin)
	r.AssertWithin("then all nodes count what was admitted in the partition", "agree_after_heal_s", p.agreed,
		agreeWithin)
	agree := r.Report.AgreeMs
	r.Assert("after the last request all nodes agree", agree >= 0 && agree <= float64(agreeWithin.Milliseconds()),
		"within 2000 ms", "%.0f ms", agree)
	r.Figure("steady_bound_pct", r.Report.SteadyPct)
	for _, phase := range r.Report.Phases {
		if phase.Sides < 2 {
			continue
		}
		r.Assert("the sides of the partition share the limit", phase.ExcessPct <= maxExcessPct,
			fmt.Sprintf("at most %d %% over the limit", maxExcessPct), "%.1f %%", phase.ExcessPct)
		r.Figure("cut_excess_pct", phase.ExcessPct)
	}
	p.checkSides(r)
	p.checkPrediction(r)
}

// checkSides asserts that both sides went on deciding and together admitted about one limit a window.
func (p *partitionFault) checkSides(r *Run) {
	decided, failed, admitted := map[bool]int{}, 0, 0
	for _, d := range r.decisions(func(d record.Decision) bool {
		return d.Sent >= p.began.UnixNano() && d.Sent < p.ended
	}) {
		if d.Error != "" {
			failed++
			continue
		}
		decided[d.Region == faultRegion]++
		if d.Allowed && d.Identity == r.ID("greedy") && d.Sent < p.began.Add(p.lasts).UnixNano() {
			admitted++
		}
	}
	r.Assert("both sides go on deciding in the partition", failed == 0 && decided[true] > 0 && decided[false] > 0,
		"0 failed, decisions on both sides", "%d failed, %d in %s, %d elsewhere", failed, decided[true], faultRegion,
		decided[false])
	// Each side got more requests than the limit in each window of the partition.
	windows := math.Ceil(p.lasts.Seconds() / r.Report.Rule.Window.Seconds())
	maxAdmitted := windows * float64(r.Report.Rule.Limit) * maxShare
	r.Assert("what is admitted in the partition is about one limit a window", float64(admitted) <= maxAdmitted,
		fmt.Sprintf("at most %.0f", maxAdmitted), "%d", admitted)
	r.Figure("cut_admitted", float64(admitted))
}
