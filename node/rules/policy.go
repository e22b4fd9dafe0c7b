package rules

import (
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Policy is what a rule wants to be done with its requests.
type Policy struct {
	// Mode says what a denial means: Enforce unless the file says otherwise. A rule in shadow mode is in no other.
	Mode counters.Mode
	// Parent is the full name of the rule that an elastic one borrows from; empty: from the idle system, while the pressure that is reported
	// is no more than MaxPressure.
	Parent      string
	MaxPressure float64
	// Margin is how much of the rule's Limit is beyond what the rule promises: a request that needs it passes, and is told to be over. 0
	// unless the mode is soft.
	Margin uint64
	// Cost is what each unit of a request's cost is charged, at least 1.
	Cost uint64
	// Each says that the rule charges every request that it admits, also those that another layer denies.
	Each bool
	// Scope says which nodes keep the limit together.
	Scope counters.Scope
	// OnPartition is what happens to the limit while a part of the cluster cannot be reached.
	OnPartition counters.Partition
	// Ban is for how long the rule denies everything of whom it denied a request; 0: it does not.
	Ban time.Duration
	// CountRejected says that requests count which the rule denied.
	CountRejected bool
	// MaxUnsent is how many requests a node may have admitted before it tells its peers ahead of time; 0: no such number.
	MaxUnsent uint64
}

// maxCost is the most that a unit of cost may be charged: a product with any request's cost still fits.
const maxCost = 1 << 20

// Charge returns what the layer is charged at a time, in nanoseconds since the Unix epoch. It has no limit where nothing limits the layer:
// there is no rule, the rule is unlimited, or its allow list names who asks.
func (m *Match) Charge(req *Request, now int64) counters.Charge {
	r, asked := m.Rule, m.Asked(req)
	if r == nil && m.asked != 0 {
		return counters.Charge{Limit: req.Asks[m.asked-1].Limit, Key: m.Key, Cost: asked}
	}
	if r == nil {
		return counters.Charge{}
	}
	l := r.Limit
	switch {
	case m.Listed == DenyListed:
		l = r.blocked
	case m.Listed == AllowListed:
		l = nil
	case r.schedule != nil:
		l = r.LimitAt(now)
	}
	// What no limit can hold is denied, however much more it is.
	cost := min(asked*r.Cost, counters.MaxLimit+1)
	return counters.Charge{Limit: l, Key: m.Key, Cost: cost, Mode: r.Mode, Each: r.Each, Lender: m.lender}
}

// IdleAt reports whether the rule borrows from a system under the pressure p.
func (m *Match) IdleAt(p float64) bool {
	r := m.Rule
	return r != nil && r.Mode == counters.Elastic && r.Parent == "" && m.Listed == Unlisted && p <= r.MaxPressure
}

// Tell makes of the table's decision on the charge what the rule says: its name, its promise without the margin, the quota of a bucket.
func (m *Match) Tell(req *Request, ch *counters.Charge, d *counters.Decision) {
	r, l, peek := m.Rule, ch.Limit, m.Asked(req) == 0
	if r == nil && l != nil {
		d.Rule, d.Mode = OverrideName, ch.Mode
		return
	}
	if r == nil || l == nil { // an unlimited rule is counted, but it decides nothing: a limit of 0 with 0 left would be told of it
		return
	}
	d.Rule, d.Mode = r.Name, ch.Mode
	if l.Refill() != 0 && l.Max() != 0 { // "q=20;w=12" is the policy of a bucket of 20 that gets 100 a minute back
		d.Window = l.Lasts()
	}
	if peek && d.Allowed && !d.Waived && d.Remaining < r.Cost { // a peek asks for one, and this rule's requests cost more
		if d.Waived = ch.Mode == counters.Shadow; !d.Waived {
			d.Allowed, d.RetryAfter = false, d.ResetAfter
		}
		if r.Cost > l.Max() && !d.Allowed {
			d.RetryAfter = counters.Never
		}
	}
	if margin := r.marginOf(l); margin > 0 {
		over := d.Remaining < margin || peek && d.Remaining < margin+r.Cost
		d.Waived = d.Waived || d.Allowed && over
		d.Limit, d.Remaining = l.Max()-margin, d.Remaining-min(d.Remaining, margin)
	}
}

// marginOf returns how much of the maximum of one of the rule's limits is margin.
func (r *Rule) marginOf(l *counters.Limit) uint64 {
	if l == r.Limit {
		return r.Margin
	}
	for i := range r.schedule {
		if r.schedule[i].limit == l {
			return r.schedule[i].margin
		}
	}
	return 0
}
