package rules

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Set is the rules of one or several files. It is immutable and safe for concurrent use. The zero value has no rules.
type Set struct {
	domains    map[string]*Node
	rules      []*Rule // in file order
	byFullName map[string]*Rule
	byName     map[string]*Rule
	byGiven    map[string][]*Rule
	regional   bool // regions have different rules or meters

	sources  map[string]map[string]string // of keys, by domain
	others   bool                         // whether domains without rules are compatible with envoyproxy/ratelimit
	warnings []error
}

// Rules returns all rules in the order of the files. The slice is the caller's, the rules are shared.
func (s *Set) Rules() []*Rule { return slices.Clone(s.rules) }

// Rule returns the rule of a full name, nil if there is none.
func (s *Set) Rule(fullName string) *Rule { return s.byFullName[fullName] }

// HasDomain reports whether a domain exists.
func (s *Set) HasDomain(name string) bool { return s.domains[name] != nil }

// Compatible reports whether a domain is compatible with envoyproxy/ratelimit (compatible.go).
func (s *Set) Compatible(domain string) bool { return s.compatible(s.domains[domain]) }

// compatible is Compatible of the domain with the given top of its tree, nil for none.
func (s *Set) compatible(top *Node) bool {
	if top == nil {
		return s.others
	}
	return top.joined != nil
}

// Sources returns where the values of a domain's keys come from, as its files say (from: header X-Api-Key), in the
// words of the configuration's requests.descriptors. The map is shared; nil: they say nothing.
func (s *Set) Sources(domain string) map[string]string { return s.sources[domain] }

// SetSource sets where the values of a key come from. It is called before the set is used.
func (s *Set) SetSource(domain, key, source string) {
	if s.sources[domain] == nil {
		s.sources[domain] = make(map[string]string)
	}
	s.sources[domain][key] = source
}

// SetCompatible makes domains without rules compatible with envoyproxy/ratelimit, or not.
func (s *Set) SetCompatible(others bool) { s.others = others }

// Domains returns the names of the domains, sorted.
func (s *Set) Domains() []string { return slices.Sorted(maps.Keys(s.domains)) }

// NameOf returns the name of the rule of a full name; that of a rule that the set does not have is the full name.
func (s *Set) NameOf(fullName string) string {
	if r := s.byFullName[fullName]; r != nil {
		return r.Name
	}
	return fullName
}

// Add adds a rule, which is complete but for its parent and its name.
func (s *Set) Add(r *Rule) {
	s.regional = s.regional || r.Scope != counters.Global || len(r.Regions) > 0
	if (r.Lists != nil || r.Limit != nil) && r.blocked == nil {
		m := counters.NewMeter(r.FullName, counters.FixedWindow, time.Second)
		if r.Limit != nil {
			m = r.Limit.Meter()
		}
		r.blocked, _ = counters.NewLimit(m, 0) // m is valid
	}
	s.rules = append(s.rules, r)
	s.byFullName[r.FullName] = r
	if r.Name != "" {
		s.byName[r.Name] = r
	}
	if r.Given != "" {
		s.byGiven[r.Given] = append(s.byGiven[r.Given], r)
	}
}

// AddDomain adds a domain with the top of its tree.
func (s *Set) AddDomain(name string, top *Node) { s.domains[name] = top }

// NewSet returns an empty set to which rules can be added before it is used.
func NewSet() *Set {
	return &Set{
		domains: make(map[string]*Node), byFullName: make(map[string]*Rule), byName: make(map[string]*Rule),
		byGiven: make(map[string][]*Rule), sources: make(map[string]map[string]string),
	}
}

// In returns the rules that are in force in a region. Limits with a scope have meters of that region.
func (s *Set) In(region string) *Set {
	if !s.regional {
		return s
	}
	in := NewSet()
	in.warnings, in.sources = s.warnings, s.sources
	scoped := make(map[*Rule]*Rule)
	for _, r := range s.rules {
		if AppliesIn(r.Regions, region) {
			in.Add(r.scopedIn(region, scoped))
		}
	}
	for domain, top := range s.domains {
		in.domains[domain] = top.in(region, scoped)
	}
	in.others = s.others
	in.regional = false
	return in
}

// in returns a copy of the tree without what is not in force in the region, and with the rules as they are there.
func (n *Node) in(region string, scoped map[*Rule]*Rule) *Node {
	c := &Node{Rule: scoped[n.Rule], Secret: n.Secret}
	if n.joined != nil {
		c.joined = new(branch)
	}
	for _, child := range n.children {
		if AppliesIn(child.Regions, region) {
			c.Attach(child.Entry, child.in(region, scoped))
		}
	}
	return c
}

// AppliesIn reports whether a region is in a list of regions; an empty list holds all.
func AppliesIn(regions []string, region string) bool {
	return len(regions) == 0 || slices.Contains(regions, region)
}

// Node is one descriptor of the tree, or the top of a domain's tree.
type Node struct {
	Entry    Entry
	Rule     *Rule    // nil without a rate_limit
	Regions  []string // where the descriptor is in force; empty: everywhere
	Secret   bool     // its value is one
	keys     map[string]*branch
	children []*Node // in the order of the file
	joined   *branch // of a compatible domain: all children by key_value, or key; else nil
}

// branch is the descriptors of one key under a node.
type branch struct {
	exact map[string]*Node // by value; those with wildcards too, which a request may name
	sizes uint64           // a bit for each length of those values, modulo 64: most others can be told apart by it
	wild  wildcards
	bare  *Node
}

// Attach puts child under the node. An entry without a value is the bare key.
func (n *Node) Attach(e Entry, child *Node) {
	child.Entry = e
	n.children = append(n.children, child)
	if n.joined != nil {
		child.joined = cmp.Or(child.joined, new(branch))
		n.joined.add(JoinedKey(e), len(n.children), child)
	}
	if n.keys == nil {
		n.keys = make(map[string]*branch)
	}
	b := n.keys[e.Key]
	if b == nil {
		b = &branch{}
		n.keys[e.Key] = b
	}
	if e.Value == "" {
		b.bare = child
	} else {
		b.add(e.Value, len(n.children), child)
	}
}

// add adds a descriptor by its value; order is its place among its siblings.
func (b *branch) add(value string, order int, child *Node) {
	if b.exact == nil {
		b.exact = make(map[string]*Node)
	}
	b.exact[value] = child
	b.sizes |= 1 << (len(value) % 64)
	if IsWild(value) {
		b.wild.add(value, order, child)
	}
}

// IsWild reports whether a value of a rule file holds a wildcard (*).
func IsWild(value string) bool { return strings.Contains(value, "*") }

// child returns the descriptor that an entry meets: that of its exact value, else the first wildcard that fits, else
// the bare key.
func (n *Node) child(e *Entry) *Node {
	if n.joined != nil {
		return n.joinedChild(e)
	}
	b := n.keys[e.Key]
	if b == nil {
		return nil
	}
	if c := b.find(e.Value); c != nil {
		return c
	}
	return b.bare
}

// find returns the descriptor of a value, else of the first wildcard that fits; nil for none.
func (b *branch) find(value string) *Node {
	if b.sizes&(1<<(len(value)%64)) != 0 {
		if c := b.exact[value]; c != nil {
			return c
		}
	}
	if len(b.wild.lengths) > 0 {
		return b.wild.find(value)
	}
	return nil
}
