package demo

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/plot"
)

// Phase is the part of the demo under way.
type Phase string

// The phases, in their order.
const (
	Filling     Phase = "filling the window"
	Steady      Phase = "steady"
	Partitioned Phase = "cut"
	Settling    Phase = "healed, the excess leaves the window"
	Ending      Phase = "stopping"
)

// Sample is the state of the cluster at a time.
type Sample struct {
	Elapsed     time.Duration
	Phase       Phase
	Partitioned string // the region that is partitioned, or was
	Nodes       []NodeSample
	Total       judge.Requests
	Over        float64       // the largest excess over the limit since the last sample, as a part of the limit
	Bound       float64       // the largest bound that a node exports, likewise
	Stale       time.Duration // the largest staleness of a node
}

// NodeSample is the state of one node.
type NodeSample struct {
	ID, Region string
	Requests   judge.Requests
	Peers      int // other nodes of the cluster
	// Unreachable are those peers from which nothing has come for a while.
	Unreachable []Peer
	Stale       time.Duration
	Bound       float64
}

// Peer names a node.
type Peer struct{ ID, Region string }

// Report is what a demo found. Percentages are of the limit.
type Report struct {
	Regions        int     `json:"regions"`
	Nodes          int     `json:"nodes"` // in each region
	Limit          uint64  `json:"limit"` // per window and client
	WindowSeconds  float64 `json:"window_s"`
	IntervalMillis float64 `json:"interval_ms"`
	Seconds        float64 `json:"duration_s"`
	Traffic        string  `json:"traffic"`
	// Requests are of the load, without the compliant client.
	judge.Requests
	Clients int `json:"clients"`
	// Fairness is of the compliant client and, of a log, of those clients that keep to the limit.
	judge.Fairness

	NetPct float64 `json:"net_over_admission_pct"` // all that was admitted, against the oracle
	// OverAdmissionPct is the over-admission of the worst window against the oracle (judge.Tracker.PeakOver), outside
	// the partition. It may be a request or two although every node decided as the oracle: clocks differ by moments.
	OverAdmissionPct float64 `json:"over_admission_pct"`
	// ExcessPct is the largest Sample.Over outside the partition: the figure that the bound limits.
	ExcessPct          float64 `json:"excess_pct"`
	BoundPct           float64 `json:"bound_pct"`        // largest that a node exported outside the partition
	Violations         int     `json:"bound_violations"` // samples whose excess was above what was exported then
	StalenessP50Millis float64 `json:"staleness_p50_ms"` // outside the partition
	StalenessP99Millis float64 `json:"staleness_p99_ms"`

	PartitionRegion           string  `json:"cut_region"`
	PartitionSeconds          float64 `json:"cut_s"`
	PartitionOverAdmissionPct float64 `json:"cut_over_admission_pct"` // the same in and after the partition
	PartitionBoundPct         float64 `json:"cut_bound_pct"`
	// PartitionCeilingPct is what two sides can admit: each its own limit, and the bound beside.
	PartitionCeilingPct float64 `json:"cut_ceiling_pct"`
	// HealMillis is the time until every node had received everything again; 0 without a partition, -1 never.
	HealMillis int64 `json:"heal_ms"`
	// AgreeMillis is the time from the last request until all nodes held the same counts; -1 never.
	AgreeMillis int64 `json:"agree_ms"`
	// StallMillis is the longest that this process was kept from running: figures of a run with long stalls say little
	// of the nodes.
	StallMillis float64 `json:"machine_pause_ms"`

	Limited []Limited `json:"limited"` // the clients that were denied most
	OK      bool      `json:"ok"`
	Wrong   []string  `json:"wrong"` // why not

	planned     float64 // requests that should have been offered
	overOffered bool    // the compliant client did not keep to the limit
	series      plot.Series
}

// WritePlot writes the run as an SVG picture; see package plot.
func (r *Report) WritePlot(w io.Writer) error { return plot.WriteSVG(w, r.series) }

