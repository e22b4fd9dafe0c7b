package node

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// policy is a set of rules with what the node counts of each. It is replaced as a whole.
type policy struct {
	set     *rules.Set
	tallies map[*rules.Rule]*tally
	limits  map[string]*counters.Limit // by the rule's full name
}

// tally counts a rule's decisions.
type tally struct {
	allowed, denied atomic.Uint64
}

// enforce puts a set in force. The table learns of its limits first, so that what peers count for them is debited as it comes.
func (n *Node) enforce(set *rules.Set) {
	p := newPolicy(set)
	n.table.Know(slices.Collect(maps.Values(p.limits)))
	n.policy.Store(p)
}

func newPolicy(set *rules.Set) *policy {
	p := &policy{set: set, tallies: make(map[*rules.Rule]*tally), limits: make(map[string]*counters.Limit)}
	for _, r := range set.Rules() {
		p.tallies[r] = new(tally)
		if r.Limit != nil {
			p.limits[r.FullName] = r.Limit
		}
	}
	return p
}
