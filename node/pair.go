package node

import (
	"cmp"
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
	for r := range n.policy.Load().tallies {
		closed := r.PartitionDenies || cmp.Or(r.OnFailure, n.cfg.OnFailure) == rules.FailClosed
		pair := r.Scope == counters.Global && all == 2 || r.Scope == counters.Region && near == 2
		if r.Limit != nil && !r.Strict && closed && pair {
			return fmt.Sprintf("two nodes share the limit of rule %s, which is closed: if the host of one does not "+
				"answer, the other denies everybody", r.PublicName)
		}
	}
	return ""
}

// warnOfPair logs the warning when it begins to hold.
func (n *Node) warnOfPair(before string) (now string) {
	if now = n.pairWarning(); now != "" && before == "" {
		n.log.Warn(now + ": add a third node, or make the rule strict, with a Redis")
	}
	return now
}
