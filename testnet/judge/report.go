package judge

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
)

// Version is the version of the report's JSON. Members are only appended, or the version rises.
const Version = 2

// Report is what a record shows. Percentages are of the limit, but for NetPct; the package documentation explains each
// figure.
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
	Sides      int      `json:"sides"`       // parts of the cluster that could not reach each other
	CeilingPct float64  `json:"ceiling_pct"` // 0 where no partition shows
	Figures
}

// Figures are the measures of a time. A request belongs to the time in which it was sent.
type Figures struct {
	Requests                // that were answered
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

// Percent returns a ratio in percent, rounded to a hundredth.
func Percent(ratio float64) float64 { return math.Round(ratio*1e4) / 100 }

// millis rounds to a microsecond.
func millis(ns int64) float64 { return float64(time.Duration(ns).Microseconds()) / 1e3 }

// sums is what figures are computed from.
type sums struct {
	Figures
	admitted, oracle uint64 // cost
	excess, bound    float64
	latencies        []int64
}

// add takes in a request that was answered.
func (s *sums) add(d *decision, oracle bool) {
	s.Requests.Add(d.Allowed, oracle)
	if d.Allowed {
		s.admitted += d.Cost
	}
	if oracle {
		s.oracle += d.Cost
	}
	s.latencies = append(s.latencies, d.Done-d.Sent)
}

// figures completes the figures with the over-admission of rolling windows, as parts of the limit.
func (s *sums) figures(overLimit, overOracle float64) Figures {
	f := s.Figures
	if s.oracle > 0 {
		f.NetPct = Percent(float64(s.admitted)/float64(s.oracle) - 1)
	}
	f.OverLimitPct, f.OverOraclePct = Percent(overLimit), Percent(overOracle)
	f.ExcessPct, f.BoundPct = Percent(s.excess), Percent(s.bound)
	if n := len(s.latencies); n > 0 {
		slices.Sort(s.latencies)
		f.LatencyP50Ms, f.LatencyP99Ms = millis(s.latencies[n/2]), millis(s.latencies[n*99/100])
	}
	return f
}

func (c *check) report() *Report {
	started := c.header.Started
	between := func(s *sums, from, to int64) Figures {
		return s.figures(c.tracker.PeakOverLimit(from, to), c.tracker.PeakOver(from, to))
	}
	r := &Report{
		Version: Version, Rule: c.header.Rule, Nodes: len(c.header.Nodes), Clients: len(c.clients),
		Seconds: seconds(c.end - started), Total: between(&c.total, started, c.end), PerSecond: c.perSecond(),
		SteadyPct: Percent(c.steady), AgreeMs: c.agreeMs, Violations: []Violation{}, OK: len(c.broken) == 0,
	}
	for i := range c.timeline.periods {
		p := &c.timeline.periods[i]
		r.Phases = append(r.Phases, Phase{
			Name: p.name, Faults: p.names,
			From: seconds(p.from - started), To: seconds(p.to - started),
			Sides: p.sides, CeilingPct: Percent(c.ceiling(p.from, p.to-1)),
			Figures: between(&c.phases[i], p.from, p.to-1),
		})
	}
	for _, v := range c.broken {
		r.Violations = append(r.Violations, *v)
	}
	slices.SortFunc(r.Violations, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Second, b.Second), cmp.Compare(a.Invariant, b.Invariant))
	})
	return r
}

// perSecond completes the figures of every second.
func (c *check) perSecond() []Figures {
	n := len(c.seconds)
	overLimit, overOracle := make([]float64, n), make([]float64, n)
	for _, cl := range c.tracker.Clients() {
		oracle := c.tracker.oraclePeak(cl)
		for s, peak := range cl.Admitted.Peaks(c.limit.Meter().Window, c.header.Started, time.Second, n) {
			overLimit[s] = max(overLimit[s], over(peak, c.limit.Max(), c.limit))
			overOracle[s] = max(overOracle[s], over(peak, oracle, c.limit))
		}
	}
	out := make([]Figures, n)
	for s := range out {
		out[s] = c.seconds[s].figures(overLimit[s], overOracle[s])
	}
	return out
}
