package rules

import (
	"testing"
)

func TestLists(t *testing.T) {
	s := mustParse(t, `
domain: d
descriptors:
  - key: remote_address
    allow: [10.0.0.0/8, 10.1.2.3, "2001:db8::/32", 0.0.0.0/1]
    deny: [10.1.0.0/16, "2001:db8:bad::/48", "::ffff:203.0.113.0/120"]
    rate_limit: {name: per_ip, unit: second, requests_per_unit: 1}
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        deny: [192.0.2.0/24]
        rate_limit: {name: login, unlimited: true}
---
- {rule_id: flat, limit: 1, window_seconds: 1, allow: [192.0.2.1]}
`)
	for _, tt := range []struct {
		rule, identity string
		want           Listing
	}{
		{"per_ip", "10.200.0.1", AllowListed},
		{"per_ip", "10.1.0.1", DenyListed},
		{"per_ip", "10.1.2.3", AllowListed}, // the longest prefix decides
		{"per_ip", "10.1.2.4", DenyListed},
		{"per_ip", "::ffff:10.1.2.4", DenyListed},
		{"per_ip", "9.9.9.9", AllowListed},
		{"per_ip", "192.0.2.1", Unlisted},
		{"per_ip", "203.0.113.9", DenyListed},
		{"per_ip", "2001:db8:1::1", AllowListed},
		{"per_ip", "2001:db8:bad::1", DenyListed},
		{"per_ip", "2001:db8:bad::1%eth0", DenyListed},
		{"per_ip", "2001:db9::1", Unlisted},
		{"per_ip", "joe", Unlisted},
		{"login", "192.0.2.255", DenyListed},
		{"login", "10.1.0.1", Unlisted},
		{"flat", "192.0.2.1", AllowListed},
	} {
		got, err := s.Match(&Request{Rule: tt.rule, Identity: tt.identity}, testSecret, nil)
		if err != nil || got[0].Listed != tt.want {
			t.Errorf("%s by %s: %v, want %v (%v)", tt.identity, tt.rule, got, tt.want, err)
			continue
		}
		ch := got[0].Charge(&Request{}, 0)
		blocked := ch.Limit != nil && ch.Limit.Max() == 0
		limited := tt.want == Unlisted && tt.rule != "login"
		if blocked != (tt.want == DenyListed) || (ch.Limit != nil && !blocked) != limited {
			t.Errorf("%s by %s is charged %+v", tt.identity, tt.rule, ch)
		}
	}
	through, err := s.Match(
		&Request{Domain: "d", Descriptors: [][]Entry{{{"path", "/login"}, {"remote_address", "192.0.2.9"}}}},
		testSecret, nil)
	if err != nil || through[0].Listed != DenyListed {
		t.Errorf("through descriptors: %v, %v", through, err)
	}
}
