package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
)

// In a region each limit is on the meter of its scope, at all times of the day; keys are the same everywhere.
func TestScopes(t *testing.T) {
	s := mustParse(t, `
domain: d
descriptors:
  - {key: all, rate_limit: {unit: day, requests_per_unit: 4}}
  - {key: some, regions: [eu, us], rate_limit: {name: near, unit: day, requests_per_unit: 4, scope: region},
     schedule: [{from: "00:00", to: "12:00", requests_per_unit: 2}]}
  - {key: one, rate_limit: {unit: day, requests_per_unit: 4, scope: node, algorithm: token_bucket, mode: soft, soft_percent: 50}}
  - {key: none, rate_limit: {unlimited: true}}
`)
	request := &Request{Domain: "d", Descriptors: [][]Entry{{{"all", "x"}}, {{"some", "x"}}, {{"one", "x"}}, {{"none", "x"}}}}
	for region, want := range map[string]string{
		"eu": "d/all d/some%@eu d/one%@", "us": "d/all d/some%@us d/one%@", "asia": "d/all d/one%@",
	} {
		in := s.In(region)
		if in.In(region) != in {
			t.Errorf("%s: a set that is of the region is copied", region)
		}
		found, err := in.Match(request, testSecret, nil)
		if err != nil {
			t.Fatal(err)
		}
		var meters []string
		for i := range found {
			r := found[i].Rule
			if r == nil || r.Limit == nil {
				continue
			}
			meters = append(meters, r.Limit.Meter().Rule)
			if r != in.Rule(r.FullName) || r.FullName != s.Rule(r.FullName).FullName || r.Limit.Scope() != r.Scope || found[i].Key != slowKey(testSecret, "x") {
				t.Errorf("%s: %s has limit %v of scope %v, key %x", region, r, r.Limit.Meter(), r.Limit.Scope(), found[i].Key)
			}
			for hour := range int64(24) {
				l := r.LimitAt(hour * 3600e9)
				if l.Meter() != r.Limit.Meter() || l.Max() != s.Rule(r.FullName).LimitAt(hour*3600e9).Max() {
					t.Errorf("%s: %s has a limit of %d on %v at %d:00", region, r, l.Max(), l.Meter(), hour)
				}
			}
		}
		if got := strings.Join(meters, " "); got != want {
			t.Errorf("%s: meters %s, want %s", region, got, want)
		}
		one := in.Rule("d/one")
		var d counters.Decision
		found[2].Tell(request, &counters.Charge{Limit: one.Limit}, &d)
		if d.Limit != 4 {
			t.Errorf("%s: a soft rule promises %d, want 4", region, d.Limit)
		}
	}
	if got := s.Rule("d/some").Limit.Meter().Rule; got != "d/some" {
		t.Errorf("the set itself has changed: meter %s", got)
	}
	if s.Rule("d/nowhere") != nil {
		t.Error("there is a rule that is not")
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
			"1:497: the full name %.40s... has %d bytes, at most %d are allowed with scope: %s", longest, len(longest)+1, len(longest), scope)})
	}
	mustParse(t, fmt.Sprintf(text, longest+"r", "global"))
}

// No name that a file can give has the mark of a scope in its full name.
func TestNamesHoldNoMark(t *testing.T) {
	s := mustParse(t, `
domain: "d%@eu"
descriptors: [{key: "%@", value: "/%@us", rate_limit: {unit: day, requests_per_unit: 1}}]
---
[{rule_id: "a%@eu", limit: 1, window_seconds: 1}]
`)
	for _, r := range s.Rules() {
		if scope, region := r.Limit.Meter().Home(); scope != counters.Global || region != "" {
			t.Errorf("%s is of scope %v in %q", r.FullName, scope, region)
		}
	}
}
