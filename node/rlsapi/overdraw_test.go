package rlsapi_test

import (
	"fmt"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const tokenRules = `
domain: edge
descriptors:
  - {key: sliding, rate_limit: {name: sliding, unit: hour, requests_per_unit: 1000}}
  - {key: fixed, rate_limit: {name: fixed, unit: year, requests_per_unit: 1000, algorithm: fixed_window}}
  - {key: log, rate_limit: {name: log, unit: hour, requests_per_unit: 1000, algorithm: sliding_log}}
  - {key: bucket, rate_limit: {name: bucket, unit: year, requests_per_unit: 1000, algorithm: token_bucket}}
  - {key: each, rate_limit: {name: each, unit: hour, requests_per_unit: 1000, charge: each}}
  - {key: denying, rate_limit: {name: denying, unit: hour, requests_per_unit: 1000, overdraw: deny}}
  - {key: all, rate_limit: {name: all, unit: hour, requests_per_unit: 100000}}
  - {key: queue, rate_limit: {name: queue, unit: hour, requests_per_unit: 1000, algorithm: leaky_bucket, queue: true}}
`

// bothAPIs runs a test over gRPC and at /json.
func bothAPIs(t *testing.T, rule string, test func(t *testing.T, ask func(*rls.RateLimitRequest) string)) {
	for name, by := range map[string]func(*testing.T, *node.Node) should{"grpc": byGRPC, "json": byJSON} {
		t.Run(name, func(t *testing.T) {
			n, _ := launch(t, rule, nil)
			waitReady(t, n)
			client := by(t, n)
			test(t, func(req *rls.RateLimitRequest) string {
				resp, err := client(t.Context(), req)
				testkit.Must(t, err)
				return reported(resp)
			})
		})
	}
}

// Who peeks before a request and charges it afterwards cannot spend for ever: a charge above what is left is denied,
// and counted.
func TestAnOverdraftEndsTheSpending(t *testing.T) {
	bothAPIs(t, tokenRules, func(t *testing.T, ask func(*rls.RateLimitRequest) string) {
		for _, rule := range []string{"sliding", "fixed", "log", "bucket", "each"} {
			charge := func(n uint64) string { return ask(edge(hits(n, d(rule+"=a")))) }
			used, peeks := 900, 0
			charge(900)
			for range 20 {
				if !strings.HasPrefix(charge(0), "OK") {
					continue
				}
				peeks++
				used += 500
				charge(500)
			}
			if peeks != 1 || used != 1400 {
				t.Errorf("%s: %d of 20 peeks are OK, and %d of 1000 are used", rule, peeks, used)
			}
		}
	})
}

// The example of the documentation: a limit of 1,000 of which 100 are left, and a charge of 5,000.
func TestAnOverdraftOfMoreThanTheLimit(t *testing.T) {
	bothAPIs(t, tokenRules, func(t *testing.T, ask func(*rls.RateLimitRequest) string) {
		for _, e := range []exchange{
			{edge(hits(900, d("sliding=a"))), "OK | OK sliding 100/1000 HOUR"},
			{edge(hits(0, d("sliding=a"))), "OK | OK sliding 100/1000 HOUR"},
			{edge(hits(5000, d("sliding=a"))), "OVER_LIMIT | OVER_LIMIT sliding 0/1000 HOUR"},
			{edge(hits(0, d("sliding=a"))), "OVER_LIMIT | OVER_LIMIT sliding 0/1000 HOUR"},
			// of a key that was never charged
			{edge(hits(5000, d("sliding=b"))), "OVER_LIMIT | OVER_LIMIT sliding 0/1000 HOUR"},
			{edge(hits(0, d("sliding=b"))), "OVER_LIMIT | OVER_LIMIT sliding 0/1000 HOUR"},
			{edge(limited(1000, hour, hits(5000, d("x=a")))), "OVER_LIMIT | OVER_LIMIT override 0/1000 HOUR"},
			{edge(limited(1000, hour, hits(0, d("x=a")))), "OVER_LIMIT | OVER_LIMIT override 0/1000 HOUR"},
		} {
			if got := ask(e.req); got != e.want {
				t.Errorf("%v: %s, want %s", e.req, got, e.want)
			}
		}
	})
}

// A charge of several hits counts in all its descriptors, as in the reference server, also where one of them has no
// room.
func TestAnOverdraftCountsEverywhere(t *testing.T) {
	bothAPIs(t, tokenRules, func(t *testing.T, ask func(*rls.RateLimitRequest) string) {
		for i := range 3 {
			user := fmt.Sprintf("sliding=%d", i)
			want := fmt.Sprintf("OVER_LIMIT | OVER_LIMIT sliding 0/1000 HOUR | OK all %d/100000 HOUR",
				100000-5000*(i+1))
			if got := ask(edge(hits(5000, d(user)), hits(5000, d("all=x")))); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
}

// One hit is a request, not a charge for what is over: it is not counted where it is denied, so that who asks too
// often gets in again. Nor is what a rule says is not, or what a queue has no place for.
func TestWhatIsNoOverdraft(t *testing.T) {
	bothAPIs(t, tokenRules, func(t *testing.T, ask func(*rls.RateLimitRequest) string) {
		for _, e := range []exchange{
			{edge(hits(1000, d("sliding=a"))), "OK | OK sliding 0/1000 HOUR"},
			{edge(d("sliding=a"), hits(1, d("all=x"))),
				"OVER_LIMIT | OVER_LIMIT sliding 0/1000 HOUR | OK all 100000/100000 HOUR"},
			{edge(hits(900, d("denying=a"))), "OK | OK denying 100/1000 HOUR"},
			{edge(hits(5000, d("denying=a"))), "OVER_LIMIT | OVER_LIMIT denying 100/1000 HOUR"},
			{edge(hits(900, d("queue=a"))), "OK | OK queue 100/1000 HOUR"},
			{edge(hits(5000, d("queue=a"))), "OVER_LIMIT | OVER_LIMIT queue 100/1000 HOUR"},
		} {
			if got := ask(e.req); got != e.want {
				t.Errorf("%v: %s, want %s", e.req, got, e.want)
			}
		}
	})
}
