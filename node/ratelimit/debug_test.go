package ratelimit_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/ratelimit"
)

// dumped is what envoyproxy/ratelimit (January 2026) answers at /rlconfig for these rules, in alphabetical order.
const dumpedRules = `
compatibility: ratelimit
domain: edge
descriptors:
  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: path, value: "/a:b|c", shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: tenant, value: foo*, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 3, name: tn}}
  - {key: share, value: s*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 3}}
  - key: v
    value_to_metric: true
    descriptors: [{key: w, rate_limit: {unit: week, requests_per_unit: 10, replaces: [{name: tn}]}}]
  - {key: q, quota_mode: true, rate_limit: {unit: month, requests_per_unit: 10}}
  - {key: u, rate_limit: {unlimited: true}}
  - {key: both, shadow_mode: true, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: numbered, rate_limit: {unlimited: true, requests_per_unit: 7}}
`

const dumped = `edge.both: unit=HOUR requests_per_unit=2, shadow_mode: true, quota_mode: true
edge.numbered: unit=UNKNOWN requests_per_unit=7, shadow_mode: false, quota_mode: false
edge.path_/a:b|c: unit=SECOND requests_per_unit=2, shadow_mode: true, quota_mode: false
edge.q: unit=MONTH requests_per_unit=10, shadow_mode: false, quota_mode: true
edge.remote_address: unit=MINUTE requests_per_unit=5, shadow_mode: false, quota_mode: false
edge.share_s*: unit=DAY requests_per_unit=3, shadow_mode: false, quota_mode: false
edge.tenant_foo*: unit=HOUR requests_per_unit=3, shadow_mode: false, quota_mode: false
edge.u: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
edge.v.w: unit=WEEK requests_per_unit=10, shadow_mode: false, quota_mode: false
`

// get asks the debug pages of a server, and returns the status, the type and the body.
func get(s *server, path string) (status int, kind, body string) {
	health := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "health", r.URL.Path) })
	w := httptest.NewRecorder()
	ratelimit.Debug(health, s.stats, s.set.Rules).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Header().Get("Content-Type"), w.Body.String()
}

func TestRLConfig(t *testing.T) {
	s := newServer(t, ratelimit.Options{})
	s.set = parse(t, []byte(dumpedRules))
	status, kind, body := get(s, "/rlconfig")
	lines := slices.Sorted(strings.Lines(body))
	if got := strings.Join(lines, ""); status != 200 || kind != "text/plain; charset=utf-8" || got != dumped {
		t.Errorf("%d %s\n%s\nwant\n%s", status, kind, got, dumped)
	}
}

func TestDebugPages(t *testing.T) {
	s := newServer(t, ratelimit.Options{})
	for path, want := range map[string]string{
		"/livez": "health/livez", "/readyz": "health/readyz", "/metrics": "health/metrics",
		"/": "/stats: print out stats", "/healthcheck": "/rlconfig: print out", "/nothing": "/rlconfig: print out",
	} {
		if status, _, body := get(s, path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
}

func TestStatsPage(t *testing.T) {
	s := newServer(t, ratelimit.Options{})
	s.ask(t, "edge:1", 3, "plain=x")
	const name = "ratelimit.service.rate_limit.edge_1.plain.total_hits"
	status, kind, body := get(s, "/stats")
	lines := slices.Collect(strings.Lines(body))
	program, _ := json.Marshal(os.Args[:1])
	if status != 200 || kind != "text/plain; charset=utf-8" || len(lines) < 20 ||
		lines[0] != "cmdline: "+string(program)+"\n" || !strings.HasPrefix(lines[1], `memstats: {"Alloc":`) ||
		!slices.Contains(lines, name+": 3\n") {
		t.Errorf("%d %s\n%s", status, kind, body)
	}
	if !slices.IsSorted(lines) {
		t.Errorf("it is not sorted:\n%s", body)
	}
	status, kind, body = get(s, "/stats?format=json")
	var all map[string]any
	if err := json.Unmarshal([]byte(body), &all); err != nil || status != 200 || kind != "application/json" ||
		all[name] != 3.0 || all["cmdline"] == nil || all["memstats"] == nil || len(all) != len(lines) {
		t.Errorf("%d %s %v\n%s", status, kind, err, body)
	}
}
