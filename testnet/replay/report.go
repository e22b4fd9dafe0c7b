package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Report is what a run came to. Identities stand in it as the log has them.
type Report struct {
	Logs     int       `json:"logs"`
	Lines    uint64    `json:"lines"`
	Requests uint64    `json:"requests"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	// Late are requests that came further behind in their log than it is sorted: asked at the time of the one before them.
	Late uint64 `json:"late"`
	Problems
	Outcome
	// Compared is nil without old rules.
	Compared *Comparison `json:"compared,omitempty"`
}

// Outcome is what a set of rules came to.
type Outcome struct {
	Denied    uint64 `json:"denied"`    // requests that some rule would have denied
	Unmatched uint64 `json:"unmatched"` // requests that met no rule
	// Forgotten are keys that the engine's tables had no room for although they counted: their identities were counted anew.
	Forgotten uint64       `json:"forgotten_keys"`
	Rules     []RuleReport `json:"rules"` // in the order of the files
}

// Comparison is what the old rules came to, and where they differ: Outcome's RuleReports of each side have what the other side allowed.
type Comparison struct {
	NewlyDenied    uint64  `json:"newly_denied"`     // the old rules allowed them
	NoLongerDenied uint64  `json:"no_longer_denied"` // the new rules allow them
	BothDenied     uint64  `json:"both_denied"`
	Old            Outcome `json:"old"`
}

// RuleReport is what a rule came to.
type RuleReport struct {
	Rule          string  `json:"rule"` // the full name
	Name          string  `json:"name"`
	Unlimited     bool    `json:"unlimited,omitempty"`
	Limit         uint64  `json:"limit"` // of a bucket, what it holds
	WindowSeconds float64 `json:"window_seconds"`
	Algorithm     string  `json:"algorithm,omitempty"`
	// Unknown are keys of the rule that are no field of a log: it was not asked.
	Unknown []string `json:"unknown_keys,omitempty"`

	Requests   uint64 `json:"requests"`
	Denied     uint64 `json:"denied"`
	Changed    uint64 `json:"changed,omitempty"` // denied here, allowed by the rules that these are compared with
	Identities int    `json:"identities"`
	// IdentitiesDenied and IdentitiesChanged had a request among those.
	IdentitiesDenied  int `json:"identities_denied"`
	IdentitiesChanged int `json:"identities_changed,omitempty"`
	// Uncounted are requests of identities beyond Options.MaxIdentities: those that were told apart are an excerpt.
	Uncounted uint64 `json:"requests_of_uncounted_identities,omitempty"`
	// Peaks and Suggested are nil where nobody was counted, and for a rule without a limit. They are of all that was asked for, denied or not,
	// in the windows of PeakSeconds.
	PeakSeconds float64     `json:"peak_window_seconds,omitempty"`
	Peaks       *Peaks      `json:"peaks,omitempty"`
	Suggested   *Suggestion `json:"suggested,omitempty"`
	// Worst are those with most requests among Changed, then among Denied, then with the highest peak.
	Worst []Identity `json:"worst"`
}

// Identity is one that a rule counted. Its name is the values of the rule's open keys, as far as 200 bytes; empty where it has none.
type Identity struct {
	Name     string `json:"identity"`
	Requests uint64 `json:"requests"`
	Denied   uint64 `json:"denied"`
	Changed  uint64 `json:"changed,omitempty"`
	Peak     uint64 `json:"peak"`
}

func (r *run) report() *Report {
	p := &Report{
		Logs: r.logs, Lines: r.reading.lines, Requests: r.requests, Late: r.late, Problems: r.reading.Problems,
		First: time.Unix(0, r.first).UTC(), Last: time.Unix(0, r.now).UTC(),
		Outcome: r.new.outcome(r.options.Worst),
	}
	if r.old != nil {
		p.Compared = &Comparison{NewlyDenied: r.new.changed, NoLongerDenied: r.old.changed, BothDenied: r.bothDenied,
			Old: r.old.outcome(r.options.Worst)}
	}
	return p
}

func (t *trial) outcome(worst int) Outcome {
	o := Outcome{Denied: t.denied, Unmatched: t.unmatched, Rules: []RuleReport{}}
	o.Forgotten = t.table.Stats().Evicted + t.demand.Stats().Evicted
	for _, y := range t.order {
		o.Rules = append(o.Rules, y.report(worst))
	}
	return o
}

func (y *tally) report(worst int) RuleReport {
	p := RuleReport{
		Rule: y.rule.FullName, Name: y.rule.Name, Unlimited: y.rule.Limit == nil, Unknown: y.unknown,
		Requests: y.requests, Denied: y.denied, Changed: y.changed, Uncounted: y.uncounted, Identities: len(y.identities),
	}
	var peaks []uint64
	for i := range y.identities {
		id := &y.identities[i]
		peaks = append(peaks, id.peak)
		if id.denied > 0 {
			p.IdentitiesDenied++
		}
		if id.changed > 0 {
			p.IdentitiesChanged++
		}
	}
	if l := y.rule.Limit; l != nil {
		p.describe(l)
		p.PeakSeconds = y.demand.Meter().Window.Seconds()
		if len(peaks) > 0 {
			p.Peaks, p.Suggested = distribution(peaks)
		}
	}
	p.Worst = y.worst(worst)
	return p
}

func (p *RuleReport) describe(l *counters.Limit) {
	p.Limit, p.WindowSeconds, p.Algorithm = l.Max(), l.Lasts().Seconds(), l.Meter().Algorithm.String()
}

// worst are the first few in the order that RuleReport.Worst tells.
func (y *tally) worst(most int) []Identity {
	slices.SortFunc(y.identities, func(a, b identity) int {
		return cmp.Or(cmp.Compare(b.changed, a.changed), cmp.Compare(b.denied, a.denied), cmp.Compare(b.peak, a.peak),
			cmp.Compare(b.requests, a.requests), cmp.Compare(a.name, b.name))
	})
	list := []Identity{}
	for _, id := range y.identities[:min(most, len(y.identities))] {
		list = append(list, Identity{id.name, id.requests, id.denied, id.changed, id.peak})
	}
	return list
}
