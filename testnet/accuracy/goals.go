package main

import (
	"cmp"
	"math"
	"slices"

	"github.com/edgelimit/edgelimit/testnet/sim"
)

// goal is what edgelimit has to reach.
type goal struct {
	text   string
	rows   string // which rows it is about; empty: all
	figure func(*sim.Report) float64
	max    float64 // at most this, unless least is set
	least  float64
	beside func(v, other float64) float64 // what is judged: the figure beside that of another row, see row.beside
	total  bool                           // the figure is a count, added up over rows and seeds
}

// What rows are judged by. A row of partitions has goalCut, and goalCut with the name of its policy.
const (
	goalFair     = "fair"
	goalSteady   = "steady"
	goalFlash    = "flash"
	goalSurprise = "surprise"
	goalTight    = "tight"
	goalCut      = "cut "
	goalDrift    = "drift"
	goalRedis    = "redis"

	goalSizeSteady   = "size steady"
	goalSizeSurprise = "size surprise"
	goalOwnerDown    = "owner down"
	goalOwnerBound   = "owner down, bound"
)

// goals are all of them. This is the only place that knows their figures.
var goals = []goal{
	{text: "1. requests of clients that keep to 95 % of the limit: rejected, in all tables",
		figure: falseRejections, total: true},
	{text: "1. how many such requests were made in bursts, with loss, duplication and reordering",
		rows: goalFair, figure: compliantOffered, least: 1e7, total: true},
	{text: "2. even, skew and hotspot, 2x and 5x, every 50, 100 and 200 ms: net, % either way",
		rows: goalSteady, figure: absoluteNet, max: 0.5},
	{text: "2. the same: peak, %", rows: goalSteady, figure: peak, max: 2.5},
	{text: "2. flash: peak, %", rows: goalFlash, figure: peak, max: 7},
	{text: "2. a surprise of 20x, the first window included: peak, %", rows: goalSurprise, figure: peak, max: 9},
	{text: "3. gossip intervals in which more was admitted than the bound allowed, in all tables",
		figure: violations, total: true},
	{text: "3. even 2x: bound, %", rows: goalTight, figure: bound, max: 8},
	{text: "3. the rows of goal 2: windows whose largest estimate was off by more than 2 points, %", rows: goalSteady,
		figure: estimateOff, max: 5},
	{text: "4. a region cut off, share: peak, %", rows: goalCut + "share", figure: peak, max: 4},
	{text: "4. a region cut off, share: requests of compliant clients rejected",
		rows: goalCut + "share", figure: falseRejections, total: true},
	{text: "4. a region cut off, local: excess, % (a second limit for the second side)",
		rows: goalCut + "local", figure: observed, max: 100},
	{text: "4. after the heal of both directions all is known again, ms", rows: goalCut, figure: healed, max: 1000},
	{text: "4. two windows after the heal: peak, % (as without a cut)", rows: goalCut, figure: healedPeak, max: 2.5},
	{text: "5. runs on bad networks after which the nodes did not hold the same counts",
		rows: goalDrift, figure: disagreed, total: true},
	{text: "5. Redis in trouble: counts that it lacked after two flushes of each node",
		rows: goalRedis, figure: slotsMissing, total: true},
	{text: "5. the same: counts that it held twice, or otherwise too much of",
		rows: goalRedis, figure: slotsTwice, total: true},
	{text: "5. the same: flushes of a node until Redis was whole again",
		rows: goalRedis, figure: repairFlushes, max: 2},
	{text: "5. the same: runs after which the nodes did not hold the same counts",
		rows: goalRedis, figure: disagreed, total: true},
	{text: "6. even, skew and hotspot, 2x and 5x, at 120, 500 and 1,500 nodes: net, % either way",
		rows: goalSizeSteady, figure: absoluteNet, max: 0.5},
	{text: "6. the same: windows whose largest estimate was off by more than 2 points, %", rows: goalSizeSteady,
		figure: estimateOff, max: 5},
	{text: "6. the same: peak, percentage points above that of 12 nodes", rows: goalSizeSteady, figure: peak,
		beside: above, max: 1.5},
	{text: "6. even 20x and flash at these sizes: net, % either way", rows: goalSizeSurprise, figure: absoluteNet,
		max: 3},
	{text: "6. the same: peak, times that of 12 nodes", rows: goalSizeSurprise, figure: peak, beside: times, max: 2},
	{text: "6. an owner killed: peak, percentage points above the undisturbed run", rows: goalOwnerDown, figure: peak,
		beside: above, max: 2},
	{text: "6. the same: bound, percentage points above that where a region is cut off", rows: goalOwnerBound,
		figure: bound, beside: above, max: 0},
}

