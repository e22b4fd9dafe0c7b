package node

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/middleware"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A reload that reaches one node after the other is counted meanwhile, and nobody is warned.
func TestRollingReloadDoesNotWarn(t *testing.T) {
	t.Parallel()
	var log testkit.Log
	cfg := gossiping("a", "eu")
	cfg.Health, cfg.Logger = "127.0.0.1:0", log.Logger()
	first := launch(t, cfg).ready(t)
	second := launch(t, gossiping("b", "eu", first.Addr("lan"))).ready(t)
	allMembers(t, first, second)
	others := func() float64 {
		_, series := scrape(t, first.Addr("health"))
		return series["edgelimit_peers_with_other_rules"]
	}
	if others() != 0 {
		t.Error("nodes of the same rules differ")
	}
	const changed = "domain: edge\ndescriptors: [{key: client, rate_limit: {name: per_client, window: 10s, " +
		"requests_per_unit: 900}}]\n"
	second.SetRules(ruleSet(changed))
	testkit.Eventually(t, "the other's rules differ", func() bool { return others() == 1 })
	if _, metrics := get(t, first.Addr("health"), "/metrics"); !strings.Contains(metrics,
		"edgelimit_peers_with_other_rules 1\n") {
		t.Error("no gauge of it")
	}
	first.SetRules(ruleSet("# the same\n" + changed))
	testkit.Eventually(t, "the rules are the same again", func() bool { return others() == 0 })
	if log.HasLine("other rules") || degraded(t, first.Node) {
		t.Errorf("it warns of a reload, or is degraded:\n%s", &log)
	}
}

// More keys over their limit than the memory holds: some have to go, and that shows.
func TestEvictionsShow(t *testing.T) {
	t.Parallel()
	log := &testkit.Log{}
	cfg := quiet("domain: test\ndescriptors: [{key: client, rate_limit: {unit: day, requests_per_unit: 1}}]")
	cfg.Memory, cfg.Health, cfg.Logger = counters.MinMemory, "127.0.0.1:0", log.Logger()
	n := launch(t, cfg).ready(t)
	const evicted = "edgelimit_evicted_keys_total standing="
	_, first := scrape(t, n.Addr("health"))
	if first["edgelimit_memory_limit_bytes"] != counters.MinMemory || first[evicted+"denied"] != 0 ||
		first[evicted+"other"] != 0 {
		t.Errorf("at first: %v", first)
	}
	for i := 0; n.table.Stats().EvictedDenied < 10; i++ {
		if i == 1000 {
			t.Fatalf("nothing of what is over its limit goes: %+v", n.table.Stats())
		}
		for k := range 1000 {
			takeSome(t, n.Node, "test/client", strconv.Itoa(1000*i+k), 2)
		}
	}
	testkit.Eventually(t, "a warning",
		func() bool { return log.HasLine("level=WARN", "keys over their limit", "memory=4MiB") })
	_, last := scrape(t, n.Addr("health"))
	if used := last["edgelimit_memory_bytes"]; used <= first["edgelimit_memory_bytes"] || used > counters.MinMemory {
		t.Errorf("%v of %d bytes are used, %v when it was empty", used, counters.MinMemory,
			first["edgelimit_memory_bytes"])
	}
	testkit.Eventually(t, "a bound", func() bool {
		_, now := scrape(t, n.Addr("health"))
		return now["edgelimit_over_admission_bound_ratio rule=test/client"] >= 1 &&
			now["edgelimit_evicted_full_keys_total"] > 0
	})
	stats := n.table.Stats()
	want := fmt.Sprint(stats.EvictedDenied, stats.Evicted-stats.EvictedDenied)
	if got := fmt.Sprint(uint64(last[evicted+"denied"]), uint64(last[evicted+"other"])); got != want {
		t.Errorf("evicted, denied and other: %s, want %s", got, want)
	}
}

