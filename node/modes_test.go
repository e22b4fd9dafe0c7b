package node

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// single is a domain of one descriptor of key client.
func single(fields string) string {
	return "domain: test\ndescriptors: [{key: client, " + fields + "}]\n"
}

// tallied are the counts of a rule: allowed, denied, waived.
func tallied(n *Node, fullName string) [3]uint64 {
	for r, t := range n.policy.Load().tallies {
		if r.FullName == fullName {
			return [3]uint64{t.allowed.Load(), t.denied.Load(), t.waived.Load()}
		}
	}
	return [3]uint64{}
}

// A soft limit of 100 with 10 % admits 110, and says of the last ten that they were over.
func TestSoft(t *testing.T) {
	for _, algorithm := range []string{"sliding_window", "fixed_window", "sliding_log", "token_bucket",
		"leaky_bucket"} {
		testkit.VirtualTime(t, func(t *testing.T) {
			n := idle(t,
				single("rate_limit: {unit: hour, requests_per_unit: 100, mode: soft, soft_percent: 10, algorithm: "+
					algorithm+"}"))
			for i := uint64(1); i <= 111; i++ {
				peek := take(t, n, Request{Rule: "test/client", Identity: "x", Peek: true})
				d := take(t, n, Request{Rule: "test/client", Identity: "x"})
				if d.Allowed != (i <= 110) || d.Waived != (i > 100 && i <= 110) || d.Limit != 100 ||
					d.Remaining != 100-min(i, 100) ||
					d.Mode != counters.Soft {
					t.Fatalf("%s: request %d: %+v", algorithm, i, d)
				}
				if peek.Allowed != d.Allowed || peek.Waived != d.Waived {
					t.Fatalf("%s: a peek before request %d: %+v, and then %+v", algorithm, i, peek, d)
				}
			}
			if got := tallied(n, "test/client"); got != [3]uint64{100, 1, 10} {
				t.Errorf("%s: tallies are %v", algorithm, got)
			}
		})
	}
}

// A throttled bucket of 20 that gets 10 a second back admits 20 at once and five more with growing delays, and denies.
func TestThrottleMode(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := idle(t, single("rate_limit: {unit: second, requests_per_unit: 10, burst: 20, algorithm: token_bucket, "+
			"mode: throttle, max_delay: 500ms}"))
		for round := range 2 {
			for i := 1; i <= 26; i++ {
				peek := take(t, n, Request{Rule: "test/client", Identity: "x", Peek: true})
				d := take(t, n, Request{Rule: "test/client", Identity: "x"})
				late := time.Duration(max(0, i-20)) * 100 * time.Millisecond
				if i == 26 {
					late = 0
				}
				if d.Allowed != (i <= 25) || d.Waived != (i > 20 && i <= 25) || d.Limit != 20 ||
					d.Remaining != uint64(20-min(i, 20)) || d.Mode != counters.Throttle ||
					(d.Delay-late).Abs() > time.Millisecond {
					t.Fatalf("round %d, request %d: %+v, want a delay of %v", round, i, d, late)
				}
				if peek.Allowed != d.Allowed || peek.Waived != d.Waived {
					t.Fatalf("a peek before request %d: %+v, and then %+v", i, peek, d)
				}
			}
			time.Sleep(3 * time.Second)
		}
	})
}

// In shadow mode nothing is denied, and what would have been is counted.
func TestShadowMode(t *testing.T) {
	n := idle(t, single("shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}"))
	for i := range 5 {
		d := take(t, n, ask(by("client", "x")))
		if !d.Allowed || d.Waived != (i >= 3) || d.Mode != counters.Shadow || d.RetryAfter != 0 {
			t.Errorf("request %d: %+v", i+1, d)
		}
	}
	if got := tallied(n, "test/client"); got != [3]uint64{3, 0, 2} {
		t.Errorf("tallies are %v", got)
	}
}

func TestKillSwitch(t *testing.T) {
	cfg := quiet(layered)
	cfg.Shadow = true
	n, err := New(cfg)
	testkit.Must(t, err)
	both := ask(by("client", "x"), by("plan", "banned"))
	for range 20 {
		if d := take(t, n, both); !d.Allowed {
			t.Fatalf("denied while nothing is: %+v", d)
		}
	}
	if got := tallied(n, "test/client"); got != [3]uint64{10, 0, 10} {
		t.Errorf("tallies are %v", got)
	}
	n.Shadow(false)
	if d := take(t, n, ask(by("client", "x"))); d.Allowed {
		t.Errorf("what was counted meanwhile counts: %+v", d)
	}
	n.Shadow(true)
	if d := take(t, n, ask(by("client", "x"))); !d.Allowed || !d.Waived {
		t.Errorf("after it was switched on: %+v", d)
	}
}

