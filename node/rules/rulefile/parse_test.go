package rulefile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// mustParse returns the rules of a text that has no problems.
func mustParse(t testing.TB, text string) *rules.Set {
	t.Helper()
	s, err := Parse("test.yaml", []byte(text))
	testkit.Must(t, err)
	return s
}

// given is the name of a rule as the file gives it, else its full name.
func given(r *rules.Rule) string {
	return cmp.Or(r.Given, r.FullName)
}

// summary writes a rule as "full name: name max/window".
func summary(r *rules.Rule) string {
	if r.Limit == nil {
		return r.FullName + ": " + given(r) + " unlimited"
	}
	m := r.Limit.Meter()
	return fmt.Sprintf("%s: %s %d/%v", r.FullName, given(r), r.Limit.Max(), m.Window)
}

func compareRules(t *testing.T, s *rules.Set, want ...string) {
	t.Helper()
	var got []string
	for _, r := range s.Rules() {
		got = append(got, summary(r))
	}
	if !slices.Equal(got, want) {
		t.Errorf("rules are\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestParse(t *testing.T) {
	s := mustParse(t, `
domain: edge
descriptors:
  - key: path
    value: /login
    rate_limit: {unit: MINUTE, requests_per_unit: 0}
    descriptors:
      - key: remote_address
        rate_limit: {window: 1m30s, requests_per_unit: 5, name: login}
      - key: remote_address
        value: 192.0.2.1
        rate_limit:
          unlimited: true
          name: office
  - key: status
    value: 404
    rate_limit: {unit: day, requests_per_unit: 1_000}
  - key: flag
    value: true
    rate_limit: {unit: day, requests_per_unit: 0x10, unlimited: false}
  - key: api_key
    value: ""
    rate_limit: {unit: Hour, requests_per_unit: 1099511627776, name: ""}
  - key: nothing
---
---
domain: 2
descriptors:
  - key: a
    rate_limit: {unlimited: yes}
`)
	compareRules(t, s,
		"edge/path=/login: edge/path=/login 0/1m0s",
		"edge/path=/login/remote_address: login 5/1m30s",
		"edge/path=/login/remote_address=192.0.2.1: office unlimited",
		"edge/status=404: edge/status=404 1000/24h0m0s",
		"edge/flag=true: edge/flag=true 16/24h0m0s",
		"edge/api_key: edge/api_key 1099511627776/1h0m0s",
		"2/a: 2/a unlimited",
	)
	for _, r := range s.Rules() {
		if r.Limit != nil &&
			r.Limit.Meter() != counters.NewMeter(r.FullName, counters.SlidingWindow, r.Limit.Meter().Window) {
			t.Errorf("%s has the meter %+v", r, r.Limit.Meter())
		}
	}
}

func TestParseUnits(t *testing.T) {
	tests := map[string]time.Duration{
		"second": time.Second, "Minute": time.Minute, "HOUR": time.Hour, "day": 24 * time.Hour,
		"wEEK":  7 * 24 * time.Hour,
		"month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour,
	}
	for unit, want := range tests {
		s := mustParse(t, "domain: d\ndescriptors: [{key: a, rate_limit: {requests_per_unit: 1, unit: "+unit+"}}]")
		if got := s.Rules()[0].Limit.Meter().Window; got != want {
			t.Errorf("a %s is %v, want %v", unit, got, want)
		}
	}
}

func TestParseAlgorithms(t *testing.T) {
	for _, c := range [][2]string{
		{"unit: hour, requests_per_unit: 5", "sliding_window 5+0/1h0m0s in 6m0s"},
		{"unit: hour, requests_per_unit: 5, algorithm: sliding_window, queue: false",
			"sliding_window 5+0/1h0m0s in 6m0s"},
		{"unit: hour, requests_per_unit: 5, algorithm: fixed_window", "fixed_window 5+0/1h0m0s in 1h0m0s"},
		{"unit: hour, requests_per_unit: 16384, algorithm: sliding_log", "sliding_log 16384+0/1h0m0s in 6m0s"},
		{"window: 10s, requests_per_unit: 100, algorithm: token_bucket", "token_bucket 100+100/10s in 10s"},
		{"window: 10s, requests_per_unit: 100, algorithm: token_bucket, burst: 20", "token_bucket 20+100/10s in 10s"},
		{"window: 10s, requests_per_unit: 0, algorithm: token_bucket", "token_bucket 0+0/10s in 10s"},
		{"unit: second, requests_per_unit: 1, algorithm: leaky_bucket, burst: 3600", "leaky_bucket 3600+1/1s in 1s"},
		{"unit: second, requests_per_unit: 1, algorithm: gcra", "leaky_bucket 1+1/1s in 1s"},
		{"unit: second, requests_per_unit: 2, algorithm: gcra, queue: true, burst: 9", "leaky_queue 9+2/1s in 1s"},
		{"requests_per_unit: 10, algorithm: token_bucket, refill: {amount: 1, every: 1h}",
			"token_bucket 10+1/1h0m0s in 1h0m0s"},
		{"burst: 200, algorithm: leaky_bucket, refill: {amount: 50, every: 24h}",
			"leaky_bucket 200+50/24h0m0s in 24h0m0s"},
		{"requests_per_unit: 0, algorithm: leaky_bucket, refill: {amount: 1, every: 1h}, queue: true",
			"leaky_queue 0+1/1h0m0s in 1h0m0s"},
	} {
		text, want := c[0], c[1]
		l := mustParse(t, "domain: d\ndescriptors: [{key: a, rate_limit: {"+text+"}}]").Rules()[0].Limit
		m := l.Meter()
		if got := fmt.Sprintf("%v %d+%d/%v in %v", m.Algorithm, l.Max(), l.Refill(), m.Window, m.Sub); got != want ||
			m.Rule != "d/a" {
			t.Errorf("%s\n\tis %s of %s, want %s", text, got, m.Rule, want)
		}
	}
}

func TestParseWindows(t *testing.T) {
	for _, window := range []time.Duration{time.Millisecond, 10 * time.Second, counters.MaxWindow} {
		s := mustParse(t,
			"domain: d\ndescriptors: [{key: a, rate_limit: {requests_per_unit: 1, window: "+window.String()+"}}]")
		if got := s.Rules()[0].Limit.Meter().Window; got != window {
			t.Errorf("window is %v, want %v", got, window)
		}
	}
}

// In the shape of the reference server's own documentation: nested descriptors, an exact value beside the bare key, an
// exempt value, several domains.
func TestParseReferenceShape(t *testing.T) {
	s := mustParse(t, `# Messages of a marketing system.
domain: messaging
descriptors:
  # At most five marketing messages a day to one number.
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit:
          unit: day
          requests_per_unit: 5

  # At most a hundred messages a day to one number.
  - key: to_number
    rate_limit:
      unit: day
      requests_per_unit: 100
---
domain: edge_proxy
descriptors:
  - key: remote_address
    rate_limit:
      unit: second
      requests_per_unit: 10

  # One address is blocked, another one exempt.
  - key: remote_address
    value: 50.0.0.5
    rate_limit:
      unit: second
      requests_per_unit: 0
  - key: remote_address
    value: 50.0.0.6
    rate_limit:
      unlimited: true
`)
	compareRules(t, s,
		"messaging/message_type=marketing/to_number: messaging/message_type=marketing/to_number 5/24h0m0s",
		"messaging/to_number: messaging/to_number 100/24h0m0s",
		"edge_proxy/remote_address: edge_proxy/remote_address 10/1s",
		"edge_proxy/remote_address=50.0.0.5: edge_proxy/remote_address=50.0.0.5 0/1s",
		"edge_proxy/remote_address=50.0.0.6: edge_proxy/remote_address=50.0.0.6 unlimited",
	)
}

func TestParseAliases(t *testing.T) {
	s := mustParse(t, `domain: edge
descriptors:
  - key: &who remote_address
    rate_limit: &slow {unit: hour, requests_per_unit: 3}
  - key: path
    value: /a
    descriptors: &all
      - key: *who
        rate_limit: *slow
  - key: path
    value: /b
    descriptors: *all
`)
	compareRules(t, s,
		"edge/remote_address: edge/remote_address 3/1h0m0s",
		"edge/path=/a/remote_address: edge/path=/a/remote_address 3/1h0m0s",
		"edge/path=/b/remote_address: edge/path=/b/remote_address 3/1h0m0s",
	)
}

func TestParseDeepest(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: edge\n")
	for i := range rules.MaxEntries {
		indent := strings.Repeat("  ", i)
		b.WriteString(indent + "descriptors:\n" + indent + "- key: k\n")
	}
	b.WriteString(strings.Repeat("  ", rules.MaxEntries) + "rate_limit: {unit: hour, requests_per_unit: 1}\n")
	s := mustParse(t, b.String())
	name := "edge" + strings.Repeat("/k", rules.MaxEntries)
	if r := s.Rules()[0]; len(r.OpenKeys()) != rules.MaxEntries || r.FullName != name {
		t.Errorf("the deepest rule is %s with the open keys %v", r, r.OpenKeys())
	}
}

func TestParseEmptyDomain(t *testing.T) {
	for _, text := range []string{"domain: edge", "domain: edge\ndescriptors:\n", "domain: edge\ndescriptors: []\n",
		"\ufeffdomain: edge\r\n"} {
		if s := mustParse(t, text); len(s.Rules()) != 0 {
			t.Errorf("%q has the rules %v", text, s.Rules())
		}
	}
}

func TestRulesCannotBeReplaced(t *testing.T) {
	s := mustParse(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true}}]")
	s.Rules()[0] = nil
	if s.Rules()[0] == nil {
		t.Error("the caller's slice is the set's own")
	}
}

// A rule that a region shares has room for the region's name behind its own.
func TestScopedNamesFit(t *testing.T) {
	const text = "[{rule_id: %s, limit: 1, window_seconds: 1, scope: %s}]"
	longest := strings.Repeat("r", counters.MaxScopedRule)
	region := strings.Repeat("e", counters.MaxRegion)
	for _, scope := range []string{"region", "node"} {
		s := mustParse(t, fmt.Sprintf(text, longest, scope))
		if err := s.In(region).Rules()[0].Limit.Meter().Validate(); err != nil {
			t.Error(err)
		}
		_, err := Parse("f", fmt.Appendf(nil, text, longest+"r", scope))
		compareProblems(t, "f", err, []string{fmt.Sprintf(
			"1:497: the full name %.40s... has %d bytes, at most %d are allowed with scope: %s", longest,
			len(longest)+1, len(longest), scope)})
	}
	mustParse(t, fmt.Sprintf(text, longest+"r", "global"))
}