// loginRules are those of the README: a limit for each client, and a tighter one for logging in.
const loginRules = `domain: edge
descriptors:
  - {key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100}}
  - key: path
    value: /login
    descriptors:
      - {key: remote_address, rate_limit: {name: login, window: 10s, requests_per_unit: 5}}
`

// The README's own rules hold with the requests that are sent by default.
func TestDefaultRequestsMeetNestedRules(t *testing.T) {
	n := launch(t, quiet(loginRules)).ready(t)
	wrap, err := middleware.HTTP(n, middleware.Options{})
	testkit.Must(t, err)
	h := wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	passed := 0
	for range 30 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
		if w.Code == http.StatusOK {
			passed++
		}
	}
	if passed != 5 {
		t.Errorf("%d of 30 requests to /login passed, its limit is 5", passed)
	}
}

// A rule that the node's own requests cannot meet is named at start and after a reload, once each.
func TestRulesNeverMetAreLogged(t *testing.T) {
	var log testkit.Log
	cfg := quiet(loginRules)
	cfg.HTTP, cfg.Logger = "127.0.0.1:0", log.Logger()
	cfg.Requests.Descriptors = []actions.Descriptor{{{Key: "remote_address", Source: "client"}}}
	n := launch(t, cfg).ready(t)
	const rule = "login"
	if !log.HasLine("WARN", rule, "never met by /v1/auth", "(path, remote_address)") {
		t.Fatalf("nothing about %s in the log:\n%s", rule, &log)
	}
	n.SetRules(ruleSet(loginRules + "  - {key: api_key, rate_limit: {unit: hour, requests_per_unit: 9}}\n"))
	if !log.HasLine("WARN", "edge/api_key", "never met by /v1/auth") {
		t.Errorf("nothing about edge/api_key after the reload:\n%s", &log)
	}
	if got := strings.Count(log.String(), "rule "+rule+" is never met"); got != 1 {
		t.Errorf("the log names %s %d times, want once:\n%s", rule, got, &log)
	}
}