// A request is over its quotas only if all that it meets are full.
func TestQuotas(t *testing.T) {
	n := idle(t, `
domain: test
descriptors:
  - {key: a, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: b, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: c, rate_limit: {unit: hour, requests_per_unit: 4}}
`)
	all := ask(by("a", "x"), by("b", "x"), by("c", "x"))
	for i, want := range []string{"aaa", "waa", "dda"} {
		layers, err := n.Decide(t.Context(), &all, nil)
		testkit.Must(t, err)
		if got := letters(layers); got != want {
			t.Errorf("request %d: %s, want %s", i+1, got, want)
		}
	}
	if got := spent(t, n, "test/c", "x"); got != 2 {
		t.Errorf("%d requests were charged, want the two that passed", got)
	}
	if d := take(t, n, ask(by("a", "x"))); d.Allowed {
		t.Errorf("a quota alone: %+v", d)
	}
}

// letters writes decisions as one letter each: allowed, denied, waived.
func letters(layers []Decision) string {
	text := ""
	for _, d := range layers {
		switch {
		case d.Waived && d.Allowed:
			text += "w"
		case d.Allowed:
			text += "a"
		default:
			text += "d"
		}
	}
	return text
}

// charge: each counts what the rule admits, also when another layer denies the request.
func TestChargeEach(t *testing.T) {
	n := idle(t, `
domain: test
descriptors:
  - {key: all, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: each, rate_limit: {unit: hour, requests_per_unit: 10, charge: each}}
  - {key: full, rate_limit: {unit: hour, requests_per_unit: 1}}
`)
	req := ask(by("all", "x"), by("each", "x"), by("full", "x"))
	for range 3 {
		take(t, n, req)
	}
	for rule, want := range map[string]uint64{"test/all": 1, "test/each": 3, "test/full": 1} {
		if got := spent(t, n, rule, "x"); got != want {
			t.Errorf("%s counts %d, want %d", rule, got, want)
		}
	}
	if got := tallied(n, "test/each"); got != [3]uint64{3, 0, 0} {
		t.Errorf("tallies are %v", got)
	}
}

func TestCost(t *testing.T) {
	n := idle(t, single("rate_limit: {unit: hour, requests_per_unit: 10, cost: 4}"))
	by := func(cost uint64, peek bool) Request {
		return Request{Rule: "test/client", Identity: "x", Cost: cost, Peek: peek}
	}
	if d := take(t, n, by(3, false)); d.Allowed || d.RetryAfter != counters.Never {
		t.Errorf("12 of 10: %+v", d)
	}
	for _, remaining := range []uint64{6, 2} {
		if d := take(t, n, by(0, true)); !d.Allowed {
			t.Errorf("a peek at what would pass: %+v", d)
		}
		if d := take(t, n, by(0, false)); !d.Allowed || d.Remaining != remaining {
			t.Errorf("%+v, want %d left", d, remaining)
		}
	}
	if d := take(t, n, by(0, true)); d.Allowed || d.RetryAfter <= 0 || d.Remaining != 2 {
		t.Errorf("a peek at what would not pass: %+v", d)
	}
	if d := take(t, n, by(1, false)); d.Allowed || d.Remaining != 2 {
		t.Errorf("4 where 2 are left: %+v", d)
	}
	if d := take(t, n, by(counters.MaxLimit, false)); d.Allowed {
		t.Errorf("the largest cost of all: %+v", d)
	}
	if got := tallied(n, "test/client"); got != [3]uint64{2, 3, 0} {
		t.Errorf("tallies are %v", got)
	}
}

