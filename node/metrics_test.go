package node

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A node alone can exceed nothing: there is nobody whose counts it does not see.
func TestBoundOfANodeAloneIsZero(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := launch(t, quiet(perClient)).ready(t)
		for range 30 {
			takeSome(t, n.Node, "per_client", "x", 50)
			time.Sleep(100 * time.Millisecond)
		}
		if b := n.Bound("test/client"); b != 0 {
			t.Errorf("bound %v", b)
		}
		if b := n.Bound("no such rule"); b != 0 || math.IsNaN(b) {
			t.Errorf("bound of a rule that is not: %v", b)
		}
		if n.Staleness() != 0 || len(n.Members()) != 0 || len(n.Degraded()) > 0 {
			t.Errorf("alone, but staleness %v, members %v, degraded %v", n.Staleness(), n.Members(),
				len(n.Degraded()) > 0)
		}
	})
}

func TestMetricsCount(t *testing.T) {
	n := launch(t, withListeners(quiet(layered))).ready(t)
	takeSome(t, n.Node, "test/client", "x", 14)
	take(t, n.Node, ask(by("plan", "partner"), by("plan", "banned")))
	_, got := scrape(t, n.Addr("health"))
	for id, want := range map[string]float64{
		"edgelimit_decisions_total outcome=allowed rule=per_client":   10,
		"edgelimit_decisions_total outcome=denied rule=per_client":    4,
		"edgelimit_decisions_total outcome=allowed rule=partner":      0, // another layer denied it
		"edgelimit_decisions_total outcome=denied rule=banned":        1,
		"edgelimit_decisions_total outcome=allowed rule=per_endpoint": 0,
		"edgelimit_over_admission_bound_ratio rule=per_client":        0,
		"edgelimit_rules":    6,
		"edgelimit_degraded": 0,
		"edgelimit_shadow":   0,
		"edgelimit_pressure": 1,
		"edgelimit_decisions_total outcome=waived rule=per_client": 0,
		"edgelimit_staleness_seconds":                              0,
	} {
		if v, ok := got[id]; !ok || v != want {
			t.Errorf("%s = %v (there: %v), want %v", id, v, ok, want)
		}
	}
	n.Shadow(true)
	takeSome(t, n.Node, "test/client", "x", 2)
	_, shadow := scrape(t, n.Addr("health"))
	if shadow["edgelimit_shadow"] != 1 || shadow["edgelimit_decisions_total outcome=waived rule=per_client"] != 2 {
		t.Errorf("in shadow mode: %v", shadow)
	}
	if _, ok := got["edgelimit_over_admission_bound_ratio rule=test/plan#partner"]; ok {
		t.Error("an unlimited rule has a bound")
	}
}

// Decisions are timed by the API that asks for them and by outcome: some of them, and nothing is allocated for that.
func TestDecisionsAreTimed(t *testing.T) {
	n := idle(t, layered)
	asked := ask(by("client", "x"))
	apis := map[string]*timed{"library": n.library, "http": n.timedBy("http"), "grpc": n.timedBy("grpc"),
		"proxy": n.timedBy("proxy")}
	const each = 10_000
	for _, by := range apis {
		for range each / 2 {
			var room [1]Decision
			if _, err := by.Decide(t.Context(), &asked, room[:0]); err != nil {
				t.Fatal(err)
			}
			if _, pending, err := by.Begin(t.Context(), &asked, room[:0]); pending != nil || err != nil {
				t.Fatal(pending, err)
			}
		}
		for range each {
			if _, err := by.DecideMet(t.Context(), &Request{Rule: "none"}, nil, nil); err == nil {
				t.Fatal("there is no such rule")
			}
		}
	}
	resp := n.timedBy("resp")
	take := func() { resp.TakeDebt([]byte("x"), 1, time.Second) }
	for range each {
		take()
	}
	if allocs := testing.AllocsPerRun(each, take); allocs != 0 && !testkit.Enabled {
		t.Errorf("%v allocations", allocs)
	}
	counts := make(map[string]uint64)
	for api, all := range seriesOf(t, n.monitor.Latencies.Collectors()[3], "edgelimit_decision_seconds", "api") {
		for _, m := range all {
			for _, l := range m.GetLabel() {
				if h := m.GetHistogram(); l.GetName() == "outcome" {
					counts[api+" "+l.GetValue()] = h.GetSampleCount()
					if len(h.GetBucket()) < 10 || h.Schema == nil {
						t.Errorf("%s has %d classic buckets, and schema %v", api, len(h.GetBucket()), h.Schema)
					}
				}
			}
		}
	}
	for api, outcomes := range map[string][]string{"library": {"denied", "failed"}, "http": {"denied", "failed"},
		"grpc": {"denied", "failed"}, "proxy": {"denied", "failed"}, "resp": {"allowed"}} {
		for _, outcome := range outcomes { // one in 32 of 10,000 is 312: seven standard deviations are 120
			if c := counts[api+" "+outcome]; c < 150 || c > 800 {
				t.Errorf("%s, %s: %d observations of %d", api, outcome, c, each)
			}
		}
	}
}

