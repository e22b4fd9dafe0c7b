package rules

import (
	"maps"
	"slices"
	"strings"
)

// Set is the rules of one or several files. It is immutable and safe for concurrent use. The zero value has no rules.
type Set struct {
	domains    map[string]*node
	rules      []*Rule // in file order
	byFullName map[string]*Rule
	byName     map[string][]*Rule
	regional   bool // something is not the same everywhere
}

// Rules returns all rules in the order of the files. The slice is the caller's, the rules are shared.
func (s *Set) Rules() []*Rule { return slices.Clone(s.rules) }

// Rule returns the rule of a full name, nil if there is none.
func (s *Set) Rule(fullName string) *Rule { return s.byFullName[fullName] }

// HasDomain reports whether there is a domain of that name: in no other a descriptor can be met.
func (s *Set) HasDomain(name string) bool { return s.domains[name] != nil }

// Domains returns the names of the domains, sorted.
func (s *Set) Domains() []string { return slices.Sorted(maps.Keys(s.domains)) }

// put adds a rule.
func (s *Set) put(r *Rule) {
	s.rules = append(s.rules, r)
	s.byFullName[r.FullName] = r
	s.byName[r.Name] = append(s.byName[r.Name], r)
}

func newSet() *Set {
	return &Set{domains: make(map[string]*node), byFullName: make(map[string]*Rule), byName: make(map[string][]*Rule)}
}

// In returns the rules that are in force in a region: the others are as if they were not in the files. Limits that not all nodes keep
// together have meters that say who does.
func (s *Set) In(region string) *Set {
	if !s.regional {
		return s
	}
	in := newSet()
	scoped := make(map[*Rule]*Rule)
	for _, r := range s.rules {
		if appliesIn(r.Regions, region) {
			in.put(r.scopedIn(region, scoped))
		}
	}
	for domain, top := range s.domains {
		in.domains[domain] = top.in(region, scoped)
	}
	return in
}

// in returns a copy of the tree without what is not in force in the region, and with the rules as they are there.
func (n *node) in(region string, scoped map[*Rule]*Rule) *node {
	c := &node{rule: scoped[n.rule]}
	for _, child := range n.children {
		if appliesIn(child.regions, region) {
			c.attach(child.entry, child.in(region, scoped))
		}
	}
	return c
}

// appliesIn reports whether a region is among those that were listed, if any were.
func appliesIn(regions []string, region string) bool {
	return len(regions) == 0 || slices.Contains(regions, region)
}

// node is one descriptor of the tree; the top of the tree stands for a domain.
type node struct {
	entry    Entry
	rule     *Rule    // nil without a rate_limit
	regions  []string // where the descriptor is in force; empty: everywhere
	keys     map[string]*branch
	children []*node // in the order of the file
}

// branch is the descriptors of one key under a node.
type branch struct {
	exact map[string]*node // by value; those with wildcards too, which a request may name
	sizes uint64           // a bit for each length of those values, modulo 64: most others can be told apart by it
	wild  wildcards
	bare  *node
}

// attach puts child under the node. An entry without a value is the bare key.
func (n *node) attach(e Entry, child *node) {
	if n.keys == nil {
		n.keys = make(map[string]*branch)
	}
	b := n.keys[e.Key]
	if b == nil {
		b = &branch{}
		n.keys[e.Key] = b
	}
	child.entry = e
	n.children = append(n.children, child)
	if e.Value == "" {
		b.bare = child
		return
	}
	if b.exact == nil {
		b.exact = make(map[string]*node)
	}
	b.exact[e.Value] = child
	b.sizes |= 1 << (len(e.Value) % 64)
	if isWild(e.Value) {
		b.wild.add(e.Value, len(n.children), child)
	}
}

func isWild(value string) bool { return strings.Contains(value, "*") }

// child returns the descriptor that an entry meets: that of its exact value, else the first wildcard that it fits, else the bare key.
func (n *node) child(e *Entry) *node {
	b := n.keys[e.Key]
	if b == nil {
		return nil
	}
	if b.sizes&(1<<(len(e.Value)%64)) != 0 {
		if c := b.exact[e.Value]; c != nil {
			return c
		}
	}
	if len(b.wild.lengths) > 0 {
		if c := b.wild.find(e.Value); c != nil {
			return c
		}
	}
	return b.bare
}
