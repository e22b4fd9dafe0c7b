package rules

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Layer is the rule that one layer of a request meets, and why.
type Layer struct {
	// Entries are those of the descriptor, or for a request by rule and identity the path to the rule with the
	// identity.
	Entries []Entry
	// Why explains for each entry what it met, and in the end why there is no rule.
	Why []string
	// Rule is the rule that was met, nil for none. ReplacedBy is the rule that replaces it, nil for none.
	Rule, ReplacedBy *Rule
	// Listed is the entry of the rule's address lists for the client.
	Listed Listing
	// Nearest is, where no rule was met, the one that needs the fewest changes; nil if the domain has no rules.
	Nearest *Rule
	// Limit is the limit of an override for the client, nil for none; it ends at Until, zero for never.
	Limit *counters.Limit
	Until time.Time
	// Counted are the open keys with the values that are counted: of an IPv6 address its prefix.
	Counted []Entry
}

// Explain explains what Match returns at a time. With another secret than the cluster's it finds no overrides. Its
// errors are those of Match.
func (s *Set) Explain(req *Request, secret Secret, now time.Time) ([]Layer, error) {
	met, err := s.Match(req, secret, nil)
	if err != nil {
		return nil, err
	}
	layers, before := make([]Layer, len(met)), make([]Match, len(req.Descriptors)) // before replacing
	for i, entries := range req.Descriptors {
		layers[i] = s.explain(req.Domain, entries)
		before[i].Rule = layers[i].Rule
	}
	for i := range before {
		if r := before[i].Rule; r != nil {
			layers[i].ReplacedBy = replacedBy(r, i, before, req.Alternatives)
		}
	}
	if req.Rule != "" {
		r := met[0].Rule
		entries := r.entries(new([MaxEntries]Entry), req.Identity)
		layers[0] = Layer{Rule: r, Listed: met[0].Listed, Entries: entries, Counted: r.counted(entries),
			Why: []string{"the rule is named by the request"}}
	}
	for i := range met {
		layers[i].explainOverride(&met[i], now)
		if met[i].borrows() {
			explainParent(layers, met, i)
		}
	}
	return layers, nil
}

// explainOverride adds the limit of an override, if the layer has one.
func (l *Layer) explainOverride(m *Match, now time.Time) {
	if m.Rule == nil || m.Rule.overrides == nil || m.Listed != Unlisted {
		return
	}
	if o, ok := m.Rule.overrides.byKey[m.Key]; ok && now.UnixNano() < o.until {
		l.Limit = o.limit
		if o.until < math.MaxInt64 {
			l.Until = time.Unix(0, o.until)
		}
	}
}

// explainParent adds what the elastic layer i borrows from, and explains a parent that it brings along.
func explainParent(layers []Layer, met []Match, i int) {
	l, m := &layers[i], &met[i]
	if m.lender == 0 {
		l.Why = append(l.Why,
			fmt.Sprintf("its parent %s is not met by this request: there is nothing to borrow", m.Rule.parent))
		return
	}
	l.Why = append(l.Why, fmt.Sprintf("beyond its own limit it borrows from %s", m.Rule.parent))
	if lender := &layers[m.lender-1]; lender.Why == nil {
		parent := met[m.lender-1]
		*lender = Layer{Rule: parent.Rule, Listed: parent.Listed, Entries: parent.Rule.Entries,
			Why: []string{fmt.Sprintf("brought along by %s, whose parent it is", m.Rule)}}
		if len(parent.Rule.open) > 0 {
			lender.Entries = l.Entries[:len(parent.Rule.Entries)]
			lender.Counted = parent.Rule.counted(lender.Entries)
		}
	}
}

// explain follows the entries as find does.
func (s *Set) explain(domain string, entries []Entry) Layer {
	l := Layer{Entries: entries}
	at := s.domains[domain]
	if at == nil {
		l.Why = append(l.Why, fmt.Sprintf("no file has domain %.80q%s", domain, didYouMean(s.NearestDomain(domain))))
		return l
	}
	for i := range entries {
		e := &entries[i]
		next := at.child(e)
		l.Why = append(l.Why, at.why(e, next))
		if next == nil {
			return s.withNearest(l, domain)
		}
		at = next
	}
	if l.Rule = at.Rule; l.Rule == nil {
		l.Why = append(l.Why, "there is no rate_limit at this level: only what the last entry reaches counts")
		return s.withNearest(l, domain)
	}
	l.Listed = l.Rule.listing(entries[len(entries)-1].Value)
	l.Counted = l.Rule.counted(entries)
	return l
}

// withNearest adds the nearest rule to a layer that met none.
func (s *Set) withNearest(l Layer, domain string) Layer {
	if l.Nearest = s.NearestRule(domain, l.Entries); l.Nearest != nil {
		l.Why = append(l.Why, fmt.Sprintf("the nearest rule is %s: it needs %s", l.Nearest, l.Nearest.Needs()))
	}
	return l
}

// didYouMean suggests a word; "" for none.
func didYouMean(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", word)
}

// why explains how an entry leads from a node to the next one, or why it leads nowhere.
func (n *Node) why(e *Entry, next *Node) string {
	b := n.keys[e.Key]
	step := Step{Secret: next != nil && next.Secret}
	shown := Entry{e.Key, step.Shown(e.Value)}
	switch {
	case b == nil && n.keys == nil:
		return fmt.Sprintf("%s: nothing is beneath the descriptor above", e.Quoted())
	case b == nil:
		known := slices.Sorted(maps.Keys(n.keys))
		return fmt.Sprintf("%s: no descriptor here has this key, but %s%s", e.Quoted(), strings.Join(some(known), ", "),
			didYouMean(Nearest(e.Key, known)))
	case next == nil:
		return fmt.Sprintf("%s: no descriptor of this key has the value, no wildcard fits it, and there is no bare key",
			e.Quoted())
	case next.Entry.Value == "":
		return fmt.Sprintf("%s: met by the bare key, as no descriptor has this value and no wildcard fits it",
			shown.Quoted())
	case next.Entry.Value == e.Value:
		return fmt.Sprintf("%s: met by its exact value", shown.Quoted())
	}
	return fmt.Sprintf(
		"%s: met by %.80q, the first wildcard in the file that it fits, as no descriptor has this very value",
		shown.Quoted(), step.Shown(next.Entry.Value))
}

// some returns the first words of a list, and the number of the others.
func some(words []string) []string {
	const max = 8
	if len(words) <= max {
		return words
	}
	return append(words[:max:max], fmt.Sprintf("and %d more", len(words)-max))
}

// counted returns the open keys of the rule with the values that are counted.
func (r *Rule) counted(entries []Entry) (counted []Entry) {
	for _, i := range r.open {
		counted = append(counted, Entry{entries[i].Key, r.Steps[i].Shown(r.Steps[i].groupText(entries[i].Value))})
	}
	return counted
}
