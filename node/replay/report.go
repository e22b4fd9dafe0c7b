package replay

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Report is the result of a run. Identities are as in the log.
type Report struct {
	Logs     int       `json:"logs"`
	Lines    uint64    `json:"lines"`
	Requests uint64    `json:"requests"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	Late     uint64    `json:"late"` // requests too far out of order; decided on at the time of the one before
	Problems
	Outcome
	Compared *Comparison `json:"compared,omitempty"` // nil without old rules
}

// Outcome is the result of a set of rules.
type Outcome struct {
	Denied    uint64 `json:"denied"`    // requests that some rule denies
	Unmatched uint64 `json:"unmatched"` // requests that match no rule
	// Forgotten are keys that the engine's tables evicted although they counted: their counts began anew.
	Forgotten uint64       `json:"forgotten_keys"`
	Rules     []RuleReport `json:"rules"` // in the order of the files
}

// Comparison is the result of the old rules, and the differences: Changed in the RuleReports of each side counts what
// the other side allowed.
type Comparison struct {
	NewlyDenied    uint64  `json:"newly_denied"`     // the old rules allow them
	NoLongerDenied uint64  `json:"no_longer_denied"` // the new rules allow them
	BothDenied     uint64  `json:"both_denied"`
	Old            Outcome `json:"old"`
}

// RuleReport is the result of a rule.
type RuleReport struct {
	Rule          string   `json:"rule"` // its name
	Place         string   `json:"place"`
	Unlimited     bool     `json:"unlimited,omitempty"`
	Limit         uint64   `json:"limit"` // of a bucket, its capacity
	WindowSeconds float64  `json:"window_seconds"`
	Algorithm     string   `json:"algorithm,omitempty"`
	Unknown       []string `json:"unknown_keys,omitempty"` // keys that are no field: no request can match the rule

	Requests          uint64 `json:"requests"`
	Denied            uint64 `json:"denied"`
	Changed           uint64 `json:"changed,omitempty"` // denied here, allowed by the rules compared with
	Identities        int    `json:"identities"`
	IdentitiesDenied  int    `json:"identities_denied"`            // with a denied request
	IdentitiesChanged int    `json:"identities_changed,omitempty"` // with a changed request
	// Uncounted are requests of identities beyond Options.MaxIdentities.
	Uncounted uint64 `json:"requests_of_uncounted_identities,omitempty"`
	// Peaks and Suggested are nil without identities and for a rule without a limit. They measure all requests, denied
	// or not, in windows of PeakSeconds.
	PeakSeconds float64     `json:"peak_window_seconds,omitempty"`
	Peaks       *Peaks      `json:"peaks,omitempty"`
	Suggested   *Suggestion `json:"suggested,omitempty"`
	// Worst are the identities with most Changed, then most Denied, then the highest Peak.
	Worst []Identity `json:"worst"`
}

// Identity is one that a rule counts. Its name is the values of the rule's open keys, at most 200 bytes of them, and
// empty where there are none.
type Identity struct {
	Name     string `json:"identity"`
	Requests uint64 `json:"requests"`
	Denied   uint64 `json:"denied"`
	Changed  uint64 `json:"changed,omitempty"`
	Peak     uint64 `json:"peak"` // the most requests in one of the rule's windows
}

// Peaks are the distribution of identities' peaks, by nearest rank.
type Peaks struct {
	Median uint64 `json:"p50"`
	P90    uint64 `json:"p90"`
	P99    uint64 `json:"p99"`
	P999   uint64 `json:"p99_9"`
	Max    uint64 `json:"max"`
}

// Suggestion is a limit that 99 of 100 identities never reach: the 99th percentile of their peaks and a quarter more,
// because traffic grows and a log is short, rounded up to two digits.
type Suggestion struct {
	Limit     uint64 `json:"limit"`
	Basis     uint64 `json:"basis"`                // the 99th percentile; the maximum of less than a hundred identities
	Exceeding int    `json:"identities_exceeding"` // identities with a peak above Limit
}

func (r *run) report() *Report {
	p := r.Report
	p.Lines, p.Problems, p.Outcome = r.reader.lines, r.reader.Problems, r.new.outcome(r.options.Worst)
	p.First, p.Last = time.Unix(0, r.first).UTC(), time.Unix(0, r.now).UTC()
	if r.old != nil {
		p.Compared = &Comparison{NewlyDenied: r.new.changed, NoLongerDenied: r.old.changed, BothDenied: r.bothDenied,
			Old: r.old.outcome(r.options.Worst)}
	}
	return &p
}

func (t *trial) outcome(worst int) Outcome {
	o := t.Outcome
	o.Rules = []RuleReport{}
	o.Forgotten = t.table.Stats().Evicted + t.demand.Stats().Evicted
	for _, m := range t.metrics {
		o.Rules = append(o.Rules, m.report(worst))
	}
	return o
}

func (m *ruleMetrics) report(worst int) RuleReport {
	p := m.RuleReport
	p.Identities = len(m.identities)
	var peaks []uint64
	for _, id := range m.identities {
		peaks = append(peaks, id.Peak)
		if id.Denied > 0 {
			p.IdentitiesDenied++
		}
		if id.Changed > 0 {
			p.IdentitiesChanged++
		}
	}
	if l := m.rule.Limit; l != nil {
		p.Limit, p.WindowSeconds, p.Algorithm = l.Max(), l.Lasts().Seconds(), l.Meter().Algorithm.String()
		p.PeakSeconds = m.demand.Meter().Window.Seconds()
		if len(peaks) > 0 {
			p.Peaks, p.Suggested = distribution(peaks)
		}
	}
	slices.SortFunc(m.identities, func(a, b Identity) int {
		return cmp.Or(cmp.Compare(b.Changed, a.Changed), cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Peak, a.Peak),
			cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name))
	})
	p.Worst = append([]Identity{}, m.identities[:min(worst, len(m.identities))]...)
	return p
}

// distribution sorts the peaks, of which there is at least one, and summarizes them.
func distribution(peaks []uint64) (*Peaks, *Suggestion) {
	slices.Sort(peaks)
	percentile := func(p float64) uint64 {
		return peaks[max(int(math.Ceil(p*float64(len(peaks)))), 1)-1]
	}
	p := &Peaks{percentile(0.5), percentile(0.9), percentile(0.99), percentile(0.999), peaks[len(peaks)-1]}
	s := &Suggestion{Basis: p.P99, Limit: roundUp(uint64(math.Ceil(1.25 * float64(p.P99))))}
	within, _ := slices.BinarySearch(peaks, s.Limit+1)
	s.Exceeding = len(peaks) - within
	return p, s
}

// roundUp rounds n up to two digits.
func roundUp(n uint64) uint64 {
	unit := uint64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}
