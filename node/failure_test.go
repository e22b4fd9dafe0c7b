package node

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/proxy"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
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

// In an outage the word of the request goes over that of the rule, and that over the node's own.
func TestWhoseWordCounts(t *testing.T) {
	t.Parallel()
	for own, want := range map[rules.Failure]string{
		rules.FailUnset: "feed", rules.FailOpen: "client feed", rules.FailClosed: "feed", rules.FailLocal: "feed",
	} {
		t.Run("node "+own.String(), func(t *testing.T) {
			t.Parallel()
			testWhoseWordCounts(t, own, want)
		})
	}
}

// testWhoseWordCounts has a node of the given word, which is cut off; beyond is what passes beyond the limits where the
// request has no word.
func testWhoseWordCounts(t *testing.T, own rules.Failure, beyond string) {
	cfg := gossiping("a", "eu", "127.0.0.1:1")
	cfg.RuleSet, cfg.OnFailure = ruleSet(policies+
		"  - {key: alone, rate_limit: {unit: hour, requests_per_unit: 10, scope: node}}\n"+
		"  - {key: explicit, rate_limit: {unit: hour, requests_per_unit: 10, on_failure: local}}\n"), own
	n := launch(t, cfg).ready(t)
	outcomes := func(on rules.Failure, cost uint64) (allowed string) {
		for _, key := range []string{"client", "feed", "payment", "alone", "explicit"} {
			req := ask(by(key, fmt.Sprint(on, cost))) // nobody has asked for it before
			req.Cost, req.OnFailure = cost, on
			if take(t, n.Node, req).Allowed {
				allowed += key + " "
			}
		}
		return strings.TrimSpace(allowed)
	}
	within := "client feed alone explicit"
	if own == rules.FailClosed {
		within = "feed alone explicit"
	}
	for on, want := range map[rules.Failure][2]string{ // what passes beyond the limits, and within them
		rules.FailUnset:  {beyond, within},
		rules.FailOpen:   {"client feed payment explicit", "client feed payment alone explicit"},
		rules.FailClosed: {"", "alone"},
		rules.FailLocal:  {"", "client feed payment alone explicit"},
	} {
		if beyond, inside := outcomes(on, 11), outcomes(on, 1); beyond != want[0] || inside != want[1] {
			t.Errorf("request %q: %q and %q pass, want %q", on, beyond, inside, want)
		}
	}
}

