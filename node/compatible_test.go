package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// likeRatelimit is a node that is compatible with envoyproxy/ratelimit, with rules that it was measured with, within
// one hour.
func likeRatelimit() Config {
	cfg := withGRPC(withListeners(quiet("")))
	cfg.Compatibility, cfg.Rules = rulefile.Ratelimit, []string{"ratelimit/testdata/rules.yaml"}
	cfg.wallClock = func() time.Time { return time.Date(2026, 7, 6, 12, 30, 0, 0, time.UTC) }
	return cfg
}

// descriptor is one as in "v=1,w=2", with more fields in JSON.
func descriptor(entries string, more ...string) string {
	var list []string
	for pair := range strings.SplitSeq(entries, ",") {
		key, value, _ := strings.Cut(pair, "=")
		list = append(list, fmt.Sprintf(`{"key":%q,"value":%q}`, key, value))
	}
	return fmt.Sprintf(`{"entries":[%s]%s}`, strings.Join(list, ","), strings.Join(more, ""))
}

// askJSON posts to /json and returns the status.
func askJSON(t *testing.T, n *running, domain string, hits int, descriptors ...string) int {
	t.Helper()
	status, _ := post(t, n.Addr("http"), "/json", fmt.Sprintf(`{"domain":%q,"hitsAddend":%d,"descriptors":[%s]}`,
		domain, hits, strings.Join(descriptors, ",")))
	return status
}

// ratelimitStats returns the statistics of the service that are not zero, sorted.
func ratelimitStats(t *testing.T, n *running) string {
	t.Helper()
	_, body := get(t, n.Addr("health"), "/stats?format=json")
	var all map[string]any
	testkit.Must(t, json.Unmarshal([]byte(body), &all))
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, "ratelimit.service.") && all[name] != 0.0 {
			fmt.Fprintln(&b, name, all[name])
		}
	}
	return b.String()
}

// A compatible domain counts what it denies, as envoyproxy/ratelimit does. Such counts are no over-admission: neither
// the bound nor the status may call them so.
func TestRatelimitDenialsAreNoExcess(t *testing.T) {
	n := launch(t, likeRatelimit()).ready(t)
	for range 20 {
		askJSON(t, n, "edge:1", 1, descriptor("plain=x"))
	}
	if found := n.found(time.Unix(0, n.clock.Now())); len(found) > 0 {
		t.Errorf("the bound takes in %v", found)
	}
	for _, l := range n.Status().Limits {
		if l.Over != nil {
			t.Errorf("%s is said to be %v over its limit", l.Rule, *l.Over)
		}
	}
}

// The requests are those of package ratelimit's TestCountsAsMeasured, which says where the counts are from.
func TestRatelimitStats(t *testing.T) {
	n := launch(t, likeRatelimit()).ready(t)
	const domain = "edge:1"
	var statuses []int
	ask := func(domain string, hits int, descriptors ...string) {
		statuses = append(statuses, askJSON(t, n, domain, hits, descriptors...))
	}
	for _, hits := range []int{3, 4, 1, 1, 5, 2} {
		ask(domain, hits, descriptor("plain=x"))
	}
	ask(domain, 0, descriptor("plain=x", `,"hitsAddend":0`))
	for _, hits := range []int{2, 4, 1} {
		ask(domain, hits, descriptor("path=/a:b|10.1.2.3"))
	}
	ask(domain, 1, descriptor("detailed=val:1"), descriptor("detailed="), descriptor("wild=foobar"),
		descriptor("wildvalue=foobar"), descriptor("share=s1"), descriptor("share=s2"))
	ask(domain, 1, descriptor("sharedetailed=s1,below=x"), descriptor("sharedetailed=s2,below="))
	ask(domain, 1, descriptor("v=1,w=2"), descriptor("v=1,exact=e"), descriptor("v=,w=2"), descriptor("free=1"),
		descriptor("v=1"), descriptor("nothing=1"))
	ask(domain, 1, descriptor("quota=1"))
	ask(domain, 1, descriptor("quota=1"))
	ask(domain, 1, descriptor("replacing=1"), descriptor("replaced=1"))
	ask(domain, 1, descriptor("plain=o,more=", `,"limit":{"requestsPerUnit":2,"unit":"HOUR"}`))
	ask("other|domain", 1, descriptor("plain=x"), descriptor("plain=y"))
	ask("", 1, descriptor("plain=x"))
	ask(domain, 1)
	// The measured version answered 200 where a full quota is the only one; that of July 2026 denies, as 429.
	want := []int{200, 200, 200, 200, 429, 429, 429, 200, 200, 200, 200, 200, 200, 200, 429, 200, 200, 200, 400, 400}
	if !slices.Equal(statuses, want) {
		t.Errorf("answered %d\nwant     %d", statuses, want)
	}
	counted, err := os.ReadFile("ratelimit/testdata/counted.txt")
	testkit.Must(t, err)
	if got := ratelimitStats(t, n); got != string(counted) {
		t.Errorf("counted\n%s\nenvoyproxy/ratelimit counts\n%s", got, counted)
	}
}

