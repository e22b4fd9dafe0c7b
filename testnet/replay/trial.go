package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// trial is a set of rules at work on the traffic.
type trial struct {
	set         *rules.Set
	descriptors []descriptor
	table       *counters.Table // what the rules decide on
	demand      *counters.Table // what was asked for, whoever was denied
	tallies     map[*rules.Rule]*tally
	order       []*tally
	room        int // for further identities

	unmatched, denied, changed uint64

	// Memory of the request that is asked about.
	request rules.Request
	sent    []descriptor
	matches []rules.Match
	charges []counters.Charge
	answers []counters.Decision
	deniers []denier // what denied it
}

// denier is a rule that denied a request, and as whose; -1 where the identity is not told apart.
type denier struct {
	tally    *tally
	identity int32
}

// secret keys the identities' hash. It is no secret: the hashes go nowhere.
var secret rules.Secret

func newTrial(o *Options, set *rules.Set, l *layout) (*trial, error) {
	domain, err := domainOf(set, o.Domain)
	if err != nil {
		return nil, err
	}
	t := &trial{
		set: set, room: o.MaxIdentities, tallies: make(map[*rules.Rule]*tally), request: rules.Request{Domain: domain},
		table:  counters.NewTable(counters.Config{Origin: 1, Memory: o.Memory}),
		demand: counters.NewTable(counters.Config{Origin: 1, Memory: o.Memory}),
	}
	var met []*rules.Rule
	for _, r := range set.Rules() {
		if r.Domain != domain {
			continue
		}
		met = append(met, r)
		y, err := newTally(r)
		if err != nil {
			return nil, err
		}
		t.tallies[r], t.order = y, append(t.order, y)
	}
	if t.descriptors, err = descriptors(o.Descriptors, met, l); err != nil {
		return nil, err
	}
	if len(met) == 0 {
		t.descriptors = nil
	}
	if len(o.Descriptors) == 0 {
		for _, y := range t.order {
			y.unknown = unknownKeys(y.rule, l)
		}
	}
	return t, nil
}

// domainOf returns the domain to ask in: that which is wanted, or the only one. Rules without any are asked nothing.
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

// ask decides on a request as a node does, and counts what became of it. The error is that of match.
func (t *trial) ask(values []string, now int64) (denied bool, err error) {
	t.deniers = t.deniers[:0]
	if met, err := t.match(values); err != nil {
		return false, err
	} else if !met {
		t.unmatched++
		return false, nil
	}
	t.charges = t.charges[:0]
	for i := range t.matches {
		t.charges = append(t.charges, t.matches[i].Charge(&t.request, now))
	}
	t.answers = t.table.TakeAll(t.charges, now, t.answers[:0])
	for i, m := range t.matches {
		if m.Rule != nil {
			t.count(m, t.entriesOf(i), t.answers[i].Allowed && !(t.answers[i].Waived && m.Rule.Mode == counters.Shadow), now)
		}
	}
	if denied = len(t.deniers) > 0; denied {
		t.denied++
	}
	return denied, nil
}

// match finds the rules that the request meets, if there are any. The error says that it meets too many, with the parents of elastic ones.
func (t *trial) match(values []string) (met bool, err error) {
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

// entriesOf are the entries by which a layer of the request is counted. A parent that an elastic rule brought along is counted by the first
// of the rule's, as many as lead to the parent, or has one count for everybody.
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

// count notes what one layer of a request came to.
func (t *trial) count(m rules.Match, entries []rules.Entry, allowed bool, now int64) {
	y := t.tallies[m.Rule]
	y.requests++
	i := y.identity(m.Key, entries, &t.room)
	if i < 0 {
		y.uncounted++
	} else {
		y.identities[i].requests++
	}
	if y.demand != nil {
		d := t.demand.Take(y.demand, m.Key, 1, now)
		if peak := d.Limit - d.Remaining; i >= 0 {
			y.identities[i].peak = max(y.identities[i].peak, peak)
		}
	}
	if allowed {
		return
	}
	if y.denied++; i >= 0 {
		y.identities[i].denied++
	}
	t.deniers = append(t.deniers, denier{y, i})
}

// differs notes that the other set allowed the request, which this one denied.
func (t *trial) differs() {
	t.changed++
	for _, d := range t.deniers {
		if d.tally.changed++; d.identity >= 0 {
			d.tally.identities[d.identity].changed++
		}
	}
}
