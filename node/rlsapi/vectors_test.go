package rlsapi_test

import (
	"math"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// vectorRules has rules of all kinds that the protocol shows. Windows are long, so that no request of a test leaves
// one.
const vectorRules = `
domain: edge
descriptors:
  - {key: client, rate_limit: {name: per_client, unit: hour, requests_per_unit: 3}}
  - {key: other, rate_limit: {name: per_other, unit: hour, requests_per_unit: 3}}
  - {key: second, rate_limit: {name: s, unit: second, requests_per_unit: 1000}}
  - {key: minute, rate_limit: {name: m, unit: minute, requests_per_unit: 1000}}
  - {key: hour, rate_limit: {name: h, unit: hour, requests_per_unit: 1000}}
  - {key: day, rate_limit: {name: d, unit: day, requests_per_unit: 1000}}
  - {key: week, rate_limit: {name: w, unit: week, requests_per_unit: 1000}}
  - {key: month, rate_limit: {name: mo, unit: month, requests_per_unit: 1000}}
  - {key: year, rate_limit: {name: y, unit: year, requests_per_unit: 1000}}
  - {key: ninety, rate_limit: {name: n, window: 90m, requests_per_unit: 1000}}
  - {key: sixty, rate_limit: {name: sixty_minutes, window: 60m, requests_per_unit: 1000}}
  - {key: huge, rate_limit: {name: huge, unit: day, requests_per_unit: 1000000000000}}
  - {key: unnamed, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: plan, value: partner, rate_limit: {name: partner, unlimited: true}}
  - {key: plan, value: closed, rate_limit: {name: closed, unit: hour, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {name: watched, unit: hour, requests_per_unit: 1}}
  - {key: left, quota_mode: true, rate_limit: {name: left, unit: hour, requests_per_unit: 1}}
  - {key: right, quota_mode: true, rate_limit: {name: right, unit: hour, requests_per_unit: 2}}
  - {key: soft, rate_limit: {name: soft, unit: hour, requests_per_unit: 2, mode: soft, soft_percent: 50}}
  - {key: queue, rate_limit: {name: queue, unit: hour, requests_per_unit: 2, algorithm: leaky_bucket, queue: true}}
  - {key: bucket, rate_limit: {name: bucket, unit: day, requests_per_unit: 24, burst: 2, algorithm: token_bucket}}
  - {key: fixed, rate_limit: {name: fixed, unit: year, requests_per_unit: 2, algorithm: fixed_window}}
  - {key: each, rate_limit: {name: each, unit: hour, requests_per_unit: 3, charge: each}}
  - {key: dear, rate_limit: {name: dear, unit: hour, requests_per_unit: 10, cost: 4}}
  - {key: banned, rate_limit: {name: banned, unit: hour, requests_per_unit: 1, ban: 1h}}
  - {key: general, rate_limit: {name: general, unit: hour, requests_per_unit: 1}}
  - {key: special, rate_limit: {name: special, unit: hour, requests_per_unit: 5, replaces: [{name: general}]}}
  - {key: address, allow: [10.0.0.0/8], deny: [192.0.2.0/24],
      rate_limit: {name: by_address, unit: hour, requests_per_unit: 3}}
  - {key: files, value: /files/*, share_threshold: true, rate_limit: {name: files, unit: hour, requests_per_unit: 2}}
  - key: path
    value: /login
    rate_limit: {name: path, unit: hour, requests_per_unit: 5}
    descriptors: [{key: client, rate_limit: {name: login, unit: hour, requests_per_unit: 1}}]
  - key: tenant
    rate_limit: {name: tenant, unit: hour, requests_per_unit: 3}
    descriptors: [{key: user, rate_limit: {name: user, unit: hour, requests_per_unit: 1, mode: elastic,
        parent: tenant}}]
`

// exchange is one request and what it is told: a response in short, or the code of an error.
type exchange struct {
	req  *rls.RateLimitRequest
	want string
}

// times is the same exchange several times.
func times(n int, e exchange) []exchange {
	all := make([]exchange, n)
	for i := range all {
		all[i] = e
	}
	return all
}

const (
	second  = envoytype.RateLimitUnit_SECOND
	minute  = envoytype.RateLimitUnit_MINUTE
	hour    = envoytype.RateLimitUnit_HOUR
	refused = "InvalidArgument"
)

// vectors are exchanges by what they show. Each counts under keys of its own.
var vectors = map[string][]exchange{
	"a limit is used up": {
		{edge(d("client=a")), "OK | OK per_client 2/3 HOUR"},
		{edge(d("client=a")), "OK | OK per_client 1/3 HOUR"},
		{edge(d("client=a")), "OK | OK per_client 0/3 HOUR"},
		{edge(d("client=a")), "OVER_LIMIT | OVER_LIMIT per_client 0/3 HOUR"},
		{edge(d("client=b")), "OK | OK per_client 2/3 HOUR"},
	},
	"nothing is met": {
		{edge(d("nobody=x")), "OK | OK"},
		{edge(d("client=nm", "deeper=x")), "OK | OK"},
		{edge(d("plan=unheard of")), "OK | OK"},
		{request("elsewhere", 0, d("client=nm")), "OK | OK"},
		{request("elsewhere", 7, d("client=nm"), d("x=y")), "OK | OK | OK"},
		{edge(d("path=/login", "other=x")), "OK | OK"},
		{edge(d("client=nm")), "OK | OK per_client 2/3 HOUR"}, // nothing was charged
	},
	"a rule without a limit": times(3, exchange{edge(d("plan=partner")), "OK | OK unlimited"}),
	"a limit of nothing": {
		{edge(d("plan=closed")), "OVER_LIMIT | OVER_LIMIT closed 0/0 HOUR"},
		{edge(d("plan=closed"), d("plan=partner")), "OVER_LIMIT | OVER_LIMIT closed 0/0 HOUR | OK unlimited"},
	},
	"units": {
		{edge(d("second=a")), "OK | OK s 999/1000 SECOND"},
		{edge(d("minute=a")), "OK | OK m 999/1000 MINUTE"},
		{edge(d("hour=a")), "OK | OK h 999/1000 HOUR"},
		{edge(d("day=a")), "OK | OK d 999/1000 DAY"},
		{edge(d("week=a")), "OK | OK w 999/1000 WEEK"},
		{edge(d("month=a")), "OK | OK mo 999/1000 MONTH"},
		{edge(d("year=a")), "OK | OK y 999/1000 YEAR"},
		{edge(d("ninety=a")), "OK | OK n 999/1000 UNKNOWN"},
		{edge(d("sixty=a")), "OK | OK sixty_minutes 999/1000 HOUR"},
	},
	"more than the protocol has room for": {
		{edge(d("huge=a")), "OK | OK huge 4294967295/4294967295 DAY"},
		{edge(hits(999_999_999_998, d("huge=a"))), "OK | OK huge 1/4294967295 DAY"},
		{edge(hits(1_000_000_000_000, d("huge=a"))), "OVER_LIMIT | OVER_LIMIT huge 0/4294967295 DAY"},
	},
	"a rule without a name": {{edge(d("unnamed=a")), "OK | OK edge/unnamed 2/3 HOUR"}},
	"hits": {
		{request("edge", 2, d("client=hits")), "OK | OK per_client 1/3 HOUR"},
		{request("edge", 1, d("client=hits")), "OK | OK per_client 0/3 HOUR"},
		{request("edge", 1, d("client=hits")), "OVER_LIMIT | OVER_LIMIT per_client 0/3 HOUR"},
		{request("edge", 2, d("client=hits1")), "OK | OK per_client 1/3 HOUR"},
		{request("edge", 2, d("client=hits1")), "OVER_LIMIT | OVER_LIMIT per_client 0/3 HOUR"}, // is denied, and counts
		{request("edge", 1, d("client=hits1")), "OVER_LIMIT | OVER_LIMIT per_client 0/3 HOUR"},
		{request("edge", 4, d("client=hits2")), "OVER_LIMIT | OVER_LIMIT per_client 0/3 HOUR"},
		{request("edge", math.MaxUint32, d("client=hits2")), "OVER_LIMIT | OVER_LIMIT per_client 0/3 HOUR"},
	},
	"hits of each descriptor": {
		{request("edge", 1, hits(2, d("client=own")), d("other=own")),
			"OK | OK per_client 1/3 HOUR | OK per_other 2/3 HOUR"},
		{request("edge", 2, hits(1, d("client=own")), d("other=own")),
			"OK | OK per_client 0/3 HOUR | OK per_other 0/3 HOUR"},
		{edge(hits(3, d("other=own2")), hits(1, d("other=own3"))),
			"OK | OK per_other 0/3 HOUR | OK per_other 2/3 HOUR"},
		{edge(hits(4, d("other=own4"))), "OVER_LIMIT | OVER_LIMIT per_other 0/3 HOUR"},
	},
	"a peek": {
		{edge(hits(0, d("client=peek"))), "OK | OK per_client 3/3 HOUR"},
		{edge(hits(0, d("client=peek"))), "OK | OK per_client 3/3 HOUR"},
		{edge(hits(0, d("client=peek")), d("other=peek")), "OK | OK per_client 3/3 HOUR | OK per_other 2/3 HOUR"},
		{edge(hits(3, d("client=peek"))), "OK | OK per_client 0/3 HOUR"},
		{edge(hits(0, d("client=peek"))), "OVER_LIMIT | OVER_LIMIT per_client 0/3 HOUR"},
		{edge(hits(0, d("client=peek")), d("other=peek")),
			"OVER_LIMIT | OVER_LIMIT per_client 0/3 HOUR | OK per_other 2/3 HOUR"},
		{edge(hits(0, d("plan=partner")), hits(0, d("nobody=x"))), "OK | OK unlimited | OK"},
	},
	"several descriptors": {
		{edge(d("client=s"), d("other=s")), "OK | OK per_client 2/3 HOUR | OK per_other 2/3 HOUR"},
		{edge(d("other=s"), d("client=s")), "OK | OK per_other 1/3 HOUR | OK per_client 1/3 HOUR"},
		{edge(d("nobody=s"), d("client=s"), d("plan=partner")), "OK | OK | OK per_client 0/3 HOUR | OK unlimited"},
		// All or nothing: what is denied costs the other nothing.
		{edge(d("client=s"), d("other=s")), "OVER_LIMIT | OVER_LIMIT per_client 0/3 HOUR | OK per_other 1/3 HOUR"},
		{edge(d("other=s")), "OK | OK per_other 0/3 HOUR"},
		{edge(d("client=twice"), d("client=twice")), "OK | OK per_client 2/3 HOUR | OK per_client 1/3 HOUR"},
	},
	"charge: each": {
		{edge(d("plan=closed"), d("each=a")), "OVER_LIMIT | OVER_LIMIT closed 0/0 HOUR | OK each 2/3 HOUR"},
		{edge(d("each=a")), "OK | OK each 1/3 HOUR"},
	},
	"the rule's cost": {
		{edge(d("dear=a")), "OK | OK dear 6/10 HOUR"},
		{edge(hits(1, d("dear=a"))), "OK | OK dear 2/10 HOUR"},
		{edge(hits(1, d("dear=a"))), "OVER_LIMIT | OVER_LIMIT dear 2/10 HOUR"}, // one hit does not count
		{edge(hits(0, d("dear=a"))), "OVER_LIMIT | OVER_LIMIT dear 2/10 HOUR"},
		{request("edge", 2, d("dear=a")), "OVER_LIMIT | OVER_LIMIT dear 0/10 HOUR"},
	},
	"shadow mode": {
		{edge(d("shadow=a")), "OK | OK watched 0/1 HOUR"},
		{edge(d("shadow=a")), "OK | OK watched 0/1 HOUR"},
		{edge(d("shadow=a"), d("client=shadow")), "OK | OK watched 0/1 HOUR | OK per_client 2/3 HOUR"},
		{edge(d("shadow=a"), d("plan=closed")), "OVER_LIMIT | OK watched 0/1 HOUR | OVER_LIMIT closed 0/0 HOUR"},
	},
	"quotas": {
		{edge(d("left=a"), d("right=a")), "OK | OK left 0/1 HOUR | OK right 1/2 HOUR"},
		{edge(d("left=a"), d("right=a")), "OK | OVER_LIMIT left 0/1 HOUR | OK right 0/2 HOUR"},
		{edge(d("left=a"), d("right=a")), "OVER_LIMIT | OVER_LIMIT left 0/1 HOUR | OVER_LIMIT right 0/2 HOUR"},
		{edge(d("left=a"), d("client=quota")), "OVER_LIMIT | OVER_LIMIT left 0/1 HOUR | OK per_client 3/3 HOUR"},
		{edge(d("left=a"), d("right=b"), d("client=quota")),
			"OK | OVER_LIMIT left 0/1 HOUR | OK right 1/2 HOUR | OK per_client 2/3 HOUR"},
	},
	"soft": {
		{edge(d("soft=a")), "OK | OK soft 1/2 HOUR"},
		{edge(d("soft=a")), "OK | OK soft 0/2 HOUR"},
		{edge(d("soft=a")), "OK | OK soft 0/2 HOUR"},
		{edge(d("soft=a")), "OVER_LIMIT | OVER_LIMIT soft 0/2 HOUR"},
	},
	"elastic": {
		{edge(d("tenant=a", "user=x")), "OK | OK user 0/1 HOUR"},
		{edge(d("tenant=a", "user=x")), "OK | OK user 0/1 HOUR"}, // a loan
		{edge(d("tenant=a")), "OK | OK tenant 0/3 HOUR"},
		{edge(d("tenant=a", "user=x")), "OVER_LIMIT | OVER_LIMIT user 0/1 HOUR"},
		{edge(d("tenant=a", "user=y"), d("tenant=a")), "OK | OK user 0/1 HOUR | OK tenant 0/3 HOUR"}, // is promised
		{edge(hits(3, d("tenant=b", "user=x")), hits(1, d("tenant=b"))), "OK | OK user 1/1 HOUR | OK tenant 0/3 HOUR"},
		{edge(hits(2, d("tenant=c", "user=x")), hits(0, d("tenant=c"))), "OK | OK user 1/1 HOUR | OK tenant 1/3 HOUR"},
	},
	"a queue": {
		{edge(d("queue=a")), "OK | OK queue 1/2 HOUR"},
		{edge(d("queue=a")), "OK | OK queue 0/2 HOUR"},
		{edge(d("queue=a")), "OVER_LIMIT | OVER_LIMIT queue 0/2 HOUR"},
	},
	"a bucket": { // the unit is that in which it comes back from all that it holds
		{edge(d("bucket=a")), "OK | OK bucket 1/2 UNKNOWN"},
		{edge(d("bucket=a")), "OK | OK bucket 0/2 UNKNOWN"},
		{edge(d("bucket=a")), "OVER_LIMIT | OVER_LIMIT bucket 0/2 UNKNOWN"},
	},
	"a fixed window": {
		{edge(d("fixed=a")), "OK | OK fixed 1/2 YEAR"},
		{request("edge", 2, d("fixed=a")), "OVER_LIMIT | OVER_LIMIT fixed 0/2 YEAR"},
	},
	"a ban": {
		{edge(d("banned=a")), "OK | OK banned 0/1 HOUR"},
		{edge(d("banned=a")), "OVER_LIMIT | OVER_LIMIT banned 0/1 HOUR"},
		{edge(d("banned=a"), d("client=banned")), "OVER_LIMIT | OVER_LIMIT banned 0/1 HOUR | OK per_client 3/3 HOUR"},
	},
	"replaces": {
		{edge(d("general=a"), d("special=a")), "OK | OK | OK special 4/5 HOUR"},
		{edge(d("general=a")), "OK | OK general 0/1 HOUR"},
		{edge(d("general=a"), d("special=a")), "OK | OK | OK special 3/5 HOUR"},
		{edge(d("general=a")), "OVER_LIMIT | OVER_LIMIT general 0/1 HOUR"},
	},
	"lists": {
		{edge(d("address=10.1.2.3")), "OK | OK unlimited"},
		{edge(d("address=192.0.2.7")), "OVER_LIMIT | OVER_LIMIT by_address 0/0 HOUR"},
		{edge(d("address=198.51.100.7")), "OK | OK by_address 2/3 HOUR"},
	},
	"wildcards and depth": {
		{edge(d("files=/files/a")), "OK | OK files 1/2 HOUR"},
		{edge(d("files=/files/b")), "OK | OK files 0/2 HOUR"},
		{edge(d("path=/login", "client=deep")), "OK | OK login 0/1 HOUR"},
		{edge(d("path=/login")), "OK | OK path 4/5 HOUR"},
		{edge(d("client=deep", "path=/login")), "OK | OK"},
	},
	"a limit that the request brings": {
		{edge(limited(2, hour, d("client=o"))), "OK | OK override 1/2 HOUR"},
		{edge(limited(2, hour, d("client=o"))), "OK | OK override 0/2 HOUR"},
		{edge(limited(2, hour, d("client=o"))), "OVER_LIMIT | OVER_LIMIT override 0/2 HOUR"},
		{edge(d("client=o")), "OK | OK per_client 2/3 HOUR"},                       // the rule's count is another
		{edge(limited(2, hour, d("client=p"))), "OK | OK override 1/2 HOUR"},       // and so is another descriptor's
		{edge(limited(9, hour, d("client=o"))), "OK | OK override 8/9 HOUR"},       // and another limit's
		{edge(limited(2, hour, d("nobody=o"))), "OK | OK override 1/2 HOUR"},       // where no rule is met
		{edge(limited(2, hour, d("client=o", "x="))), "OK | OK override 1/2 HOUR"}, // entries are told apart
		{edge(limited(2, hour, d("client=", "ox="))), "OK | OK override 1/2 HOUR"},
		{request("elsewhere", 0, limited(1, hour, d("client=o"))), "OK | OK"}, // in a domain that is not known
		{edge(limited(0, hour, d("client=o"))), "OVER_LIMIT | OVER_LIMIT override 0/0 HOUR"},
		{edge(limited(math.MaxUint32, second, d("client=o"))), "OK | OK override 4294967294/4294967295 SECOND"},
		{edge(limited(5, minute, d("plan=closed"))), "OK | OK override 4/5 MINUTE"},
		{edge(limited(5, 7, d("client=o"))), "OK | OK override 4/5 WEEK"},
		{edge(limited(5, envoytype.RateLimitUnit_DAY, d("client=o"))), "OK | OK override 4/5 DAY"},
		{edge(limited(5, envoytype.RateLimitUnit_MONTH, d("client=o"))), "OK | OK override 4/5 MONTH"},
		{edge(limited(5, envoytype.RateLimitUnit_YEAR, d("client=o"))), "OK | OK override 4/5 YEAR"},
		{edge(every(90, limited(5, minute, d("client=o")))), "OK | OK override 4/5 UNKNOWN"},
		{edge(every(60, limited(5, minute, d("client=o60")))), "OK | OK override 4/5 HOUR"},
		{edge(hits(2, limited(5, hour, d("client=o2")))), "OK | OK override 3/5 HOUR"},
		{edge(hits(0, limited(5, hour, d("client=o2")))), "OK | OK override 3/5 HOUR"},
		{edge(limited(1, hour, d("client=mixed")), d("client=mixed")),
			"OK | OK override 0/1 HOUR | OK per_client 2/3 HOUR"},
		{edge(limited(1, hour, d("client=mixed")), d("client=mixed")),
			"OVER_LIMIT | OVER_LIMIT override 0/1 HOUR | OK per_client 2/3 HOUR"},
		{edge(limited(5, hour, d("shadow=o")), d("shadow=o")), "OK | OK override 4/5 HOUR | OK watched 0/1 HOUR"},
	},
	"what makes no sense": {
		{new(rls.RateLimitRequest), refused},
		{request("", 0, d("client=a")), refused},
		{request("edge", 0), refused},
		{edge(d()), refused},
		{edge(d("client=a"), d()), refused},
		{edge(d("=a")), refused},
		{edge(many(33)...), refused},
		{edge(d(strings.Split(strings.Repeat("k=v,", 33)[:33*4-1], ",")...)), refused},
		{edge(&common.RateLimitDescriptor{Entries: d("client=neg").Entries, IsNegativeHits: true}), refused},
		{edge(hits(1<<40+1, d("client=neg"))), refused},
		{edge(hits(math.MaxUint64, d("client=neg"))), refused},
		{edge(limited(5, envoytype.RateLimitUnit_UNKNOWN, d("client=neg"))), refused},
		{edge(limited(5, 99, d("client=neg"))), refused},
		{edge(every(0, limited(5, hour, d("client=neg")))), refused},
		{edge(every(2, limited(5, envoytype.RateLimitUnit_YEAR, d("client=neg")))), refused},
		{edge(every(math.MaxUint32, limited(5, second, d("client=neg")))), refused},
		{edge(d("client=neg")), "OK | OK per_client 2/3 HOUR"}, // nothing was charged
	},
	"as many descriptors as there may be": {{edge(many(32)...), "OK" + strings.Repeat(" | OK", 32)}},
}

func many(n int) (all []*common.RateLimitDescriptor) {
	for range n {
		all = append(all, d("nobody=x"))
	}
	return all
}

// Both APIs answer the same.
func TestVectors(t *testing.T) {
	count := 0
	for _, exchanges := range vectors {
		count += len(exchanges)
	}
	if count < 60 {
		t.Fatalf("there are %d vectors", count)
	}
	t.Run("grpc", func(t *testing.T) {
		n, _ := launch(t, vectorRules, nil)
		tryVectors(t, byGRPC(t, n), func(err error) bool { return status.Code(err) == codes.InvalidArgument })
	})
	t.Run("json", func(t *testing.T) {
		n, _ := launch(t, vectorRules, nil)
		waitReady(t, n)
		tryVectors(t, byJSON(t, n), func(err error) bool { return strings.HasPrefix(err.Error(), "400: ") })
	})
}

func tryVectors(t *testing.T, ask should, isInvalid func(error) bool) {
	for what, exchanges := range vectors {
		for i, e := range exchanges {
			resp, err := ask(t.Context(), e.req)
			switch {
			case e.want == refused && (err == nil || !isInvalid(err)):
				t.Errorf("%s: %d: %v, %v", what, i+1, resp, err)
			case e.want == refused:
			case err != nil:
				t.Errorf("%s: %d: %v", what, i+1, err)
			default:
				sound(t, e.req, resp)
				if got := reported(resp); got != e.want {
					t.Errorf("%s: %d\ngot  %s\nwant %s", what, i+1, got, e.want)
				}
			}
		}
	}
}