const metadataRules = `
domain: edge
descriptors:
  - {key: plain, metadata: {kind: plain}, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: valued, value_to_metric: true, metadata: {kind: valued}, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: wild*, metadata: {kind: wild}, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: path, value: /a*, metadata: {kind: path}, rate_limit: {unit: hour, requests_per_unit: 9}}
  - key: detailed
    detailed_metric: true
    metadata: {kind: detailed}
    rate_limit: {unit: hour, requests_per_unit: 9}
    descriptors:
      - {key: leaf, detailed_metric: true, metadata: {kind: leaf}, rate_limit: {unit: hour, requests_per_unit: 9}}
`

// With RESPONSE_DYNAMIC_METADATA the metadata of a rule is lost where envoyproxy/ratelimit (July 2026) loses it.
func TestRatelimitMetadata(t *testing.T) {
	cfg := likeRatelimit()
	cfg.Ratelimit.DynamicMetadata = true
	cfg.Rules = []string{filepath.Join(t.TempDir(), "rules.yaml")}
	writeFile(t, cfg.Rules[0], metadataRules)
	n := launch(t, cfg).ready(t)
	for entries, kind := range map[string]string{
		"plain=1": "plain", "valued=1": "", "valued=": "valued", "wild1=1": "", "path=/ab": "path",
		"detailed=1": "detailed", "detailed=1,leaf=1": "",
	} {
		_, body := post(t, n.Addr("http"), "/json", `{"domain":"edge","descriptors":[`+descriptor(entries)+`]}`)
		if got := strings.Contains(body, `"kind"`); got != (kind != "") || !strings.Contains(body, kind) {
			t.Errorf("%s: %s, want the metadata %q", entries, body, kind)
		}
	}
}

const replacingRules = `
domain: edge
descriptors:
  - {key: base, rate_limit: {name: base, unit: hour, requests_per_unit: 1}}
  - {key: premium, rate_limit: {name: premium, unit: hour, requests_per_unit: 9, replaces: [{name: base}]}}
  - {key: other, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: "user*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 2}}
`

// What one descriptor does to another one it does in a request of any length.
func TestRatelimitManyDescriptors(t *testing.T) {
	cfg := likeRatelimit()
	cfg.Ratelimit.StopIncrements = true
	cfg.Rules = []string{filepath.Join(t.TempDir(), "rules.yaml")}
	writeFile(t, cfg.Rules[0], replacingRules)
	n := launch(t, cfg).ready(t)
	var many []string
	for range 40 {
		many = append(many, descriptor("nothing=1"))
	}
	ask := func(want int, first, last string) {
		t.Helper()
		if got := askJSON(t, n, "edge", 1, slices.Concat([]string{first}, many, []string{last})...); got != want {
			t.Errorf("%s ... %s: %d, want %d", first, last, got, want)
		}
	}
	base, premium := descriptor("base=1"), descriptor("premium=1")
	for range 3 { // base is not charged
		ask(http.StatusOK, base, premium)
		ask(http.StatusOK, premium, base)
	}
	ask(http.StatusOK, base, descriptor("other=1"))
	for range 3 { // other is not charged: 99 are left
		ask(http.StatusTooManyRequests, descriptor("other=1"), base)
	}
	ask(http.StatusOK, descriptor("other=1", `,"hitsAddend":99`), descriptor("nothing=1"))
	ask(http.StatusTooManyRequests, descriptor("other=1"), descriptor("nothing=1"))
}

