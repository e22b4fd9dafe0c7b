package node

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const alertRules, alertTests = "deploy/prometheus/edgelimit.rules.yml", "deploy/prometheus/edgelimit.rules.test.yml"

// alertRule is an alert of the rule file.
type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func alerts(t *testing.T) (all []alertRule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alertRule } }
	readYAML(t, alertRules, &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("%d alerts", len(all))
	}
	return all
}

// promtool runs the program of that name, of Debian's package prometheus.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Prometheus takes the alerts, each of which fires in a test and does not in another, and the test's Prometheus with
// them.
func TestAlerts(t *testing.T) {
	promtool(t, "check", "rules", "--lint-fatal", alertRules)
	promtool(t, "test", "rules", alertTests)
	var tests struct {
		Tests []struct {
			Alerts []struct {
				Name string `yaml:"alertname"`
				Fire []struct {
					Labels      map[string]string `yaml:"exp_labels"`
					Annotations map[string]string `yaml:"exp_annotations"`
				} `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, alertTests, &tests)
	// By alert: the labels with which it fires, and whether it does not in a test.
	fires, rests := make(map[string]map[string]string), make(map[string]bool)
	for _, test := range tests.Tests {
		for _, a := range test.Alerts {
			if len(a.Fire) == 0 {
				rests[a.Name] = true
				continue
			}
			fires[a.Name] = a.Fire[0].Labels
			for name, text := range a.Fire[0].Annotations { // as on-call engineers read them
				if strings.Contains(text, "<no value>") || strings.Contains(text, "{{") {
					t.Errorf("%s: %s is %q", a.Name, name, text)
				}
			}
		}
	}
	label := regexp.MustCompile(`\$labels\.([a-z_]+)`)
	for _, a := range alerts(t) {
		if fires[a.Alert] == nil || !rests[a.Alert] {
			t.Errorf("%s has no test in which it fires, or none in which it does not", a.Alert)
		}
		for _, used := range label.FindAllStringSubmatch(fmt.Sprint(a.Annotations), -1) {
			if fires[a.Alert][used[1]] == "" {
				t.Errorf("%s names the label %s, which it does not have when it fires: %s", a.Alert, used[1],
					fires[a.Alert])
			}
		}
	}
}

// Each alert says what it means, and where the way to deal with it is written. Each of these has its alert.
func TestRunbook(t *testing.T) {
	text, err := os.ReadFile("OPERATING.md")
	testkit.Must(t, err)
	var headings []string
	for _, h := range regexp.MustCompile(`(?m)^### (Edgelimit.+)$`).FindAllStringSubmatch(string(text), -1) {
		headings = append(headings, h[1])
	}
	const runbook = "https://github.com/edgelimit/edgelimit/blob/main/node/OPERATING.md#"
	var names []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" ||
			!slices.Contains([]string{"warning", "critical"}, a.Labels["severity"]) ||
			a.Annotations["runbook_url"] != runbook+strings.ToLower(a.Alert) {
			t.Errorf("%s lacks a summary, a description, a severity or its runbook_url: %v %v", a.Alert, a.Labels,
				a.Annotations)
		}
	}
	if !slices.Equal(names, headings) {
		t.Errorf("the runbook has %q, the alerts are %q", headings, names)
	}
}

var (
	selected = regexp.MustCompile(`(edgelimit_[a-z_]+)(?:{([^}]*)})?`)
	matched  = regexp.MustCompile(`([a-z_]+) *[=!]`)
	grouped  = regexp.MustCompile(`\b(?:by|on|without|ignoring) *\(([a-z_, ]*)\)`)
)

// unknownIn returns the metrics and labels of an expression that nodes do not export.
func unknownIn(expr string, registry map[string]metric) (unknown []string) {
	labels := []string{"job", "instance", "le"}
	for _, m := range selected.FindAllStringSubmatch(expr, -1) {
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); registry[base].kind == "histogram" {
				name = base
			}
		}
		known, ok := registry[name]
		if !ok {
			unknown = append(unknown, m[1])
		}
		labels = append(labels, known.labels...)
		for _, l := range matched.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(append(known.labels, "job", "instance"), l[1]) {
				unknown = append(unknown, m[1]+"{"+l[1]+"}")
			}
		}
	}
	for _, by := range grouped.FindAllStringSubmatch(expr, -1) {
		for _, l := range strings.Split(by[1], ",") {
			if !slices.Contains(labels, strings.TrimSpace(l)) {
				unknown = append(unknown, "by "+l)
			}
		}
	}
	return unknown
}

