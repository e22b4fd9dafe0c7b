package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// trial applies a set of rules to the traffic.
type trial struct {
	set         *rules.Set
	descriptors []descriptor
	table       *counters.Table // decides
	demand      *counters.Table // counts all requests, denied or not
	byRule      map[*rules.Rule]*ruleMetrics
	metrics     []*ruleMetrics // in the order of the files
	room        int            // for more identities

	Outcome
	changed uint64 // requests that the other set allows

	// Scratch memory of a decision.
	request rules.Request
	sent    []descriptor
	matches []rules.Match
	charges []counters.Charge
	answers []counters.Decision
	deniers []denier // of the request
}

// ruleMetrics are what a trial counts for one rule.
type ruleMetrics struct {
	RuleReport
	rule       *rules.Rule
	path       []rules.Entry
	demand     *counters.Limit // one that is never reached; nil for a rule without a limit
	indexes    map[counters.Key]int32
	identities []Identity
}

// denier is a rule that denied a request, and the index of the identity, -1 if it is not tracked.
type denier struct {
	metrics  *ruleMetrics
	identity int32
}

// secret keys the identities' hashes, which stay in this process.
var secret rules.Secret

func newTrial(o *Options, set *rules.Set, l *layout) (*trial, error) {
	domain, err := domainOf(set, o.Domain)
	if err != nil {
		return nil, err
	}
	t := &trial{
		set: set, room: o.MaxIdentities, byRule: make(map[*rules.Rule]*ruleMetrics),
		request: rules.Request{Domain: domain},
		table:   counters.NewTable(counters.Config{Origin: 1, Memory: o.Memory}),
		demand:  counters.NewTable(counters.Config{Origin: 1, Memory: o.Memory}),
	}
	var inDomain []*rules.Rule
	for _, r := range set.Rules() {
		if r.Domain != domain {
			continue
		}
		m := &ruleMetrics{rule: r, path: r.Path(), indexes: make(map[counters.Key]int32)}
		m.Rule, m.Place, m.Unlimited = r.Name, r.At(), r.Limit == nil
		if len(o.Descriptors) == 0 {
			m.Unknown = unknownKeys(r, l)
		}
		if r.Limit != nil {
			if m.demand, err = counters.NewLimit(demandMeter(r.Limit), counters.MaxLimit); err != nil {
				return nil, err
			}
		}
		inDomain = append(inDomain, r)
		t.byRule[r], t.metrics = m, append(t.metrics, m)
	}
	if t.descriptors, err = descriptors(o.Descriptors, inDomain, l); err != nil {
		return nil, err
	}
	if len(inDomain) == 0 {
		t.descriptors = nil
	}
	return t, nil
}

// domainOf returns the domain of the requests: the wanted or the only one, or none where there are no rules.
func domainOf(set *rules.Set, wanted string) (string, error) {
	var domains []string
	for _, r := range set.Rules() {
		if !slices.Contains(domains, r.Domain) {
			domains = append(domains, r.Domain)
		}
	}
	switch {
	case wanted != "" && len(domains) > 0 && !slices.Contains(domains, wanted):
		return "", fmt.Errorf("no rule is in domain %.80q; there are %.400s", wanted, strings.Join(domains, ", "))
	case wanted != "" || len(domains) == 0:
		return wanted, nil
	case len(domains) > 1:
		return "", fmt.Errorf("the rules have %d domains, and a request is of one: choose it, of %.400s",
			len(domains), strings.Join(domains, ", "))
	}
	return domains[0], nil
}

// demandMeter counts demand in the rule's window. The smallest limit that denies an identity nothing is then its peak.
// Logs and buckets are counted in sliding windows: a bucket's window is the time in which it fills, because a client
// that never sends more than its capacity in that time is never denied.
func demandMeter(l *counters.Limit) counters.Meter {
	algorithm, window := counters.SlidingWindow, l.Lasts()
	if l.Meter().Algorithm == counters.FixedWindow {
		algorithm = counters.FixedWindow
	} else if rest := window % (10 * time.Millisecond); window > time.Second && rest != 0 {
		window += 10*time.Millisecond - rest // a sliding window has ten sub-windows of whole milliseconds
	}
	window = min(max(window, time.Millisecond), counters.MaxWindow)
	return counters.NewMeter(l.Meter().Rule, algorithm, window)
}

