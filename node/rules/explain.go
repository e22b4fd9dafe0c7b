package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Layer is what one layer of a request meets, and why.
type Layer struct {
	// Entries are those of the descriptor; of a request by rule and identity the path to the rule, with the identity in it.
	Entries []Entry
	// Why says of each entry what it met, in words, as far as there is something to meet; and at last why there is no rule.
	Why []string
	// Rule is what was met, nil when nothing was. ReplacedBy is the rule that takes its place, nil when none does.
	Rule, ReplacedBy *Rule
	// Listed says whether the rule's lists name who asks.
	Listed Listing
	// Counted are the open keys with the values that the request is counted under: of an IPv6 address its prefix.
	Counted []Entry
}

// Explain says what Match does with a request. Its errors are those of Match.
func (s *Set) Explain(req *Request) ([]Layer, error) {
	met, err := s.Match(req, Secret{}, nil)
	if err != nil {
		return nil, err
	}
	if req.Rule != "" {
		r := met[0].Rule
		l := Layer{Rule: r, Listed: met[0].Listed, Entries: r.entries(new([MaxEntries]Entry), req.Identity), Why: []string{"the rule is named by the request"}}
		l.Counted = r.counted(l.Entries)
		return explainParents([]Layer{l}, met), nil
	}
	layers := make([]Layer, len(req.Descriptors))
	matches := make([]Match, len(req.Descriptors))
	for i, entries := range req.Descriptors {
		layers[i] = s.explain(req.Domain, entries)
		matches[i].Rule = layers[i].Rule
	}
	for i := range layers {
		if r := layers[i].Rule; r != nil {
			layers[i].ReplacedBy = replacedBy(r, matches)
		}
	}
	return explainParents(layers, met), nil
}

// explainParents says from whom elastic layers borrow, and adds those layers that they bring along.
func explainParents(layers []Layer, met []Match) []Layer {
	for i := range layers {
		l, m := &layers[i], &met[i]
		switch {
		case !m.borrows():
		case m.lender == 0:
			l.Why = append(l.Why, fmt.Sprintf("its parent %s is not met by this request: there is nothing to borrow", m.Rule.Parent))
		default:
			l.Why = append(l.Why, fmt.Sprintf("beyond its own limit it borrows from %s", m.Rule.Parent))
		}
		if at := int(m.lender) - 1; at >= len(layers) {
			parent := met[at]
			added := Layer{Rule: parent.Rule, Listed: parent.Listed, Entries: parent.Rule.path,
				Why: []string{fmt.Sprintf("brought along by %s, whose parent it is", m.Rule)}}
			if len(parent.Rule.open) > 0 {
				added.Entries = l.Entries[:len(parent.Rule.path)]
				added.Counted = parent.Rule.counted(added.Entries)
			}
			layers = append(layers, added)
		}
	}
	return layers
}

// explain follows the entries as find does.
func (s *Set) explain(domain string, entries []Entry) Layer {
	l := Layer{Entries: entries}
	at := s.domains[domain]
	if at == nil {
		l.Why = append(l.Why, fmt.Sprintf("no file knows domain %.80q", domain))
		return l
	}
	for i := range entries {
		e := &entries[i]
		next := at.child(e)
		l.Why = append(l.Why, at.why(e, next))
		if next == nil {
			return l
		}
		at = next
	}
	if l.Rule = at.rule; l.Rule == nil {
		l.Why = append(l.Why, "there is no rate_limit at this level: only what the last entry reaches counts")
		return l
	}
	l.Listed = l.Rule.listing(entries[len(entries)-1].Value)
	l.Counted = l.Rule.counted(entries)
	return l
}

// why says how an entry leads from a node to the next one, or why it leads nowhere.
func (n *node) why(e *Entry, next *node) string {
	b := n.keys[e.Key]
	switch {
	case b == nil && n.keys == nil:
		return fmt.Sprintf("%s: nothing is beneath the descriptor above", quoteEntry(*e))
	case b == nil:
		return fmt.Sprintf("%s: no descriptor here has this key, but %s", quoteEntry(*e), strings.Join(some(slices.Sorted(maps.Keys(n.keys))), ", "))
	case next == nil:
		return fmt.Sprintf("%s: no descriptor of this key has the value, no wildcard fits it, and there is no bare key", quoteEntry(*e))
	case next.entry.Value == "":
		return fmt.Sprintf("%s: met by the bare key, as no descriptor has this value and no wildcard fits it", quoteEntry(*e))
	case next.entry.Value == e.Value:
		return fmt.Sprintf("%s: met by its exact value", quoteEntry(*e))
	}
	return fmt.Sprintf("%s: met by %.80q, the first wildcard in the file that it fits, as no descriptor has this very value", quoteEntry(*e), next.entry.Value)
}

// some returns the first words of a list, and how many more there are.
func some(words []string) []string {
	const most = 8
	if len(words) <= most {
		return words
	}
	return append(words[:most:most], fmt.Sprintf("and %d more", len(words)-most))
}

// counted returns the open keys of the rule with what is counted of the entries' values.
func (r *Rule) counted(entries []Entry) (counted []Entry) {
	for _, i := range r.open {
		counted = append(counted, Entry{entries[i].Key, groupText(entries[i].Value, r.steps[i].ipv6)})
	}
	return counted
}