// Alerts ask for nothing that nodes do not export: such an alert would never fire.
func TestAlertsKnowTheMetrics(t *testing.T) {
	registry := documentedMetrics(t)
	for _, a := range alerts(t) {
		if unknown := unknownIn(a.Expr, registry); len(unknown) > 0 || !strings.Contains(a.Expr, "edgelimit_") {
			t.Errorf("%s: %s: not exported: %q", a.Alert, a.Expr, unknown)
		}
	}
	for expr, want := range map[string]int{
		`sum by (rule) (rate(edgelimit_decisions_total{outcome="denied"}[5m]))`:                           0,
		`histogram_quantile(.9, sum by (region, le) (rate(edgelimit_peer_staleness_seconds_bucket[5m])))`: 0,
		`edgelimit_decisions_total{result="denied"}`:                                                      1,
		`sum by (region) (edgelimit_decisions_total)`:                                                     1,
		`edgelimit_decision_total + edgelimit_degraded_bucket`:                                            2,
	} {
		if unknown := unknownIn(expr, registry); len(unknown) != want {
			t.Errorf("%s: %q", expr, unknown)
		}
	}
}

// The operator's pages name no metric that nodes do not export.
func TestGuideKnowsTheMetrics(t *testing.T) {
	registry := documentedMetrics(t)
	for _, page := range []string{"OPERATING.md", "PLANNING.md", "BOUND.md", "TLS.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bedgelimit_[a-z_]*[a-z]\b`).FindAllString(string(text), -1) {
			if _, ok := registry[name]; !ok {
				t.Errorf("%s: no node exports %s", page, name)
			}
		}
	}
}

// dashboard is what the tests read of Grafana's.
type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		Description string
		Datasource  struct{ UID string }
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct {
			RefID, Expr string
			Datasource  struct{ UID string }
		}
	}
}

// The dashboard's panels have places of their own, and queries that Prometheus takes, of metrics that nodes export.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("deploy/grafana/edgelimit.json")
	testkit.Must(t, err)
	var d dashboard
	testkit.Must(t, json.Unmarshal(text, &d))
	variables := []string{"__rate_interval"}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	registry := documentedMetrics(t)
	ids, places, queries := make(map[int]bool), make(map[[2]int]string), []string(nil)
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d %q: its ID is taken, or it has no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		if g := p.GridPos; g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("%s is beside the 24 columns: %+v", p.Title, g)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				place := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := places[place]; other != "" {
					t.Fatalf("%s covers %s", p.Title, other)
				}
				places[place] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Description == "" || p.Datasource.UID != "${datasource}" {
			t.Errorf("%s has no query, no description, or a data source of its own", p.Title)
		}
		for i, q := range p.Targets {
			if q.RefID != string(rune('A'+i)) || q.Datasource.UID != "${datasource}" {
				t.Errorf("%s: query %d is %q of %q", p.Title, i, q.RefID, q.Datasource.UID)
			}
			if unknown := unknownIn(q.Expr, registry); len(unknown) > 0 {
				t.Errorf("%s: %s: not exported: %q", p.Title, q.Expr, unknown)
			}
			queries = append(queries, q.Expr)
		}
	}
	checkQueries(t, queries, variables)
}

// checkQueries has Prometheus parse queries with variables, as recording rules.
func checkQueries(t *testing.T, queries, variables []string) {
	t.Helper()
	variable := regexp.MustCompile(`\$\{?([a-z_]+)\}?`)
	var rules []map[string]string
	for i, q := range queries {
		for _, v := range variable.FindAllStringSubmatch(q, -1) {
			if !slices.Contains(variables, v[1]) {
				t.Errorf("%s: there is no variable %s", q, v[1])
			}
		}
		rules = append(rules, map[string]string{"record": fmt.Sprintf("query:%d", i),
			"expr": variable.ReplaceAllString(strings.ReplaceAll(q, "$__rate_interval", "5m"), "x")})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": rules}}})
	testkit.Must(t, err)
	file := filepath.Join(t.TempDir(), "queries.yml")
	writeFile(t, file, string(text))
	promtool(t, "check", "rules", file)
}
