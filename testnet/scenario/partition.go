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

func partition(cut time.Duration) Scenario {
	return partitioning("partition", "a region is cut off the WAN under load: both sides go on deciding and share the "+
		"limit, and after the heal all agree", cluster.Both, cut)
}

func oneWay(cut time.Duration) Scenario {
	return partitioning("one-way", "no node receives from a region, which receives from all: the same assertions as "+
		"in a partition", cluster.Out, cut)
}

// partitioning partitions a region while a greedy client asks for three times its limit and a modest one for less than
// half of it, everywhere.
func partitioning(name, what string, way cluster.Direction, lasts time.Duration) Scenario {
	p := &partitionRun{way: way, lasts: lasts}
	return Scenario{
		Name: name, What: what, Rule: "per_client",
		Streams: []traffic.Stream{{Identity: "greedy", Rate: 300}, {Identity: "modest", Rate: 40}},
		Steps: []Step{
			wait("load in all regions", 8*time.Second),
			{fmt.Sprintf("partition %s (%s) for %v", faultRegion, way, lasts), p.begin},
			{"count what crosses the partition", p.mark},
			{"the rest of the partition", func(ctx context.Context, _ *Run) error {
				return sleep(ctx, lasts-time.Since(p.began))
			}},
			{"heal", p.heal},
			wait("load after the heal", 3*time.Second),
		},
		Takes: lasts + 45*time.Second,
		Check: p.check,
	}
}

// partitionRun is what a run with a partition measures.
type partitionRun struct {
	way   cluster.Direction
	lasts time.Duration
	began time.Time
	held  time.Time // when the partition took hold
	ended int64     // Unix ns
	wan   netem.Link

	complete, agreed time.Duration // from the heal to complete membership, from there to agreement
}

func (p *partitionRun) begin(ctx context.Context, r *Run) error {
	*p = partitionRun{way: p.way, lasts: p.lasts, began: time.Now()}
	err := r.Begin(ctx, record.Partition, faultRegion,
		func(ctx context.Context, region string) error { return r.Cluster.Partition(ctx, region, p.way) },
		func(ctx context.Context, _ string) error { return r.Cluster.Heal(ctx) })
	if err != nil {
		return err
	}
	r.Observed("every node that should receive nothing across the partition reported so after %.1f s",
		time.Since(p.began).Seconds())
	return p.measureHold(ctx, r)
}

// mark has every node admit requests that the other side cannot learn of, and verifies who counts what.
func (p *partitionRun) mark(ctx context.Context, r *Run) error {
	id := r.ID("mark")
	for _, n := range r.Nodes {
		for range markCount {
			if a, err := r.Take(ctx, n, accountRule, id, 1); err != nil || !a.Allowed {
				return fmt.Errorf("%s did not admit a request (allowed %v): %w", n.Name, a.Allowed, err)
			}
		}
	}
	if err := sleep(ctx, time.Second); err != nil { // several gossip intervals
		return err
	}
	counts, err := r.Counts(ctx, accountRule, id)
	if err != nil {
		return err
	}
	for _, n := range r.Nodes {
		if want := p.reachable(r, n); counts[n.Name] != want {
			return fmt.Errorf("%s counts %d of what was admitted in the partition, want %d: the partition leaks or "+
				"blocks too much", n.Name, counts[n.Name], want)
		}
	}
	r.Observed("of %d requests admitted in the partition, each node counted those of the nodes that reach it: %v",
		markCount*len(r.Nodes), counts)
	return nil
}

// reachable returns how many of the marks reach a node during the partition.
func (p *partitionRun) reachable(r *Run, n cluster.Node) (total uint64) {
	for _, from := range r.Nodes {
		fromInside, inside := from.Region == faultRegion, n.Region == faultRegion
		passes := p.way == cluster.Out && inside || p.way == cluster.In && fromInside
		if fromInside == inside || passes {
			total += markCount
		}
	}
	return total
}

func (p *partitionRun) heal(ctx context.Context, r *Run) error {
	p.ended = time.Now().UnixNano()
	began := time.Now()
	if err := r.End(ctx); err != nil {
		return err
	}
	p.complete = time.Since(began)
	var err error
	p.agreed, err = r.AwaitCount(ctx, accountRule, r.ID("mark"), uint64(markCount*len(r.Nodes)), completeWithin)
	return err
}

func (p *partitionRun) check(r *Run) {
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
func (p *partitionRun) checkSides(r *Run) {
	decided, failed := map[bool]int{}, 0
	decisions, _ := r.recorded()
	admitted := 0
	for _, d := range decisions {
		switch {
		case d.Sent < p.began.UnixNano() || d.Sent >= p.ended:
		case d.Error != "":
			failed++
		default:
			decided[d.Region == faultRegion]++
			if d.Allowed && d.Identity == r.ID("greedy") && d.Sent < p.began.Add(p.lasts).UnixNano() {
				admitted++
			}
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