// decide decides on a request as a node does, and counts the result. The error is that of match.
func (t *trial) decide(values []string, now int64) (denied bool, err error) {
	t.deniers = t.deniers[:0]
	if matched, err := t.match(values); err != nil {
		return false, err
	} else if !matched {
		t.Unmatched++
		return false, nil
	}
	t.charges = t.charges[:0]
	for i := range t.matches {
		t.charges = append(t.charges, t.matches[i].Charge(&t.request, now))
	}
	t.answers = t.table.TakeAll(t.charges, now, t.answers[:0])
	for i, m := range t.matches {
		if m.Rule != nil {
			a := t.answers[i]
			t.count(m, t.entriesOf(i), a.Allowed && !(a.Waived && m.Rule.Mode == counters.Shadow), now)
		}
	}
	if denied = len(t.deniers) > 0; denied {
		t.Denied++
	}
	return denied, nil
}

// match finds the rules that the request matches. The error reports too many of them, with the parents of elastic ones.
func (t *trial) match(values []string) (matched bool, err error) {
	t.sent, t.request.Descriptors = t.sent[:0], t.request.Descriptors[:0]
	for _, d := range t.descriptors {
		if d.fill(values) {
			t.sent = append(t.sent, d)
			t.request.Descriptors = append(t.request.Descriptors, d.entries)
		}
	}
	if len(t.sent) == 0 {
		return false, nil
	}
	if t.matches, err = t.set.Match(&t.request, secret, t.matches[:0]); err != nil {
		return false, err
	}
	return slices.ContainsFunc(t.matches, func(m rules.Match) bool { return m.Rule != nil }), nil
}

// entriesOf returns the entries that identify a layer of the request. A parent that an elastic rule adds is identified
// by the first of the rule's entries, as many as lead to the parent, or by none if it counts all clients together.
func (t *trial) entriesOf(layer int) []rules.Entry {
	if layer < len(t.sent) {
		return t.sent[layer].entries
	}
	parent := t.matches[layer].Rule
	if len(parent.OpenKeys()) == 0 {
		return nil
	}
	child := slices.IndexFunc(t.charges, func(ch counters.Charge) bool { return int(ch.Lender) == layer+1 })
	return t.sent[child].entries[:len(parent.Path())]
}

// count counts the result of one layer of a request.
func (t *trial) count(match rules.Match, entries []rules.Entry, allowed bool, now int64) {
	m := t.byRule[match.Rule]
	var untracked Identity
	id, i := &untracked, m.identity(match.Key, entries, &t.room)
	if i >= 0 {
		id = &m.identities[i]
	} else {
		m.Uncounted++
	}
	m.Requests++
	id.Requests++
	if m.demand != nil {
		d := t.demand.Take(m.demand, match.Key, 1, now)
		id.Peak = max(id.Peak, d.Limit-d.Remaining)
	}
	if !allowed {
		m.Denied++
		id.Denied++
		t.deniers = append(t.deniers, denier{m, i})
	}
}

// countChanged counts the last request as denied here and allowed by the other set.
func (t *trial) countChanged() {
	t.changed++
	for _, d := range t.deniers {
		if d.metrics.Changed++; d.identity >= 0 {
			d.metrics.identities[d.identity].Changed++
		}
	}
}

// identity returns the index of a key's identity, -1 if there is no room to track it.
func (m *ruleMetrics) identity(key counters.Key, entries []rules.Entry, room *int) int32 {
	if i, ok := m.indexes[key]; ok {
		return i
	}
	if *room == 0 {
		return -1
	}
	*room--
	i := int32(len(m.identities))
	m.indexes[key] = i
	m.identities = append(m.identities, Identity{Name: m.name(entries)})
	return i
}

// maxName is how many bytes of an identity's name are kept.
const maxName = 200

// name returns the values of the rule's open keys.
func (m *ruleMetrics) name(entries []rules.Entry) string {
	var open []string
	for i, e := range entries {
		if e.Value != m.path[i].Value {
			open = append(open, e.Value)
		}
	}
	return clip(strings.Join(open, ", "), maxName)
}
