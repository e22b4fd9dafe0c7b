package scenario

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/edgelimit/edgelimit/testnet/load"
	"github.com/edgelimit/edgelimit/testnet/multiregion"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/weather"
)

// What a heal has to do: nodes see each other, and then agree.
const (
	wholeWithin = 30 * time.Second
	agreeWithin = 2 * time.Second
)

// What both sides of a cut together may admit above the limit, as they share it: in percent by the algorithm's own count, and as a part of
// what they admit in all, in which the algorithm's own error is too.
const (
	sharedExcess = 6
	sharedMost   = 1.1
)

// cutRegion is the region that is cut off.
const cutRegion = "eu-west"

// marks are how many requests each node gets inside a cut that the others cannot hear of.
const marks = 20

func partition(cut time.Duration) Scenario {
	s := cutting("partition", multiregion.Both, cut)
	s.What = "a region is cut off the WAN under load: both sides go on deciding and share the limit, and after the heal all agree"
	return s
}

func oneWay(cut time.Duration) Scenario {
	s := cutting("one-way", multiregion.Out, cut)
	s.What = "nobody hears a region, which hears all others: the same promises as in a partition"
	return s
}

// cutting is a scenario in which a region is cut off while a greedy client asks for three times its limit and a modest one for less than half of
// it, everywhere.
func cutting(name string, way multiregion.Direction, cut time.Duration) Scenario {
	c := &cutRun{way: way, cut: cut}
	return Scenario{
		Name: name, Rule: "per_client",
		Streams: []load.Stream{{Identity: "greedy", Rate: 300}, {Identity: "modest", Rate: 40}},
		Steps: []Step{
			wait("load in all regions", 8*time.Second),
			{fmt.Sprintf("cut off %s (%s) for %v", cutRegion, way, cut), c.begin},
			{"what each side counts by itself", c.mark},
			{"the rest of the cut", c.rest},
			{"heal", c.heal},
			wait("load after the heal", 3*time.Second),
		},
		Takes: cut + 45*time.Second,
		Check: c.check,
	}
}

// cutRun is what a run of cutting finds out.
type cutRun struct {
	way   multiregion.Direction
	cut   time.Duration
	began time.Time
	held  time.Time // when it took hold
	ended int64     // Unix ns
	wan   weather.WAN

	whole, agreed time.Duration
}

func (c *cutRun) begin(ctx context.Context, r *Run) error {
	*c = cutRun{way: c.way, cut: c.cut, began: time.Now()}
	err := r.Begin(ctx, record.Partition, cutRegion,
		func(ctx context.Context) error { return r.Net.Partition(ctx, cutRegion, c.way) }, r.Net.Heal)
	if err != nil {
		return err
	}
	r.Evidence("every node that was to hear nothing from beyond the cut said so %.1f s after it was made", time.Since(c.began).Seconds())
	return c.heardLast(ctx, r)
}

// mark has every node admit something that the other side cannot hear of, and looks who counts what.
func (c *cutRun) mark(ctx context.Context, r *Run) error {
	id := r.ID("mark")
	for _, n := range r.Nodes {
		for range marks {
			if a, err := r.Take(ctx, n, accounts, id, 1); err != nil || !a.Allowed {
				return fmt.Errorf("%s did not admit a request in the cut (allowed %v): %w", n.Name, a.Allowed, err)
			}
		}
	}
	if err := sleep(ctx, time.Second); err != nil { // so that they would have heard of it
		return err
	}
	counts, err := r.Counts(ctx, r.Nodes, accounts, id)
	if err != nil {
		return err
	}
	for _, n := range r.Nodes {
		if want := c.hears(r, n); counts[n.Name] != want {
			return fmt.Errorf("%s counts %d of what was admitted in the cut, want %d: the cut is not what it should be", n.Name, counts[n.Name], want)
		}
	}
	r.Evidence("of %d requests admitted in the cut, each node counted those that it could hear of: %v", marks*len(r.Nodes), counts)
	return nil
}

// hears is how many marks a node hears of while the cut is in force.
func (c *cutRun) hears(r *Run, n multiregion.Node) (total uint64) {
	for _, from := range r.Nodes {
		inside, outside := from.Region == cutRegion, n.Region != cutRegion
		crosses := inside == outside
		if !crosses || c.way == multiregion.Out && !inside || c.way == multiregion.In && inside {
			total += marks
		}
	}
	return total
}

func (c *cutRun) rest(ctx context.Context, _ *Run) error {
	return sleep(ctx, c.cut-time.Since(c.began))
}

func (c *cutRun) heal(ctx context.Context, r *Run) error {
	c.ended = time.Now().UnixNano()
	began := time.Now()
	if err := r.End(ctx); err != nil {
		return err
	}
	c.whole = time.Since(began)
	var err error
	c.agreed, err = r.AwaitCount(ctx, accounts, r.ID("mark"), uint64(marks*len(r.Nodes)), wholeWithin)
	return err
}

func (c *cutRun) check(r *Run) {
	r.Promise("membership is whole again", c.whole <= wholeWithin, "within 30 s", fmt.Sprintf("%.1f s", c.whole.Seconds()))
	r.Promise("then all nodes count what was admitted in the cut", c.agreed <= agreeWithin, "within 2 s", fmt.Sprintf("%.2f s", c.agreed.Seconds()))
	r.Promise("after the last request all nodes agree", r.Report.AgreeMs >= 0 && r.Report.AgreeMs <= float64(agreeWithin.Milliseconds()),
		"within 2000 ms", fmt.Sprintf("%.0f ms", r.Report.AgreeMs))
	r.Figure("whole_s", c.whole.Seconds())
	r.Figure("agree_after_heal_s", c.agreed.Seconds())
	r.Figure("steady_bound_pct", r.Report.SteadyPct)
	for _, p := range r.Report.Phases {
		if p.Sides < 2 {
			continue
		}
		r.Promise("the sides of the cut share the limit", p.ExcessPct <= sharedExcess,
			fmt.Sprintf("at most %d %% over the limit", sharedExcess), fmt.Sprintf("%.1f %%", p.ExcessPct))
		r.Figure("cut_excess_pct", p.ExcessPct)
	}
	c.checkSides(r)
	c.checkPrediction(r)
}

// checkSides holds what each side did in the cut.
func (c *cutRun) checkSides(r *Run) {
	answered, failed := map[bool]int{}, 0
	decisions, _ := r.recorded()
	admitted := 0
	for _, d := range decisions {
		switch {
		case d.Sent < c.began.UnixNano() || d.Sent >= c.ended:
		case d.Error != "":
			failed++
		default:
			answered[d.Region == cutRegion]++
			if d.Allowed && d.Identity == r.ID("greedy") && d.Sent < c.began.Add(c.cut).UnixNano() {
				admitted++
			}
		}
	}
	r.Promise("both sides go on deciding in the cut", failed == 0 && answered[true] > 0 && answered[false] > 0, "0 failed, decisions on both sides",
		fmt.Sprintf("%d failed, %d in %s, %d elsewhere", failed, answered[true], cutRegion, answered[false]))
	// Each side was asked for more than the limit in each window of the cut.
	windows := math.Ceil(c.cut.Seconds() / r.Report.Rule.Window.Seconds())
	most := windows * float64(r.Report.Rule.Limit) * sharedMost
	r.Promise("what is admitted in the cut is about one limit a window", float64(admitted) <= most, fmt.Sprintf("at most %.0f", most), fmt.Sprint(admitted))
	r.Figure("cut_admitted", float64(admitted))
}
