package rules

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/text"
)

// Kinds of changes.
const (
	Added         = "added"   // the rule is new
	Removed       = "removed" // the rule is gone
	MeterChanged  = "meter"   // another window, algorithm, store or grouping of clients: counts start anew
	LimitChanged  = "limit"   // another number: counts are kept
	PolicyChanged = "policy"  // anything else: counts are kept
)

// Change is how a new set of rules changes one rule.
type Change struct {
	Kind string `json:"kind"`
	// Rule is the name.
	Rule string `json:"rule"`
	// Old and New describe the rule before and after; empty where there is none.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Counts is "kept", "anew", or "dropped" for a removed rule.
	Counts string `json:"counts"`
}

// Diff returns the changes from one set to another: rules of the new set in its order, then removed ones. It compares
// rules with equal full names.
func Diff(before, after *Set) []Change {
	var changes []Change
	for _, r := range after.rules {
		if c, differs := compare(before.byFullName[r.FullName], r); differs {
			changes = append(changes, c)
		}
	}
	for _, r := range before.rules {
		if after.byFullName[r.FullName] == nil {
			changes = append(changes, Change{Kind: Removed, Rule: r.Name, Old: r.Describe(), Counts: "dropped"})
		}
	}
	return changes
}

// compare returns the change of a rule; old is nil if there was none.
func compare(old, r *Rule) (c Change, differs bool) {
	c = Change{Kind: PolicyChanged, Rule: r.Name, New: r.Describe(), Counts: "kept"}
	switch {
	case old == nil:
		c.Kind, c.Counts = Added, "anew"
		return c, true
	case !sameMeter(old, r):
		c.Kind, c.Counts = MeterChanged, "anew"
	case !sameLimits(old, r):
		c.Kind = LimitChanged
	}
	c.Old = old.Describe()
	a, b := fingerprint{sha256.New()}, fingerprint{sha256.New()}
	a.rule(old)
	b.rule(r)
	return c, c.Kind != PolicyChanged || a.sum() != b.sum()
}

// sameMeter reports whether the counts of one rule are valid for the other.
func sameMeter(a, b *Rule) bool {
	if !slices.EqualFunc(a.Steps, b.Steps, Step.countsAs) || (a.Limit == nil) != (b.Limit == nil) {
		return false
	}
	if a.Strict != b.Strict || a.HomeRegion != b.HomeRegion {
		return false
	}
	return a.Limit == nil || a.Scope == b.Scope && a.Limit.Meter() == b.Limit.Meter()
}

func sameLimits(a, b *Rule) bool {
	if a.Limit != nil && (a.Limit.Max() != b.Limit.Max() || a.Limit.Refill() != b.Limit.Refill()) ||
		a.Margin != b.Margin {
		return false
	}
	return slices.EqualFunc(a.Schedule, b.Schedule, func(x, y Scheduled) bool {
		return x.From == y.From && x.To == y.To && x.Zone.String() == y.Zone.String() && x.Margin == y.Margin &&
			x.Limit.Max() == y.Limit.Max() && x.Limit.Refill() == y.Limit.Refill()
	})
}

// Describe returns the rule as text: "100 in 1 min by sliding_window, soft: 10 more".
func (r *Rule) Describe() string {
	parts := []string{DescribeLimit(r.Limit, r.Margin)}
	add := func(holds bool, format string, args ...any) {
		if holds {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(r.Mode == counters.Shadow || r.Mode == counters.Quota, "%s mode", r.Mode)
	for i := range r.Schedule {
		s := &r.Schedule[i]
		add(true, "from %s to %s in %s %s", clockText(s.From), clockText(s.To), s.Zone,
			DescribeLimit(s.Limit, s.Margin))
	}
	add(r.Parent != "", "borrows from %s", r.parent)
	add(r.Parent == "" && r.MaxPressure > 0, "more up to a pressure of %v", r.MaxPressure)
	add(r.ChargesLater(), "%s", r.After.describe())
	add(r.Cost > 1, "each costs %d", r.Cost)
	add(r.Each, "charged by itself")
	add(len(r.Replaces) > 0, "replaces %s", strings.Join(some(r.Replaces), " "))
	add(r.Scope != counters.Global, "counted by each %s for itself", r.Scope)
	add(r.Strict && r.HomeRegion != "", "strict by the Redis of %s", r.HomeRegion)
	add(r.Strict && r.HomeRegion == "", "strict by the Redis of each region")
	add(r.Lease > 1, "in leases of %d", r.Lease)
	add(r.Ban > 0, "bans for %v", text.Duration(r.Ban))
	add(r.ExportAddress, "exports addresses")
	add(r.ExposeIdentity, "exposes identities")
	add(r.CountRejected, "counts what it denies")
	add(r.Overdraw == OverdrawDeny, "may not be overdrawn")
	add(r.Overdraw == OverdrawCharge, "may be overdrawn")
	add(r.OnPartition == counters.Local, "local in a partition")
	add(r.PartitionDenies, "denies in a partition")
	add(r.OnFailure != FailUnset, "fails %s", r.OnFailure)
	add(r.MaxUnsent > 0, "sends early after %d", r.MaxUnsent)
	add(len(r.Regions) > 0, "only in %s", strings.Join(r.Regions, " "))
	add(r.Overrides() > 0, "%d with a limit of their own", r.Overrides())
	if r.Lists != nil {
		parts = append(parts, r.Lists.String())
	}
	return strings.Join(parts, ", ")
}

// DescribeLimit returns a limit as text, nil as "unlimited". margin is the part of it beyond the rule's own number.
func DescribeLimit(l *counters.Limit, margin uint64) string {
	if l == nil {
		return "unlimited"
	}
	m := l.Meter()
	words := fmt.Sprintf("%d in %v", l.Max()-margin, text.Duration(m.Window))
	if IsBucket(m.Algorithm) {
		words = fmt.Sprintf("%d, of which %d in %v come back,", l.Max()-margin, l.Refill(), text.Duration(m.Window))
	}
	words += " by " + m.Algorithm.String()
	if margin > 0 {
		word := "softly"
		if m.Algorithm == counters.LeakyQueue {
			word = "with delays"
		}
		words += fmt.Sprintf(" and %s %d more", word, margin)
	}
	return words
}

func clockText(seconds int) string { return fmt.Sprintf("%02d:%02d", seconds/3600, seconds/60%60) }

// String counts the prefixes of each list.
func (a *AddressLists) String() string {
	allowed := 0
	for _, l := range a.listed {
		if l == AllowListed {
			allowed++
		}
	}
	return fmt.Sprintf("%d allowed and %d denied prefixes", allowed, len(a.listed)-allowed)
}

// IsBucket reports whether limits of the algorithm have a burst and a refill.
func IsBucket(a counters.Algorithm) bool {
	return a == counters.TokenBucket || a == counters.LeakyBucket || a == counters.LeakyQueue
}
