package rulefile

import (
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
)

// A rule whose bans are exported counts addresses, which bans can keep.
func TestExport(t *testing.T) {
	parse := func(descriptor string) (*counters.Meter, error) {
		set, err := Parse("x.yaml", []byte("domain: d\ndescriptors:\n- "+descriptor+"\n"))
		if err != nil {
			return nil, err
		}
		return set.Rules()[0].Limit.AddressBanMeter(), nil
	}
	const without = "rate_limit: {unit: second, requests_per_unit: 1, export: address}"
	const ban = "rate_limit: {unit: second, requests_per_unit: 1, ban: 10s, export: address}"
	for descriptor, want := range map[string]string{
		"{key: remote_address, " + ban + "}":                                        "%ban/a64///d/remote_address",
		"{key: host, ipv6_prefix: 48, " + ban + "}":                                 "%ban/a48///d/host",
		"{key: remote_address, " + without + "}":                                    "",
		"{key: remote_address, " + strings.Replace(ban, "address", "none", 1) + "}": "",
	} {
		if m, err := parse(descriptor); err != nil || (m == nil) != (want == "") || m != nil && m.Rule != want {
			t.Errorf("%s: %+v, %v, want %q", descriptor, m, err, want)
		}
	}
	for descriptor, want := range map[string]string{
		"{key: user, " + ban + "}":                                      "last key holds an address",
		"{key: remote_address, value: 192.0.2.1, " + ban + "}":          "last key holds an address",
		"{key: remote_address, ipv4_prefix: 24, " + ban + "}":           "leave out ipv4_prefix",
		"{key: remote_address, ipv6_prefix: 128, " + ban + "}":          "lower its ipv6_prefix",
		"{key: ip, " + strings.Replace(ban, "address", "name", 1) + "}": "export",
	} {
		if _, err := parse(descriptor); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", descriptor, err, want)
		}
	}
}
