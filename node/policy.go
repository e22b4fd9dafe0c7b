package node

import (
	"maps"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// policy is a set of rules with what the node counts of each. It is replaced as a whole.
type policy struct {
	set     *rules.Set
	tallies map[*rules.Rule]*tally
	limits  map[string]*counters.Limit // that nodes keep together, by the meter's rule
	daily   []*rules.Rule              // whose limits of these change by the time of day
	since   time.Time
}

// tally counts a rule's decisions.
type tally struct {
	allowed, denied, waived atomic.Uint64
	banned                  atomic.Uint64 // denied by a ban that an earlier denial began
	near                    atomic.Uint64 // allowed, and little is left
}

// enforce puts the rules of a set in force that are for this region, and returns the policies before and after. The table learns of its
// limits first, so that what peers count for them is debited as it comes.
func (n *Node) enforce(set *rules.Set) (before, after *policy) {
	n.knowing.Lock()
	defer n.knowing.Unlock()
	before = n.policy.Load()
	after = newPolicy(set.In(n.cfg.Region), before)
	after.since = time.Unix(0, n.clock.Now())
	n.know(after, n.allMade())
	n.policy.Store(after)
	return before, after
}

// newPolicy makes a policy in which the rules of the one before it, if there was one, are counted on.
func newPolicy(set *rules.Set, before *policy) *policy {
	p := &policy{set: set, tallies: make(map[*rules.Rule]*tally), limits: make(map[string]*counters.Limit)}
	counted := make(map[string]*tally)
	if before != nil {
		for r, t := range before.tallies {
			counted[r.FullName] = t
		}
	}
	for _, r := range set.Rules() {
		if p.tallies[r] = counted[r.FullName]; p.tallies[r] == nil {
			p.tallies[r] = new(tally)
		}
		if r.Limit == nil || r.Scope == counters.Alone {
			continue
		}
		p.limits[r.Limit.Meter().Rule] = r.Limit
		if r.Scheduled() {
			p.daily = append(p.daily, r)
		}
	}
	return p
}

// limitsAt returns the limits in force at a time that nodes keep together, by the meter's rule. The map is not to be written to.
func (p *policy) limitsAt(now int64) map[string]*counters.Limit {
	if len(p.daily) == 0 {
		return p.limits
	}
	limits := maps.Clone(p.limits)
	for _, r := range p.daily {
		limits[r.Limit.Meter().Rule] = r.LimitAt(now)
	}
	return limits
}
