package rules

import (
	"reflect"
	"strings"
	"testing"
)

// Sets that mean the same have one fingerprint, however they are written.
func TestFingerprintIsOfTheMeaning(t *testing.T) {
	const (
		one   = "domain: edge\ndescriptors:\n"
		perIP = "  - {key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100}}\n"
		login = "  - {key: path, value: /login, deny: [], rate_limit: {name: login, window: 10s, requests_per_unit: " +
			"5}}\n"
		lists = "  - {key: ip, allow: [10.0.0.0/8, 192.0.2.1], regions: [b, a], rate_limit: {unit: second, " +
			"requests_per_unit: 5}}\n"
		flat  = "[{rule_id: x, limit: 5, window_seconds: 60}, {rule_id: y, limit: 5, window_seconds: 60}]"
		other = "domain: other\ndescriptors: [{key: a, value: b*, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	)
	login2 := strings.Replace(login, "deny: [], ", "", 1)
	want := mustParse(t, one+perIP+login2+lists+"---\n"+other+"---\n"+flat).Fingerprint()
	if want == 0 {
		t.Error("the fingerprint is 0")
	}
	for name, text := range map[string]string{
		"comments, order": "# changed\n" + one + login2 + "  # here, too\n" + lists + perIP + "---\n" + flat +
			"\n---\n" + other,
		"other words": one + strings.Replace(perIP, "unit: minute",
			"window: 60s, algorithm: sliding_window, scope: global", 1) +
			strings.Replace(login2, "window: 10s", "window: 10000ms, mode: hard", 1) +
			strings.NewReplacer("[10.0.0.0/8, 192.0.2.1]", "[192.0.2.1, 10.0.0.0/8]", "[b, a]",
				"[a, b]").Replace(lists) + "---\n" + other +
			"---\n[{rule_id: y, limit: 5, window_seconds: 60}, {rule_id: x, limit: 5, window_seconds: 60}]",
	} {
		if got := mustParse(t, text).Fingerprint(); got != want {
			t.Errorf("%s: %x, want %x", name, got, want)
		}
	}
	if got := mustParse(t, one+perIP).In("a").Fingerprint(); got != mustParse(t, one+perIP).Fingerprint() {
		t.Error("rules that are the same in all regions differ")
	}
}

// Whatever changes what a rule does changes the fingerprint.
func TestFingerprintTellsRulesApart(t *testing.T) {
	const base = `domain: edge
descriptors:
  - {key: a, value: x*, rate_limit: {name: n, unit: minute, requests_per_unit: 100}}
  - {key: a, value: "*y", rate_limit: {name: m, unit: minute, requests_per_unit: 100}}
  - {key: b}
`
	seen := map[uint64]string{mustParse(t, base).Fingerprint(): "the base"}
	for _, change := range [][2]string{
		{"100}}\n  - {key: a, value: \"*y\"", "90}}\n  - {key: a, value: \"*y\""}, {"unit: minute", "unit: hour"},
		{"name: n", "name: o"},
		{"unit: minute", "unit: minute, algorithm: fixed_window"}, {"unit: minute",
			"unit: minute, mode: soft, soft_percent: 10"},
		{"unit: minute", "unit: minute, ban: 10s"}, {"unit: minute", "unit: minute, scope: region"}, {"unit: minute",
			"unit: minute, cost: 2"},
		{"unit: minute", "unit: minute, charge_on: {status: [401]}"},
		{"unit: minute", "unit: minute, charge_on: {status: [4xx]}"},
		{"unit: minute", "unit: minute, cost_from: duration"}, {"unit: minute", "unit: minute, cost_from: header A"},
		{"unit: minute", "unit: minute, on_failure: open"}, {"unit: minute", "unit: minute, on_partition: deny"},
		{"value: x*", "value: x*, shadow_mode: true"}, {"value: x*", "value: x*, share_threshold: true"},
		{"value: x*", "value: x*, regions: [eu]"},
		{"value: x*", "value: x*, allow: [10.0.0.0/8]"}, {"value: x*", "value: x*, deny: [10.0.0.0/8]"}, {"value: x*",
			"value: x*, metadata: {a: 1}"},
		{"unit: minute", "unit: minute, replaces: [{name: m}]"}, {"{key: b}", "{key: c}"}, {"{key: b}",
			"{key: b, value: z}"}, {"domain: edge", "domain: edges"},
		{"value: x*", `value: x*, schedule: [{from: "22:00", to: "06:00", tz: UTC, requests_per_unit: 20}]`},
		{"- {key: b}", "- {key: b, descriptors: [{key: c, rate_limit: {unlimited: true}}]}"},
	} {
		text := strings.Replace(base, change[0], change[1], 1)
		if text == base {
			t.Fatalf("%q changes nothing", change)
		}
		f := mustParse(t, text).Fingerprint()
		if before := seen[f]; before != "" {
			t.Errorf("%q: the same as %s", change[1], before)
		}
		seen[f] = change[1]
	}
	lines := strings.SplitAfter(base, "\n")
	swapped := strings.Join([]string{lines[0], lines[1], lines[3], lines[2], lines[4]}, "")
	if before := seen[mustParse(t, swapped).Fingerprint()]; before != "" {
		t.Errorf("the order of wildcards, of which the first that fits is met: the same as %s", before)
	}
}

// A field that Policy gets later is in the fingerprint as well.
func TestFingerprintHasAllOfThePolicy(t *testing.T) {
	set := mustParse(t, "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: 100}}]")
	before := set.Fingerprint()
	policy := reflect.ValueOf(&set.rules[0].Policy).Elem()
	for i := range policy.NumField() {
		field, name := policy.Field(i), policy.Type().Field(i).Name
		old := reflect.ValueOf(field.Interface())
		switch {
		case field.CanInt():
			field.SetInt(field.Int() + 1)
		case field.CanUint():
			field.SetUint(field.Uint() + 1)
		case field.CanFloat():
			field.SetFloat(field.Float() + 0.25)
		case field.Kind() == reflect.Bool:
			field.SetBool(!field.Bool())
		case field.Kind() == reflect.String:
			field.SetString(field.String() + "x")
		default:
			t.Fatalf("%s is of a kind that the fingerprint may not tell apart: %v", name, field.Kind())
		}
		if set.Fingerprint() == before {
			t.Errorf("%s makes no difference", name)
		}
		field.Set(old)
	}
	if set.Fingerprint() != before {
		t.Error("the same rules have another fingerprint now")
	}
	if f := (&Set{}).Fingerprint(); f == 0 || f == before {
		t.Errorf("the fingerprint of no rules is %x", f)
	}
}
