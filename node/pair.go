package node

import (
	"fmt"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// pairWarning says that one of two nodes denies everybody by a rule while the other one's host does not answer: neither
// can tell a machine that is gone from a network that is. A process that has ended is known, as its host refuses
// connections. It says nothing where there is no such rule, or there are not two nodes.
func (n *Node) pairWarning() string {
	all, near := 1, 1
	for _, p := range n.cluster.Peers() {
		all++
		if !p.OtherRegion {
			near++
		}
	}
	r := closedInPair(n.policy.Load().set.Rules(), all, near, n.cfg.OnFailure)
	if r == nil {
		return ""
	}
	return fmt.Sprintf("two nodes share the limit of rule %s, which is closed: if the host of one does not "+
		"answer, the other denies everybody", r.Name)
}

// closedInPair returns the first rule whose limit two nodes share, of all or of those in this region, and by which
// either denies everybody while it is cut off from the other; nil if there is none.
func closedInPair(set []*rules.Rule, all, near int, node rules.Failure) *rules.Rule {
	for _, r := range set {
		pair := r.Scope == counters.Global && all == 2 || r.Scope == counters.Region && near == 2
		if r.Limit != nil && !r.Strict && pair &&
			r.During(rules.CutOff, rules.FailUnset, node) == rules.FailClosed {
			return r
		}
	}
	return nil
}

// warnOfPair logs the warning when it begins to hold.
func (n *Node) warnOfPair(before string) (now string) {
	if now = n.pairWarning(); now != "" && before == "" {
		n.log.Warn(now + ": add a third node, or make the rule strict, with a Redis")
	}
	return now
}
