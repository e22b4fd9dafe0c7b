package rules

import (
	"fmt"
	"strings"

	"github.com/edgelimit/edgelimit/counters"
)

// Describe says in words what the rule promises: "100 in 1m0s by sliding_window, soft: 10 more".
func (r *Rule) Describe() string {
	parts := []string{describeLimit(r.Limit, r.Margin)}
	if r.Mode == counters.Shadow || r.Mode == counters.Quota {
		parts = append(parts, r.Mode.String()+" mode")
	}
	for i := range r.schedule {
		s := &r.schedule[i]
		parts = append(parts, fmt.Sprintf("from %s to %s in %s %s", clockText(s.from), clockText(s.to), s.zone, describeLimit(s.limit, s.margin)))
	}
	switch {
	case r.Parent != "":
		parts = append(parts, "borrows from "+r.Parent)
	case r.MaxPressure > 0:
		parts = append(parts, fmt.Sprintf("more up to a pressure of %v", r.MaxPressure))
	}
	if r.Cost > 1 {
		parts = append(parts, fmt.Sprintf("each costs %d", r.Cost))
	}
	if r.Each {
		parts = append(parts, "charged by itself")
	}
	if len(r.Replaces) > 0 {
		parts = append(parts, "replaces "+strings.Join(some(r.Replaces), " "))
	}
	if r.Scope != counters.Global {
		parts = append(parts, "counted by each "+r.Scope.String()+" for itself")
	}
	if r.Ban > 0 {
		parts = append(parts, fmt.Sprintf("bans for %v", r.Ban))
	}
	if r.CountRejected {
		parts = append(parts, "counts what it denies")
	}
	if r.OnPartition == counters.Local {
		parts = append(parts, "local in a partition")
	}
	if r.MaxUnsent > 0 {
		parts = append(parts, fmt.Sprintf("told after %d", r.MaxUnsent))
	}
	if len(r.Regions) > 0 {
		parts = append(parts, "only in "+strings.Join(r.Regions, " "))
	}
	if r.listed != nil {
		parts = append(parts, r.listed.String())
	}
	return strings.Join(parts, ", ")
}

func describeLimit(l *counters.Limit, margin uint64) string {
	if l == nil {
		return "unlimited"
	}
	m := l.Meter()
	text := fmt.Sprintf("%d in %v", l.Max()-margin, m.Window)
	if isBucket(m.Algorithm) {
		text = fmt.Sprintf("%d, of which %d in %v come back,", l.Max()-margin, l.Refill(), m.Window)
	}
	text += " by " + m.Algorithm.String()
	if margin > 0 {
		text += fmt.Sprintf(" and softly %d more", margin)
	}
	return text
}

func clockText(seconds int) string { return fmt.Sprintf("%02d:%02d", seconds/3600, seconds/60%60) }

// String says how many prefixes are on which list.
func (a *addresses) String() string {
	allowed := 0
	for _, l := range a.listed {
		if l == AllowListed {
			allowed++
		}
	}
	return fmt.Sprintf("%d allowed and %d denied prefixes", allowed, len(a.listed)-allowed)
}
