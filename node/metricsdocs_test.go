package node

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A metric as the registry has it. The types are counter, gauge and histogram.
type metric struct {
	kind, help string
	labels     []string
}

// exported returns every metric that a node can export, by name: of one that has all its parts, and a peer.
func exported(t *testing.T) map[string]metric {
	t.Helper()
	redis, server := regionstest.StartRedis(t), testkit.NewAuthority(t, "ca").Issue(t, "server")
	cfg := withTLS(gossiping("a", "home"), ListenerTLS{CertFile: server.CertFile, KeyFile: server.KeyFile})
	cfg.RuleSet = ruleSet(sharedRules)
	cfg.Redis.URL, cfg.Redis.MinFill = "redis://"+redis.Addr(), 0
	cfg.Strict.Redis = map[string]Redis{"home": {URL: "redis://" + redis.Addr()}}
	cfg.Bans.Exports = []bans.Export{{Format: "json", File: filepath.Join(t.TempDir(), "bans.json")}}
	cfg.Admin, cfg.AdminTokensFile = "127.0.0.1:0", write(t, "tokens", "operate "+strings.Repeat("o", 32))
	n := launch(t, cfg).ready(t)
	peer := gossiping("b", "away", "wan:"+n.Addr("wan"))
	peer.RuleSet = cfg.RuleSet
	other := launch(t, peer).ready(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newCollectors(n.Node)...)
	all := make(map[string]metric)
	testkit.Eventually(t, "series of what is observed", func() bool {
		takeSome(t, n.Node, "per_client", "x", 1)
		for range 3 { // of more than a whole limit at once, for those that are denied
			_, _ = n.Take(t.Context(), Request{Rule: "per_client", Identity: "denied", Cost: 1 << 20})
		}
		takeSome(t, other.Node, "per_client", "x", 1)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "edgelimit_") {
				all[f.GetName()] = metricOf(f)
			}
		}
		_, staleness := all["edgelimit_peer_staleness_seconds"]
		_, calls := all["edgelimit_store_call_seconds"]
		return staleness && calls
	})
	return all
}

func metricOf(f *dto.MetricFamily) metric {
	m := metric{kind: strings.ToLower(f.GetType().String()), help: f.GetHelp()}
	for _, l := range f.GetMetric()[0].GetLabel() {
		m.labels = append(m.labels, l.GetName())
	}
	slices.Sort(m.labels)
	return m
}

// The README's table has every metric with its labels and, of histograms, the type, and none that is not there. Each
// has a help of its own.
func TestMetricsAreDocumented(t *testing.T) {
	registry, documented := exported(t), documentedMetrics(t)
	for _, name := range namesInSource(t) {
		if _, ok := registry[name]; !ok {
			t.Errorf("%s has no series: have the node of this test use what it is about", name)
		}
	}
	helps := make(map[string]string)
	for name, m := range registry {
		d, ok := documented[name]
		if !ok {
			t.Errorf("%s is not in the README's table", name)
			continue
		}
		if !slices.Equal(m.labels, d.labels) {
			t.Errorf("%s: the README has the labels %q, the registry %q", name, d.labels, m.labels)
		}
		if counter, histogram := strings.HasSuffix(name, "_total"), d.kind == "histogram"; counter !=
			(m.kind == "counter") || histogram != (m.kind == "histogram") {
			t.Errorf("%s is a %s: counters end in _total; what the README says of a histogram begins so", name,
				m.kind)
		}
		if twin := helps[m.help]; twin != "" || !strings.HasSuffix(m.help, ".") {
			t.Errorf("%s: the help is %q, as of %q", name, m.help, twin)
		}
		helps[m.help] = name
	}
	for name := range documented {
		if _, ok := registry[name]; !ok {
			t.Errorf("the README's table has %s, which is not exported", name)
		}
	}
}

// documentedMetrics returns the metrics of the README's table; the type is histogram, or empty.
func documentedMetrics(t *testing.T) map[string]metric {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "\n## Metrics\n")
	table, _, _ = strings.Cut(table, "\n## ")
	all := make(map[string]metric)
	for _, row := range strings.Split(table, "\n|")[1:] {
		names, rest, _ := strings.Cut(row, " | ")
		for _, found := range regexp.MustCompile("`([a-z_]+)(?:{([a-z_,]+)})?`").FindAllStringSubmatch(names, -1) {
			m := metric{}
			if strings.HasPrefix(rest, "histogram") {
				m.kind = "histogram"
			}
			if found[2] != "" {
				m.labels = slices.Sorted(slices.Values(strings.Split(found[2], ",")))
			}
			all["edgelimit_"+found[1]] = m
		}
	}
	return all
}

// namesInSource returns the names of all metrics that the source has.
func namesInSource(t *testing.T) []string {
	t.Helper()
	names := make(map[string]bool)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("telemetry/*.go")
	if err != nil {
		t.Fatal(err)
	}
	literal := regexp.MustCompile(`w\.[A-Z][A-Za-z]+\(\s*"([a-z_]+)"|Name: +"edgelimit_([a-z_]+)"`)
	for _, file := range append(files, more...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllStringSubmatch(string(source), -1) {
			names["edgelimit_"+m[1]+m[2]] = true
		}
	}
	if len(names) < 100 {
		t.Fatalf("only %d metrics found in the source", len(names))
	}
	return slices.Sorted(maps.Keys(names))
}
