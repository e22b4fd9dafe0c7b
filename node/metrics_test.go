package node

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/regions"
)

// scrape reads /metrics as Prometheus does: the value of each series of the node's own.
func scrape(t *testing.T, addr string) (text string, series map[string]float64) {
	t.Helper()
	status, text := get(t, addr, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d %s", status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("the exposition does not parse: %v", err)
	}
	series = make(map[string]float64)
	for name, family := range families {
		if !strings.HasPrefix(name, "edgelimit_") {
			continue
		}
		for _, m := range family.Metric {
			id := name
			for _, l := range m.Label {
				id += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			if _, twice := series[id]; twice {
				t.Errorf("series %q is there twice", id)
			}
			series[id] = valueOf(t, id, family.GetType(), m)
		}
	}
	return text, series
}

// valueOf also holds the name against the type: what ends in _total is a counter, and nothing else is. Of a histogram the
// value is how many observations it has.
func valueOf(t *testing.T, id string, kind dto.MetricType, m *dto.Metric) float64 {
	t.Helper()
	name, _, _ := strings.Cut(id, " ")
	switch counter := strings.HasSuffix(name, "_total"); {
	case counter && kind == dto.MetricType_COUNTER:
		return m.GetCounter().GetValue()
	case !counter && kind == dto.MetricType_GAUGE:
		return m.GetGauge().GetValue()
	case !counter && kind == dto.MetricType_HISTOGRAM:
		return float64(m.GetHistogram().GetSampleCount())
	}
	t.Errorf("%s is of type %v", id, kind)
	return 0
}

func TestMetricsCount(t *testing.T) {
	n := launch(t, withDoors(quiet(layered))).ready(t)
	takeSome(t, n.Node, "test/client", "x", 14)
	take(t, n.Node, ask(by("plan", "partner"), by("plan", "banned")))
	_, got := scrape(t, n.Addr("health"))
	for id, want := range map[string]float64{
		"edgelimit_decisions_total outcome=allowed rule=test/client":       10,
		"edgelimit_decisions_total outcome=denied rule=test/client":        4,
		"edgelimit_decisions_total outcome=allowed rule=test/plan=partner": 0, // another layer denied it
		"edgelimit_decisions_total outcome=denied rule=test/plan=banned":   1,
		"edgelimit_decisions_total outcome=allowed rule=test/endpoint":     0,
		"edgelimit_over_admission_bound_ratio rule=test/client":            0,
		"edgelimit_rules":    6,
		"edgelimit_degraded": 0,
		"edgelimit_shadow":   0,
		"edgelimit_pressure": 1,
		"edgelimit_decisions_total outcome=waived rule=test/client": 0,
		"edgelimit_staleness_seconds":                               0,
	} {
		if v, ok := got[id]; !ok || v != want {
			t.Errorf("%s = %v (there: %v), want %v", id, v, ok, want)
		}
	}
	n.Shadow(true)
	takeSome(t, n.Node, "test/client", "x", 2)
	_, shadow := scrape(t, n.Addr("health"))
	if shadow["edgelimit_shadow"] != 1 || shadow["edgelimit_decisions_total outcome=waived rule=test/client"] != 2 {
		t.Errorf("in shadow mode: %v", shadow)
	}
	if _, ok := got["edgelimit_over_admission_bound_ratio rule=test/plan=partner"]; ok {
		t.Error("an unlimited rule has a bound")
	}
}

// Whatever clients call themselves, the series stay the same and none of them is named.
func TestMetricsHoldNoIdentity(t *testing.T) {
	n := launch(t, withDoors(quiet(layered))).ready(t)
	_, before := scrape(t, n.Addr("health"))
	for i := range 1000 {
		id := fmt.Sprintf("victim-%d", i)
		takeSome(t, n.Node, "test/client", id, 1)
		take(t, n.Node, ask(by("endpoint", id), by("unheard-of-"+id, "x")))
		if _, err := n.Take(t.Context(), Request{Rule: "rule-of-" + id}); err == nil {
			t.Fatal("an unknown rule was found")
		}
	}
	text, after := scrape(t, n.Addr("health"))
	if strings.Contains(text, "victim") {
		t.Error("an identity is in the metrics")
	}
	names := func(m map[string]float64) []string { return slices.Sorted(maps.Keys(m)) }
	if !slices.Equal(names(before), names(after)) {
		t.Errorf("%d series became %d", len(before), len(after))
	}
	if after["edgelimit_keys"] != 2000 {
		t.Errorf("%v counters, want 2000: the test asked for nothing", after["edgelimit_keys"])
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
	eventually(t, patience, "one member", func() bool { return len(n.Members()) == 1 })
	if _, series := scrape(t, n.Addr("health")); series["edgelimit_members region=caf\uFFFD"] != 1 {
		t.Errorf("its region is not among %v", slices.Sorted(maps.Keys(series)))
	}
}

// The README's table has every metric, and none that is not there.
func TestMetricsAreDocumented(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "\n## Metrics\n")
	table, _, _ = strings.Cut(table, "\n## ")
	documented := make(map[string]bool)
	for _, row := range strings.Split(table, "\n|")[1:] {
		names, _, _ := strings.Cut(row, " | ")
		for _, m := range regexp.MustCompile("`([a-z_]+)[{`]").FindAllStringSubmatch(names, -1) {
			documented["edgelimit_"+m[1]] = true
		}
	}
	source, err := os.ReadFile("metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	exported := make(map[string]bool)
	for _, m := range regexp.MustCompile(`desc\("([a-z_]+)"|Name: +"edgelimit_([a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
		exported["edgelimit_"+m[1]+m[2]] = true
	}
	if len(exported) < 25 {
		t.Fatalf("only %d metrics found in the source", len(exported))
	}
	for name := range exported {
		if !documented[name] {
			t.Errorf("%s is not in the README's table", name)
		}
	}
	for name := range documented {
		if !exported[name] {
			t.Errorf("the README's table has %s, which is not exported", name)
		}
	}
}

// The histogram of staleness is of peers that have requests: how fast counts travel, not how often an idle peer speaks.
func TestMetricsOfStaleness(t *testing.T) {
	l := newLatencies()
	status := func(region string, age time.Duration, idle bool) gossip.MemberStatus {
		return gossip.MemberStatus{Member: gossip.Member{Region: region}, PeerStatus: gossip.PeerStatus{Age: age, Idle: idle}}
	}
	l.peers([]gossip.MemberStatus{status("eu", 120*time.Millisecond, false), status("eu", time.Second, true), status("us", 300*time.Millisecond, false)})
	l.peers([]gossip.MemberStatus{status("eu", 180*time.Millisecond, false)})
	for region, want := range map[string]struct {
		count uint64
		sum   float64
	}{"eu": {2, 0.3}, "us": {1, 0.3}} {
		var m dto.Metric
		if err := l.staleness.WithLabelValues(region).(prometheus.Histogram).Write(&m); err != nil {
			t.Fatal(err)
		}
		if h := m.GetHistogram(); h.GetSampleCount() != want.count || math.Abs(h.GetSampleSum()-want.sum) > 1e-9 {
			t.Errorf("%s: %d ages with a sum of %v, want %+v", region, h.GetSampleCount(), h.GetSampleSum(), want)
		}
	}
}
