package checker

import (
	"cmp"
	"slices"
	"time"
)

// sums is what figures are made of.
type sums struct {
	Figures
	admitted, oracle uint64 // cost
	excess, bound    float64
	latencies        []int64
}

// add takes in a request that was answered.
func (s *sums) add(d *decision, oracle bool) {
	s.Tally.Add(d.outcome == allowed, oracle)
	if d.outcome == allowed {
		s.admitted += d.cost
	}
	if oracle {
		s.oracle += d.cost
	}
	s.latencies = append(s.latencies, d.done-d.sent)
}

// figures completes the figures with the over-admission of rolling windows, as parts of the limit.
func (s *sums) figures(overLimit, overOracle float64) Figures {
	f := s.Figures
	if s.oracle > 0 {
		f.NetPct = percent(float64(s.admitted)/float64(s.oracle) - 1)
	}
	f.OverLimitPct, f.OverOraclePct = percent(overLimit), percent(overOracle)
	f.ExcessPct, f.BoundPct = percent(s.excess), percent(s.bound)
	if n := len(s.latencies); n > 0 {
		slices.Sort(s.latencies)
		f.LatencyP50Ms, f.LatencyP99Ms = millis(s.latencies[n/2]), millis(s.latencies[n*99/100])
	}
	return f
}

func (c *check) report() *Report {
	r := &Report{
		Version: Version, Rule: c.header.Rule, Nodes: len(c.header.Nodes), Clients: len(c.clients),
		Seconds: seconds(c.end - c.header.Started), SteadyPct: percent(c.steady), AgreeMs: c.agreeMs,
		PerSecond: c.perSecond(), Violations: []Violation{}, OK: len(c.broken) == 0,
	}
	whole := func(s *sums, from, to int64) Figures {
		return s.figures(c.ledger.PeakOverLimit(from, to), c.ledger.PeakOver(from, to))
	}
	r.Total = whole(&c.total, c.header.Started, c.end)
	for i := range c.timeline.periods {
		p := &c.timeline.periods[i]
		phase := Phase{
			Name: p.name(), From: seconds(p.from - c.header.Started), To: seconds(p.to - c.header.Started), Faults: []string{},
			Sides: p.sides, CeilingPct: percent(c.ceiling(p.from, p.to-1)), Figures: whole(&c.phases[i], p.from, p.to-1),
		}
		for _, f := range p.faults {
			phase.Faults = append(phase.Faults, f.Fault())
		}
		r.Phases = append(r.Phases, phase)
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
	n, limit := len(c.seconds), c.limit.Max()
	overLimit, overOracle := make([]float64, n), make([]float64, n)
	for _, cl := range c.ledger.Clients() {
		reach := c.ledger.Reach(cl)
		for s, peak := range cl.Admitted.Peaks(c.limit.Meter().Window, c.header.Started, time.Second, n) {
			overLimit[s] = max(overLimit[s], (float64(peak)-float64(limit))/float64(limit))
			overOracle[s] = max(overOracle[s], (float64(peak)-float64(reach))/float64(limit))
		}
	}
	out := make([]Figures, n)
	for s := range out {
		out[s] = c.seconds[s].figures(overLimit[s], overOracle[s])
	}
	return out
}
