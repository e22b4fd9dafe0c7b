package node

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// scopedRules are one limit of each scope, in windows that no test outlasts; the last is in force in one region only.
const scopedRules = `
domain: test
descriptors:
  - {key: all, rate_limit: {name: all, unit: day, requests_per_unit: 100}}
  - {key: region, rate_limit: {name: region, unit: day, requests_per_unit: 100, scope: region}}
  - {key: node, rate_limit: {name: node, unit: day, requests_per_unit: 100, scope: node}}
  - {key: eu, regions: [eu], rate_limit: {name: only_eu, unit: day, requests_per_unit: 100, scope: region}}
`

// inScopes is a node with these rules.
func inScopes(id, region string, join ...string) Config {
	cfg := gossiping(id, region, join...)
	cfg.RuleSet = ruleSet(scopedRules)
	return cfg
}

// twoRegions are two nodes in each of two regions, region by region.
func twoRegions(t *testing.T, change func(Config) Config) []*running {
	t.Helper()
	eu1 := launch(t, change(inScopes("1", "eu"))).ready(t)
	eu2 := launch(t, change(inScopes("2", "eu", eu1.Addr("lan"), "wan:"+eu1.Addr("wan")))).ready(t)
	us1 := launch(t, change(inScopes("1", "us", "wan:"+eu1.Addr("wan")))).ready(t)
	us2 := launch(t, change(inScopes("2", "us", us1.Addr("lan"), "wan:"+eu1.Addr("wan")))).ready(t)
	allMembers(t, eu1, eu2, us1, us2)
	return []*running{eu1, eu2, us1, us2}
}

func asTheyAre(cfg Config) Config { return cfg }

// exhaust asks nodes in turn until a limit of 100 is used up, and then each of them once more. What one admitted is
// known before another is asked, so that nothing can be admitted twice. It returns how many requests were admitted.
func exhaust(t *testing.T, rule string, nodes ...*running) (admitted int) {
	t.Helper()
	turn := 0
	testkit.EventuallyWithin(t, 2*testkit.Patience, "all of the limit is admitted", func() bool {
		admitted += takeSome(t, nodes[turn%len(nodes)].Node, rule, "x", 10)
		turn++
		for _, n := range nodes {
			testkit.Eventually(t, "what was admitted is known",
				func() bool { return spent(t, n.Node, rule, "x") >= uint64(admitted) })
		}
		return admitted >= 100
	})
	for _, n := range nodes {
		admitted += takeSome(t, n.Node, rule, "x", 10)
	}
	return admitted
}

// A region's limit is admitted once in each region, a node's once at each node, however the requests are spread.
func TestLimitsOfScopes(t *testing.T) {
	t.Parallel()
	nodes := twoRegions(t, asTheyAre)
	eu, us := nodes[:2], nodes[2:]
	if got := takeSome(t, us[0].Node, "region", "x", 40); got != 40 {
		t.Fatalf("%d of 40 admitted", got)
	}
	if got := exhaust(t, "region", eu...); got != 100 {
		t.Errorf("eu admitted %d of 100", got)
	}
	if got := 40 + takeSome(t, us[0].Node, "region", "x", 10); got != 50 {
		t.Errorf("with all of eu's limit used up, us admitted %d of 50", got)
	}
	for _, n := range nodes {
		if got := takeSome(t, n.Node, "node", "x", 150); got != 100 {
			t.Errorf("%s/%s admitted %d of 100 by itself", n.cfg.Region, n.cfg.NodeID, got)
		}
	}
	takeSome(t, us[0].Node, "all", "x", 30)
	for _, n := range nodes {
		testkit.Eventually(t, "what all count together", func() bool { return spent(t, n.Node, "all", "x") == 30 })
		if d := take(t, n.Node, Request{Rule: "region", Identity: "x", Peek: true}); d.Rule != "region" ||
			d.Limit != 100 {
			t.Errorf("decision %+v", d)
		}
		// One of its own region, one of its own, and the common one: nothing of the other region's, nor of other
		// nodes'.
		if got := n.table.Stats().Keys; got != 3 {
			t.Errorf("%s/%s holds %d keys, want 3", n.cfg.Region, n.cfg.NodeID, got)
		}
	}
}

// A rule in force in one region, and counted by it, is none in the others.
func TestScopeAndRegions(t *testing.T) {
	t.Parallel()
	nodes := twoRegions(t, asTheyAre)
	if got := exhaust(t, "only_eu", nodes[:2]...); got != 100 {
		t.Errorf("eu admitted %d of 100", got)
	}
	if _, err := nodes[2].Take(t.Context(), Request{Rule: "only_eu", Identity: "x"}); err == nil {
		t.Error("us knows the rule of eu")
	}
	if got := nodes[2].table.Stats().Keys; got != 0 {
		t.Errorf("us holds %d keys", got)
	}
}

