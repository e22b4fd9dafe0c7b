package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Rule is one rate_limit of a rule file, or one object of the flat form. It is shared and read only.
type Rule struct {
	// Given is what the file calls the rule, empty without a name. Rules may share one.
	Given string
	// Name is what people see, everywhere: the given name, or the place where that is not the rule's alone. No other
	// rule of the set has it. HeaderName is what clients see: the name, or without a given one the keys of the place,
	// as its values are none of theirs; rules may share one. Both are set by Set.AssignNames.
	Name, HeaderName string
	Place
	// Limit is nil when the rule is unlimited: its requests are always allowed. LimitAt returns the limit by time.
	Limit *counters.Limit

	Policy
	// After is what is charged after the response, in place of the request.
	After After
	// Replaces are names of rules that do not count where a request meets this one as well.
	Replaces []string
	// CheckStrict returns why the store of a strict rule cannot have a limit; nil: it is not held against that.
	CheckStrict func(*counters.Limit) error
	// DetailedMetric puts the values of requests into the names of the rule's statistics in package ratelimit.
	DetailedMetric bool
	// Metadata is for others to read: maps with string keys, lists, strings, bools and float64s; nil for none.
	Metadata map[string]any
	// Reference is nil but in domains that are compatible with envoyproxy/ratelimit.
	Reference *Reference

	Elastic  bool  // whatever the mode that it is in
	parent   *Rule // that an elastic rule borrows from, nil without one
	brings   bool  // a request that meets the rule meets the parent as well
	open     []int // the indexes of the open steps
	Schedule []Scheduled
	Lists    *AddressLists   // nil without lists
	blocked  *counters.Limit // of what is in the deny list, and of failures that deny; nil without lists and limit

	overrides *overrides // nil: no key has a limit of its own
}

// Step is how one entry of a rule's path is counted.
type Step struct {
	Open bool  // each value by itself, as under a bare key and under a wildcard that does not share its threshold
	IPv6 uint8 // bits of an IPv6 address that tell one value from another; 0: values are not looked into
	IPv4 uint8 // those of an IPv4 address, where IPv6 is set; 0: all 32
	// ValueToMetric puts the value of an open entry into the names of statistics in package ratelimit.
	ValueToMetric bool
	// Secret: the values of the entry are secrets. A hash stands for them in all names.
	Secret bool
}

// countsAs reports whether values are counted as under another step.
func (s Step) countsAs(other Step) bool {
	return s.Open == other.Open && s.IPv4 == other.IPv4 && s.IPv6 == other.IPv6
}

// NewRule returns a rule at a place, without limit and policy.
func NewRule(at Place) *Rule {
	r := &Rule{Place: at}
	for i := range at.Steps {
		if at.Steps[i].Open {
			r.open = append(r.open, i)
		}
	}
	return r
}

// scopedIn returns the rule as nodes of a region enforce it: with limits of its scope, and its parent in the region.
// scoped maps rules to the results, so that a parent is the rule that requests meet.
func (r *Rule) scopedIn(region string, scoped map[*Rule]*Rule) *Rule {
	if c := scoped[r]; c != nil {
		return c
	}
	c := *r
	if r.Limit != nil {
		c.Limit = scopedLimit(r.Limit, r.Scope, region)
	}
	c.Schedule = slices.Clone(r.Schedule)
	for i := range c.Schedule {
		c.Schedule[i].Limit = scopedLimit(c.Schedule[i].Limit, r.Scope, region)
	}
	c.overrides = r.overrides.scopedIn(r.Scope, region)
	if r.parent != nil {
		c.parent = r.parent.scopedIn(region, scoped)
	}
	scoped[r] = &c
	return &c
}

// scopedLimit returns the limit with a scope. Names of rules are short enough for any, see counters.MaxScopedRule.
func scopedLimit(l *counters.Limit, scope counters.Scope, region string) *counters.Limit {
	if scope == counters.Global {
		return l
	}
	l, _ = l.With(func(c *counters.LimitConfig) { c.Scope, c.Region = scope, region })
	return l
}

