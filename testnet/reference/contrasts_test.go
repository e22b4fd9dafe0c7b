package reference

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// contrast is something that edgelimit does otherwise where it is not asked to be compatible, and exchanges that show
// it in the last answer.
type contrast struct {
	what, theirs, ours string // as the page says it
	ask                func(*script)
	field              string // of the answer to the last exchange
	isTheirs, isOurs   func(value string) bool
}

// is, absent and present are what the value of a field is.
func is(want string) func(string) bool { return func(value string) bool { return value == want } }

var (
	absent  = is("")
	present = func(value string) bool { return value != "" }
)

var contrasts = []contrast{
	{
		"windows", "fixed: the whole limit is there again as soon as the next one begins",
		"sliding, unless `default_algorithm: fixed_window`",
		func(s *script) {
			s.later(time.Second, d("unit=second"))
			s.times(3, d("unit=second"))
			s.later(time.Second, hits(0, d("unit=second")))
		},
		"statuses[0].limit_remaining", is("3"), func(value string) bool { return value != "3" },
	},
	{
		"`duration_until_reset`", "whole seconds until the window ends", "until the whole limit is available again",
		func(s *script) { s.ask(d("client=c1")) },
		"statuses[0].duration_until_reset.nanos", absent, present,
	},
	{
		"a request that one descriptor denies", "is charged to the others, and goes on counting where it was denied",
		"of one hit: is charged nowhere; `charge: each` and `count_rejected` in a rule. Of several hits: as there " +
			"([below](#charges-after-the-fact))",
		func(s *script) {
			s.times(5, d("client=c2"))
			s.ask(d("client=c2"), d("large=c2"))
			s.ask(hits(0, d("large=c2")))
		},
		"statuses[0].limit_remaining", is("999"), is("1000"),
	},
	{
		"a peek (`hits_addend` 0 of a descriptor) of a limit that is just used up", "OK",
		"OVER_LIMIT: the next request would be denied",
		func(s *script) {
			s.times(5, d("client=c3"))
			s.ask(hits(0, d("client=c3")))
		},
		"overall_code", is("OK"), is("OVER_LIMIT"),
	},
	{
		"`is_negative_hits`", "ignored: the hits are charged",
		"INVALID_ARGUMENT: nothing that was charged is given back, so let the peek be a peek and charge what was used",
		func(s *script) { s.ask(negative(d("client=c4"))) },
		"status code", is("OK"), is("InvalidArgument"),
	},
	{
		"a `limit` in a descriptor", "counts together with the rule that it takes the place of",
		"counts by itself; the 512 that are used most are known to all nodes",
		func(s *script) {
			s.times(3, d("client=c5"))
			s.ask(limited(8, hour, d("client=c5")))
		},
		"statuses[0].limit_remaining", is("4"), is("7"),
	},
	{
		"its name in `current_limit`", "none", "`override`",
		func(s *script) { s.ask(limited(8, hour, d("client=c6"))) },
		"statuses[0].current_limit.name", absent, is("override"),
	},
	{
		"more than 32 descriptors, or 32 entries", "any", "INVALID_ARGUMENT",
		func(s *script) { s.ask(many(33)...) },
		"status code", is("OK"), is("InvalidArgument"),
	},
	{
		"no domain, no descriptors", "UNKNOWN", "INVALID_ARGUMENT",
		func(s *script) { s.of("", 0, d("client=c7")) },
		"status code", is("Unknown"), is("InvalidArgument"),
	},
	{
		"a descriptor without entries", "OK", "INVALID_ARGUMENT",
		func(s *script) { s.ask(d()) },
		"status code", is("OK"), is("InvalidArgument"),
	},
	{
		"a rule without a name", "`current_limit` has none", "it has the rule's place, as `edge/client`",
		func(s *script) { s.ask(d("client=c8")) },
		"statuses[0].current_limit.name", absent, is("edge/client"),
	},
	{
		"headers for the client", "none, unless `LIMIT_RESPONSE_HEADERS_ENABLED`",
		"`RateLimit-Policy` and `RateLimit`, or what `headers` says",
		func(s *script) { s.ask(d("client=c9")) },
		"response_headers_to_add[0].key", absent, is("Ratelimit-Policy"),
	},
	{
		"denials", "OVER_LIMIT", "and a `raw_body`: a problem document that says how long to wait",
		func(s *script) { s.of("edge", 6, d("client=c10")) },
		"raw_body", absent, func(value string) bool { return strings.Contains(value, "quota-exceeded") },
	},
	{
		"IPv6 addresses", "each counts by itself", "those of a /64 count together, or as `ipv6_prefix` says",
		func(s *script) {
			s.ask(d("remote_address=2001:db8::1"))
			s.ask(d("remote_address=2001:db8::2"))
		},
		"statuses[0].limit_remaining", is("2"), is("1"),
	},
}

// many are descriptors that meet no rule.
func many(n int) (all []*descriptor) {
	for i := range n {
		all = append(all, d(fmt.Sprintf("nothing=%d", i)))
	}
	return all
}

// contrastRules are rules that both load.
const contrastRules = `domain: edge
descriptors:
  - {key: client, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: large, rate_limit: {unit: hour, requests_per_unit: 1000}}
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: unit, value: second, rate_limit: {unit: second, requests_per_unit: 3}}
`

// Without compatibility, edgelimit differs as the page says.
func TestContrasts(t *testing.T) {
	var s script
	last := make([]int, len(contrasts)) // the exchange that shows each
	for i := range contrasts {
		s.group = contrasts[i].what
		contrasts[i].ask(&s)
		last[i] = len(s.all) - 1
	}
	all := performWith(t, &settings[0], s.all, func() *pair {
		return startUnlike(t, map[string]string{"rules.yaml": contrastRules})
	})
	for i, c := range contrasts {
		theirs, ours := all[last[i]].theirs[c.field], all[last[i]].ours[c.field]
		if !c.isTheirs(theirs) || !c.isOurs(ours) {
			t.Errorf("%s: %s: theirs %q, ours %q; the page says %q and %q", c.what, c.field, theirs, ours,
				c.theirs, c.ours)
		}
	}
}
