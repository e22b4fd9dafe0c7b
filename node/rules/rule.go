package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/counters"
)

// Rule is one rate_limit of a rule file. It is shared and must not be written to; reading it is safe for concurrent use.
type Rule struct {
	// Name is what responses and Request.Rule call the rule (metrics use the full name): its `name:`, else its full name. Several rules may
	// share a name.
	Name string
	// FullName is unique: domain, keys and values from the top of the tree to the rule, as in
	// "edge/path=/login/remote_address". It is the rule name of the meter.
	//
	// What would make it ambiguous is written as %XX: percent signs and control characters everywhere, slashes (but not the
	// first character of a value), and equals signs in keys and domains.
	FullName string
	// Domain is the domain of the document that holds the rule.
	Domain string
	// Limit is nil when the rule is unlimited: requests that meet it are always allowed.
	Limit *counters.Limit

	path   []Entry // from the top of the tree to the rule; open keys have an empty Value
	open   int     // how many keys are open
	openAt int     // place of the last open key in path
	prefix []byte  // what a key's hash begins with
}

// newRule returns the rule at the end of path, without name and limit.
func newRule(domain, fullName string, path []Entry) *Rule {
	r := &Rule{Name: fullName, FullName: fullName, Domain: domain, path: path, prefix: appendSized(nil, fullName)}
	for i, e := range path {
		if e.Value == "" {
			r.open++
			r.openAt = i
		}
	}
	return r
}

// OpenKeys returns the keys whose values the rule counts one by one, from the top of the tree downwards. The slice is the
// caller's. A rule without open keys has one count for everybody.
func (r *Rule) OpenKeys() []string {
	keys := make([]string, 0, r.open)
	for _, e := range r.path {
		if e.Value == "" {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// String returns the full name.
func (r *Rule) String() string { return r.FullName }

// Set is the rules of one or several files. It is immutable and safe for concurrent use. The zero value has no rules.
type Set struct {
	domains    map[string]*node
	rules      []*Rule // in file order
	byFullName map[string]*Rule
	byName     map[string][]*Rule
}

// Rules returns all rules in the order of the files. The slice is the caller's, the rules are shared.
func (s *Set) Rules() []*Rule { return slices.Clone(s.rules) }

// node is one descriptor of the tree; the top of the tree stands for a domain.
type node struct {
	rule  *Rule // nil without a rate_limit
	exact map[Entry]*node
	bare  map[string]*node
}

// attach puts child under the node. An entry without a value is the bare key.
func (n *node) attach(e Entry, child *node) {
	if e.Value == "" {
		if n.bare == nil {
			n.bare = make(map[string]*node)
		}
		n.bare[e.Key] = child
		return
	}
	if n.exact == nil {
		n.exact = make(map[Entry]*node)
	}
	n.exact[e] = child
}

// place is where in the tree the parser stands.
type place struct {
	node     *node
	domain   string
	fullName string
	path     []Entry
}

// below returns the place of a new descriptor under this one. Nothing leads there yet.
func (at place) below(e Entry) place {
	return place{
		node:     &node{},
		domain:   at.domain,
		fullName: at.fullName + "/" + component(e),
		path:     append(slices.Clip(at.path), e),
	}
}

// component writes an entry as one part of a full name.
func component(e Entry) string {
	if e.Value == "" {
		return escape(e.Key, "/=")
	}
	// A value follows "=" and is never empty, so that a slash there is still its first character and no separator.
	if rest, ok := strings.CutPrefix(e.Value, "/"); ok {
		return escape(e.Key, "/=") + "=/" + escape(rest, "/")
	}
	return escape(e.Key, "/=") + "=" + escape(e.Value, "/")
}

// escape writes percent signs, control characters and what is in special as %XX.
func escape(s, special string) string {
	plain := func(c byte) bool { return c >= ' ' && c != '%' && c != 0x7f && strings.IndexByte(special, c) < 0 }
	var b strings.Builder
	for i := range len(s) {
		if plain(s[i]) {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}