// Under a wildcard in a key with share_threshold, all values of one key of a request count together.
func TestRatelimitSharesUnderKeys(t *testing.T) {
	cfg := likeRatelimit()
	cfg.Rules = []string{filepath.Join(t.TempDir(), "rules.yaml")}
	writeFile(t, cfg.Rules[0], replacingRules)
	n := launch(t, cfg).ready(t)
	for _, test := range []struct {
		entries string
		want    int
	}{{"user1=a", 200}, {"user1=b", 200}, {"user1=c", 429}, {"user2=a", 200}} {
		if got := askJSON(t, n, "edge", 1, descriptor(test.entries)); got != test.want {
			t.Errorf("%s: %d, want %d", test.entries, got, test.want)
		}
	}
}

// answered is a response of the HTTP API.
type answered struct {
	status            int
	contentType, body string
}

// Paths, statuses, types and bodies are as measured with envoyproxy/ratelimit.
func TestRatelimitHTTP(t *testing.T) {
	n := launch(t, likeRatelimit()).ready(t)
	const text = "text/plain; charset=utf-8"
	for _, tc := range []struct {
		method, path, body string
		want               answered
	}{
		{"GET", "/healthcheck", "", answered{200, text, "OK"}},
		{"POST", "/healthcheck", "", answered{200, text, "OK"}},
		{"GET", "/json", "", answered{400, text, "Bad Request\n"}},
		{"POST", "/json", "{", answered{400, text, "Bad Request\n"}},
		{"POST", "/json", `{"domain":"edge:1"}`, answered{400, text, "Bad Request\n"}},
		{"PUT", "/json", `{"domain":"other","descriptors":[{}]}`,
			answered{200, "application/json", `{"overallCode":"OK", "statuses":[{"code":"OK"}]}`}},
	} {
		req, err := http.NewRequest(tc.method, "http://"+n.Addr("http")+tc.path, strings.NewReader(tc.body))
		testkit.Must(t, err)
		resp, err := web.Do(req)
		testkit.Must(t, err)
		got := answered{contentType: resp.Header.Get("Content-Type")}
		if got.status, got.body = slurp(t, resp); strings.HasPrefix(got.body, "{") {
			got.body = strings.ReplaceAll(strings.ReplaceAll(got.body, `, "`, `,"`), `,"`, `, "`) // spaces are random
		}
		if got != tc.want {
			t.Errorf("%s %s %s: %+v, want %+v", tc.method, tc.path, tc.body, got, tc.want)
		}
	}
}

func TestRatelimitDebugPages(t *testing.T) {
	n := launch(t, likeRatelimit()).ready(t)
	for path, want := range map[string]string{
		"/rlconfig": "edge:1.plain: unit=HOUR requests_per_unit=10, shadow_mode: false, quota_mode: false\n",
		"/stats":    "ratelimit.service.config_load_success: 1\n", "/metrics": "edgelimit_rules 13",
		"/readyz": "ok\n", "/": "/rlconfig: print out the currently loaded configuration for debugging\n",
	} {
		if status, body := get(t, n.Addr("health"), path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.300s, want %q", path, status, body, want)
		}
	}
}

// healthOf asks the node's gRPC health about a service.
func healthOf(t *testing.T, n *running, service string) (health.HealthCheckResponse_ServingStatus, error) {
	t.Helper()
	conn, err := grpc.NewClient(n.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	testkit.Must(t, err)
	defer conn.Close()
	resp, err := health.NewHealthClient(conn).Check(t.Context(), &health.HealthCheckRequest{Service: service},
		grpc.WaitForReady(true))
	return resp.GetStatus(), err
}

func TestRatelimitHealthName(t *testing.T) {
	n := launch(t, likeRatelimit()).ready(t)
	for _, service := range []string{"ratelimit", "", "envoy.service.ratelimit.v3.RateLimitService"} {
		if status, err := healthOf(t, n, service); err != nil || status != health.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v %v", service, status, err)
		}
	}
	if status, err := healthOf(t, n, "other"); err == nil {
		t.Errorf("an unknown service is %v", status)
	}
}

