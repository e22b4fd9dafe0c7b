package node

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const elastic = `
domain: test
descriptors:
  - key: tenant
    rate_limit: {name: tenant, unit: hour, requests_per_unit: 10}
    descriptors:
      - {key: user, rate_limit: {name: user, unit: hour, requests_per_unit: 4, mode: elastic, parent: tenant}}
      - {key: trial, shadow_mode: true,
          rate_limit: {name: trial, unit: hour, requests_per_unit: 4, mode: elastic, parent: tenant}}
  - {key: path, rate_limit: {name: path, unit: hour, requests_per_unit: 3}}
  - {key: page, rate_limit: {name: page, unit: hour, requests_per_unit: 4, mode: elastic, max_pressure: 0.3}}
`

// user is a descriptor of a tenant's user.
func user(tenant, name string) []rules.Entry {
	return []rules.Entry{{Key: "tenant", Value: tenant}, {Key: "user", Value: name}}
}

// A user has 4 requests, and what the others of its tenant leave of 10; who comes late has its 4 all the same.
func TestElastic(t *testing.T) {
	n := idle(t, elastic)
	for i := range uint64(12) {
		req := ask(user("a", "ann"))
		req.Peek = true
		peek := take(t, n, req)
		d := take(t, n, ask(user("a", "ann")))
		if d.Allowed != (i < 10) || d.Waived != (i >= 4 && i < 10) || d.Remaining != 4-min(i+1, 4) ||
			d.Mode != counters.Elastic ||
			d.Rule != "user" {
			t.Errorf("request %d: %+v", i+1, d)
		}
		if peek.Allowed != d.Allowed || peek.Waived != d.Waived {
			t.Errorf("a peek before request %d: %+v, and then %+v", i+1, peek, d)
		}
	}
	for i := range 5 {
		if d := take(t, n, ask(user("a", "bob"))); d.Allowed != (i < 4) || d.Waived {
			t.Errorf("request %d of one who comes late: %+v", i+1, d)
		}
	}
	if d := take(t, n, ask(by("tenant", "a"))); d.Allowed || d.Limit != 10 || d.Remaining != 0 {
		t.Errorf("the tenant itself: %+v", d)
	}
	if d := take(t, n, ask(user("b", "ann"))); !d.Allowed || d.Waived {
		t.Errorf("of another tenant: %+v", d)
	}
	for rule, want := range map[string][3]uint64{"test/tenant/user": {9, 3, 6}, "test/tenant": {11, 1, 7}} {
		if got := tallied(n, rule); got != want {
			t.Errorf("tallies of %s are %v, want %v", rule, got, want)
		}
	}
}

// What another layer denies is charged to nobody.
func TestElasticBesideAnotherLayer(t *testing.T) {
	n := idle(t, elastic)
	both := ask(user("a", "ann"), by("path", "/"))
	for i := range 8 {
		if d := take(t, n, both); d.Allowed != (i < 3) {
			t.Errorf("request %d: %+v", i+1, d)
		}
	}
	layers, err := n.Decide(t.Context(), &Request{Domain: "test", Descriptors: both.Descriptors, Peek: true}, nil)
	if err != nil || len(layers) != 3 || letters(layers) != "ada" || layers[0].Remaining != 1 ||
		layers[2].Remaining != 7 {
		t.Errorf("%+v (%v), want 1 and 7 left", layers, err)
	}
}

// Costs above one, as Request.Cost has them.
func TestElasticTakesCosts(t *testing.T) {
	n := idle(t, elastic)
	for i, step := range []struct {
		cost uint64
		want string // of the user, and of the tenant
	}{{3, "aa"}, {5, "wa"}, {3, "dw"}, {1, "aa"}, {1, "wa"}, {1, "dw"}} {
		req := ask(user("a", "ann"))
		req.Cost = step.cost
		if layers, err := n.Decide(t.Context(), &req, nil); err != nil || letters(layers) != step.want {
			t.Errorf("step %d: %+v (%v), want %s", i+1, layers, err, step.want)
		}
	}
}

// In shadow mode, of one rule or of all, nothing is denied, and what is over the rule's own limit is told.
func TestElasticInShadowMode(t *testing.T) {
	n := idle(t, elastic)
	for i := range 12 {
		d := take(t, n, ask([]rules.Entry{{Key: "tenant", Value: "a"}, {Key: "trial", Value: "x"}}))
		if !d.Allowed || d.Waived != (i >= 4) || d.Mode != counters.Shadow {
			t.Errorf("request %d of a rule in shadow mode: %+v", i+1, d)
		}
	}
	if got := tallied(n, "test/tenant"); got != [3]uint64{} {
		t.Errorf("a rule in shadow mode charged its parent: %v", got)
	}
	n.Shadow(true)
	for i := range 12 {
		if d := take(t, n, ask(user("b", "ann"))); !d.Allowed || d.Waived != (i >= 4) {
			t.Errorf("request %d while all rules are: %+v", i+1, d)
		}
	}
}

