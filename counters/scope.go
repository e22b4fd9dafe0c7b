package counters

import (
	"slices"
	"strings"
)

// Scope says which nodes keep a limit together.
type Scope uint8

const (
	Global Scope = iota // all nodes
	Region              // those of one region; each region has a count of its own
	Alone               // none: each node has a count of its own, and sends it to nobody
)

// scopes are their names.
var scopes = [...]string{Global: "global", Region: "region", Alone: "node"}

// String is the scope's name in rule files.
func (s Scope) String() string { return scopes[min(int(s), len(scopes)-1)] }

// ParseScope returns the scope of a name.
func ParseScope(name string) (s Scope, ok bool) {
	i := slices.Index(scopes[:], name)
	return Scope(max(i, 0)), i >= 0
}

// Whose count it is stands in a meter's name, behind the rule's: "edge/client%@eu-west" is that of a region,
// "edge/client%@" a node's own. So counts of different scopes, or of different regions, are those of different meters
// wherever they are kept or told. No full name of a rule holds the mark, as a percent sign is written as %25 there.
const homeMark = "%@"

// MaxRegion is the most bytes that the name of a region has, and MaxScopedRule those of the full name of a rule that is
// not Global.
const (
	MaxRegion     = 64
	MaxScopedRule = MaxRuleName - len(homeMark) - MaxRegion
)

// Home returns which nodes share the meter's counts, and of scope Region in which region.
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

// Scoped returns the limit with a meter of the scope: of scope Region that of the region named. The rule's name has
// MaxScopedRule bytes at most, and the region's 1 to MaxRegion. A limit that is not Global is returned as it is.
func (l *Limit) Scoped(s Scope, region string) *Limit {
	if s == Global || l.scope != Global {
		return l
	}
	other := *l
	other.meter.Rule += homeMark
	if s == Region {
		other.meter.Rule += region
	}
	other.id = other.meter.id()
	other.scope, _ = other.meter.Home()
	if l.ban != nil {
		ban := l.ban.meter
		ban.Rule = other.meter.Rule
		other.ban = newBanSpec(ban)
	}
	return &other
}

// Scope returns which nodes keep the limit together.
func (l *Limit) Scope() Scope { return l.scope }

// keeps reports whether the table takes in what others send of a meter: not of one that is a node's own, nor of another
// region's.
func (t *Table) keeps(m *Meter) bool {
	s, region := m.Home()
	return s == Global || s == Region && region == t.region
}

// keepers are those that keep the limit with this table.
func (t *Table) keepers(l *Limit) *cluster { return t.clusters[l.scope].Load() }
