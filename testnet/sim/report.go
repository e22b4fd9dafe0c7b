package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/plot"
)

// Report is what a run showed. Percentages are of the limit unless said otherwise. It holds nothing that depends on the
// machine: the same options give the same report.
type Report struct {
	Regions        int      `json:"regions"`
	Nodes          int      `json:"nodes"` // in each region
	Limit          uint64   `json:"limit"` // per window and client
	WindowSeconds  float64  `json:"window_s"`
	IntervalMillis float64  `json:"interval_ms"`
	Algorithm      string   `json:"algorithm"`
	Strategy       Strategy `json:"strategy"`
	Pattern        Pattern  `json:"pattern"` // or trace
	Load           float64  `json:"load"`    // on average, as a multiple of the limit
	Keys           int      `json:"keys"`    // clients
	Compliant      int      `json:"beside"`  // clients that keep to the limit, beside them
	WANDelayMillis float64  `json:"wan_delay_ms"`
	LANDelayMillis float64  `json:"lan_delay_ms"`
	Loss           float64  `json:"loss"`
	Duplicate      float64  `json:"duplication"`
	Reorder        float64  `json:"reordering"`
	SkewMillis     float64  `json:"skew_ms"`
	Partitions     []string `json:"partitions"`
	NodeFaults     []string `json:"node_faults"`
	Seconds        float64  `json:"duration_s"`
	Seed           uint64   `json:"seed"`

	// Requests of all clients but for those beside the load. Offered are those that were answered: admitted or denied.
	Offered uint64 `json:"offered"`
	// requests that were not, because the node was down; the oracle is not asked about them
	Failed         uint64 `json:"failed"`
	Admitted       uint64 `json:"admitted"`
	Denied         uint64 `json:"denied"`
	OracleAdmitted uint64 `json:"oracle_admitted"`

	// NetPct is what was admitted against what the oracle would have, less 100. PeakPct is the most by which a rolling
	// window of any client was fuller than the oracle's own of the same time, or than L where that is more.
	// PeakOverOraclePct is the fullest window of all less the oracle's fullest of all, as the demo and the checker have
	// it; PeakOverLimitPct is it less L, the algorithm's own error included.
	NetPct            float64 `json:"net_over_admission_pct"`
	PeakPct           float64 `json:"peak_over_admission_pct"`
	PeakOverOraclePct float64 `json:"peak_over_oracle_peak_pct"`
	PeakOverLimitPct  float64 `json:"peak_over_limit_pct"`
	// The same over requests from two windows on, whose windows hold nothing of the first one, in which everybody is a
	// surprise. 0 in a shorter run.
	SettledNetPct  float64 `json:"settled_net_pct"`
	SettledPeakPct float64 `json:"settled_peak_pct"`
	// PartitionNetPct is NetPct over the requests that came during a partition.
	PartitionNetPct float64 `json:"cut_net_pct"`
	// HealedPeakPct is PeakPct over the windows that end two windows and more after the last partition. 0 without one,
	// or in a run that ends before.
	HealedPeakPct float64 `json:"healed_peak_pct"`

	// A compliant client is one of which the oracle never counts more than 95 % of L. FalseRejectPct is of the requests
	// of these clients.
	judge.Fairness
	FalseRejectPct float64 `json:"false_reject_pct"`
	// Needless is denials, of any client, although all that was admitted left room.
	Needless uint64 `json:"needless_denials"`

	// BoundPct is the largest bound that a node exported. ObservedPct is what it is about: the most by which the count
	// of all that was admitted was above L when a request was admitted. BoundRatio is the one by the other, 0 where
	// nothing was observed. BoundHeld says that at every moment the excess was at most the bound of some node, exported
	// no more than two seconds later; BoundViolations is in how many gossip intervals it was not.
	BoundPct        float64 `json:"bound_pct"`
	ObservedPct     float64 `json:"observed_pct"`
	BoundRatio      float64 `json:"bound_ratio"`
	BoundHeld       bool    `json:"bound_held"`
	BoundViolations int     `json:"bound_violations"`
	// EstimateWithinPct is the percentage of windows in which the largest estimate of a node, what its counts show that
	// have arrived, was within 2 % of the limit of what was observed.
	EstimateWithinPct float64 `json:"estimate_within_pct"`

	// Staleness is how old what a node knows of another is: the oldest of all, looked at every 100 ms. 0 where owners
	// add up, as most nodes exchange nothing there. Here and Across are how long after an admission another node counts
	// it that is asked for the key, of the same region and of another one; 0 unless the algorithm goes by sub-windows.
	StalenessP50Millis float64 `json:"staleness_p50_ms"`
	StalenessP99Millis float64 `json:"staleness_p99_ms"`
	HereP50Millis      float64 `json:"here_p50_ms"`
	HereP99Millis      float64 `json:"here_p99_ms"`
	AcrossP50Millis    float64 `json:"across_p50_ms"`
	AcrossP99Millis    float64 `json:"across_p99_ms"`
	// HealMillis is the longest, after the end of a partition, until every node knew all of every other again: 0
	// without one, -1 never.
	HealMillis float64 `json:"heal_ms"`
	// AgreeMillis is how long after the last request all nodes held the same counts: -1 never.
	AgreeMillis float64 `json:"agree_ms"`
	// What a node sends while requests come: frames, each with its 86 bytes of IPv4, UDP and memberlist around it.
	BytesPerNode    float64 `json:"bytes_per_node_per_s"`
	MessagesPerNode float64 `json:"messages_per_node_per_s"`

	Redis *StoreReport `json:"redis,omitempty"` // nil without a fault of it

	EventHash string   `json:"event_hash"` // of every message, decision and flush
	OK        bool     `json:"ok"`
	Wrong     []string `json:"wrong"` // why not

	PerSecond []plot.Sample `json:"-"` // for a plot
}