// Many users of a tenant at once: each has what it was promised, and what the tenant counts is what passed.
func TestElasticConcurrently(t *testing.T) {
	n := idle(t, `
domain: test
descriptors:
  - key: tenant
    rate_limit: {name: tenant, unit: hour, requests_per_unit: 100}
    descriptors: [{key: user, rate_limit: {name: user, unit: hour, requests_per_unit: 10, mode: elastic,
        parent: tenant}}]
`)
	var own, lent [5]atomic.Uint64
	var wg sync.WaitGroup
	for g := range 10 {
		wg.Go(func() {
			who := g % len(own)
			for range 60 {
				d, err := n.Take(t.Context(), ask(user("a", string(rune('a'+who)))))
				switch {
				case err != nil:
					t.Error(err)
				case d.Waived:
					lent[who].Add(1)
				case d.Allowed:
					own[who].Add(1)
				}
			}
		})
	}
	wg.Wait()
	loans := uint64(0)
	for who := range own {
		if got := own[who].Load(); got != 10 {
			t.Errorf("user %d: %d, want the 10 that it was promised", who, got)
		}
		loans += lent[who].Load()
	}
	if loans < 50 || loans > 90 {
		t.Errorf("%d were lent of a limit of 100, of which 50 are promised", loans)
	}
	if d := take(t, n, ask(by("tenant", "a"))); d.Allowed {
		t.Errorf("the tenant has room left: %+v", d)
	}
}

// Without a parent a rule borrows while somebody says that the pressure is low.
func TestElasticByPressure(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := launch(t, quiet(elastic)).ready(t)
		page := ask(by("page", "/"))
		if got := takeSome(t, n.Node, "page", "/", 6); got != 4 {
			t.Errorf("%d of 6 while nobody reports: want the rule's own 4", got)
		}
		for _, step := range []struct {
			pressure float64
			allowed  bool
		}{{0, true}, {0.3, true}, {0.31, false}, {1, false}, {-0.1, false}, {0.2, true}, {17, false}, {0.1, true}} {
			n.SetPressure(step.pressure)
			d := take(t, n.Node, page)
			if d.Allowed != step.allowed || d.Waived != step.allowed || d.Remaining != 0 || d.Mode != counters.Elastic {
				t.Errorf("at a pressure of %v: %+v", step.pressure, d)
			}
		}
		time.Sleep(pressureTTL - 100*time.Millisecond)
		if d := take(t, n.Node, page); !d.Allowed {
			t.Errorf("while the report counts: %+v", d)
		}
		time.Sleep(200 * time.Millisecond)
		if d := take(t, n.Node, page); d.Allowed || n.Pressure() != 1 {
			t.Errorf("after that, at a pressure of %v: %+v", n.Pressure(), d)
		}
		time.Sleep(time.Hour) // loans were not charged
		n.SetPressure(1)
		time.Sleep(10 * time.Minute)
		if got := takeSome(t, n.Node, "page", "/", 6); got != 4 {
			t.Errorf("%d of 6 when the window has passed", got)
		}
	})
}

func TestElasticDecisionsAllocateNothing(t *testing.T) {
	n := idle(t, elastic)
	n.SetPressure(0)
	var room [4]Decision
	for name, req := range map[string]Request{"of a parent": ask(user("a", "ann")),
		"by pressure": ask(by("page", "/"))} {
		decide := func() {
			if _, err := n.Decide(t.Context(), &req, room[:0]); err != nil {
				t.Fatal(err)
			}
		}
		decide()
		if allocs := testing.AllocsPerRun(100, decide); allocs != 0 {
			t.Errorf("%s: a decision allocates %v times", name, allocs)
		}
	}
}

// A rule and its parent may each be kept by others: what is borrowed, and what is promised, is counted where the parent
// is.
func TestElasticInScopes(t *testing.T) {
	for _, scopes := range [][2]string{{"global", "region"}, {"global", "node"}, {"region", "global"},
		{"region", "region"}, {"node", "global"}, {"node", "region"}} {
		n := idle(t, strings.NewReplacer("requests_per_unit: 10}", "requests_per_unit: 10, scope: "+scopes[0]+"}",
			"name: user,", "name: user, scope: "+scopes[1]+",").Replace(elastic))
		for i := range 12 {
			if d := take(t, n, ask(user("a", "ann"))); d.Allowed != (i < 10) || d.Waived != (i >= 4 && i < 10) {
				t.Errorf("%v: request %d: %+v", scopes, i+1, d)
			}
		}
		layers, err := n.Decide(t.Context(),
			&Request{Domain: "test", Descriptors: ask(user("a", "bob"), by("tenant", "a")).Descriptors}, nil)
		if err != nil || letters(layers) != "aw" {
			t.Errorf("%v: what is promised: %+v (%v)", scopes, layers, err)
		}
		for rule, want := range map[string][3]uint64{"test/tenant/user": {5, 2, 6}, "test/tenant": {10, 0, 3}} {
			if got := tallied(n, rule); got != want {
				t.Errorf("%v: tallies of %s are %v, want %v", scopes, rule, got, want)
			}
		}
		for _, s := range n.Slots() {
			if s.Meter.Rule == "test/tenant" && scopes[0] != "global" ||
				s.Meter.Rule == "test/tenant/user" && scopes[1] != "global" {
				t.Errorf("%v: counted by all: %+v", scopes, s)
			}
		}
	}
}