// report draws the figures together.
func (r *run) report(agreeMs int64) *Report {
	o, p := &r.opt, &r.partition
	out := &Report{
		Regions: o.Regions, Nodes: o.Nodes, Limit: o.Limit, WindowSeconds: o.Window.Seconds(),
		IntervalMillis: millis(o.Interval), Seconds: o.Duration.Seconds(),
		Traffic: fmt.Sprintf("%g times the limit", o.Load), AgreeMillis: agreeMs, StallMillis: millis(r.stall),
		PartitionRegion: p.region, PartitionSeconds: o.Partition.Seconds(), HealMillis: p.took.Milliseconds(),
		Fairness: r.tracker.all.Fairness(), Limited: r.tracker.limited(), planned: o.planned(),
	}
	if p.took < 0 {
		out.HealMillis = -1
	}
	if len(o.Log) > 0 {
		out.Traffic = fmt.Sprintf("a log, %.0f times as fast", o.Speed())
	}
	var excess float64
	_, out.Requests, excess = r.tracker.read(time.Now())
	if p.began.IsZero() || !p.recovered.IsZero() {
		out.ExcessPct = judge.Percent(max(0, excess)) // since the last sample
	}
	for name, c := range r.tracker.all.Clients() {
		if name == compliant {
			out.overOffered = !r.tracker.all.Compliant(c)
		} else {
			out.Clients++
		}
	}
	out.NetPct = judge.Percent(float64(out.Admitted)/float64(max(1, out.OracleAdmitted)) - 1)
	r.reportPeaks(out)
	r.readSamples(out)
	if o.Partition > 0 {
		out.PartitionCeilingPct = 100 + out.BoundPct
	}
	out.judge()
	out.series = r.series(out)
	return out
}

// reportPeaks tells the over-admission of the partition, until it has settled, from that of the other times.
func (r *run) reportPeaks(out *Report) {
	p, end := &r.partition, r.start.Add(r.opt.Duration+maxLate)
	if p.began.IsZero() {
		out.OverAdmissionPct = judge.Percent(r.tracker.peakOver(r.start, end))
		return
	}
	settled := end.Add(1) // without recovery, all after the partition is its own
	if !p.recovered.IsZero() {
		settled = p.recovered.Add(r.settling())
	}
	outside := max(r.tracker.peakOver(r.start, p.began), r.tracker.peakOver(settled, end))
	out.OverAdmissionPct = judge.Percent(outside)
	out.PartitionOverAdmissionPct = judge.Percent(r.tracker.peakOver(p.began, settled))
}

// startUp is the time in which nodes that were idle still send only every second.
const startUp = 2 * time.Second

// readSamples takes from the samples what only they know.
func (r *run) readSamples(out *Report) {
	var stale []time.Duration
	for i, s := range r.samples {
		if s.Phase == Partitioned || s.Phase == Settling {
			out.PartitionBoundPct = max(out.PartitionBoundPct, judge.Percent(s.Bound))
			out.PartitionOverAdmissionPct = max(out.PartitionOverAdmissionPct, judge.Percent(s.Over))
		} else {
			out.BoundPct = max(out.BoundPct, judge.Percent(s.Bound))
			out.ExcessPct = max(out.ExcessPct, judge.Percent(s.Over))
			if s.Elapsed > startUp {
				stale = append(stale, s.Stale)
			}
		}
		// An excess is in the bound as soon as the peers' reports of it have come.
		exported := s.Bound
		for _, later := range r.samples[i:] {
			if later.Elapsed-s.Elapsed > gossip.BoundAfter(r.opt.Interval) {
				break
			}
			exported = max(exported, later.Bound)
		}
		if s.Over > exported {
			out.Violations++
		}
	}
	if n := len(stale); n > 0 {
		slices.Sort(stale)
		out.StalenessP50Millis, out.StalenessP99Millis = millis(stale[n/2]), millis(stale[n*99/100])
	}
}