// A misspelt domain is allowed, as it was; it is counted and named, with the one that was meant.
func TestUnmatchedRequestsAreCountedAndLogged(t *testing.T) {
	var log testkit.Log
	cfg := quiet(loginRules)
	cfg.HTTP, cfg.Health, cfg.Logger = "127.0.0.1:0", "127.0.0.1:0", log.Logger()
	n := launch(t, cfg).ready(t)
	for _, body := range []string{`{"domain":"egde","descriptors":[[{"key":"remote_address","value":"192.0.2.1"}]]}`,
		`{"domain":"egde","descriptors":[[{"key":"remote_address","value":"192.0.2.1"}]]}`,
		`{"domain":"edge","descriptors":[[{"key":"remote_adress","value":"secret-value"}]]}`,
		`{"domain":"edge","descriptors":[[{"key":"path","value":"/about"},{"key":"remote_address",` +
			`"value":"192.0.2.1"}]]}`,
		`{"domain":"edge","descriptors":[[{"key":"x","value":"y"}],[{"key":"remote_address","value":"192.0.2.1"}]]}`} {
		if status, answer := post(t, n.Addr("http"), "/v1/check", body); status != 200 || !strings.Contains(answer,
			`"allowed":true`) {
			t.Fatalf("%s: %d %s", body, status, answer)
		}
	}
	_, metrics := get(t, n.Addr("health"), "/metrics")
	for reason, want := range map[string]int{"unknown_domain": 2, "unknown_key": 1, "no_rule": 1} {
		if line := fmt.Sprintf("edgelimit_unmatched_requests_total{reason=%q} %d\n", reason,
			want); !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	testkit.Eventually(t, "a warning of the domain", func() bool {
		return log.HasLine("WARN", "egde", "did_you_mean=edge")
	})
	testkit.Eventually(t, "a warning of the key", func() bool {
		return log.HasLine("WARN", "remote_adress", "did_you_mean=remote_address")
	})
	if log.HasLine("secret-value") {
		t.Errorf("a value is in the log:\n%s", &log)
	}
}

// Behind a proxy that is not configured everybody is one client. At each entrance the log says so once, with what to
// set, as do the status and a metric; with that setting they say nothing, and visitors count by themselves.
func TestUnconfiguredProxiesAreReported(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer app.Close()
	for entrance, path := range map[string]string{"http": "/v1/auth", "proxy": "/", "middleware": "/"} {
		for _, trusted := range []bool{false, true} {
			log := new(testkit.Log)
			cfg := withListeners(quiet("domain: edge\ndescriptors: [{key: remote_address, rate_limit: {name: per_ip, " +
				"window: 1h, requests_per_unit: 1}}]"))
			cfg.Logger = log.Logger()
			cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", []string{app.URL}
			if trusted {
				cfg.Requests.TrustedProxies = []string{"127.0.0.1"}
			}
			n := launch(t, cfg).ready(t)
			addr := n.Addr(entrance)
			if entrance == "middleware" {
				limited, err := middleware.HTTP(n.Node, middleware.Options{})
				testkit.Must(t, err)
				s := httptest.NewServer(limited(app.Config.Handler))
				defer s.Close()
				addr = s.Listener.Addr().String()
			}
			denied := 0
			for i := range 3 {
				req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+path, nil)
				testkit.Must(t, err)
				req.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i))
				resp, err := web.Do(req)
				testkit.Must(t, err)
				if slurp(t, resp); resp.StatusCode == http.StatusTooManyRequests {
					denied++
				}
			}
			const text = "requests from 127.0.0.1 carry X-Forwarded-For, but that address is not in trusted_proxies: " +
				"all its visitors count as one client"
			const do = "add `trusted_proxies: [127.0.0.1]` to requests (edgelimit: --trusted-proxy 127.0.0.1) if it " +
				"is yours"
			reported := strings.Count(log.String(), text)
			finding := slices.ContainsFunc(n.Status().Summary, func(f status.Finding) bool {
				return f.Level == "warn" && f.Text == text && f.Do == do
			})
			_, series := scrape(t, n.Addr("health"))
			total := series["edgelimit_unread_client_headers_total"]
			if trusted && (denied != 0 || reported != 0 || finding || total != 0) ||
				!trusted && (denied != 2 || reported != 1 || !finding || total != 3 || !log.HasLine("WARN", text, do)) {
				t.Errorf("%s, trusted %v: %d denied, %d warnings, in the status %v, metric %v\n%s", entrance, trusted,
					denied, reported, finding, total, log)
			}
		}
	}
}

func encoded(key []byte) string { return base64.StdEncoding.EncodeToString(key) }

// sameGossip writes a key file with the gossip key of another one, and an identity of its own.
func sameGossip(t *testing.T, other string) string {
	t.Helper()
	a, err := ReadKeyFile(other)
	testkit.Must(t, err)
	own := keyFile(t)
	b, err := ReadKeyFile(own)
	testkit.Must(t, err)
	return write(t, "mixed.key", fmt.Sprintf("gossip: %s\nidentity: %s\n", encoded(a.Gossip[0]),
		encoded(b.Identity[:])))
}

// Nodes of one cluster with different identity secrets count each client apart: both say so, and are degraded.
func TestOtherIdentityIsReported(t *testing.T) {
	t.Parallel()
	var log testkit.Log
	key := keyFile(t)
	cfg := gossiping("a", "eu")
	cfg.Gossip.KeyFile, cfg.Health, cfg.Logger = key, "127.0.0.1:0", log.Logger()
	first := launch(t, cfg).ready(t)
	other := gossiping("b", "eu", first.Addr("lan"))
	other.Gossip.KeyFile = sameGossip(t, key)
	second := launch(t, other).ready(t)
	allMembers(t, first, second)
	testkit.Eventually(t, "an error", func() bool { return log.HasLine("ERROR", "identity", "eu/b") })
	testkit.Eventually(t, "degraded", func() bool { return degraded(t, first.Node) && degraded(t, second.Node) })
	if _, metrics := get(t, first.Addr("health"), "/metrics"); !strings.Contains(metrics,
		"edgelimit_peers_with_other_identity 1\n") {
		t.Error("no gauge of it")
	}
	if status, body := get(t, first.Addr("health"), "/readyz"); status != 200 || !strings.Contains(body, "identity") {
		t.Errorf("/readyz: %d %q", status, body)
	}
}

