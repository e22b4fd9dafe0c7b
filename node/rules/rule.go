package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/counters"
)

// Rule is one rate_limit of a rule file, or one object of the flat form. It is shared and must not be written to; reading it is safe for
// concurrent use.
type Rule struct {
	// Name is what responses and Request.Rule call the rule (metrics use the full name): its `name:`, else its full name. Several rules may
	// share a name.
	Name string
	// FullName is unique: domain, keys and values from the top of the tree to the rule, as in
	// "edge/path=/login/remote_address"; of a flat rule its rule_id, as in "login". It is the rule name of the meter.
	//
	// What would make it ambiguous is written as %XX: percent signs and control characters everywhere, slashes (but not the
	// first character of a value), and equals signs in keys and domains.
	FullName string
	// Domain is the domain of the document that holds the rule; empty of a flat rule.
	Domain string
	// Limit is nil when the rule is unlimited: requests that meet it are always allowed. LimitAt says what takes its place when.
	Limit *counters.Limit

	Policy
	// Replaces are names of rules that do not count where a request meets this one as well.
	Replaces []string
	// Metadata is what the rule file says for others to read: maps with string keys, lists, strings, bools and float64s; nil if nothing.
	Metadata map[string]any
	// Regions are where the rule is in force; empty: everywhere.
	Regions []string

	elastic  bool    // whatever the mode that it is in
	parent   *Rule   // that an elastic rule borrows from, nil without one
	brings   bool    // a request that meets the rule meets the parent as well
	path     []Entry // from the top of the tree to the rule; bare keys have an empty Value
	steps    []step  // how each entry of the path is counted
	open     []int   // the places of the open steps
	schedule []scheduled
	listed   *addresses      // nil without lists
	blocked  *counters.Limit // of what is in the deny list; nil without lists
}

// step is how one entry of a rule's path is counted.
type step struct {
	open bool  // each value by itself, as under a bare key and under a wildcard that does not share its threshold
	ipv6 uint8 // bits of an IPv6 address that tell one value from another; 0: values are not looked into
}

// newRule returns the rule at a place, without name and limit.
func newRule(at place) *Rule {
	r := &Rule{
		Name: at.fullName, FullName: at.fullName, Domain: at.domain, Regions: at.regions,
		path: at.path, steps: at.steps,
	}
	for i := range at.steps {
		if at.steps[i].open {
			r.open = append(r.open, i)
		}
	}
	return r
}

// scopedIn returns the rule as nodes of a region enforce it: with limits of its scope, and with its parent as that is there. What it returned
// stands in scoped, so that the parent is the rule that requests meet.
func (r *Rule) scopedIn(region string, scoped map[*Rule]*Rule) *Rule {
	if c := scoped[r]; c != nil {
		return c
	}
	c := *r
	if r.Limit != nil {
		c.Limit = r.Limit.Scoped(r.Scope, region)
	}
	c.schedule = slices.Clone(r.schedule)
	for i := range c.schedule {
		c.schedule[i].limit = c.schedule[i].limit.Scoped(r.Scope, region)
	}
	if r.parent != nil {
		c.parent = r.parent.scopedIn(region, scoped)
	}
	scoped[r] = &c
	return &c
}

// OpenKeys returns the keys whose values the rule counts one by one, from the top of the tree downwards. The slice is the
// caller's. A rule without open keys has one count for everybody.
func (r *Rule) OpenKeys() []string {
	keys := make([]string, len(r.open))
	for i, at := range r.open {
		keys[i] = r.path[at].Key
	}
	return keys
}

// Path returns the entries that lead to the rule, from the top of the tree downwards; open keys have no value. The slice is the caller's.
func (r *Rule) Path() []Entry { return slices.Clone(r.path) }

// String returns the full name.
func (r *Rule) String() string { return r.FullName }

// place is where in the tree the parser stands.
type place struct {
	node     *node
	domain   string
	fullName string
	path     []Entry
	steps    []step
	regions  []string
	seen     map[Entry]location // where the descriptors under the node stand
}

// below returns the place of a new descriptor under this one. Nothing leads there yet.
func (at place) below(e Entry, s step) place {
	return place{
		node:     &node{},
		domain:   at.domain,
		fullName: at.fullName + "/" + component(e),
		path:     append(slices.Clip(at.path), e),
		steps:    append(slices.Clip(at.steps), s),
		regions:  at.regions,
		seen:     make(map[Entry]location),
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