// series returns the run by second: requests of the load, and the fullest windows of all clients.
func (r *run) series(out *Report) plot.Series {
	s := plot.Series{
		Title: []string{
			fmt.Sprintf("demo: %d regions of %d nodes, %d per %v and client, %s, gossip every %v",
				out.Regions, out.Nodes, out.Limit, r.opt.Window, out.Traffic, r.opt.Interval),
			fmt.Sprintf("net %+.2f %%, over the oracle %+.2f %%, in the partition %+.2f %%, bound %.2f and %.2f %%",
				out.NetPct, out.OverAdmissionPct, out.PartitionOverAdmissionPct, out.BoundPct, out.PartitionBoundPct),
		},
		Limit: float64(r.opt.Limit), Window: r.opt.Window, Clients: out.Clients, Duration: r.opt.Duration,
	}
	var last judge.Requests
	seconds := make([]plot.Sample, int((r.opt.Duration+time.Second-1)/time.Second))
	for _, p := range r.samples {
		i := int((p.Elapsed - sampleEvery/2) / time.Second) // a sample is of the time since the one before
		if i >= len(seconds) {
			break
		}
		seconds[i].Offered += float64(p.Total.Offered - last.Offered)
		seconds[i].Admitted += float64(p.Total.Admitted - last.Admitted)
		seconds[i].Oracle += float64(p.Total.OracleAdmitted - last.OracleAdmitted)
		seconds[i].Bound = max(seconds[i].Bound, p.Bound)
		last = p.Total
	}
	admitted, oracle := r.tracker.all.PeaksPerSecond(r.start.UnixNano(), len(seconds))
	for i := range seconds {
		seconds[i].T = time.Duration(i)*time.Second + time.Second/2
		seconds[i].WindowAdmitted, seconds[i].WindowOracle = float64(admitted[i]), float64(oracle[i])
	}
	s.Samples = seconds
	if p := &r.partition; !p.began.IsZero() {
		until := r.opt.Duration
		if !p.healed.IsZero() {
			until = p.healed.Sub(r.start)
		}
		s.Partitions = []plot.Partition{{From: p.began.Sub(r.start), Until: until, Label: "partition " + p.region}}
	}
	return s
}

// judge says whether the figures held.
func (r *Report) judge() {
	r.Wrong = []string{}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			r.Wrong = append(r.Wrong, fmt.Sprintf(format, args...))
		}
	}
	check(r.Violations == 0, "in %d samples more was admitted than the nodes' bound allowed", r.Violations)
	check(r.ExcessPct <= r.BoundPct,
		"%.1f %% were admitted over the limit, the bound was %.1f %%", r.ExcessPct, r.BoundPct)
	check(r.PartitionSeconds == 0 || r.PartitionOverAdmissionPct <= r.PartitionCeilingPct,
		"%.1f %% were admitted over the limit in the partition, its ceiling was %.1f %%",
		r.PartitionOverAdmissionPct, r.PartitionCeilingPct)
	check(r.HealMillis >= 0, "the cluster did not heal")
	check(r.AgreeMillis >= 0, "the nodes did not come to agree on their counts")
	check(r.FalseRejections == 0,
		"%d requests of clients that keep to 95 %% of the limit were rejected", r.FalseRejections)
	check(!r.overOffered, "the requests of the compliant client came so late, all at once, that it did not keep to "+
		"the limit: this machine is too slow")
	check(r.Offered > 0, "nothing was offered")
	check(r.Offered == 0 || float64(r.Offered) >= 0.9*r.planned, "%d requests were offered where %.0f should have "+
		"been: this machine is too slow for the load", r.Offered, r.planned)
	check(len(r.Wrong) == 0 || !r.Stalled(), "this machine let the demo wait for up to %.0f ms at a time, more than a "+
		"gossip interval, or than clocks may be behind: look for other load on it and try again", r.StallMillis)
	r.OK = len(r.Wrong) == 0
}

// Stalled reports whether the process was kept from running for longer than a gossip interval, so that the nodes were
// staler than network and interval explain, or than judge.ClockLag, so that they decided by a time that the judge takes
// for impossible.
func (r *Report) Stalled() bool { return r.StallMillis > min(r.IntervalMillis, millis(judge.ClockLag)) }

func millis(d time.Duration) float64 { return math.Round(d.Seconds()*1e4) / 10 }