func TestAddressLists(t *testing.T) {
	n := idle(t, `
domain: test
descriptors:
  - {key: remote_address, allow: [10.0.0.0/8], deny: [10.9.0.0/16, "2001:db8::/32"],
      rate_limit: {name: per_ip, unit: hour, requests_per_unit: 1}}
  - {key: path, rate_limit: {unit: hour, requests_per_unit: 100}}
`)
	for range 3 {
		if d := take(t, n, ask(by("remote_address", "10.1.1.1"))); d != (Decision{Allowed: true}) {
			t.Errorf("an address of the allow list: %+v", d)
		}
	}
	for _, address := range []string{"10.9.1.1", "2001:db8::1"} {
		d := take(t, n, ask(by("remote_address", address), by("path", "/")))
		if d.Allowed || d.Rule != "per_ip" || d.RetryAfter != counters.Never || d.Limit != 0 {
			t.Errorf("an address of the deny list: %+v", d)
		}
	}
	if got := spent(t, n, "test/path", "/"); got != 0 {
		t.Errorf("%d denied requests were charged elsewhere", got)
	}
	for _, want := range []bool{true, false} {
		if d := take(t, n, ask(by("remote_address", "192.0.2.1"))); d.Allowed != want || d.Limit != 1 {
			t.Errorf("an address of no list: %+v", d)
		}
	}
	if got := tallied(n, "test/remote_address"); got != [3]uint64{4, 3, 0} {
		t.Errorf("tallies are %v", got)
	}
}

func TestReplacedRulesAreNotCharged(t *testing.T) {
	n := idle(t, `
domain: test
descriptors:
  - {key: general, rate_limit: {name: general, unit: hour, requests_per_unit: 1}}
  - {key: special, rate_limit: {unit: hour, requests_per_unit: 3, replaces: [{name: general}]}}
`)
	for i := range 4 {
		if d := take(t, n, ask(by("general", "x"), by("special", "x"))); d.Allowed != (i < 3) ||
			d.Rule != "test/special" {
			t.Errorf("request %d: %+v", i+1, d)
		}
	}
	if got := spent(t, n, "general", "x"); got != 0 {
		t.Errorf("the replaced rule counts %d", got)
	}
}

func TestRulesOfOtherRegionsAreNotInForce(t *testing.T) {
	n := idle(t, `
domain: test
descriptors:
  - {key: client, regions: [there], rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: other, regions: [here], rate_limit: {unit: hour, requests_per_unit: 0}}
`)
	if d := take(t, n, ask(by("client", "x"))); d != (Decision{Allowed: true}) {
		t.Errorf("a rule of another region: %+v", d)
	}
	if d := take(t, n, ask(by("other", "x"))); d.Allowed {
		t.Errorf("a rule of this region: %+v", d)
	}
}

// A window without requests is followed by another: under a limit of 0 no answer may look like "now", at any API and
// under any algorithm. There is no Retry-After, as no wait helps.
func TestALimitOf0ResetsAfterItsWindow(t *testing.T) {
	for _, algorithm := range []string{
		"sliding_window", "fixed_window", "sliding_log", "token_bucket", "leaky_bucket",
	} {
		n := launch(t, withListeners(quiet(single("rate_limit: {unit: minute, requests_per_unit: 0, algorithm: "+
			algorithm+"}")))).ready(t)
		d := take(t, n.Node, Request{Rule: "test/client", Identity: "x"})
		if d.Allowed || d.RetryAfter != counters.Never || d.ResetAfter != time.Minute {
			t.Errorf("%s: %+v", algorithm, d)
		}
		status, body := post(t, n.Addr("http"), "/v1/check", `{"rule":"test/client","identity":"x"}`)
		if !strings.Contains(body, `"reset_after_ms":60000,"retry_after_ms":-1`) {
			t.Errorf("%s: %d %s", algorithm, status, body)
		}
		resp, err := http.Post("http://"+n.Addr("http")+"/v1/check?status=1", "application/json",
			strings.NewReader(`{"rule":"test/client","identity":"x"}`))
		testkit.Must(t, err)
		resp.Body.Close()
		if h := resp.Header; h.Get("Retry-After") != "" || h.Get("X-Ratelimit-Reset") != "60" ||
			!strings.HasSuffix(h.Get("Ratelimit"), ";r=0;t=60") {
			t.Errorf("%s: %v", algorithm, h)
		}
	}
}