func above(v, other float64) float64 { return v - other }
func times(v, other float64) float64 { return v / max(other, 1) }

func falseRejections(r *sim.Report) float64  { return float64(r.FalseRejections) }
func compliantOffered(r *sim.Report) float64 { return float64(r.CompliantOffered) }
func netPct(r *sim.Report) float64           { return r.NetPct }
func absoluteNet(r *sim.Report) float64      { return math.Abs(r.NetPct) }
func peak(r *sim.Report) float64             { return r.PeakPct }
func healedPeak(r *sim.Report) float64       { return r.HealedPeakPct }
func cutNet(r *sim.Report) float64           { return r.PartitionNetPct }
func bound(r *sim.Report) float64            { return r.BoundPct }
func estimateOff(r *sim.Report) float64      { return 100 - r.EstimateWithinPct }
func observed(r *sim.Report) float64         { return r.ObservedPct }
func boundRatio(r *sim.Report) float64       { return r.BoundRatio }
func violations(r *sim.Report) float64       { return float64(r.BoundViolations) }
func kilobytes(r *sim.Report) float64        { return r.BytesPerNode / 1000 }
func messages(r *sim.Report) float64         { return r.MessagesPerNode }
func here(r *sim.Report) float64             { return r.HereP99Millis }
func across(r *sim.Report) float64           { return r.AcrossP99Millis }

// never is how long something took that did not happen.
func never(millis float64) float64 {
	if millis < 0 {
		return math.Inf(1)
	}
	return millis
}

func healed(r *sim.Report) float64 { return never(r.HealMillis) }
func agreed(r *sim.Report) float64 { return never(r.AgreeMillis) }

// redis is what became of the stores: nothing in a run without faults of them.
func redis(r *sim.Report) *sim.StoreReport { return cmp.Or(r.Redis, new(sim.StoreReport)) }

func storeCalls(r *sim.Report) float64    { return float64(redis(r).Calls) }
func storeFailed(r *sim.Report) float64   { return float64(redis(r).Failed) }
func slotsLost(r *sim.Report) float64     { return float64(redis(r).SlotsLost) }
func slotsMissing(r *sim.Report) float64  { return float64(redis(r).SlotsMissing) }
func slotsTwice(r *sim.Report) float64    { return float64(redis(r).SlotsTwice) }
func repairFlushes(r *sim.Report) float64 { return never(float64(redis(r).RepairFlushes)) }
func repairMillis(r *sim.Report) float64  { return never(redis(r).RepairMillis) }

func disagreed(r *sim.Report) float64 {
	if r.AgreeMillis < 0 {
		return 1
	}
	return 0
}

// verdict is a goal and what was measured.
type verdict struct {
	*goal
	spread
	figure string // met, missed in the worst seed, missed, not measured
}

const notMeasured = "not measured"

// judge holds the rows that the goal is about against it. The figures are those of the worst row: in its median seed,
// and in the worst.
func (g *goal) judge(rows []row, all results) verdict {
	v, measured := verdict{goal: g, figure: notMeasured}, false
	for i := range rows {
		r := all.of(&rows[i])
		if r == nil || g.rows != "" && !slices.Contains(rows[i].goals, g.rows) {
			continue
		}
		if g.total {
			measured = true
			v.worst += sum(r.reports, g.figure)
			v.median = v.worst
			continue
		}
		s := over(r.reports, g.figure)
		if g.beside != nil {
			other := all.of(rows[i].beside[g.rows])
			if other == nil {
				continue
			}
			median := over(other.reports, g.figure).median
			s = spread{g.beside(s.median, median), g.beside(s.worst, median)}
		}
		measured = true
		v.median, v.worst = max(v.median, s.median), max(v.worst, s.worst)
	}
	if measured {
		v.figure = g.verdict(v.spread)
	}
	return v
}

func (g *goal) verdict(s spread) string {
	switch met := func(v float64) bool { return g.least > 0 && v >= g.least || g.least == 0 && v <= g.max }; {
	case met(s.worst):
		return "met"
	case met(s.median):
		return "missed in the worst seed"
	}
	return "missed"
}
