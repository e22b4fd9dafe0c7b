package rules

import (
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestIPv6Groups(t *testing.T) {
	for _, tt := range []struct {
		value, want string
		bits        uint8
	}{
		{"2001:db8::1", "2001:db8::/64", 64},
		{"2001:DB8:0:0:ffff::1", "2001:db8::/64", 64},
		{"2001:db8:0:1::1", "2001:db8:0:1::/64", 64},
		{"2001:db8:0:1ff::1", "2001:db8:0:100::/56", 56},
		{"2001:db8::1", "2001:db8::1/128", 128},
		{"::ffff:192.0.2.1", "192.0.2.1", 64},
		{"64:ff9b::192.0.2.1", "192.0.2.1", 64},
		{"2002:c000:201:7::1", "192.0.2.1", 64},
		{"::", "::/64", 64},
		{"fe80::1%eth0", "", 64},
		{"192.0.2.1:80", "", 64},
		{"a:b", "", 64},
		{":", "", 64},
		{"[2001:db8::1]", "", 64},
		{strings.Repeat("f:", 4000), "", 64},
	} {
		want := tt.want
		if want == "" {
			want = tt.value
		}
		if got := (&Step{IPv6: tt.bits}).groupText(tt.value); got != want {
			t.Errorf("%.40q in groups of %d: %q, want %q", tt.value, tt.bits, got, want)
		}
	}
	if got := new(Step).groupText("2001:db8::1"); got != "2001:db8::1" {
		t.Errorf("without groups: %q", got)
	}
}

func TestIPv6IdentitiesAreGrouped(t *testing.T) {
	const text = `
domain: d
descriptors:
  - {key: remote_address, rate_limit: {name: default, unit: second, requests_per_unit: 1}}
  - {key: Client_IP, rate_limit: {name: any case, unit: second, requests_per_unit: 1}}
  - {key: peer, ipv6_prefix: 48, rate_limit: {name: given, unit: second, requests_per_unit: 1}}
  - {key: gateway, ipv4_prefix: 24, rate_limit: {name: by 24, unit: second, requests_per_unit: 1}}
  - {key: path, rate_limit: {name: no address, unit: second, requests_per_unit: 1}}
  - {key: ip, ipv6_prefix: 128, rate_limit: {name: each, unit: second, requests_per_unit: 1}}
  - {key: remote_address, value: "2001:*", rate_limit: {name: wildcard, unit: second, requests_per_unit: 1}}
---
- {rule_id: flat, limit: 1, window_seconds: 1}
`
	same := func(s *Set, rule, a, b string) bool {
		t.Helper()
		var keys [2]Match
		for i, identity := range []string{a, b} {
			got := matched(t, s, &Request{Rule: rule, Identity: identity}, testSecret)
			keys[i] = got[0]
		}
		return keys[0] == keys[1]
	}
	s := mustParse(t, text)
	for _, tt := range []struct {
		rule, a, b string
		want       bool
	}{
		{"default", "fd00::1", "fd00::ffff:2", true},
		{"default", "fd00::1", "fd00:0:0:1::1", false},
		{"default", "192.0.2.1", "192.0.2.2", false},
		{"default", "192.0.2.1", "::ffff:192.0.2.1", true},
		{"default", "64:ff9b::192.0.2.1", "64:ff9b::192.0.2.2", false},
		{"default", "192.0.2.1", "64:ff9b::192.0.2.1", true},
		{"default", "2002:c000:201:1::1", "2002:c000:201:2::1", true},
		{"default", "::192.0.2.1", "::192.0.2.2", false},
		{"default", "2001:0:1:2:3:4:3fff:fdfe", "2001:0:1:2:3:4:3fff:fdfd", false},
		{"by 24", "192.0.2.1", "192.0.2.254", true},
		{"by 24", "192.0.2.1", "64:ff9b::192.0.2.254", true},
		{"by 24", "192.0.2.1", "192.0.3.1", false},
		{"by 24", "fd00::1", "fd00::2", true},
		{"by 24", "joe", "jim", false},
		{"any case", "fd00::1", "fd00::2", true},
		{"given", "fd00:0:0:1::1", "fd00:0:0:2::1", true},
		{"given", "fd00:0:1::1", "fd00:0:2::1", false},
		{"no address", "fd00::1", "fd00::2", false},
		{"each", "fd00::1", "fd00::2", false},
		{"each", "fd00::1", "FD00:0::1", true},
		{"wildcard", "2001:db8::1", "2001:db8::2", true},
		{"flat", "fd00::1", "fd00::2", true},
		{"flat", "joe", "jim", false},
	} {
		if got := same(s, tt.rule, tt.a, tt.b); got != tt.want {
			t.Errorf("%s: %s and %s share a count: %v, want %v", tt.rule, tt.a, tt.b, got, tt.want)
		}
	}
	wide, err := parse(text, 32)
	testkit.Must(t, err)
	if !same(wide, "default", "fd00:0:1::1", "fd00:0:2::1") || same(wide, "each", "fd00::1", "fd00::2") {
		t.Error("the setting is the default of keys of addresses, and of no others")
	}
}
