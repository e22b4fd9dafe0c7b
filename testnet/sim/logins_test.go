package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Ten wrong passwords over three regions, then no more wherever they come in; right ones are never counted; an hour
// later one is forgiven, over all regions together. The rule is the testnet's.
func TestFailedLoginsOverThreeRegions(t *testing.T) {
	set, err := rulefile.Load("../compose/rules")
	testkit.Must(t, err)
	all := set.Rules()
	rule := all[slices.IndexFunc(all, func(r *rules.Rule) bool { return r.Name == "failed_logins" })]
	o := DefaultOptions()
	o.Regions, o.Nodes, o.Interval, o.WANDelay, o.Jitter, o.Loss = 3, 2, time.Second, 50*time.Millisecond, 0.2, 0.01
	o.extraLimits = []*counters.Limit{rule.Limit}
	c, err := newCluster(o, noHooks())
	testkit.Must(t, err)
	c.runTo(c.startAt)
	began := c.now
	// login asks a node as the proxy does: it peeks, and charges the response if that was 401.
	login := func(n *node, user counters.Key, right bool) (let bool) {
		charge := []counters.Charge{{Limit: rule.Limit, Key: user}}
		if !n.table.TakeAll(charge, c.clock(n), nil)[0].Allowed {
			return false
		}
		if !right {
			charge[0].Cost = 1
			n.table.Report(charge, c.clock(n))
			c.flushSoon(n)
		}
		return true
	}
	const alice, bob = counters.Key(1), counters.Key(2)
	tries := func(what string, wrong int) {
		for i := range wrong {
			n := c.nodes[i%len(c.nodes)]
			if !login(n, alice, true) || !login(n, alice, false) {
				t.Fatalf("%s: try %d is denied in region %d", what, i+1, n.region)
			}
			c.runTo(c.now + int64(2*time.Second))
		}
		for _, n := range c.nodes {
			if login(n, alice, false) || login(n, alice, true) {
				t.Errorf("%s: try %d is let through in region %d", what, wrong+1, n.region)
			}
			if !login(n, bob, true) {
				t.Errorf("%s: somebody else is denied in region %d", what, n.region)
			}
		}
	}
	tries("at first", 10)
	c.runTo(began + int64(time.Hour-time.Minute))
	tries("a minute before the hour", 0)
	c.runTo(began + int64(time.Hour+time.Minute))
	tries("an hour later", 1)
}
