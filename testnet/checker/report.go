package checker

import (
	"math"
	"time"

	"github.com/edgelimit/edgelimit/testnet/ledger"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// Version is the version of the report's JSON. Members are only appended, or the version rises.
const Version = 2

// Report is what a record showed. Percentages are of the limit, but for NetPct; the package documentation explains each figure.
type Report struct {
	Version    int         `json:"version"`
	Rule       record.Rule `json:"rule"`
	Nodes      int         `json:"nodes"`
	Clients    int         `json:"clients"`
	Seconds    float64     `json:"seconds"` // from the start to the last line
	Total      Figures     `json:"total"`
	Phases     []Phase     `json:"phases"`     // between events, in order
	PerSecond  []Figures   `json:"per_second"` // by second since the start
	SteadyPct  float64     `json:"steady_bound_pct"`
	AgreeMs    float64     `json:"agree_ms"` // -1: never, or nothing shows it
	OK         bool        `json:"ok"`
	Violations []Violation `json:"violations"` // by second
}

// Phase is a time between two events.
type Phase struct {
	Name       string   `json:"name"`   // the faults in force
	From       float64  `json:"from_s"` // since the start
	To         float64  `json:"to_s"`
	Faults     []string `json:"faults"`
	Sides      int      `json:"sides"`       // parts of the cluster that could not hear each other
	CeilingPct float64  `json:"ceiling_pct"` // 0 where no partition shows
	Figures
}

// Figures are the measures of a time. A request belongs to the time in which it was sent.
type Figures struct {
	ledger.Tally            // of requests that were answered
	Failed          uint64  `json:"failed"` // requests that were not
	NetPct          float64 `json:"net_pct"`
	OverLimitPct    float64 `json:"over_limit_pct"`
	OverOraclePct   float64 `json:"over_oracle_pct"`
	ExcessPct       float64 `json:"excess_pct"`
	BoundPct        float64 `json:"bound_pct"`
	FalseRejections uint64  `json:"false_rejections"`
	BurstDenied     uint64  `json:"burst_denied"`
	LatencyP50Ms    float64 `json:"latency_p50_ms"`
	LatencyP99Ms    float64 `json:"latency_p99_ms"`
}

// Invariant names what must hold.
type Invariant string

// The invariants that a record can show to be broken.
const (
	Agreement Invariant = "I1"      // once traffic stops, all nodes hold the same counts
	Growth    Invariant = "I2"      // counts never decrease, but as the window moves on
	Truth     Invariant = "I3"      // no node counts more than was admitted
	Compliant Invariant = "I4"      // a client that keeps to 95 % of its limit is never denied
	Bounded   Invariant = "I5"      // what is admitted over the limit stays within the exported bound
	Ceiling   Invariant = "ceiling" // each side of a partition admits no more than its own limit and its bound
)

// Violation says where an invariant was broken.
type Violation struct {
	Invariant Invariant `json:"invariant"`
	Second    int       `json:"second"` // since the start
	What      string    `json:"what"`   // of the first time in this second
	Expected  string    `json:"expected"`
	Got       string    `json:"got"`
	Times     int       `json:"times"` // in this second
}

// Broken returns the violations by second; none if the run was good.
func (r *Report) Broken() []Violation { return r.Violations }

// percent rounds to a hundredth.
func percent(ratio float64) float64 { return math.Round(ratio*1e4) / 100 }

// millis rounds to a microsecond.
func millis(ns int64) float64 { return float64(time.Duration(ns).Microseconds()) / 1e3 }
