package rules

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMatchWildcards(t *testing.T) {
	for _, tt := range []struct {
		wild string
		yes  []string
		no   []string
	}{
		{"*", []string{"", "x", "*", "/a/b"}, nil},
		{"a*", []string{"a", "ab", "a*"}, []string{"", "b", "ba", "A"}},
		{"*a", []string{"a", "ba", "aa"}, []string{"", "ab"}},
		{"/api/*/action", []string{"/api/1/action", "/api//action", "/api/a/b/action"},
			[]string{"/api/action", "/api/1/other", "/api/1/action/"}},
		{"ab*ba", []string{"abba", "abxba"}, []string{"aba", "ab", "ba"}},
		{"/api/*/resource/*/action", []string{"/api/v1/resource/1/action"},
			[]string{"/api/v1/action", "/api/resource/1/action"}},
		{"a*b*c", []string{"abc", "abbc", "axbxbxc"}, []string{"acb", "ac", "abcb"}},
		{"a**b", []string{"ab", "axb"}, []string{"a", "b"}},
		{"*x*", []string{"x", "axb"}, []string{"", "ab"}},
	} {
		for _, value := range tt.yes {
			if !matchWildcards(tt.wild, value) {
				t.Errorf("%q does not fit %q", value, tt.wild)
			}
		}
		for _, value := range tt.no {
			if matchWildcards(tt.wild, value) {
				t.Errorf("%q fits %q", value, tt.wild)
			}
		}
	}
}

// However the patterns are found, the first in the file that fits wins, as by regular expressions.
func TestWildcardsAgainstRegexp(t *testing.T) {
	wild := rapid.StringOfN(rapid.RuneFrom([]rune("ab**")), 1, 6, -1).Filter(IsWild)
	rapid.Check(t, func(t *rapid.T) {
		patterns := rapid.SliceOfNDistinct(wild, 1, 8, rapid.ID[string]).Draw(t, "patterns")
		value := rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 0, 8, -1).Draw(t, "value")
		var w wildcards
		nodes := make([]*Node, len(patterns))
		want := -1
		for i, p := range patterns {
			nodes[i] = &Node{}
			w.add(p, i, nodes[i])
			re := regexp.MustCompile(`\A` + strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, `.*`) + `\z`)
			if want < 0 && re.MatchString(value) {
				want = i
			}
		}
		switch got := w.find(value); {
		case want < 0 && got != nil, want >= 0 && got != nodes[want]:
			t.Fatalf("%q among %q: want number %d", value, patterns, want)
		}
	})
}

func TestMatchOrderWithWildcards(t *testing.T) {
	s := mustParse(t, `
domain: d
descriptors:
  - key: path
    rate_limit: {name: bare, unit: second, requests_per_unit: 1}
  - key: path
    value: /a/*
    rate_limit: {name: under_a, unit: second, requests_per_unit: 1}
  - key: path
    value: /*
    rate_limit: {name: slash, unit: second, requests_per_unit: 1}
  - key: path
    value: /a/*/c
    rate_limit: {name: never first, unit: second, requests_per_unit: 1}
  - key: path
    value: /a/b
    rate_limit: {name: exact, unit: second, requests_per_unit: 1}
  - key: path
    value: /hidden*
  - key: other
    value: "*"
    descriptors: [{key: deep, rate_limit: {name: deep, unit: second, requests_per_unit: 1}}]
`)
	for _, tt := range []struct {
		entries []Entry
		want    string
	}{
		{[]Entry{{"path", "/a/b"}}, "exact"},
		{[]Entry{{"path", "/a/x"}}, "under_a"},
		{[]Entry{{"path", "/a/"}}, "under_a"},
		{[]Entry{{"path", "/a/x/c"}}, "under_a"},
		{[]Entry{{"path", "/a/*/c"}}, "never first"}, // its own text is an exact value, as in the reference
		{[]Entry{{"path", "/b"}}, "slash"},
		{[]Entry{{"path", "/hidden"}}, "slash"},
		{[]Entry{{"path", "b"}}, "bare"},
		{[]Entry{{"path", ""}}, "bare"},
		{[]Entry{{"path", "/a/x"}, {"deep", "y"}}, ""},
		{[]Entry{{"other", ""}, {"deep", "y"}}, "deep"},
		{[]Entry{{"other", "x"}}, ""},
	} {
		got := matched(t, s, &Request{Domain: "d", Descriptors: [][]Entry{tt.entries}}, testSecret)
		name := ""
		if got[0].Rule != nil {
			name = got[0].Rule.Name
		}
		if name != tt.want {
			t.Errorf("%q meets %q, want %q", tt.entries, name, tt.want)
		}
	}
}

