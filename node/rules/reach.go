package rules

import (
	"maps"
	"slices"
	"strings"
)

// Shape is one entry of the descriptors that a program sends: a key with any value, or always the same.
type Shape struct {
	Key   string
	Value string // of a Fixed one
	Fixed bool
}

// Reach returns the rules that descriptors of a shape can meet, in the order of the tree, with the parents that these
// bring along.
func (s *Set) Reach(domain string, shape []Shape) (met []*Rule) {
	at := []*Node{s.domains[domain]}
	if at[0] == nil {
		return nil
	}
	for _, e := range shape {
		var next []*Node
		for _, n := range at {
			if !e.Fixed {
				next = append(next, n.below(e.Key)...)
			} else if c := n.child(&Entry{e.Key, e.Value}); c != nil {
				next = append(next, c)
			}
		}
		at = next
	}
	for _, n := range at {
		if n.Rule == nil {
			continue
		}
		if met = append(met, n.Rule); n.Rule.brings {
			met = append(met, n.Rule.parent)
		}
	}
	return met
}

// below returns the descriptors of a key under the node.
func (n *Node) below(key string) []*Node {
	return slices.DeleteFunc(slices.Clone(n.children), func(c *Node) bool { return c.Entry.Key != key })
}

// Miss is why a request meets no rule at all.
type Miss uint8

// The reasons, from probable mistakes to probable intent.
const (
	UnknownDomain Miss = iota // no file has the domain
	UnknownKey                // each descriptor has a key that no rule has there
	NoRule                    // the keys are known, but no rule has these values, or ends there
)

// String returns the name of the reason.
func (m Miss) String() string { return [...]string{"unknown_domain", "unknown_key", "no_rule"}[m] }

// Miss returns why a valid request by descriptors met no rule. It allocates nothing.
func (s *Set) Miss(req *Request) Miss {
	top := s.domains[req.Domain]
	if top == nil {
		return UnknownDomain
	}
	for _, entries := range req.Descriptors {
		if !top.missesKey(entries) {
			return NoRule
		}
	}
	return UnknownKey
}

// missesKey reports whether the entries end at a key that no descriptor has there.
func (n *Node) missesKey(entries []Entry) bool {
	for i := 0; i < len(entries) && n != nil; i++ {
		if n.keys[entries[i].Key] == nil {
			return true
		}
		n = n.child(&entries[i])
	}
	return false
}

// NearestDomain returns the domain that name probably misspells, "" for none.
func (s *Set) NearestDomain(name string) string { return Nearest(name, s.Domains()) }

// NearestKey returns the key of the domain's rules that key probably misspells; "" for none, or if it is one of them.
func (s *Set) NearestKey(domain, key string) string {
	known := make(map[string]bool)
	for _, r := range s.rules {
		if r.Domain == domain {
			for i := range r.Entries {
				known[r.Entries[i].Key] = true
			}
		}
	}
	if known[key] {
		return ""
	}
	return Nearest(key, slices.Sorted(maps.Keys(known)))
}

// NearestRule returns the rule of the domain that needs the fewest changes to the entries: the one with the longest
// common start, then the fewest further entries, then the first in the files. It is nil in a domain without rules.
func (s *Set) NearestRule(domain string, entries []Entry) (best *Rule) {
	var bestSame, bestRest int
	for _, r := range s.rules {
		if r.Domain == "" || r.Domain != domain {
			continue
		}
		same := commonStart(r.Entries, entries)
		rest := max(len(r.Entries), len(entries))
		if best == nil || same > bestSame || same == bestSame && rest < bestRest {
			best, bestSame, bestRest = r, same, rest
		}
	}
	return best
}

// commonStart scores how far the entries lead along the path: 2 for each that does, 1 for the next one if only its
// value differs. A probable misspelling of the path's key counts as the key.
func commonStart(path, entries []Entry) (score int) {
	for i := range min(len(path), len(entries)) {
		p, e := path[i], entries[i]
		if p.Key != e.Key && Nearest(e.Key, []string{p.Key}) == "" {
			break
		}
		if p.Value != "" && p.Value != e.Value && !(IsWild(p.Value) && matchWildcards(p.Value, e.Value)) {
			return score + 1
		}
		score += 2
	}
	return score
}

// Needs returns the entries of a descriptor that meets the rule: "(path=/login, remote_address)".
func (r *Rule) Needs() string {
	parts := make([]string, len(r.Entries))
	for i, e := range r.Entries {
		if parts[i] = Component(Entry{Key: e.Key}); e.Value != "" {
			parts[i] += "=" + escape(r.Steps[i].Shown(e.Value), "")
		}
	}
	return "(" + strings.Join(parts, ", ") + ")"
}