// OpenKeys returns the keys whose values the rule counts one by one, from the top of the tree downwards. The slice is
// the caller's. A rule without open keys has one count for everybody.
func (r *Rule) OpenKeys() []string {
	keys := make([]string, len(r.open))
	for i, at := range r.open {
		keys[i] = r.Entries[at].Key
	}
	return keys
}

// Path returns the entries that lead to the rule, from the top of the tree downwards; open keys have no value. The
// slice is the caller's.
func (r *Rule) Path() []Entry { return slices.Clone(r.Entries) }

// String returns the name.
func (r *Rule) String() string { return cmp.Or(r.Name, r.FullName) }

// Place is the position of a rule in the tree.
type Place struct {
	// FullName is unique: domain, keys and values from the top of the tree to the rule, as in
	// "edge/path=/login/remote_address"; of a flat rule its rule_id, as in "login". It is the rule name of the meter.
	//
	// What would make it ambiguous is written as %XX: percent signs and control characters everywhere, slashes (but not
	// the first character of a value), and equals signs in keys and domains. 16 hexadecimal digits of a hash stand for
	// a secret value. It is for peers and Redis; people see the rule's name.
	FullName string
	Domain   string   // that of the document; empty of a flat rule
	Regions  []string // where the rule is in force; empty: everywhere
	Entries  []Entry  // from the top of the tree to the rule; bare keys have an empty Value
	Steps    []Step   // how each entry is counted
	// Compatible: the domain is compatible with envoyproxy/ratelimit.
	Compatible bool
}

// Below returns the place of a descriptor under this one.
func (at Place) Below(e Entry, s Step) Place {
	shown := e
	if s.Secret && e.Value != "" {
		shown.Value = "#" + SecretHash(e.Value)
	}
	return Place{
		Domain: at.Domain, FullName: at.FullName + "/" + Component(shown), Entries: append(slices.Clip(at.Entries), e),
		Steps: append(slices.Clip(at.Steps), s), Regions: at.Regions, Compatible: at.Compatible,
	}
}

// Component returns an entry as one part of a full name. A domain, or the id of a flat rule, is one without a value.
func Component(e Entry) string {
	key := escape(e.Key, "/=")
	if e.Value == "" {
		return key
	}
	// A value follows "=" and is never empty, so that a slash there is its first character and no separator.
	return key + "=" + escape(e.Value[:1], "") + escape(e.Value[1:], "/")
}

// escape writes percent signs, control characters and the special ones as %XX.
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

// Scheduled is a limit that replaces a rule's during a part of each day.
type Scheduled struct {
	// seconds since midnight on the zone's clocks; to is not included, and before from where midnight is between
	From, To int
	Zone     *time.Location
	Limit    *counters.Limit
	Margin   uint64 // of the limit, as Policy.Margin
}

// holds reports whether clocks that show so many seconds since midnight are within.
func (s *Scheduled) holds(clock int) bool {
	if s.From < s.To {
		return s.From <= clock && clock < s.To
	}
	return s.From <= clock || clock < s.To
}

// LimitAt returns the limit at a time, in nanoseconds since the Unix epoch: the first of the schedule that holds, else
// the rule's own; nil when the rule is unlimited. All of them have the same meter, so that the counts stay.
//
// A schedule goes by what clocks show in its zone: an hour that they skip in spring is skipped, and what they show
// twice in autumn holds twice.
func (r *Rule) LimitAt(now int64) *counters.Limit {
	for i := range r.Schedule {
		s := &r.Schedule[i]
		hour, minute, second := time.Unix(0, now).In(s.Zone).Clock()
		if s.holds(hour*3600 + minute*60 + second) {
			return s.Limit
		}
	}
	return r.Limit
}

// Scheduled reports whether LimitAt depends on the time.
func (r *Rule) Scheduled() bool { return len(r.Schedule) > 0 }
