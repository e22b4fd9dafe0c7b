package node

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Who makes limits, and the places of theirs in Node.made.
const (
	ofRedisClients = iota // by CL.THROTTLE
	ofEnvoy               // by requests that bring limits
)

// madeLimits are limits that clients have made at one door, by their meters' rules.
type madeLimits struct {
	limits atomic.Pointer[map[string]*counters.Limit] // nil until there are some; not to be written to
}

// all returns them. The map is not to be written to.
func (m *madeLimits) all() map[string]*counters.Limit {
	if limits := m.limits.Load(); limits != nil {
		return *limits
	}
	return nil
}

// learner returns what takes over the limits that clients have made at a door, in place of those before.
func (n *Node) learner(to *madeLimits) func([]*counters.Limit) {
	return func(made []*counters.Limit) {
		limits := make(map[string]*counters.Limit, len(made))
		for _, l := range made {
			limits[l.Meter().Rule] = l
		}
		n.knowing.Lock()
		defer n.knowing.Unlock()
		to.limits.Store(&limits)
		n.know(n.policy.Load(), n.allMade())
	}
}

// allMade returns the limits that clients have made at all doors, by their meters' rules. The map is not to be written to.
func (n *Node) allMade() map[string]*counters.Limit {
	one, other := n.made[ofRedisClients].all(), n.made[ofEnvoy].all()
	switch {
	case len(other) == 0:
		return one
	case len(one) == 0:
		return other
	}
	all := maps.Clone(one)
	maps.Copy(all, other)
	return all
}

// know tells the table which limits are in force. The lock on knowing is held.
func (n *Node) know(p *policy, made map[string]*counters.Limit) {
	n.table.Know(slices.AppendSeq(slices.Collect(maps.Values(p.limits)), maps.Values(made)))
}

// limitsAt returns the limits in force at a time, by their meters' rules. The map is not to be written to.
func (n *Node) limitsAt(now time.Time) map[string]*counters.Limit {
	limits, made := n.policy.Load().limitsAt(now.UnixNano()), n.allMade()
	if len(made) == 0 {
		return limits
	}
	limits = maps.Clone(limits)
	maps.Copy(limits, made)
	return limits
}

// limit returns the limit in force of a meter's rule, nil if there is none.
func (n *Node) limit(rule string) *counters.Limit {
	if l := n.policy.Load().limits[rule]; l != nil {
		return l
	}
	for i := range n.made {
		if l := n.made[i].all()[rule]; l != nil {
			return l
		}
	}
	return nil
}

// boundOf is the largest bound of the limits that clients have made at a door.
func (n *Node) boundOf(made *madeLimits) (bound float64) {
	for rule := range made.all() {
		bound = max(bound, n.audit.bound(rule))
	}
	return bound
}
