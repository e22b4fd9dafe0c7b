package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const namedRules = `
domain: edge
descriptors:
  - {key: api_key, value: s3cret, secret: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: api_key, value: named, secret: true, rate_limit: {name: partner, unit: minute, requests_per_unit: 1}}
  - {key: plan, value: gold, rate_limit: {name: plan, unit: minute, requests_per_unit: 1}}
  - {key: plan, value: free, rate_limit: {name: plan, unit: minute, requests_per_unit: 1}}
  - {key: plan, value: none, rate_limit: {name: edge/api_key, unit: minute, requests_per_unit: 1}}
  - {key: api_key, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: every, value: "*", rate_limit: {name: shared, unit: minute, requests_per_unit: 1}}
  - key: path
    value: /login
    descriptors: [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 1}}]
---
domain: other
descriptors:
  - {key: every, value: "*", rate_limit: {name: shared, unit: minute, requests_per_unit: 1}}
  - {key: odd, rate_limit: {name: "a\e\u202eb", unit: minute, requests_per_unit: 1}}
`

// A rule has one name: the given one, if that is its alone; clients see no value of its place, and nobody a secret.
func TestNames(t *testing.T) {
	set := mustParse(t, namedRules)
	var got []string
	for _, r := range set.Rules() {
		got = append(got, r.Name+" "+r.HeaderName)
		if r.Limit.Meter().Rule != r.FullName || r.String() != r.Name || set.NameOf(r.FullName) != r.Name {
			t.Errorf("%s is counted as %s", r, r.Limit.Meter().Rule)
		}
		for _, name := range []string{r.Name, r.FullName} {
			if found, ambiguous := set.Lookup(name, ""); found != r || ambiguous != "" {
				t.Errorf("asked for as %s it is %v, %s", name, found, ambiguous)
			}
		}
	}
	want := []string{
		"edge/api_key=#1ec1 edge/api_key", "partner partner", "edge/plan=gold plan", "edge/plan=free plan",
		"edge/edge/api_key edge/edge/api_key", "edge/api_key edge/api_key", "edge/shared edge/shared",
		"edge/path=/login/remote_address edge/path/remote_address", "other/shared other/shared",
		"a%1B%E2%80%AEb a%1B%E2%80%AEb",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("they are called\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r, _ := set.Lookup("shared", "other"); r != set.Rule("other/every=*") {
		t.Errorf("in its domain a given name is %v", r)
	}
	if _, ambiguous := set.Lookup("plan", "edge"); !strings.HasSuffix(ambiguous,
		"name of one: edgelimit rules list shows them") {
		t.Errorf("%q", ambiguous)
	}
	if _, err := set.Match(&Request{Rule: "shared"}, Secret{}, nil); err == nil {
		t.Error("a name of two rules names one")
	}
}

// Names hold in the regions, where there may be fewer rules.
func TestNamesHoldInRegions(t *testing.T) {
	const text = `
domain: edge
descriptors:
  - {key: a, regions: [eu], rate_limit: {name: both, unit: minute, requests_per_unit: 1}}
  - {key: b, rate_limit: {name: both, unit: minute, requests_per_unit: 1, scope: region}}
`
	for _, r := range mustParse(t, text).In("us").Rules() {
		if r.Name != "edge/b" {
			t.Errorf("%s is called %s", r.FullName, r.Name)
		}
	}
}

// Whatever the file calls rules, all have a name, each its own, that is one line without control characters and finds
// the rule; none shows a secret, and what clients see shows no value.
func TestNamesOfOddRules(t *testing.T) {
	odd := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "b", "edge/a", "edge", "a=b", "edge/k=s3cret", "edge/k=#",
		"*",
		"k=s3cret", "edge/k", "\x1b[2J", "\u202e", "%1B", "%", "a/b", "#", "édge", "\n", strings.Repeat("x", 100)}),
		rapid.StringN(0, 8, 40))
	rapid.Check(t, func(t *rapid.T) {
		s := NewSet()
		for i := range rapid.IntRange(1, 8).Draw(t, "rules") {
			at := Place{Domain: rapid.SampledFrom([]string{"edge", "other", "a", "edge/a", "\u009b"}).Draw(t, "domain")}
			at.FullName = Component(Entry{Key: at.Domain})
			for range rapid.IntRange(1, 3).Draw(t, "depth") {
				secret := rapid.Bool().Draw(t, "secret")
				e := Entry{"k" + rapid.SampledFrom([]string{"", "/", "=", "\x1b"}).Draw(t, "key"), odd.Draw(t, "value")}
				if secret {
					e.Value = fmt.Sprintf("s3cret-%d", rapid.IntRange(0, 2000).Draw(t, "number"))
				}
				at = at.Below(e, Step{Secret: secret, Open: e.Value == ""})
			}
			if s.Rule(at.FullName) != nil || len(at.FullName) > counters.MaxRuleName {
				continue
			}
			r := NewRule(at)
			if r.Given = odd.Draw(t, "name"); i%2 == 0 {
				r.Given = ""
			}
			s.Add(r)
		}
		s.AssignNames()
		named := make(map[string]bool)
		for _, r := range s.Rules() {
			if r.Name == "" || named[r.Name] {
				t.Fatalf("%q: another rule is called %q", r.FullName, r.Name)
			}
			named[r.Name] = true
			if found, ambiguous := s.Lookup(r.Name, ""); found != r {
				t.Fatalf("%q finds %v %s", r.Name, found, ambiguous)
			}
			for _, name := range []string{r.Name, r.HeaderName, r.FullName} {
				if strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }) && name != r.FullName ||
					strings.Contains(name, "s3cret-") {
					t.Fatalf("a name is %q", name)
				}
			}
			if r.Given == "" && strings.ContainsAny(strings.ReplaceAll(r.HeaderName, "=*", ""), "#") {
				t.Fatalf("clients see %q", r.HeaderName)
			}
		}
	})
}

