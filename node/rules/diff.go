package rules

import (
	"maps"
	"reflect"
	"slices"
)

// What putting a set of rules in the place of another does to one of them.
const (
	Added         = "added"   // it was not there
	Removed       = "removed" // it is not there any more
	MeterChanged  = "meter"   // window or algorithm are others, or who is counted together: all counts start anew
	LimitChanged  = "limit"   // another number: counts are kept
	PolicyChanged = "policy"  // something else: counts are kept
)

// Change is what a new set of rules changes about one rule.
type Change struct {
	Kind string `json:"kind"`
	// Rule is the full name.
	Rule string `json:"rule"`
	// Old and New are what the rule promised and promises; empty where it was not, or is not any more.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Counts says what becomes of the counts: "kept", "anew" or, of a rule that goes, "dropped".
	Counts string `json:"counts"`
}

// Diff says what happens when the rules of one set take the place of those of another: first what the new one holds, in its order,
// then what it lacks. Rules are told from one another by their full names.
func Diff(before, after *Set) []Change {
	var changes []Change
	for _, r := range after.rules {
		if c, differs := compare(before.byFullName[r.FullName], r); differs {
			changes = append(changes, c)
		}
	}
	for _, r := range before.rules {
		if after.byFullName[r.FullName] == nil {
			changes = append(changes, Change{Kind: Removed, Rule: r.FullName, Old: r.Describe(), Counts: "dropped"})
		}
	}
	return changes
}

// compare says what became of a rule; old is nil where there was none.
func compare(old, r *Rule) (c Change, differs bool) {
	c = Change{Rule: r.FullName, New: r.Describe(), Counts: "kept"}
	if old == nil {
		c.Kind, c.Counts = Added, "anew"
		return c, true
	}
	c.Old = old.Describe()
	switch {
	case !sameMeter(old, r):
		c.Kind, c.Counts = MeterChanged, "anew"
	case !sameLimits(old, r):
		c.Kind = LimitChanged
	case !samePolicy(old, r):
		c.Kind = PolicyChanged
	default:
		return Change{}, false
	}
	return c, true
}

// sameMeter reports whether the counts of one rule are those of the other.
func sameMeter(a, b *Rule) bool {
	if !slices.Equal(a.steps, b.steps) || (a.Limit == nil) != (b.Limit == nil) {
		return false
	}
	return a.Limit == nil || a.Scope == b.Scope && a.Limit.Meter() == b.Limit.Meter()
}

func sameLimits(a, b *Rule) bool {
	if a.Limit != nil && (a.Limit.Max() != b.Limit.Max() || a.Limit.Refill() != b.Limit.Refill()) || a.Margin != b.Margin {
		return false
	}
	return slices.EqualFunc(a.schedule, b.schedule, func(x, y scheduled) bool {
		return x.from == y.from && x.to == y.to && x.zone.String() == y.zone.String() && x.margin == y.margin &&
			x.limit.Max() == y.limit.Max() && x.limit.Refill() == y.limit.Refill()
	})
}

func samePolicy(a, b *Rule) bool {
	return a.Name == b.Name && a.Policy == b.Policy && slices.Equal(a.Replaces, b.Replaces) && slices.Equal(a.Regions, b.Regions) &&
		reflect.DeepEqual(a.Metadata, b.Metadata) && sameLists(a.listed, b.listed)
}

func sameLists(a, b *addresses) bool {
	if a == nil || b == nil {
		return a == b
	}
	return maps.Equal(a.listed, b.listed)
}