// What /v1/auth could not see as it should is counted by what was wrong and what became of it.
func TestMetricsOfAuth(t *testing.T) {
	cfg := withListeners(quiet(layered))
	cfg.Requests.Descriptors = []actions.Descriptor{
		{{Key: "path", Source: "path"}}, {{Key: "key", Source: "header X-Api-Key"}},
	}
	n := launch(t, cfg).ready(t)
	for _, values := range [][]string{nil, {"a"}, {"a", "b"}} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+n.Addr("http")+"/v1/auth", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"X-Api-Key": values, "X-Forwarded-Uri": {"/login"}}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	_, got := scrape(t, n.Addr("health"))
	for id, want := range map[string]float64{
		"edgelimit_auth_requests_total":                                         3,
		"edgelimit_auth_requests_without_descriptor_total":                      1,
		"edgelimit_unread_client_headers_total":                                 3,
		"edgelimit_auth_irregular_layers_total cause=untrusted outcome=skipped": 3,
		"edgelimit_auth_irregular_layers_total cause=missing outcome=skipped":   1,
		"edgelimit_auth_irregular_layers_total cause=ambiguous outcome=counted": 1,
		"edgelimit_auth_irregular_layers_total cause=ambiguous outcome=denied":  0,
	} {
		if v, ok := got[id]; !ok || v != want {
			t.Errorf("%s = %v (there: %v), want %v", id, v, ok, want)
		}
	}
}

