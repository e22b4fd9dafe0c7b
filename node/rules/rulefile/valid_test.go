package rulefile

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// validFile parses one of the files that are in order.
func validFile(t *testing.T, name string) map[string]*rules.Rule {
	t.Helper()
	path := filepath.Join("testdata/valid", name)
	data, err := os.ReadFile(path)
	testkit.Must(t, err)
	s, err := Parse(path, data)
	testkit.Must(t, err)
	named := make(map[string]*rules.Rule)
	for _, r := range s.Rules() {
		named[given(r)] = r
	}
	return named
}

// described holds that the rules of these names are so.
func described(t *testing.T, named map[string]*rules.Rule, all map[string]string) {
	t.Helper()
	for name, want := range all {
		if r := named[name]; r == nil {
			t.Errorf("no rule is named %s", name)
		} else if r.Describe() != want {
			t.Errorf("%s is %s, want %s", name, r.Describe(), want)
		}
	}
}

func TestReferenceFile(t *testing.T) {
	named := validFile(t, "reference.yaml")
	described(t, named, map[string]string{
		"reference/category=account":          "4 in 1 min by sliding_window, replaces per_reader",
		"reference/from=proxy/to=reader":      "2 in 1 min by sliding_window, replaces per_reader",
		"per_reader":                          "2 in 7 days by sliding_window",
		"reference/reader/page":               "3 in 30 days by sliding_window",
		"blocked":                             "0 in 365 days by sliding_window",
		"reference/reader/page=watched":       "3 in 1 day by sliding_window, shadow mode",
		"reference/reader/free":               "unlimited",
		"reference/service=two":               "2 in 1 min by sliding_window, quota mode",
		"reference/route/method":              "2 in 1 s by sliding_window",
		"reference/unspecified":               "2 in 1 h by sliding_window",
		"reference/files=/files%2F*":          "10 in 1 min by sliding_window",
		"reference/files=/*%2Fsecret%2F*.txt": "10 in 1 min by sliding_window",
	})
	want := map[string]any{"quota": map[string]any{"name": "one", "7": []any{1.5, true, nil, "2006-01-02"}}}
	if got := named["reference/service=one"].Metadata; !reflect.DeepEqual(got, want) {
		t.Errorf("metadata is %v, want %v", got, want)
	}
	if len(named) != 14 {
		t.Errorf("%d rules", len(named))
	}
}

func TestExtensionsFile(t *testing.T) {
	named := validFile(t, "extensions.yaml")
	r := named["per_ip"]
	wantPolicy := rules.Policy{Mode: counters.Soft, Margin: 2, Cost: 3, Each: true, Overdraw: rules.OverdrawCharge,
		OnPartition: counters.Local, OnFailure: rules.FailClosed, MaxUnsent: 50, Ban: 90 * time.Second}
	if r.Policy != wantPolicy || !reflect.DeepEqual(r.Regions, []string{"eu-west", "eu-north"}) {
		t.Errorf("policy %+v in %v", r.Policy, r.Regions)
	}
	described(t, named, map[string]string{
		"per_ip": "20, of which 100 in 10 s come back, by token_bucket and softly 2 more, " +
			"from 22:00 to 06:00 in Europe/Paris 20, of which 20 in 10 s come back, by token_bucket and softly 2 " +
			"more, " +
			"from 06:00 to 00:00 in UTC 0, of which 0 in 10 s come back, by token_bucket, " +
			"each costs 3, charged by itself, bans for 90 s, may be overdrawn, local in a partition, fails closed, " +
			"sends early after 50, only in eu-west eu-north, 2 allowed and 2 denied prefixes",
		"extensions/attempts": "10, of which 1 in 1 h come back, by leaky_queue, counted by each region for " +
			"itself, denies in a partition, fails open",
		"extensions/other_attempts": "20, of which 1 in 1 h come back, by leaky_queue, counted by each region for " +
			"itself, denies in a partition, fails open",
		"alone": "5 in 500 ms by sliding_window, counted by each node for itself, bans for 250 ms, " +
			"counts what it denies",
		"user":  "100 in 1 min by sliding_window, borrows from tenant",
		"batch": "0 in 1 min by sliding_window, borrows from tenant",
		"page":  "5 in 1 s by sliding_window, more up to a pressure of 0.7",
		"spare": "5 in 1 s by sliding_window, more up to a pressure of 0.5",
	})
}

func TestResponsesFile(t *testing.T) {
	named := validFile(t, "responses.yaml")
	described(t, named, map[string]string{
		"login":  "10 in 1 h by sliding_window, charges 1 after a response of 401 403",
		"errors": "10 in 1 h by sliding_window, charges 1 after a response of 499 5xx",
		"bytes":  "1000000 in 1 h by sliding_window, charges response_bytes after a response of any status",
		"tokens": "1000 in 1 h by sliding_window, charges header X-Rl-Cost after a response of 2xx",
		// the sixth waits for 500 ms, the fourth for a minute
		"report": "6, of which 10 in 1 s come back, by leaky_queue",
		"api":    "20, of which 10 in 1 s come back, by leaky_queue and with delays 5 more",
		"slow":   "4, of which 3 in 1 min come back, by leaky_queue",
	})
}

