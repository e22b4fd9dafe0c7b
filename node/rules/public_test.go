package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const secretRules = `
domain: edge
descriptors:
  - {key: api_key, value: s3cret, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: api_key, value: 0ther, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: api_key, value: named, rate_limit: {name: partner, unit: minute, requests_per_unit: 1}}
  - {key: api_key, value: again, rate_limit: {name: partner, unit: minute, requests_per_unit: 1}}
  - {key: api_key, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: every, value: "*", rate_limit: {unit: minute, requests_per_unit: 1}}
  - key: tenant
    value: s3cret-*
    descriptors: [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 1}}]
`

// What leaves the node of a rule shows no value that the file gives, is each rule's own, and follows from the rule
// alone; what counts, which travels to peers and Redis, is called as ever, so that no count starts anew.
func TestPublicNames(t *testing.T) {
	set := mustParse(t, secretRules)
	var got []string
	for _, r := range set.Rules() {
		got = append(got, r.Name+" "+r.PublicName)
		if r.Limit.Meter().Rule != r.FullName {
			t.Errorf("%s is counted as %s", r, r.Limit.Meter().Rule)
		}
		for _, name := range []string{r.Name, r.PublicName, r.FullName} {
			if name == "partner" {
				continue // two have it
			}
			if found, ambiguous := set.Lookup(name, ""); found != r || ambiguous != "" {
				t.Errorf("asked for as %s it is %v, %s", name, found, ambiguous)
			}
		}
	}
	want := []string{
		"edge/api_key#be5a edge/api_key#be5a", "edge/api_key#bd3b edge/api_key#bd3b", "partner edge/api_key#partner",
		"partner edge/api_key#1e25", "edge/api_key edge/api_key", "edge/every=* edge/every=*",
		"edge/tenant/remote_address#4173 edge/tenant/remote_address#4173", // sha256 of the full names
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("they are called\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if unnamed := fmt.Sprint(set.Unnamed()); unnamed != "[edge/api_key=s3cret edge/api_key=0ther "+
		"edge/tenant=s3cret-*/remote_address]" {
		t.Errorf("a name is wanting for %s", unnamed)
	}
}

// Of rules whose digits are the same, the later one gets more of them.
func TestPublicNamesAreUnique(t *testing.T) {
	var text strings.Builder
	text.WriteString("domain: edge\ndescriptors:\n")
	const n = 2000 // of 65,536 that four digits tell apart: some 30 pairs
	for i := range n {
		fmt.Fprintf(&text, "  - {key: api_key, value: k%d, rate_limit: {unit: minute, requests_per_unit: 1}}\n", i)
	}
	set := mustParse(t, text.String())
	names, longer := make(map[string]bool), 0
	for _, r := range set.In("anywhere").Rules() {
		names[r.PublicName] = true
		if len(r.PublicName) > len("edge/api_key#a1b2") {
			longer++
		}
	}
	if len(names) != n || longer == 0 || longer > 100 {
		t.Errorf("%d rules have %d names, %d of them longer", n, len(names), longer)
	}
}

// Nothing that a client is answered, decisions and errors alike, shows a value that the file gives.
func TestAnswersShowNoValues(t *testing.T) {
	set := mustParse(t, secretRules)
	var texts []string
	for _, r := range set.Rules() {
		for _, identity := range []string{"", "x"} {
			_, err := set.Match(&Request{Rule: r.PublicName, Identity: identity}, Secret{}, nil)
			texts = append(texts, fmt.Sprint(err))
		}
	}
	_, err := set.Match(&Request{Rule: "partner"}, Secret{}, nil)
	texts = append(texts, fmt.Sprint(err))
	table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
	req := &Request{
		Domain:      "edge",
		Descriptors: [][]Entry{{{"api_key", "s3cret"}}, {{"tenant", "s3cret-1"}, {"remote_address", "192.0.2.1"}}},
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
		for _, value := range []string{"s3cret", "0ther", "named", "again"} {
			if strings.Contains(text, value) && !strings.Contains(text, "several rules are named") {
				t.Errorf("%q shows %s", text, value)
			}
		}
	}
}
