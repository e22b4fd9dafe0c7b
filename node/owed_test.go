package node

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The attack: answers that cost more than the limit holds, asked for as soon as one is let through, or all at once. In
// the long run they cost no more than the limit, whatever each costs.
func TestWhatResponsesCostBeyondTheLimitIsPaid(t *testing.T) {
	const window = 10 * time.Second
	for _, algorithm := range []string{"sliding_window", "fixed_window", "sliding_log", "token_bucket"} {
		for _, test := range []struct {
			cost   uint64
			atOnce int
		}{{20, 1}, {90, 60}, {200, 1}, {10_000, 1}} {
			testkit.VirtualTime(t, func(t *testing.T) {
				n := idle(t, single(fmt.Sprintf("rate_limit: {algorithm: %s, window: 10s, requests_per_unit: 100, "+
					"cost_from: header X-Cost}", algorithm)))
				user, began := by("client", "x"), time.Now()
				total, denials := uint64(0), 0
				for time.Since(began) < 3000*time.Second {
					var all []answer.Pending
					for range test.atOnce {
						req := ask(user)
						d, p := begin(t, n, &req)
						if !d.Allowed {
							if d.RetryAfter <= 0 || d.RetryAfter == counters.Never {
								t.Fatalf("%s, %d: %+v", algorithm, test.cost, d)
							}
							if len(all) == 0 {
								denials++
								time.Sleep(d.RetryAfter)
							}
							break
						}
						all = append(all, p)
					}
					for _, p := range all {
						p.End(t.Context(), &rules.Response{Status: http.StatusOK, Cost: test.cost}, nil)
						total += test.cost
					}
				}
				passed := time.Since(began)
				most := float64(100) * (passed.Seconds()/window.Seconds() + 1)
				most += float64(test.cost) * float64(test.atOnce) // the last ones are not paid for yet
				if float64(total) > most || float64(total) < most/4 || denials == 0 {
					t.Errorf("%s: %d at once of %d each: %d used in %v, want at most %.0f, and not much less",
						algorithm, test.atOnce, test.cost, total, passed, most)
				}
				if d := take(t, n, ask(by("client", "y"))); !d.Allowed {
					t.Errorf("%s: somebody else: %+v", algorithm, d)
				}
			})
		}
	}
}

// A debt is reported as a wait, and is no ban. What keeps to the limit owes nothing.
func TestADebtIsReportedAsAWait(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := idle(t, single("rate_limit: {window: 10s, requests_per_unit: 100, cost_from: header X-Cost}"))
		if !respond(t, n, rules.Response{Status: http.StatusOK, Cost: 10_000}, by("client", "x")) {
			t.Fatal("the first is denied")
		}
		d := take(t, n, ask(by("client", "x")))
		if d.Allowed || d.Banned || d.Limit != 100 || d.Remaining != 0 || d.RetryAfter < 990*time.Second ||
			d.RetryAfter > 1002*time.Second {
			t.Errorf("after 100 times the limit: %+v, want about a thousand seconds", d)
		}
		time.Sleep(d.RetryAfter)
		if d := take(t, n, ask(by("client", "x"))); !d.Allowed {
			t.Errorf("when it is paid: %+v", d)
		}
		for range 5 {
			respond(t, n, rules.Response{Status: http.StatusOK, Cost: 20}, by("client", "z"))
		}
		if d := take(t, n, ask(by("client", "z"))); d.Allowed || d.RetryAfter > 11*time.Second {
			t.Errorf("after the limit: %+v", d)
		}
	})
}

// All nodes know what is owed.
func TestDebtsEverywhere(t *testing.T) {
	t.Parallel()
	start := func(id, region string, join ...string) *running {
		cfg := gossiping(id, region, join...)
		cfg.RuleSet = ruleSet(single("rate_limit: {window: 10s, requests_per_unit: 100, cost_from: header X-Cost}"))
		return launch(t, cfg).ready(t)
	}
	first := start("a", "eu")
	second := start("b", "us", "wan:"+first.Addr("wan"))
	allMembers(t, first, second)
	if !respond(t, first.Node, rules.Response{Status: http.StatusOK, Cost: 10_000}, by("client", "x")) {
		t.Fatal("the first is denied")
	}
	testkit.Eventually(t, "the other node knows the debt", func() bool {
		d := take(t, second.Node, ask(by("client", "x")))
		return !d.Allowed && d.RetryAfter > 900*time.Second
	})
}
