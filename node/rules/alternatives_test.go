package rules

import (
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// TestAlternatives: several readings of one descriptor are layers of their own, but charge one counter once, and
// replace another layer only if all of them do.
func TestAlternatives(t *testing.T) {
	set := mustParse(t, `
domain: d
descriptors:
- {key: ip, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 1}}
- {key: path, rate_limit: {name: per_path, unit: minute, requests_per_unit: 1}}
- {key: path, value: /health, rate_limit: {name: health, unlimited: true, replaces: [{name: per_ip}]}}
- {key: path, value: /ready, rate_limit: {name: ready, unlimited: true, replaces: [{name: per_ip}]}}
- {key: path, value: "/api/*", share_threshold: true, rate_limit: {name: api, unit: minute, requests_per_unit: 1}}
`)
	ip, path := []Entry{{"ip", "192.0.2.1"}}, func(p string) []Entry { return []Entry{{"path", p}} }
	tests := []struct {
		name         string
		descriptors  [][]Entry
		alternatives uint32
		want         []string // names of the rules that are met
	}{
		{"two readings", [][]Entry{ip, path("/A"), path("/a")}, 1 << 2, []string{"per_ip", "per_path", "per_path"}},
		{"one counter", [][]Entry{ip, path("/api/A"), path("/api/a")}, 1 << 2, []string{"per_ip", "api", ""}},
		{"one counter, of two descriptors", [][]Entry{ip, path("/api/A"), path("/api/a")}, 0,
			[]string{"per_ip", "api", "api"}},
		{"one counter, after another reading", [][]Entry{path("/x"), path("/api/A"), path("/api/a")}, 1<<1 | 1<<2,
			[]string{"per_path", "api", ""}},
		{"one reading replaces", [][]Entry{ip, path("/login"), path("/health")}, 1 << 2,
			[]string{"per_ip", "per_path", "health"}},
		{"the first reading replaces", [][]Entry{ip, path("/health"), path("/login")}, 1 << 2,
			[]string{"per_ip", "health", "per_path"}},
		{"one reading replaces, the other meets nothing", [][]Entry{ip, path("/health"), {{"x", "y"}}}, 1 << 2,
			[]string{"per_ip", "health", ""}},
		{"all readings replace", [][]Entry{ip, path("/health"), path("/ready")}, 1 << 2,
			[]string{"", "health", "ready"}},
		{"another descriptor replaces", [][]Entry{ip, path("/login"), path("/health")}, 0,
			[]string{"", "per_path", "health"}},
	}
	for _, tt := range tests {
		got, err := set.Match(&Request{Domain: "d", Descriptors: tt.descriptors, Alternatives: tt.alternatives},
			Secret{}, nil)
		testkit.Must(t, err)
		for i, want := range tt.want {
			name := ""
			if got[i].Rule != nil {
				name = got[i].Rule.Name
			}
			if name != want {
				t.Errorf("%s: layer %d meets %q, want %q", tt.name, i, name, want)
			}
		}
	}
}