func TestFlatFile(t *testing.T) {
	named := validFile(t, "flat.json")
	described(t, named, map[string]string{
		"login":      "5 in 1 min by sliding_window",
		"search/all": "20, of which 100 in 1.5 s come back, by leaky_bucket and softly 10 more",
		"partner":    "unlimited, 0 allowed and 1 denied prefixes",
		"nightly": "10 in 1 h by sliding_window, shadow mode, from 01:00 to 06:00 in America/New_York 1 in 1 h " +
			"by sliding_window, " +
			"each costs 2, sends early after 5, only in eu-west",
		"attempts": "10, of which 1 in 1 h come back, by token_bucket",
	})
	for name, r := range named {
		if r.Domain != "" || !reflect.DeepEqual(r.OpenKeys(), []string{"identity"}) {
			t.Errorf("%s has open keys %v in domain %q", name, r.OpenKeys(), r.Domain)
		}
	}
	if got := named["search/all"].FullName; got != "search%2Fall" {
		t.Errorf("the full name is %s, which may be that of a descriptor", got)
	}
}

// A flat rule is met by its name alone, whatever the domains are called.
func TestFlatRulesAreOutsideOfDomains(t *testing.T) {
	s := mustParse(t, `
- {rule_id: login, limit: 5, window_seconds: 60}
- {rule_id: login/remote_address, limit: 7, window_seconds: 60}
---
domain: login
descriptors:
  - {key: identity, rate_limit: {name: in_domain, unit: second, requests_per_unit: 1}}
  - {key: remote_address, rate_limit: {name: in_domain_too, unit: second, requests_per_unit: 1}}
`)
	got, err := s.Match(&rules.Request{Rule: "login", Identity: "joe"}, rules.Secret{}, nil)
	if err != nil || got[0].Rule.Limit.Max() != 5 || got[0].Key != rules.KeyOf(rules.Secret{}, []byte("\x03joe")) {
		t.Errorf("%v, %v", got, err)
	}
	got, err = s.Match(&rules.Request{Domain: "login", Descriptors: one("identity", "joe")}, rules.Secret{}, nil)
	if err != nil || got[0].Rule.Name != "in_domain" {
		t.Errorf("%v, %v", got, err)
	}
	inDomain := &rules.Request{Rule: "login", Domain: "login", Identity: "joe"}
	if _, err := s.Match(inDomain, rules.Secret{}, nil); err == nil {
		t.Error("a flat rule is found in a domain")
	}
	if _, err := s.Match(&rules.Request{Rule: "login"}, rules.Secret{}, nil); err == nil {
		t.Error("a flat rule needs no identity")
	}
	byFullName := &rules.Request{Rule: "login%2Fremote_address", Identity: "joe"}
	if got, err := s.Match(byFullName, rules.Secret{}, nil); err != nil ||
		got[0].Rule.Limit.Max() != 7 {
		t.Errorf("by its full name: %v, %v", got, err)
	}
}

func TestDefaultAlgorithm(t *testing.T) {
	const text = "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n" +
		"- {key: b, rate_limit: {unit: day, requests_per_unit: 1, algorithm: sliding_log}}\n"
	s, err := Options{Algorithm: "fixed_window"}.Parse("f", []byte(text))
	testkit.Must(t, err)
	for i, want := range []counters.Algorithm{counters.FixedWindow, counters.SlidingLog} {
		if got := s.Rules()[i].Limit.Meter().Algorithm; got != want {
			t.Errorf("%s counts by %v, want %v", s.Rules()[i], got, want)
		}
	}
	for _, o := range []Options{{Algorithm: "guess"}, {Algorithm: "leaky_queue"}, {IPv6Prefix: -1}, {IPv6Prefix: 129}} {
		if _, err := o.Parse("f", []byte(text)); err == nil {
			t.Errorf("%+v is taken", o)
		}
		if _, err := o.Load("testdata/valid"); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestMergeDomains(t *testing.T) {
	dir := dirOf(t, map[string]string{
		"a.yaml": "domain: d\ndescriptors:\n- {key: path, value: /a/*, rate_limit: {name: first, unit: day, " +
			"requests_per_unit: 1}}\n",
		"b.yaml": "domain: d\ndescriptors:\n- {key: path, value: /*, rate_limit: {name: second, unit: day, " +
			"requests_per_unit: 1}}\n" +
			"- {key: user, rate_limit: {name: user, unit: day, requests_per_unit: 1}}\n---\ndomain: e\n",
	})
	if _, err := Load(dir); err == nil {
		t.Error("a domain is given twice, and nobody asked to merge it")
	}
	s, err := Options{MergeDomains: true}.Load(dir)
	testkit.Must(t, err)
	for value, want := range map[string]string{"/a/x": "first", "/b": "second"} {
		got, err := s.Match(&rules.Request{Domain: "d", Descriptors: one("path", value)}, rules.Secret{}, nil)
		if err != nil || got[0].Rule == nil || got[0].Rule.Name != want {
			t.Errorf("%s meets %v, want %s (%v)", value, got, want, err)
		}
	}
	twice := dirOf(t, map[string]string{
		"a.yaml": "domain: d\ndescriptors:\n- {key: a}\n- {key: b}\n",
		"b.yaml": "domain: d\ndescriptors:\n- {key: b, rate_limit: {unlimited: true}}\n",
	})
	_, err = Options{MergeDomains: true}.Load(twice)
	compareProblems(
		t, twice+"/b.yaml", err, []string{`3:9: descriptor "b" was already given at ` + twice + "/a.yaml:4"},
	)
}

// one returns the descriptors of one entry.
func one(key, value string) [][]rules.Entry { return [][]rules.Entry{{{Key: key, Value: value}}} }