func (c *cluster) report(agreed time.Duration) *Report {
	o, b, t := &c.opt, c.recorder, c.recorder.tracker
	worst, observed := slices.Max(append(b.bound, 0)), slices.Max(append(b.excess, 0))
	senders := float64(o.Total()) * o.Duration.Seconds()
	r := &Report{
		Regions: o.Regions, Nodes: o.Nodes, Limit: o.Limit, WindowSeconds: o.Window.Seconds(),
		IntervalMillis: millis(o.Interval), Algorithm: o.Method.String(), Strategy: o.Strategy, Pattern: o.Pattern,
		Load: o.Pattern.load(o.Load), Keys: o.Keys, Compliant: o.Compliant,
		WANDelayMillis: millis(o.WANDelay), LANDelayMillis: millis(o.LANDelay), Loss: o.Loss,
		Duplicate: o.Duplicate, Reorder: o.Reorder, SkewMillis: millis(o.Skew),
		Partitions: texts(o.Partitions), NodeFaults: texts(o.NodeFaults), Seconds: o.Duration.Seconds(), Seed: o.Seed,
		Offered: b.total.Offered, Failed: b.lost, Admitted: b.total.Admitted, Denied: b.total.Denied,
		OracleAdmitted: b.total.OracleAdmitted,

		NetPct: b.total.NetPct(), SettledNetPct: b.settled.NetPct(), PartitionNetPct: b.partitioned.NetPct(),
		PeakPct:           judge.Percent(t.PeakAbove(c.startAt, c.endAt)),
		PeakOverOraclePct: judge.Percent(t.PeakOver(c.startAt, c.endAt)),
		PeakOverLimitPct:  judge.Percent(t.PeakOverLimit(c.startAt, c.endAt)),
		SettledPeakPct:    judge.Percent(t.PeakAbove(c.startAt+2*int64(o.Window), c.endAt)),
		Fairness:          t.Fairness(), Needless: b.needless,
		BoundPct: judge.Percent(worst), ObservedPct: judge.Percent(observed), BoundViolations: b.violations(0),
		EstimateWithinPct:  judge.Percent(b.estimateWithin(0.02)),
		StalenessP50Millis: quantile(b.peerAge, 0.5), StalenessP99Millis: quantile(b.peerAge, 0.99),
		HereP50Millis: quantile(c.here, 0.5), HereP99Millis: quantile(c.here, 0.99),
		AcrossP50Millis: quantile(c.across, 0.5), AcrossP99Millis: quantile(c.across, 0.99),
		AgreeMillis: -1, EventHash: fmt.Sprintf("%016x", uint64(c.digest)), PerSecond: b.seconds,
		BytesPerNode:    math.Round(float64(b.bytes) / senders),
		MessagesPerNode: math.Round(float64(b.messages)/senders*10) / 10,
	}
	r.BoundHeld = r.BoundViolations == 0
	if o.Trace != nil {
		windows := o.Duration.Seconds() / o.Window.Seconds()
		r.Pattern, r.Load = "trace", float64(b.total.Offered+b.lost)/windows/float64(o.Limit)
	}
	r.Load = math.Round(r.Load*1000) / 1000
	if len(o.Partitions) > 0 {
		r.HealedPeakPct = judge.Percent(t.PeakAbove(c.healed()+2*int64(o.Window), c.endAt))
		if r.HealMillis = -1; !slices.Contains(c.heals, never) {
			r.HealMillis = millis(slices.Max(c.heals))
		}
	}
	if r.CompliantOffered > 0 {
		r.FalseRejectPct = judge.Percent(float64(r.FalseRejections) / float64(r.CompliantOffered))
	}
	if observed > 0 {
		r.BoundRatio = math.Round(100*worst/observed) / 100
	}
	if agreed != never {
		r.AgreeMillis = millis(agreed)
	}
	admitted, oracle := t.PeaksPerSecond(c.startAt, len(r.PerSecond))
	for i := range r.PerSecond {
		r.PerSecond[i].WindowAdmitted, r.PerSecond[i].WindowOracle = float64(admitted[i]), float64(oracle[i])
	}
	if len(o.StoreFaults) > 0 {
		r.Redis = c.reportStores()
	}
	r.judge()
	return r
}