// Each value of a wildcard has its own count, unless they share one.
func TestWildcardCounts(t *testing.T) {
	s := mustParse(t, `
domain: d
descriptors:
  - key: file
    value: own/*
    rate_limit: {name: own, unit: second, requests_per_unit: 1}
  - key: file
    value: shared/*
    share_threshold: true
    rate_limit: {name: shared, unit: second, requests_per_unit: 1}
    descriptors:
      - key: user
        rate_limit: {name: shared_per_user, unit: second, requests_per_unit: 1}
`)
	key := func(entries ...Entry) Match {
		got, err := s.Match(&Request{Domain: "d", Descriptors: [][]Entry{entries}}, testSecret, nil)
		if err != nil || got[0].Rule == nil {
			t.Fatalf("%q: %v, %v", entries, got, err)
		}
		return got[0]
	}
	if key(Entry{"file", "own/a"}) == key(Entry{"file", "own/b"}) {
		t.Error("two values of a wildcard have one count")
	}
	if key(Entry{"file", "shared/a"}) != key(Entry{"file", "shared/b"}) {
		t.Error("two values that share their threshold have a count each")
	}
	a := key(Entry{"file", "shared/a"}, Entry{"user", "x"})
	if a != key(Entry{"file", "shared/b"}, Entry{"user", "x"}) ||
		a == key(Entry{"file", "shared/b"}, Entry{"user", "y"}) {
		t.Error("what is shared is the file, not the user")
	}
	byName := func(rule, identity string) (Match, error) {
		got, err := s.Match(&Request{Rule: rule, Identity: identity}, testSecret, nil)
		if err != nil {
			return Match{}, err
		}
		return got[0], nil
	}
	if m, err := byName("own", "own/a"); err != nil || m != key(Entry{"file", "own/a"}) {
		t.Errorf("by name: %v, %v", m, err)
	}
	if _, err := byName("own", "other/a"); err == nil ||
		!strings.Contains(err.Error(), "does not fit what rule own is for") {
		t.Errorf("an identity that does not fit: %v", err)
	}
	if m, err := byName("shared", ""); err != nil || m != key(Entry{"file", "shared/a"}) {
		t.Errorf("a shared count by name: %v, %v", m, err)
	}
	if m, err := byName("shared_per_user", "x"); err != nil || m != a {
		t.Errorf("beneath a shared value: %v, %v", m, err)
	}
}

func TestReplaces(t *testing.T) {
	s := mustParse(t, `
domain: d
descriptors:
  - {key: a, rate_limit: {name: a, unit: second, requests_per_unit: 1}}
  - {key: b, rate_limit: {name: b, unit: second, requests_per_unit: 1, replaces: [{name: a}]}}
  - {key: c, rate_limit: {name: c, unit: second, requests_per_unit: 1, replaces: [{name: b}]}}
  - {key: x, rate_limit: {name: x, unit: second, requests_per_unit: 1}}
  - {key: y, rate_limit: {name: y, unlimited: true, replaces: [{name: x}]}}
  - {key: n, rate_limit: {unit: second, requests_per_unit: 1, replaces: [{name: d/plain}]}}
  - {key: plain, rate_limit: {unit: second, requests_per_unit: 1}}
`)
	for keys, want := range map[string]string{
		"a":   "a",
		"ab":  "-b",
		"ba":  "b-",
		"abc": "--c", // b is replaced, and replaces a all the same
		"aba": "-b-",
		"xy":  "-y",
		"bc":  "-c",
		"ax":  "ax",
	} {
		var req Request
		for _, k := range keys {
			req.Descriptors = append(req.Descriptors, []Entry{{string(k), "1"}})
		}
		req.Domain = "d"
		got := matched(t, s, &req, testSecret)
		text := ""
		for _, m := range got {
			if m.Rule == nil {
				text += "-"
				if m != (Match{}) {
					t.Errorf("%s: a replaced layer is %v", keys, m)
				}
				continue
			}
			text += m.Rule.Name
		}
		if text != want {
			t.Errorf("descriptors of %s meet %s, want %s", keys, text, want)
		}
	}
	got, err := s.Match(&Request{Domain: "d", Descriptors: [][]Entry{{{"plain", "1"}}, {{"n", "1"}}}}, testSecret,
		[]Match{{Key: 3}})
	if err != nil || got[0].Key != 3 || got[1].Rule != nil || got[2].Rule == nil {
		t.Errorf("a rule without a name is not replaced by its place: %v, %v", got, err)
	}
}
