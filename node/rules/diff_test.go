package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	const text = `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: w, value: "x*", rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: u, rate_limit: {unlimited: true}}
`
	for _, tt := range []struct {
		name, old, now string
		want           []string
	}{
		{"nothing", "", "", nil},
		{"a limit", "{key: a, rate_limit: {unit: minute, requests_per_unit: 100}}",
			"{key: a, rate_limit: {unit: minute, requests_per_unit: 50}}",
			[]string{"limit d/a kept"}},
		{"a window", "{key: a, rate_limit: {unit: minute,", "{key: a, rate_limit: {unit: hour,",
			[]string{"meter d/a anew"}},
		{"an algorithm", "{key: a, rate_limit: {", "{key: a, rate_limit: {algorithm: fixed_window, ",
			[]string{"meter d/a anew"}},
		{"a margin", "{key: a, rate_limit: {", "{key: a, rate_limit: {mode: soft, soft_percent: 10, ",
			[]string{"limit d/a kept"}},
		{"shadow mode", "{key: a,", "{key: a, shadow_mode: true,", []string{"policy d/a kept"}},
		{"names of statistics", "{key: a, rate", "{key: a, value_to_metric: true, rate", nil},
		{"a secret", "{key: a, rate", "{key: a, secret: true, rate", []string{"policy d/a kept"}},
		{"a name", "{key: a, rate_limit: {", "{key: a, rate_limit: {name: other, ", []string{"policy other kept"}},
		{"metadata", "{key: a,", "{key: a, metadata: {b: c},", []string{"policy d/a kept"}},
		{"a list", "{key: a,", "{key: a, deny: [10.0.0.0/8],", []string{"policy d/a kept"}},
		{"a schedule", "{key: a,", `{key: a, schedule: [{from: "01:00", to: "02:00", requests_per_unit: 5}],`,
			[]string{"limit d/a kept"}},
		{"regions", "{key: a,", "{key: a, regions: [eu],", []string{"policy d/a kept"}},
		{"a scope", "{key: a, rate_limit: {", "{key: a, rate_limit: {scope: region, ", []string{"meter d/a anew"}},
		{"who is counted together", "{key: ip,", "{key: ip, ipv6_prefix: 56,", []string{"meter d/ip anew"}},
		{"a shared threshold", `value: "x*",`, `value: "x*", share_threshold: true,`, []string{"meter d/w=x* anew"}},
		{"no limit any more", "{key: a, rate_limit: {unit: minute, requests_per_unit: 100}}",
			"{key: a, rate_limit: {unlimited: true}}",
			[]string{"meter d/a anew"}},
		{"another place", "{key: a,", "{key: b,", []string{"added d/b anew", "removed d/a dropped"}},
	} {
		before, after := mustParse(t, text), mustParse(t, replaceOnce(t, text, tt.old, tt.now))
		var got []string
		for _, c := range Diff(before, after) {
			got = append(got, fmt.Sprint(c.Kind, " ", c.Rule, " ", c.Counts))
			if (c.Old == "") != (c.Kind == Added) || (c.New == "") != (c.Kind == Removed) {
				t.Errorf("%s: from %q to %q", tt.name, c.Old, c.New)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// replaceOnce changes the one place of a text.
func replaceOnce(t *testing.T, text, old, now string) string {
	t.Helper()
	if old == "" {
		return text
	}
	if strings.Count(text, old) != 1 {
		t.Fatalf("%q is %d times in the text", old, strings.Count(text, old))
	}
	return strings.Replace(text, old, now, 1)
}
