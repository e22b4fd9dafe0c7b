package node

import (
	"testing"

	"github.com/edgelimit/edgelimit/node/rules"
)

// A pair is warned of exactly the rules by which either node denies everybody while the other one is out of reach.
func TestClosedInPair(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		all, near    int
		node         rules.Failure
		want         bool
	}{
		{"nothing is closed", "", 2, 1, rules.FailUnset, false},
		{"the rule", "on_failure: closed", 2, 1, rules.FailUnset, true},
		{"the node", "", 2, 1, rules.FailClosed, true},
		{"the rule is local, the node closed", "on_failure: local", 2, 1, rules.FailClosed, false},
		{"a partition denies", "on_partition: deny", 2, 1, rules.FailUnset, true},
		{"a partition denies, but who is cut off lets pass", "on_partition: deny, on_failure: open", 2, 1,
			rules.FailUnset, false},
		{"three nodes", "on_failure: closed", 3, 2, rules.FailUnset, false},
		{"alone", "on_failure: closed", 1, 1, rules.FailUnset, false},
		{"a pair in the region", "scope: region, on_failure: closed", 4, 2, rules.FailUnset, true},
		{"a pair over regions", "scope: region, on_failure: closed", 2, 1, rules.FailUnset, false},
		{"each counts alone", "scope: node", 2, 2, rules.FailClosed, false},
	} {
		policy := c.policy
		if policy != "" {
			policy = ", " + policy
		}
		set := ruleSet("domain: edge\ndescriptors: [{key: a, rate_limit: {name: a, unit: minute, requests_per_unit: 5" +
			policy + "}}]")
		if got := closedInPair(set.Rules(), c.all, c.near, c.node) != nil; got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