// The bound of what a node keeps alone is 0, and that of a region's limit has no room for requests in other regions.
func TestBoundsOfScopes(t *testing.T) {
	t.Parallel()
	nodes := twoRegions(t, func(cfg Config) Config {
		if cfg.Region == "eu" && cfg.NodeID == "2" {
			cfg.Health = "127.0.0.1:0"
		}
		return cfg
	})
	eu1, eu2, us1 := nodes[0], nodes[1], nodes[2]
	audited := slices.Sorted(maps.Keys(*eu1.limits.Load()))
	if want := []string{"test/all", "test/eu%@eu", "test/region%@eu"}; !slices.Equal(audited, want) {
		t.Errorf("limits that others can exceed are %v, want %v", audited, want)
	}
	client := 0
	testkit.Eventually(t, "a bound", func() bool {
		client++
		for _, rule := range []string{"all", "region", "node"} {
			takeSome(t, eu1.Node, rule, strconv.Itoa(client), 60)
			takeSome(t, eu2.Node, rule, strconv.Itoa(client), 50)
		}
		return eu2.Bound("test/all") > 0 && eu2.Bound("test/region") > 0
	})
	_, series := scrape(t, eu2.Addr("health"))
	if series["edgelimit_over_admission_bound_ratio rule=region"] <= 0 || eu2.Bound("test/node") != 0 {
		t.Errorf("bounds %v and %v", series["edgelimit_over_admission_bound_ratio rule=region"],
			eu2.Bound("test/node"))
	}
	if bound, shown := series["edgelimit_over_admission_bound_ratio rule=node"]; bound != 0 || !shown {
		t.Errorf("the bound of what is kept alone is %v (shown: %v)", bound, shown)
	}
	testkit.Eventually(t, "a bound over all", func() bool {
		client++
		for _, rule := range []string{"all", "region"} {
			takeSome(t, eu1.Node, rule, strconv.Itoa(client), 60)
			takeSome(t, us1.Node, rule, strconv.Itoa(client), 50)
		}
		return us1.Bound("test/all") > 0
	})
	if got := us1.Bound("test/region"); got != 0 {
		t.Errorf("requests in eu are in us' bound with %v", got)
	}
}

// A cut between the regions degrades what all keep together, and one inside of a region what that keeps; what a node
// keeps is never degraded.
func TestDegradedByScope(t *testing.T) {
	t.Parallel()
	links := netem.NewLinks(1)
	nodes := twoRegions(t, func(cfg Config) Config { return through(links, cfg.Region+cfg.NodeID, cfg) })
	degraded := func(rule string) bool {
		return take(t, nodes[0].Node, Request{Rule: rule, Identity: "x", Peek: true}).Degraded
	}
	testkit.Eventually(t, "nothing is degraded", func() bool { return !degraded("all") })
	links.Partition("us1", "us2")
	testkit.EventuallyWithin(t, 2*testkit.Patience, "the silence is noticed", func() bool { return degraded("all") })
	if degraded("region") || degraded("node") {
		t.Error("what the region, or the node, keeps is degraded")
	}
	links.Partition("eu2")
	testkit.EventuallyWithin(t, 2*testkit.Patience, "the silence in the region is noticed",
		func() bool { return degraded("region") })
	if degraded("node") {
		t.Error("what the node keeps is degraded")
	}
}

// Nodes that start again find in the store of their region what it counts; what a node kept alone is gone, and nobody
// was told of it.
func TestStoreOfScopes(t *testing.T) {
	stores := map[string]*regions.Embedded{
		"eu": regions.NewEmbedded(0, time.Now),
		"us": regions.NewEmbedded(0, time.Now),
	}
	alone := func(id, region string) Config {
		cfg := quiet(scopedRules)
		cfg.NodeID, cfg.Region, cfg.Store = id, region, stores[region]
		return cfg
	}
	for region, count := range map[string]int{"eu": 70, "us": 20} {
		n := launch(t, alone("a", region)).ready(t)
		takeSome(t, n.Node, "region", "x", count)
		takeSome(t, n.Node, "node", "x", 90)
		testkit.Must(t, n.stop())
		var held []counters.Slot
		err := stores[region].Load(context.Background(), time.Now().UnixNano(),
			func(page []counters.Slot) { held = append(held, page...) })
		if err != nil || len(held) != 1 || held[0].Meter.Rule != "test/region%@"+region ||
			held[0].Count != uint64(count) {
			t.Errorf("%v; the store of %s holds %+v", err, region, held)
		}
	}
	for region, want := range map[string]uint64{"eu": 70, "us": 20} {
		n := launch(t, alone("b", region)).ready(t)
		if got := spent(t, n.Node, "region", "x"); got != want {
			t.Errorf("%s counts %d of the %d that another node left", region, got, want)
		}
		if got := spent(t, n.Node, "node", "x"); got != 0 {
			t.Errorf("a node counts %d of another's own", got)
		}
	}
	// Where two regions were given one store, what the other left there is let go.
	mixed := alone("c", "us")
	mixed.Store = stores["eu"]
	if n := launch(t, mixed).ready(t); spent(t, n.Node, "region", "x") != 0 || n.table.Stats().Keys != 0 {
		t.Error("counts of another region's were taken over")
	}
}