// Secrets whose digits are the same get more of them.
func TestNamesOfSecretsAreUnique(t *testing.T) {
	var text strings.Builder
	text.WriteString("domain: edge\ndescriptors:\n")
	const n = 2000 // of 65,536 that four digits tell apart: some 30 pairs
	for i := range n {
		fmt.Fprintf(&text, "  - {key: api_key, value: k%d, secret: true, rate_limit: {unit: minute, "+
			"requests_per_unit: 1}}\n", i)
	}
	set := mustParse(t, text.String())
	names, longer := make(map[string]bool), 0
	for _, r := range set.In("anywhere").Rules() {
		names[r.Name] = true
		if len(r.Name) > len("edge/api_key=#a1b2") {
			longer++
		}
	}
	if len(names) != n || longer == 0 || longer > 100 {
		t.Errorf("%d rules have %d names, %d of them longer", n, len(names), longer)
	}
}

// Nothing that a client is answered, decisions and errors alike, shows a value of a rule's place.
func TestAnswersShowNoValues(t *testing.T) {
	set := mustParse(t, namedRules)
	var texts []string
	for _, r := range set.Rules() {
		for _, identity := range []string{"", "x"} {
			_, err := set.Match(&Request{Rule: r.Name, Identity: identity}, Secret{}, nil)
			texts = append(texts, fmt.Sprint(err))
		}
	}
	for _, name := range []string{"nobody", "plan", "shared"} {
		_, err := set.Match(&Request{Rule: name}, Secret{}, nil)
		texts = append(texts, fmt.Sprint(err))
	}
	table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
	req := &Request{
		Domain: "edge",
		Descriptors: [][]Entry{{{"api_key", "s3cret"}}, {{"path", "/login"}, {"remote_address", "192.0.2.1"}},
			{{"plan", "gold"}}},
	}
	found, err := set.Match(req, Secret{}, nil)
	testkit.Must(t, err)
	for i := range found {
		charge := found[i].Charge(req, 1)
		d := table.Take(charge.Limit, charge.Key, 1, 1)
		found[i].Annotate(req, &charge, &d)
		texts = append(texts, d.Rule)
	}
	for _, text := range texts {
		for _, value := range []string{"s3cret", "named", "/login", "gold"} {
			if strings.Contains(text, value) {
				t.Errorf("%q shows %s", text, value)
			}
		}
	}
}

// What explains a match hides secrets as well, in requests and in rules.
func TestExplanationsShowNoSecrets(t *testing.T) {
	set := mustParse(t, `
domain: edge
descriptors:
  - {key: api_key, value: s3cret, secret: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: api_key, value: "s3cret-*", secret: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: token, secret: true, rate_limit: {unit: minute, requests_per_unit: 1}}
`)
	for _, e := range []Entry{{"api_key", "s3cret"}, {"api_key", "s3cret-7"}, {"token", "s3cret"}, {"api_key", "x"}} {
		layers, err := set.Explain(&Request{Domain: "edge", Descriptors: [][]Entry{{e}}}, Secret{}, time.Now())
		testkit.Must(t, err)
		for _, l := range layers {
			if l.Entries = nil; strings.Contains(fmt.Sprintf("%v %v %v", l.Why, l.Counted, l.Nearest), "s3cret") {
				t.Errorf("%v: %v, counted %v", e, l.Why, l.Counted)
			}
		}
	}
}
