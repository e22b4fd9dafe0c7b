package counters

import (
	"slices"
	"strings"
)

// Scope is which nodes count a limit together.
type Scope uint8

const (
	Global Scope = iota // all nodes
	Region              // the nodes of a region; each region has its own count
	Alone               // none: each node has its own count, and does not send it
)

var scopes = [...]string{Global: "global", Region: "region", Alone: "node"}

// String returns the scope's name in rule files.
func (s Scope) String() string { return scopes[min(int(s), len(scopes)-1)] }

// ParseScope returns the scope with a name in rule files.
func ParseScope(name string) (s Scope, ok bool) {
	i := slices.Index(scopes[:], name)
	return Scope(max(i, 0)), i >= 0
}

// homeMark separates a rule's name in a meter from the scope of its count: "edge/client%@eu-west" is the count of a
// region, "edge/client%@" a node's own. So counts of different scopes and regions have different meters. No full name
// of a rule contains the mark, as rule names escape a percent sign as %25.
const homeMark = "%@"

// MaxRegion is the maximum length of a region's name in bytes, and MaxScopedRule that of the full name of a rule that
// is not Global.
const (
	MaxRegion     = 64
	MaxScopedRule = MaxRuleName - len(homeMark) - MaxRegion
)

// Home returns which nodes share the meter's counts; for the scope Region also which region.
func (m Meter) Home() (s Scope, region string) {
	switch _, region, marked := strings.Cut(m.Rule, homeMark); {
	case !marked:
		return Global, ""
	case region == "":
		return Alone, ""
	default:
		return Region, region
	}
}

// homeOf returns what a scope appends to a rule's name in a meter; region is for Region.
func homeOf(s Scope, region string) string {
	switch s {
	case Region:
		return homeMark + region
	case Alone:
		return homeMark
	default:
		return ""
	}
}

// Scope returns which nodes count the limit together.
func (l *Limit) Scope() Scope { return l.scope }

// keeps reports whether the table merges what others send of a meter: not the count of a single node, nor that of
// another region.
func (t *Table) keeps(y *spec) bool {
	if y.scope == Region {
		_, region := y.meter.Home()
		return region == t.region
	}
	return y.scope == Global
}

// keepers are the nodes that count the limit with this table.
func (t *Table) keepers(l *Limit) *cluster { return t.clusters[l.scope].Load() }
