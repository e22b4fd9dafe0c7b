package demo

import (
	"fmt"
	"math"
	"time"
)

// Phase is where a demo stands.
type Phase string

// The phases, in their order.
const (
	Filling  Phase = "filling the window"
	Steady   Phase = "steady"
	Cut      Phase = "cut"
	Settling Phase = "healed, the excess leaves the window"
	Ending   Phase = "stopping"
)

// Sample is how the cluster stands at a moment.
type Sample struct {
	Elapsed time.Duration
	Phase   Phase
	CutOff  string // the region that is cut off, or was
	Nodes   []NodeSample
	Total   Tally
	Over    float64       // the largest excess over the limit since the last sample, as a part of the limit
	Bound   float64       // the largest bound that a node exports, likewise
	Stale   time.Duration // the largest age of what a node knows of another
}

// NodeSample is how one node stands.
type NodeSample struct {
	ID, Region string
	Tally      Tally
	Members    int // other nodes in its membership
	Stale      time.Duration
	Bound      float64
}

// Report is what a demo found. Percentages are of the limit.
type Report struct {
	Regions        int     `json:"regions"`
	Nodes          int     `json:"nodes"` // in each region
	Limit          uint64  `json:"limit"` // per window and client
	WindowSeconds  float64 `json:"window_s"`
	IntervalMillis float64 `json:"interval_ms"`
	Seconds        float64 `json:"duration_s"`
	Traffic        string  `json:"traffic"`
	// The load: the client beside it is not in.
	Tally
	Clients int `json:"clients"`
	// Fairness is of the client beside the load and, of a log, of those clients that keep to the limit.
	Fairness

	NetPct             float64 `json:"net_over_admission_pct"` // all that was admitted, against the oracle
	OverAdmissionPct   float64 `json:"over_admission_pct"`     // peak over the oracle outside the cut (see peakOver and Sample.Over: the larger)
	BoundPct           float64 `json:"bound_pct"`              // largest that a node exported outside the cut
	Violations         int     `json:"bound_violations"`       // samples whose excess was above what was exported then
	StalenessP50Millis float64 `json:"staleness_p50_ms"`       // outside the cut
	StalenessP99Millis float64 `json:"staleness_p99_ms"`

	CutRegion           string  `json:"cut_region"`
	CutSeconds          float64 `json:"cut_s"`
	CutOverAdmissionPct float64 `json:"cut_over_admission_pct"` // the same in and after the cut
	CutBoundPct         float64 `json:"cut_bound_pct"`
	CutCeilingPct       float64 `json:"cut_ceiling_pct"` // what two sides can admit: each its own limit, and the bound beside
	HealMillis          int64   `json:"heal_ms"`         // until every node knew all of every other again; 0 without a cut, -1 never
	AgreeMillis         int64   `json:"agree_ms"`        // after the last request, until all nodes held the same counts; -1 never

	Limited []Limited `json:"limited"` // the clients that were denied most
	OK      bool      `json:"ok"`
	Wrong   []string  `json:"wrong"` // why not
	planned float64   // requests that should have been offered
	hasty   bool      // the client beside the load did not keep to the limit
}

// judge says whether the figures held.
func (r *Report) judge() {
	r.Wrong = []string{}
	wrong := func(format string, args ...any) { r.Wrong = append(r.Wrong, fmt.Sprintf(format, args...)) }
	if r.Violations > 0 {
		wrong("in %d samples more was admitted than the nodes' bound allowed", r.Violations)
	}
	if r.OverAdmissionPct > r.BoundPct {
		wrong("%.1f %% were admitted over the limit, the bound was %.1f %%", r.OverAdmissionPct, r.BoundPct)
	}
	if r.CutSeconds > 0 && r.CutOverAdmissionPct > r.CutCeilingPct {
		wrong("%.1f %% were admitted over the limit in the cut, its ceiling was %.1f %%", r.CutOverAdmissionPct, r.CutCeilingPct)
	}
	if r.HealMillis < 0 {
		wrong("the cluster did not heal")
	}
	if r.AgreeMillis < 0 {
		wrong("the nodes did not come to agree on their counts")
	}
	if r.FalseRejections > 0 {
		wrong("%d requests of clients that keep to 95 %% of the limit were rejected", r.FalseRejections)
	}
	if r.hasty {
		wrong("the requests of the client beside the load came so late, all at once, that it did not keep to the limit: this machine is too slow")
	}
	if r.Offered == 0 {
		wrong("nothing was offered")
	} else if float64(r.Offered) < 0.9*r.planned {
		wrong("%d requests were offered where %.0f should have been: this machine is too slow for the load", r.Offered, r.planned)
	}
	r.OK = len(r.Wrong) == 0
}

// percent rounds to a hundredth.
func percent(ratio float64) float64 { return math.Round(ratio*1e4) / 100 }

func millis(d time.Duration) float64 { return math.Round(d.Seconds()*1e4) / 10 }
