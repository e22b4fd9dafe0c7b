package rules

import (
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
  - {key: one, rate_limit: {unit: day, requests_per_unit: 4, scope: node, algorithm: token_bucket, mode: soft,
      soft_percent: 50}}
  - {key: none, rate_limit: {unlimited: true}}
`)
	request := &Request{
		Domain:      "d",
		Descriptors: [][]Entry{{{"all", "x"}}, {{"some", "x"}}, {{"one", "x"}}, {{"none", "x"}}},
	}
	for region, want := range map[string]string{
		"eu": "d/all d/some%@eu d/one%@", "us": "d/all d/some%@us d/one%@", "asia": "d/all d/one%@",
	} {
		in := s.In(region)
		if in.In(region) != in {
			t.Errorf("%s: a set that is of the region is copied", region)
		}
		found := matched(t, in, request, testSecret)
		var meters []string
		for i := range found {
			r := found[i].Rule
			if r == nil || r.Limit == nil {
				continue
			}
			meters = append(meters, r.Limit.Meter().Rule)
			if r != in.Rule(r.FullName) || r.FullName != s.Rule(r.FullName).FullName || r.Limit.Scope() != r.Scope ||
				found[i].Key != slowKey(testSecret, "x") {
				t.Errorf("%s: %s has limit %v of scope %v, key %x", region, r, r.Limit.Meter(), r.Limit.Scope(),
					found[i].Key)
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
		found[2].Annotate(request, &counters.Charge{Limit: one.Limit}, &d)
		if d.Limit != 4 {
			t.Errorf("%s: a soft rule has the limit %d, want 4", region, d.Limit)
		}
	}
	if got := s.Rule("d/some").Limit.Meter().Rule; got != "d/some" {
		t.Errorf("the set itself has changed: meter %s", got)
	}
	if s.Rule("d/nowhere") != nil {
		t.Error("there is a rule that is not")
	}
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

func TestRegions(t *testing.T) {
	s := mustParse(t, `
domain: d
descriptors:
  - {key: a, regions: [eu, us], rate_limit: {name: a, unit: day, requests_per_unit: 1}}
  - key: a
    value: x*
    regions: [eu]
    descriptors: [{key: b, rate_limit: {name: b, unit: day, requests_per_unit: 1}}]
  - {key: c, rate_limit: {name: c, unit: day, requests_per_unit: 1}}
---
- {rule_id: flat, limit: 1, window_seconds: 1, regions: [us]}
`)
	for region, want := range map[string]string{"eu": "a b c", "us": "a c flat", "asia": "c", "": "c"} {
		in := s.In(region)
		text := ""
		for _, r := range in.Rules() {
			text += " " + r.Name
		}
		if text != " "+want {
			t.Errorf("in region %q there are%s, want %s", region, text, want)
		}
		// Where the exact descriptor is not in force, the bare key takes its place.
		got, err := in.Match(&Request{Domain: "d", Descriptors: [][]Entry{{{"a", "x1"}}, {{"a", "x1"}, {"b", "1"}}}},
			testSecret, nil)
		if err != nil || (got[0].Rule != nil) != (region == "us") || (got[1].Rule != nil) != (region == "eu") {
			t.Errorf("in region %q: %v, %v", region, got, err)
		}
		flat := &Request{Rule: "flat", Identity: "x"}
		if _, err := in.Match(flat, testSecret, nil); (err == nil) != (region == "us") {
			t.Errorf("in region %q the flat rule: %v", region, err)
		}
	}
	if everywhere := mustParse(t, matchRules); everywhere.In("eu") != everywhere {
		t.Error("rules that are in force everywhere are copied")
	}
}