// A region that is partitioned off is named once none of its nodes is received, and again when it is back.
func TestUnreachableRegionIsReported(t *testing.T) {
	t.Parallel()
	var log testkit.Log
	links := netem.NewLinks(1)
	cfg := through(links, "eu", gossiping("a", "eu"))
	cfg.Health, cfg.Logger = "127.0.0.1:0", log.Logger()
	eu := launch(t, cfg).ready(t)
	us := launch(t, through(links, "us", gossiping("b", "us", "wan:"+eu.Addr("wan")))).ready(t)
	allMembers(t, eu, us)
	reachable := func() string { _, metrics := get(t, eu.Addr("health"), "/metrics"); return metrics }
	testkit.Eventually(t, "the gauge of a region", func() bool {
		return strings.Contains(reachable(), `edgelimit_region_reachable{region="us"} 1`)
	})
	links.Partition("us")
	testkit.Eventually(t, "the region is named", func() bool {
		return log.HasLine("WARN", "region cannot be reached", "peer_region=us")
	})
	if m := reachable(); !strings.Contains(m, `edgelimit_region_reachable{region="us"} 0`) || !strings.Contains(m,
		"edgelimit_unreachable_peers 1\n") {
		t.Error("the gauges do not say so")
	}
	if status, body := get(t, eu.Addr("health"), "/readyz"); status != 200 || !strings.Contains(body,
		"degraded: region us cannot be reached") {
		t.Errorf("/readyz: %d %q", status, body)
	}
	links.Heal()
	testkit.Eventually(t, "its return", func() bool {
		return log.HasLine("INFO", "region is reachable again", "peer_region=us", "after=")
	})
	testkit.Eventually(t, "no longer degraded", func() bool {
		return log.HasLine("INFO", "decisions are no longer degraded", "after=")
	})
}

// What is counted are requests that nothing limits, whichever way they come.
func TestUnmatchedCounts(t *testing.T) {
	n, err := New(quiet(loginRules))
	testkit.Must(t, err)
	defer n.close()
	counts := func() (all []float64) {
		series := seriesOf(t, &nodeCollector{n}, "edgelimit_unmatched_requests_total", "reason")
		for _, reason := range []string{"unknown_domain", "unknown_key", "no_rule"} {
			all = append(all, series[reason][0].GetCounter().GetValue())
		}
		return all
	}
	met := descriptorsRequest("edge", "b", "remote_address")
	brought := descriptorsRequest("edge", "b")
	brought.Asks = []rules.Ask{{Cost: 1, Limit: n.policy.Load().set.Rules()[0].Limit}}
	for _, req := range []*Request{met, brought, {Rule: "per_ip", Identity: "x"}} {
		if _, err := n.Decide(t.Context(), req, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := counts(); !slices.Equal(got, []float64{0, 0, 0}) {
		t.Errorf("requests that met limits are counted: %v", got)
	}
	unknown, wrong, other := descriptorsRequest("egde", "path"), descriptorsRequest("edge", "b"),
		descriptorsRequest("edge", "path")
	for _, req := range []*Request{unknown, wrong, other} {
		if _, err := n.Report(t.Context(), req, nil); err != nil {
			t.Fatal(err)
		}
		var room [4]Decision
		if _, err := n.Decide(t.Context(), req, room[:0]); err != nil {
			t.Fatal(err)
		}
		if allocs := testing.AllocsPerRun(100, func() { _, _ = n.Decide(t.Context(), req, room[:0]) }); allocs > 0 {
			t.Errorf("%+v: %v allocations", req, allocs)
		}
	}
	if got := counts(); !slices.Equal(got, []float64{103, 103, 103}) {
		t.Errorf("counted %v, want 103 of each", got)
	}
}