// A node that starts without rules follows on_failure until they come, and says so wherever an operator looks. So does
// a domain that has none.
func TestWithoutRules(t *testing.T) {
	t.Parallel()
	cfg := quiet("")
	cfg.Rules = []string{write(t, "rules.yaml", "domain: [")}
	if _, err := New(cfg); err == nil {
		t.Error("a node starts with an invalid rule file though nobody asked it to")
	}
	for name, file := range map[string]string{
		"an invalid file": write(t, "rules.yaml", "domain: ["),
		"no file":         filepath.Join(t.TempDir(), "rules.yaml"),
	} {
		log := new(testkit.Log)
		cfg := withListeners(quiet(""))
		cfg.Rules, cfg.StartWithoutRules, cfg.Logger = []string{file}, true, log.Logger()
		cfg.OnFailure, cfg.RulesPoll = rules.FailClosed, 100*time.Millisecond
		n := launch(t, cfg).ready(t)
		byRule := Request{Rule: "local", Identity: "x"}
		undecided := func(req Request, on rules.Failure, want bool) {
			t.Helper()
			req.OnFailure = on
			d, err := n.Take(t.Context(), req)
			if err != nil || d.Allowed != want || !want && (!d.Failed || d.RetryAfter != 5*time.Second) {
				t.Errorf("%s: %q: %+v, %v", name, on, d, err)
			}
		}
		for _, req := range []Request{byRule, ask(by("client", "x")), ask(by("client", "x"), by("feed", "x"))} {
			undecided(req, rules.FailUnset, false)
			undecided(req, rules.FailClosed, false)
			undecided(req, rules.FailOpen, true)
		}
		undecided(ask(by("client", "x")), rules.FailLocal, true)
		if _, err := n.Take(t.Context(), Request{Identity: "x"}); !errors.Is(err, rules.ErrInvalidRequest) {
			t.Errorf("%s: an invalid request: %v", name, err)
		}
		n.Shadow(true)
		undecided(byRule, rules.FailClosed, true)
		n.Shadow(false)
		_, body := get(t, n.Addr("health"), "/readyz")
		_, series := scrape(t, n.Addr("health"))
		if !strings.Contains(body, "degraded: no rules have been loaded yet: requests are denied") ||
			series["edgelimit_rules_loaded"] != 0 ||
			series["edgelimit_undecided_requests_total outcome=denied"] != 6 ||
			series["edgelimit_undecided_requests_total outcome=admitted"] != 4 ||
			!log.HasLine("level=ERROR", "no rules are in force") ||
			!log.HasLine("level=WARN", "serving without rules") {
			t.Errorf("%s: %s%v\n%s", name, body, series["edgelimit_undecided_requests_total outcome=denied"], log)
		}
		if status, body := post(t, n.Addr("http"), "/v1/check", `{"rule":"local","identity":"x"}`); status != 200 ||
			!strings.Contains(body, `"allowed":false,"rule":"unavailable"`) {
			t.Errorf("%s: /v1/check: %d %s", name, status, body)
		}

		replaceFile(t, file, policies)
		testkit.Eventually(t, name+": the rules come", func() bool { return n.rulesMissing() == "" })
		undecided(byRule, rules.FailClosed, true)
		undecided(ask(by("unknown", "x")), rules.FailClosed, true) // the domain has rules, though none for this
		if _, body := get(t, n.Addr("health"), "/readyz"); body != "ok\n" {
			t.Errorf("%s: with rules: %s", name, body)
		}
		other := ask(by("client", "x"))
		other.Domain = "other"
		undecided(other, rules.FailUnset, false)
		undecided(other, rules.FailOpen, true)
		undecided(other, rules.FailLocal, true)
		if _, err := n.Take(t.Context(), Request{Rule: "none", Identity: "x", OnFailure: rules.FailOpen}); !errors.Is(
			err, rules.ErrUnknownRule) {
			t.Errorf("%s: an unknown rule: %v", name, err)
		}
	}
}

// Nodes that know each other by the Redis of their region alone follow on_failure while it is away, and are back soon
// after it is. Nodes that reach each other do not depend on it.
func TestOnFailureWithoutTheStore(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	cfg := sharing(redis, "a")
	cfg.RuleSet = ruleSet(policies)
	cfg.Redis.MinFill = 0
	n := launch(t, cfg).ready(t)
	peeks := func() (allowed string) {
		for _, key := range []string{"client", "feed", "payment", "strict", "near"} {
			req := ask(by(key, "new"))
			req.Peek = true
			if take(t, n.Node, req).Allowed {
				allowed += key + " "
			}
		}
		return allowed
	}
	charge := func() { take(t, n.Node, ask(by("client", "busy"))) } // what the store has to hear of
	const all, cut = "client feed payment strict near ", "client feed "
	if got := peeks(); got != all {
		t.Fatalf("at first %q pass", got)
	}
	redis.Kill()
	testkit.EventuallyWithin(t, 2*testkit.Patience, "the node is cut off", func() bool {
		charge()
		return peeks() == cut
	})
	if reasons := n.Degraded(); len(reasons) != 1 || !strings.Contains(reasons[0], "the regional store does not") {
		t.Errorf("degraded: %q", reasons)
	}
	redis.Restart(regionstest.Empty)
	testkit.EventuallyWithin(t, 2*testkit.Patience, "it is back", func() bool { return peeks() == all })
}

