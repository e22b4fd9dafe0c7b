package node

import (
	"maps"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// policies are rules of each policy, and of each mode that may not weaken one.
const policies = `domain: test
descriptors:
  - {key: client, rate_limit: {name: local, unit: hour, requests_per_unit: 10}}
  - {key: feed, rate_limit: {name: open, unit: hour, requests_per_unit: 10, on_failure: open}}
  - {key: payment, rate_limit: {name: closed, unit: hour, requests_per_unit: 10, on_failure: closed}}
  - {key: strict, rate_limit: {name: deny, unit: hour, requests_per_unit: 10, on_partition: deny}}
  - {key: near, rate_limit: {name: near, unit: hour, requests_per_unit: 10, on_failure: closed, scope: region}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10, on_failure: closed}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 10, on_failure: closed}}
  - {key: other_quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: tenant, rate_limit: {name: tenant, unit: hour, requests_per_unit: 1000}}
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 10, mode: elastic, parent: tenant, on_failure: closed}}
  - key: listed
    allow: [10.0.0.0/8]
    deny: [192.0.2.0/24]
    rate_limit: {unit: hour, requests_per_unit: 10, on_failure: open}
`

// failed takes a request by each of some rules, beyond any limit, and returns which are allowed.
func failed(t *testing.T, n *Node, keys ...string) map[string]bool {
	t.Helper()
	allowed := make(map[string]bool)
	for _, key := range keys {
		req := ask(by(key, "x"))
		req.Cost = 11
		allowed[key] = take(t, n, req).Allowed
	}
	return allowed
}

// A node that knows nobody though it has seeds is cut off: open rules admit everything and closed ones nothing.
func TestCutOffFromTheStart(t *testing.T) {
	t.Parallel()
	cfg := gossiping("a", "eu", "127.0.0.1:1")
	cfg.RuleSet = ruleSet(policies)
	n := launch(t, cfg).ready(t)
	is := func(what string, ok bool, d Decision) {
		t.Helper()
		if !ok {
			t.Errorf("%s: %+v", what, d)
		}
	}
	d := take(t, n.Node, ask(by("payment", "x")))
	is("closed", !d.Allowed && d.Failed && d.Limit == 10 && d.Remaining == 0 && d.RetryAfter == 5*time.Second &&
		d.Window == time.Hour && d.Rule == "closed", d)
	d = take(t, n.Node, Request{Domain: "test", Descriptors: [][]rules.Entry{by("payment", "x")}, Peek: true})
	is("a peek at closed", !d.Allowed && d.Failed, d)
	for range 12 {
		d = take(t, n.Node, ask(by("feed", "x")))
	}
	is("open", d.Allowed && d.Failed && d.Waived, d)
	for range 11 {
		d = take(t, n.Node, ask(by("client", "x")))
	}
	is("local", !d.Allowed && !d.Failed, d)
	d = take(t, n.Node, ask(by("client", "y"), by("payment", "x")))
	is("closed beside local", !d.Allowed && d.Failed, d)
	if got := spent(t, n.Node, "local", "y"); got != 0 {
		t.Errorf("what a failure denied is charged elsewhere: %d", got)
	}
	d = take(t, n.Node, ask(by("shadow", "x")))
	is("a closed rule in shadow mode", d.Allowed && d.Waived && d.Failed, d)
	d = take(t, n.Node, ask(by("quota", "x"), by("other_quota", "x")))
	is("a closed quota beside one with room", !d.Allowed && d.Failed, d)
	d = take(t, n.Node, ask(by("user", "x"), by("tenant", "x")))
	is("a closed rule that could borrow", !d.Allowed && d.Failed, d)
	d = take(t, n.Node, ask(by("listed", "192.0.2.1")))
	is("an address that is denied", !d.Allowed && !d.Failed, d)
	d = take(t, n.Node, ask(by("listed", "10.1.1.1")))
	is("an address that is allowed", d.Allowed && !d.Failed, d)
	d = take(t, n.Node, ask(by("near", "x")))
	is("closed for the region", !d.Allowed && d.Failed, d)
	if _, err := n.Report(t.Context(), &Request{Domain: "test", Cost: 3,
		Descriptors: [][]rules.Entry{by("payment", "x")}}, nil); err != nil {
		t.Fatal(err)
	}
	p := n.policy.Load()
	for r, c := range p.tallies {
		if r.Name == "closed" && c.failedClosed.Load() != 2 || r.Name == "open" && c.failedOpen.Load() != 2 {
			t.Errorf("%s: %d failed open, %d closed", r.Name, c.failedOpen.Load(), c.failedClosed.Load())
		}
	}
	n.Shadow(true)
	d = take(t, n.Node, ask(by("payment", "x")))
	is("while nothing is denied", d.Allowed, d)
}

// One node of three is cut off, and the two others are not: only they go on with a closed rule. All is as before soon
// after the heal.
func TestOnFailure(t *testing.T) {
	t.Parallel()
	links := netem.NewLinks(1)
	start := func(id string, join ...string) *running {
		cfg := gossiping(id, "eu", join...)
		cfg.RuleSet = ruleSet(policies)
		return launch(t, through(links, id, cfg)).ready(t)
	}
	first := start("a")
	second, third := start("b", first.Addr("lan")), start("c", first.Addr("lan"))
	nodes := []*running{first, second, third}
	allMembers(t, nodes...)
	keys := []string{"client", "feed", "payment", "strict", "near"}
	none := map[string]bool{"client": false, "feed": false, "payment": false, "strict": false, "near": false}
	peeks := func(n *running, want string) bool { // which of the rules admit a request within their limits
		got := ""
		for _, key := range keys {
			req := ask(by(key, "new"))
			req.Peek = true
			if take(t, n.Node, req).Allowed {
				got += key + " "
			}
		}
		return got == want
	}
	whole := func(what string) {
		t.Helper()
		for _, n := range nodes {
			testkit.EventuallyWithin(t, 3*testkit.Patience, what+": "+n.cfg.NodeID+" decides with the others",
				func() bool { return peeks(n, "client feed payment strict near ") })
			if got := failed(t, n.Node, keys...); !maps.Equal(got, none) {
				t.Errorf("%s: %s admits too much: %v", what, n.cfg.NodeID, got)
			}
		}
	}
	whole("at first")
	links.Partition("c")
	testkit.EventuallyWithin(t, 2*testkit.Patience, "c is cut off", func() bool { return peeks(third, "client feed ") })
	if got := failed(t, third.Node, keys...); !got["feed"] || got["client"] || got["payment"] || got["strict"] {
		t.Errorf("beyond the limits, a node that is cut off admits %v", got)
	}
	for _, n := range []*running{first, second} {
		testkit.EventuallyWithin(t, 2*testkit.Patience, n.cfg.NodeID+" misses c",
			func() bool { return peeks(n, "client feed payment near ") })
		if got := failed(t, n.Node, keys...); !maps.Equal(got, none) {
			t.Errorf("beyond the limits, %s, which is not cut off, admits %v", n.cfg.NodeID, got)
		}
	}
	if got := first.monitor.Outage(counters.Global); got != rules.Partitioned {
		t.Errorf("the outage of a node that reaches two of three is %d", got)
	}
	links.Heal()
	whole("after the heal")
}