// Whatever clients call themselves, the series stay the same and none of them is named: a million (with the race
// detector ten thousand) leave no more than a few hundred, and ten of those that are denied most.
func TestMetricsHoldNoIdentity(t *testing.T) {
	n := launch(t, withListeners(quiet(layered))).ready(t)
	identities := testkit.Tenth(testkit.Tenth(1_000_000))
	_, before := scrape(t, n.Addr("health"))
	for i := range identities {
		id := fmt.Sprintf("victim-%d", i)
		takeSome(t, n.Node, "test/client", id, 1)
		take(t, n.Node, ask(by("endpoint", id), by("unheard-of-"+id, "x")))
		if _, err := n.Take(t.Context(), Request{Rule: "rule-of-" + id}); err == nil {
			t.Fatal("an unknown rule was found")
		}
	}
	for i := range 1000 { // a thousand are denied, each more often than the one before
		for range 11 + i%20 {
			if _, err := n.Take(t.Context(), Request{Rule: "per_other", Domain: "other",
				Identity: fmt.Sprint("victim-", i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, after := scrape(t, n.Addr("health"))
	ranks := make(map[string]float64)
	for id, v := range after {
		if strings.HasPrefix(id, "edgelimit_top_denied ") {
			ranks[id] = v
			delete(after, id)
		}
	}
	for rank := range topRanks {
		if id := fmt.Sprintf("edgelimit_top_denied rank=%d rule=per_other", rank+1); len(ranks) != topRanks ||
			ranks[id] < 1 || ranks[id] > 30 { // nobody was denied more often
			t.Errorf("%s is %v, of %d", id, ranks[id], len(ranks))
		}
	}
	if strings.Contains(text, "victim") {
		t.Error("an identity is in the metrics")
	}
	names := func(m map[string]float64) []string { return slices.Sorted(maps.Keys(m)) }
	if !slices.Equal(names(before), names(after)) {
		t.Errorf("%d series became %d", len(before), len(after))
	}
	if lines := strings.Count(text, "\n") - strings.Count(text, "\n#"); lines > 2000 {
		t.Errorf("%d series", lines)
	}
	seen := after["edgelimit_decisions_total outcome=allowed rule=per_client"] +
		after["edgelimit_decisions_total outcome=allowed rule=per_endpoint"]
	if want := float64(2 * identities); seen != want {
		t.Errorf("%v decisions, want %v: the test asked for nothing", seen, want)
	}
}

func TestMetricsLint(t *testing.T) {
	cfg := quiet(layered)
	cfg.Store = regions.NewEmbedded(0, time.Now)
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newCollectors(n)...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "edgelimit_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	own := 0
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "edgelimit_") {
			own++
		}
	}
	if own < 20 {
		t.Errorf("only %d families of the node's own were looked at", own)
	}
}

// Another member's word for its region is no reason to fall over.
func TestMetricsOfARegionThatIsNotText(t *testing.T) {
	t.Parallel()
	first := quiet(perClient)
	first.Gossip.LAN, first.Gossip.WAN, first.Health = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	n := launch(t, first).ready(t)
	second := quiet(perClient)
	second.NodeID, second.Region = "b", "caf\xe9"
	second.Gossip.WAN, second.Gossip.Join = "127.0.0.1:0", []string{"wan:" + n.Addr("wan")}
	launch(t, second).ready(t)
	testkit.Eventually(t, "one member", func() bool { return len(n.Members()) == 1 })
	if _, series := scrape(t, n.Addr("health")); series["edgelimit_members region=caf\uFFFD"] != 1 {
		t.Errorf("its region is not among %v", slices.Sorted(maps.Keys(series)))
	}
}

// Neither metrics nor answers show values that are secrets, and clients see none of a place.
func TestValuesOfRulesStayHome(t *testing.T) {
	cfg := withListeners(quiet(`
domain: test
descriptors:
  - {key: api_key, value: s3cret, secret: true, rate_limit: {unit: minute, requests_per_unit: 1}}
`))
	n := launch(t, cfg).ready(t)
	const body = `{"domain":"test","descriptors":[[{"key":"api_key","value":"s3cret"}]]}`
	for range 2 {
		resp, err := web.Post("http://"+n.Addr("http")+"/v1/check?status=1", "application/json",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		fields := fmt.Sprint(resp.Header)
		if _, text := slurp(t, resp); strings.Contains(text+fields, "s3cret") ||
			!strings.Contains(fields, `"test/api_key"`) {
			t.Errorf("%s %s", fields, text)
		}
	}
	text, _ := scrape(t, n.Addr("health"))
	if strings.Contains(text, "s3cret") || !strings.Contains(text, `rule="test/api_key=#1ec1"`) {
		t.Errorf("the metrics show a value, or lack the rule:\n%s", text)
	}
}

// The series are as many however many rules there are: those beyond a number are counted together, and never less
// than before.
func TestSeriesOfRules(t *testing.T) {
	text := func(first, count int) string {
		var b strings.Builder
		b.WriteString("domain: test\ndescriptors:\n")
		for i := range count {
			fmt.Fprintf(&b, "- {key: k, value: v%05d, rate_limit: {unit: hour, requests_per_unit: 1}}\n", first+i)
		}
		return b.String()
	}
	n := launch(t, quiet(text(0, 3000)))
	request := func(i, times int) {
		t.Helper()
		for range times {
			take(t, n.Node, ask(by("k", fmt.Sprintf("v%05d", i))))
		}
	}
	check := func(own int, allowed, denied, folded float64) {
		t.Helper()
		got := seriesOf(t, &nodeCollector{n.Node}, "edgelimit_decisions_total", "rule")
		if len(got) != own+1 || got[adHocRule] == nil {
			t.Errorf("%d rules have series, want %d and that of ad-hoc limits", len(got), own)
		}
		byOutcome := make(map[string]float64)
		for _, m := range got[otherRules] {
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" {
					byOutcome[l.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
		if byOutcome["allowed"] != allowed || byOutcome["denied"] != denied ||
			float64(n.policy.Load().folded) != folded {
			t.Errorf("the others: %v and %d rules, want %v, %v, %v", byOutcome, n.policy.Load().folded, allowed, denied,
				folded)
		}
	}
	request(5, 3)
	request(2000, 3)
	request(2001, 1)
	check(maxRuleSeries+1, 2, 2, 2000)
	n.SetRules(ruleSet(text(1500, 1500))) // 2000 and 2001 have series of their own now
	request(2000, 1)
	request(2999, 2)
	check(maxRuleSeries+1, 3, 3, 500)
	n.SetRules(ruleSet(text(0, 900)))
	check(900, 0, 0, 0)
	n.SetRules(ruleSet(text(0, 3000)))
	check(maxRuleSeries+1, 3, 3, 2000)
}

func TestBuildInfoMetric(t *testing.T) {
	n := launch(t, withListeners(quiet(perClient))).ready(t)
	_, series := scrape(t, n.Addr("health"))
	v := BuildVersion()
	if id := "edgelimit_build_info goversion=" + v.Go + " revision=" + v.Revision + " version=" +
		v.Version; series[id] != 1 {
		t.Errorf("there is no series %q", id)
	}
	if id := "edgelimit_node_info node=" + n.cfg.NodeID + " region=" + n.cfg.Region; series[id] != 1 {
		t.Errorf("there is no series %q", id)
	}
}