// The limit changes with the hour, and the counts stay.
func TestScheduledLimit(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) { // its clock begins at midnight
		n := idle(t,
			single(`rate_limit: {unit: day, requests_per_unit: 10, algorithm: fixed_window}, schedule: [{from: `+
				`"01:00", to: "02:00", requests_per_unit: 3}]`))
		for step, want := range []string{"4 of 10", "3 of 3", "5 of 10"} {
			allowed := takeSome(t, n, "test/client", "x", 1)
			d := take(t, n, Request{Rule: "test/client", Identity: "x", Peek: true})
			if step == 0 {
				takeSome(t, n, "test/client", "x", 3)
				d = take(t, n, Request{Rule: "test/client", Identity: "x", Peek: true})
			}
			if got := fmt.Sprintf("%d of %d", d.Limit-d.Remaining, d.Limit); got != want ||
				(allowed == 1) != (step != 1) {
				t.Errorf("step %d: %s, want %s; %d allowed", step, got, want, allowed)
			}
			if limit := n.limitsAt(time.Now())["test/client"]; limit.Max() != d.Limit {
				t.Errorf("step %d: the audit knows a limit of %d", step, limit.Max())
			}
			time.Sleep(time.Hour)
		}
	})
}

// The flat form is met by rule and identity, through /limiter/check too.
func TestFlatRulesAreServed(t *testing.T) {
	n := launch(t,
		withListeners(quiet("- {rule_id: login, limit: 2, window_seconds: 3600}\n- {rule_id: closed, limit: 0, "+
			"window_seconds: 1}\n"))).ready(t)
	for i := range 3 {
		status, body := post(t, n.Addr("http"), "/limiter/check", `{"rule_id":"login","identity":"joe"}`)
		if want := map[bool]int{true: 200, false: 429}[i < 2]; status != want ||
			!strings.Contains(body, fmt.Sprintf(`"remaining":%d`, max(1-i, 0))) {
			t.Errorf("request %d: %d %s", i+1, status, body)
		}
	}
	if status, body := post(t, n.Addr("http"), "/limiter/check",
		`{"rule_id":"closed","identity":"joe"}`); status != 429 ||
		!strings.Contains(body, "admits nothing here") {
		t.Errorf("a limit of 0: %d %s", status, body)
	}
	if status, body := post(t, n.Addr("http"), "/v1/check", `{"rule":"login","identity":"jim"}`); status != 200 ||
		!strings.Contains(body, `"mode":"enforce"`) {
		t.Errorf("%d %s", status, body)
	}
}

// Whatever modes rules have, a decision allocates nothing.
func TestDecideWithPoliciesDoesNotAllocate(t *testing.T) {
	n := idle(t, `
domain: test
descriptors:
  - key: remote_address
    allow: [10.0.0.0/8]
    deny: ["2001:db8::/32"]
    rate_limit: {name: per_ip, unit: hour, requests_per_unit: 1000000, mode: soft, soft_percent: 10, cost: 2}
    schedule: [{from: "01:00", to: "13:00", tz: Europe/Paris, requests_per_unit: 2000000}]
  - {key: path, value: /a/*, shadow_mode: true,
      rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{name: general}]}}
  - {key: general, quota_mode: true, rate_limit: {name: general, unit: hour, requests_per_unit: 1}}
`)
	var room [4]Decision
	for _, address := range []string{"192.0.2.1", "10.1.1.1", "2001:db8::1", "2001:db9::1"} {
		req := ask(by("remote_address", address), by("path", "/a/b"), by("general", "x"))
		decide := func() {
			if _, err := n.Decide(t.Context(), &req, room[:0]); err != nil {
				t.Fatal(err)
			}
		}
		decide()
		if allocs := testing.AllocsPerRun(500, decide); allocs != 0 {
			t.Errorf("a decision on %s allocates %v times", address, allocs)
		}
	}
}

func TestRuleOptions(t *testing.T) {
	for setting, change := range map[string]func(*Config){
		"default algorithm": func(c *Config) { c.DefaultAlgorithm = "guess" },
		"IPv6 prefix":       func(c *Config) { c.IPv6Prefix = 129 },
	} {
		cfg := quiet("")
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), setting) {
			t.Errorf("%s: %v", setting, err)
		}
	}
	cfg := quiet("")
	cfg.DefaultAlgorithm, cfg.MergeDomains = "fixed_window", true
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": single("rate_limit: {unit: day, requests_per_unit: 1}"),
		"b.yaml": "domain: test\n"} {
		writeFile(t, dir+"/"+name, text)
	}
	cfg.Rules = []string{dir}
	n, err := New(cfg)
	testkit.Must(t, err)
	for _, l := range maps.All(*n.limits.Load()) {
		if l.Meter().Algorithm != counters.FixedWindow {
			t.Errorf("counted by %v", l.Meter().Algorithm)
		}
	}
}