func texts[T fmt.Stringer](values []T) []string {
	out := []string{}
	for _, v := range values {
		out = append(out, v.String())
	}
	return out
}

// judge says whether the figures held.
func (r *Report) judge() {
	r.Wrong = []string{}
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			r.Wrong = append(r.Wrong, fmt.Sprintf(format, args...))
		}
	}
	wrong(!r.BoundHeld, "in %d gossip intervals more was admitted than the nodes' bound allowed", r.BoundViolations)
	wrong(r.FalseRejections > 0, "%d requests of clients that keep to 95 %% of the limit were rejected",
		r.FalseRejections)
	wrong(r.HealMillis < 0, "the cluster did not heal within %v", healsWithin)
	wrong(r.AgreeMillis < 0, "the nodes did not come to agree on their counts within %v", settlesWithin)
	if s := r.Redis; s != nil {
		wrong(s.RepairFlushes < 0,
			"a Redis was not whole again after two flushes of each of its nodes: it lacked %d slots", s.SlotsMissing)
		wrong(s.SlotsTwice > 0, "a Redis held more of %d slots than was admitted", s.SlotsTwice)
	}
	wrong(r.Offered == 0, "nothing was offered")
	r.OK = len(r.Wrong) == 0
}

func millis(d time.Duration) float64 { return math.Round(d.Seconds()*1e4) / 10 }

func quantile(ds []time.Duration, q float64) float64 {
	if len(ds) == 0 {
		return 0
	}
	sorted := slices.Clone(ds)
	slices.Sort(sorted)
	return millis(sorted[int(q*float64(len(sorted)-1))])
}