// Without compatibility there is nothing of all this.
func TestNothingOfRatelimitWithoutTheSwitch(t *testing.T) {
	cfg := likeRatelimit()
	cfg.Compatibility = ""
	n := launch(t, cfg).ready(t)
	for listener, paths := range map[string][]string{
		"http": {"/healthcheck"}, "health": {"/", "/stats", "/rlconfig"},
	} {
		for _, path := range paths {
			if status, body := get(t, n.Addr(listener), path); status != http.StatusNotFound {
				t.Errorf("%s of %s: %d %.300s", path, listener, status, body)
			}
		}
	}
	if status, body := post(t, n.Addr("http"), "/json", "{"); status != 400 || !strings.HasPrefix(body, "{") {
		t.Errorf("/json: %d %s", status, body)
	}
	if status, err := healthOf(t, n, "ratelimit"); err == nil {
		t.Errorf("the service ratelimit is %v", status)
	}
}

// What is counted is sent to statsd, the last of it when the node stops.
func TestRatelimitStatsd(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer conn.Close()
	cfg := likeRatelimit()
	cfg.Ratelimit.Statsd.Address, cfg.Ratelimit.Statsd.Network = conn.LocalAddr().String(), "udp"
	cfg.Ratelimit.Statsd.Interval = time.Hour
	n := launch(t, cfg).ready(t)
	askJSON(t, n, "edge:1", 12, descriptor("plain=x"))
	testkit.Must(t, n.stop())
	buf := make([]byte, 1<<16)
	testkit.Must(t, conn.SetReadDeadline(time.Now().Add(testkit.Patience)))
	size, _, err := conn.ReadFrom(buf)
	testkit.Must(t, err)
	const limit = "ratelimit.service.rate_limit.edge_1.plain"
	want := "ratelimit.service.config_load_success:1|c\n" + limit + ".near_limit:2|c\n" + limit + ".over_limit:2|c\n" +
		limit + ".total_hits:12|c" // requests are those by gRPC
	got, process, _ := strings.Cut(string(buf[:size]), "\nratelimit.go.frees:")
	if got != want || !strings.Contains(process, "\nratelimit.go.numGoroutine:") {
		t.Errorf("sent\n%s\nwant\n%s\nand the process", buf[:size], want)
	}
}

func TestStatsdNeedsCompatibility(t *testing.T) {
	cfg := quiet("")
	cfg.Ratelimit.Statsd.Address = "127.0.0.1:8125"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "compatibility: ratelimit only") {
		t.Error(err)
	}
}

// That rules for Envoy meet nothing at /v1/auth is no mistake.
func TestRatelimitRulesAreNoMistake(t *testing.T) {
	cfg := likeRatelimit()
	set, err := cfg.ruleOptions().Load(cfg.Rules...)
	testkit.Must(t, err)
	for _, w := range cfg.Warnings(set) {
		if !w.Hint && !strings.Contains(w.Text, "this node counts alone") {
			t.Errorf("it warns: %s", w.Text)
		}
	}
}

// A request that there are no rules for is over its limit where the node wants so, and counts in no statistic of a
// rule.
func TestRatelimitDeniesWithoutRules(t *testing.T) {
	t.Parallel()
	for _, compatibility := range []string{"", rulefile.Ratelimit} {
		cfg := likeRatelimit()
		cfg.Compatibility, cfg.OnFailure = compatibility, rules.FailClosed
		n := launch(t, cfg).ready(t)
		if got := askJSON(t, n, "unknown", 1, descriptor("a=b"), descriptor("c=d")); got != 429 {
			t.Errorf("compatibility %q: an unknown domain gets %d", compatibility, got)
		}
		if compatibility != "" {
			if got := ratelimitStats(t, n); strings.Contains(got, "hits") || strings.Contains(got, "limit ") {
				t.Errorf("it counts:\n%s", got)
			}
		}
		n.Shadow(true)
		if got := askJSON(t, n, "unknown", 1, descriptor("a=b")); got != 200 {
			t.Errorf("compatibility %q: with the kill switch on it gets %d", compatibility, got)
		}
	}
}