// A fail-closed payment, a fail-open feed and a page whose node decides alone, at the proxies of three nodes of a
// region: first its Redis is away, which nobody notices, then one node is cut off as well, and within 2 s of the heal
// all is as before. A slow machine has longer: the time is counted in polls that are due every 20 ms.
func TestRoutesInAnOutage(t *testing.T) {
	t.Parallel()
	redis, links := regionstest.StartRedis(t), netem.NewLinks(1)
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	start := func(id string, join ...string) *running {
		cfg := gossiping(id, "eu", join...)
		cfg.RuleSet = ruleSet("domain: test\ndescriptors:\n  - {key: client, rate_limit: {name: r, unit: hour, " +
			"requests_per_unit: 30, on_failure: closed}}\n")
		cfg.Redis.URL, cfg.Redis.MinFill = "redis://"+redis.Addr(), 0
		cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", []string{upstream.URL}
		cfg.Proxy.Routes = []proxy.Route{{Path: "/pay"}, {Path: "/feed", OnFailure: rules.FailOpen},
			{Path: "/page", OnFailure: rules.FailLocal}}
		cfg.Requests.Domain = "test"
		cfg.Requests.Descriptors = []actions.Descriptor{{{Key: "client", Source: "header X-Client"}}}
		return launch(t, through(links, id, cfg)).ready(t)
	}
	first := start("a")
	second, third := start("b", first.Addr("lan")), start("c", first.Addr("lan"))
	allMembers(t, first, second, third)
	clients := 0
	// asks sends each route as many requests of one new client, and returns how many of them are admitted.
	asks := func(n *running, times int) (admitted [3]int) {
		for i, path := range []string{"/pay", "/feed", "/page"} {
			clients++
			for range times {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+n.Addr("proxy")+path, nil)
				req.Header.Set("X-Client", strconv.Itoa(clients))
				resp, err := web.Do(req)
				testkit.Must(t, err)
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					admitted[i]++
				}
			}
		}
		return admitted
	}
	normal := [3]int{30, 30, 30}
	within := func(what string, n *running, want [3]int) {
		t.Helper()
		if got := asks(n, 35); got != want {
			t.Errorf("%s: %s admits %v of 35 payments, feeds and pages, want %v", what, n.cfg.NodeID, got, want)
		}
	}
	for _, n := range []*running{first, third} {
		within("at first", n, normal)
	}

	redis.Kill()
	for _, n := range []*running{first, third} {
		testkit.EventuallyWithin(t, 2*testkit.Patience, n.cfg.NodeID+" finds Redis away", func() bool {
			asks(n, 1)
			return n.reconciler.Stats().Breaker != regions.BreakerClosed
		})
		within("without Redis", n, normal)
	}

	links.Partition("c")
	testkit.EventuallyWithin(t, 2*testkit.Patience, "c is cut off", func() bool {
		return third.monitor.Outage(counters.Global) == rules.CutOff
	})
	admitted := asks(third, 35)
	if pay, feed, page := admitted[0], admitted[1], admitted[2]; pay != 0 || feed != 35 || page == 0 || page > 30 {
		t.Errorf("cut off, c admits %v of 35 payments, feeds and pages", admitted)
	}
	testkit.EventuallyWithin(t, 2*testkit.Patience, "a misses c", func() bool {
		return first.monitor.Outage(counters.Global) == rules.Partitioned
	})
	if got := asks(first, 35); slices.Min(got[:]) == 0 || slices.Max(got[:]) > 30 {
		t.Errorf("with most of the others, a admits %v of 35 payments, feeds and pages", got)
	}

	redis.Restart(regionstest.Empty)
	links.Heal()
	healed, poll := time.Now(), time.NewTicker(20*time.Millisecond)
	defer poll.Stop()
	whole := func(n *running) bool {
		return n.monitor.Outage(counters.Global) == rules.Whole && n.reconciler.Stats().Breaker == regions.BreakerClosed
	}
	for polls := 0; !whole(first) || !whole(third); polls++ {
		if polls > 100 {
			t.Fatalf("the nodes and their Redis are not together again %v after the heal", time.Since(healed))
		}
		<-poll.C
	}
	t.Logf("together again %v after the heal", time.Since(healed))
	for _, n := range []*running{first, third} {
		within("after the heal", n, normal)
	}
}
