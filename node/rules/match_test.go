package rules

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

const matchRules = `
domain: edge
descriptors:
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        rate_limit: {name: login, window: 10s, requests_per_unit: 5}
      - key: remote_address
        value: 192.0.2.66
  - key: path
    rate_limit: {name: per_path, unit: second, requests_per_unit: 1000}
    descriptors:
      - key: method
        rate_limit: {name: per_path, unit: second, requests_per_unit: 500}
  - key: remote_address
    rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100}
  - key: remote_address
    value: 192.0.2.1
    rate_limit: {name: office, unlimited: true}
  - key: everything
    value: all
    rate_limit: {name: total, unit: second, requests_per_unit: 5000}
---
domain: other
descriptors:
  - key: remote_address
    rate_limit: {name: per_ip, unit: hour, requests_per_unit: 9}
  - key: odd
    rate_limit: {name: edge/remote_address, unit: hour, requests_per_unit: 9}
`

func TestMatch(t *testing.T) {
	s := mustParse(t, matchRules)
	tests := []struct {
		name    string
		domain  string
		entries []Entry
		want    string // full name, "" for no rule
	}{
		{"bare key", "edge", []Entry{{"remote_address", "198.51.100.7"}}, "edge/remote_address"},
		{"bare key, empty value", "edge", []Entry{{"remote_address", ""}}, "edge/remote_address"},
		{"exact value wins", "edge", []Entry{{"remote_address", "192.0.2.1"}}, "edge/remote_address=192.0.2.1"},
		{"values are case sensitive", "edge", []Entry{{"everything", "All"}}, ""},
		{"nested", "edge", []Entry{{"path", "/login"}, {"remote_address", "198.51.100.7"}},
			"edge/path=/login/remote_address"},
		{"an exact value without rate_limit hides the bare key", "edge",
			[]Entry{{"path", "/login"}, {"remote_address", "192.0.2.66"}}, ""},
		{"half way", "edge", []Entry{{"path", "/login"}}, ""},
		{"no way back to the bare key", "edge", []Entry{{"path", "/login"}, {"method", "GET"}}, ""},
		{"bare key half way", "edge", []Entry{{"path", "/"}, {"method", "GET"}}, "edge/path/method"},
		{"rule half way does not count", "edge", []Entry{{"path", "/"}, {"host", "example.com"}}, ""},
		{"too deep", "edge", []Entry{{"remote_address", "198.51.100.7"}, {"path", "/"}}, ""},
		{"order matters", "edge", []Entry{{"remote_address", "198.51.100.7"}, {"path", "/login"}}, ""},
		{"exact key only", "edge", []Entry{{"everything", "all"}}, "edge/everything=all"},
		{"unknown key", "edge", []Entry{{"user", "joe"}}, ""},
		{"other domain", "other", []Entry{{"remote_address", "198.51.100.7"}}, "other/remote_address"},
		{"unknown domain", "nowhere", []Entry{{"remote_address", "198.51.100.7"}}, ""},
		{"domains are case sensitive", "Edge", []Entry{{"remote_address", "198.51.100.7"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := s.Match(&Request{Domain: tt.domain, Descriptors: [][]Entry{tt.entries}}, testSecret, nil)
			if err != nil || len(got) != 1 {
				t.Fatalf("%d matches: %v", len(got), err)
			}
			compareMatch(t, got[0], tt.want, tt.entries)
		})
	}
}

func compareMatch(t testing.TB, got Match, fullName string, entries []Entry) {
	t.Helper()
	if fullName == "" {
		if got != (Match{}) {
			t.Errorf("%q meets %s", entries, got.Rule)
		}
		return
	}
	var values []string
	for i, e := range entries {
		if got.Rule == nil || !got.Rule.Steps[i].Open {
			continue
		}
		value := e.Value
		if prefix := (&Step{IPv6: 64}).group(value); prefix.Addr().Is6() && e.Key == "remote_address" {
			bytes := prefix.Addr().As16()
			value = string(append(bytes[:], 64))
		}
		values = append(values, value)
	}
	if got.Rule == nil || got.Rule.FullName != fullName || got.Key != slowKey(testSecret, values...) {
		t.Errorf("%q meets %v with key %#x, want %s", entries, got.Rule, uint64(got.Key), fullName)
	}
}

func TestMatchAppendsInOrder(t *testing.T) {
	s := mustParse(t, matchRules)
	req := Request{Domain: "edge", Descriptors: [][]Entry{
		{{"user", "joe"}},
		{{"everything", "all"}},
		{{"path", "/login"}, {"remote_address", "198.51.100.7"}},
		{{"everything", "all"}},
	}}
	got, err := s.Match(&req, testSecret, []Match{{Key: 7}})
	if err != nil || len(got) != 5 || got[0] != (Match{Key: 7}) {
		t.Fatalf("%v: %v", got, err)
	}
	for i, want := range []string{"", "edge/everything=all", "edge/path=/login/remote_address", "edge/everything=all"} {
		compareMatch(t, got[i+1], want, req.Descriptors[i])
	}
}

func TestMatchZeroSet(t *testing.T) {
	var s Set
	got, err := s.Match(&Request{Domain: "edge", Descriptors: [][]Entry{{{"a", "b"}}}}, Secret{}, nil)
	if err != nil || len(got) != 1 || got[0] != (Match{}) {
		t.Errorf("%v: %v", got, err)
	}
	if _, err := s.Match(&Request{Rule: "a"}, Secret{}, nil); !errors.Is(err, ErrUnknownRule) {
		t.Errorf("a rule of a set without rules: %v", err)
	}
}

func TestMatchByRule(t *testing.T) {
	s := mustParse(t, matchRules)
	tests := []struct {
		req  Request
		want string
		same []Entry // the descriptor that has the same key
	}{
		{Request{Rule: "login", Identity: "198.51.100.7"}, "edge/path=/login/remote_address",
			[]Entry{{"path", "/login"}, {"remote_address", "198.51.100.7"}}},
		{Request{Rule: "edge/path=/login/remote_address", Identity: "::1"}, "edge/path=/login/remote_address",
			[]Entry{{"path", "/login"}, {"remote_address", "::1"}}},
		{Request{Rule: "per_ip", Domain: "edge", Identity: "::1"}, "edge/remote_address",
			[]Entry{{"remote_address", "::1"}}},
		{Request{Rule: "per_ip", Domain: "other", Identity: "::1"}, "other/remote_address",
			[]Entry{{"remote_address", "::1"}}},
		{Request{Rule: "total"}, "edge/everything=all", []Entry{{"everything", "all"}}},
		{Request{Rule: "office"}, "edge/remote_address=192.0.2.1", []Entry{{"remote_address", "192.0.2.1"}}},
		// A name that is another rule's full name does not hide that rule, and can still be reached through its domain.
		{Request{Rule: "edge/remote_address", Identity: "::1"}, "edge/remote_address",
			[]Entry{{"remote_address", "::1"}}},
		{Request{Rule: "edge/remote_address", Domain: "other", Identity: "x"}, "other/odd", []Entry{{"odd", "x"}}},
	}
	for _, tt := range tests {
		got, err := s.Match(&tt.req, testSecret, nil)
		if err != nil || len(got) != 1 {
			t.Errorf("%+v: %v, %v", tt.req, got, err)
			continue
		}
		compareMatch(t, got[0], tt.want, tt.same)
		domain, _, _ := strings.Cut(tt.want, "/")
		through, err := s.Match(&Request{Domain: domain, Descriptors: [][]Entry{tt.same}}, testSecret, nil)
		if err != nil || got[0] != through[0] {
			t.Errorf("%+v: %v, but through descriptors %v (%v)", tt.req, got, through, err)
		}
	}
}

func TestMatchByRuleRefusals(t *testing.T) {
	s := mustParse(t, matchRules)
	tests := []struct {
		req  Request
		kind error
		want string
	}{
		{Request{Rule: "nobody", Identity: "x"}, ErrUnknownRule, `unknown rule "nobody"`},
		{Request{Rule: "login", Domain: "other", Identity: "x"}, ErrUnknownRule,
			`unknown rule "login" in domain "other"`},
		{Request{Rule: "login", Domain: "nowhere", Identity: "x"}, ErrUnknownRule, `in domain "nowhere"`},
		{Request{Rule: "edge/path=/login"}, ErrUnknownRule, "unknown rule"},
		{Request{Rule: "per_ip", Identity: "x"}, ErrInvalidRequest, "edge/per_ip, other/per_ip"},
		{Request{Rule: "per_path", Domain: "edge", Identity: "x"}, ErrInvalidRequest, "edge/path, edge/path/method"},
		{
			Request{Rule: "edge/path/method", Identity: "x"},
			ErrInvalidRequest,
			"counts by path, method: use descriptors",
		},
	}
	for _, tt := range tests {
		got, err := s.Match(&tt.req, testSecret, nil)
		if got != nil || !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.req, err, tt.want)
		}
	}
}

func TestRefusalsAreShort(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "- {key: k%d, rate_limit: {name: same, unlimited: true}}\n", i)
	}
	s := mustParse(t, b.String())
	_, err := s.Match(&Request{Rule: "same", Identity: "x"}, testSecret, nil)
	if !errors.Is(err, ErrInvalidRequest) || !strings.HasSuffix(err.Error(), "d/k14, d/k15 and 84 more") {
		t.Errorf("a hundred rules of a name: %v", err)
	}
	_, err = s.Match(&Request{Rule: strings.Repeat("x", 1<<20)}, testSecret, nil)
	if !errors.Is(err, ErrUnknownRule) || len(err.Error()) > 500 {
		t.Errorf("the error about a very long name has %d bytes", len(err.Error()))
	}
}

// naive is the matching order, written to be obviously right: among the rules as they stand in the file.
type naive struct {
	path []Entry
	rule bool
}

func naiveFind(all []naive, entries []Entry) (path []Entry, found bool) {
	for depth := range entries {
		exact := append(path[:depth:depth], entries[depth])
		bare := append(path[:depth:depth], Entry{Key: entries[depth].Key})
		wild := naiveWild(all, path, entries[depth])
		switch {
		case entries[depth].Value != "" && naiveKnows(all, exact):
			path = exact
		case wild != nil:
			path = wild
		case naiveKnows(all, bare):
			path = bare
		default:
			return nil, false
		}
	}
	for _, n := range all {
		if n.rule && fmt.Sprint(n.path) == fmt.Sprint(path) {
			return path, true
		}
	}
	return nil, false
}

func naiveKnows(all []naive, path []Entry) bool {
	for _, n := range all {
		if len(n.path) >= len(path) && fmt.Sprint(n.path[:len(path)]) == fmt.Sprint(path) {
			return true
		}
	}
	return false
}

// naiveWild returns the path to the first wildcard under a path that the entry fits, nil when there is none.
func naiveWild(all []naive, path []Entry, e Entry) []Entry {
	for _, n := range all {
		if len(n.path) <= len(path) || fmt.Sprint(n.path[:len(path)]) != fmt.Sprint(path) {
			continue
		}
		if w := n.path[len(path)]; w.Key == e.Key && IsWild(w.Value) && matchWildcards(w.Value, e.Value) {
			return n.path[:len(path)+1]
		}
	}
	return nil
}

func TestMatchAgainstNaive(t *testing.T) {
	entry := rapid.Custom(func(t *rapid.T) Entry {
		return Entry{
			rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"),
			rapid.SampledFrom([]string{"", "x", "y", "xy", "x*", "*y", "*"}).Draw(t, "value"),
		}
	})
	path := rapid.SliceOfN(entry, 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		type place struct {
			Place
			node *Node
		}
		top := place{Place{Domain: "d", FullName: "d"}, &Node{}}
		places := map[string]place{fmt.Sprint([]Entry{}): top}
		var all []naive
		for _, p := range rapid.SliceOfNDistinct(path, 1, 8, func(p []Entry) string { return fmt.Sprint(p) }).Draw(t,
			"rules") {
			at := top
			for depth, e := range p {
				id := fmt.Sprint(p[:depth+1])
				if _, ok := places[id]; !ok {
					next := place{at.Below(e, Step{Open: e.Value == "" || IsWild(e.Value)}), &Node{}}
					at.node.Attach(e, next.node)
					places[id] = next
				}
				at = places[id]
			}
			at.node.Rule = NewRule(at.Place)
			all = append(all, naive{p, true})
		}
		s := &Set{domains: map[string]*Node{"d": top.node}}
		entries := path.Draw(t, "entries")
		got := matched(t, s, &Request{Domain: "d", Descriptors: [][]Entry{entries}}, testSecret)
		want, found := naiveFind(all, entries)
		if found != (got[0].Rule != nil) || found && fmt.Sprint(got[0].Rule.Entries) != fmt.Sprint(want) {
			t.Fatalf("%v meets %v, want %v", entries, got[0].Rule, want)
		}
	})
}

func TestMatchConcurrently(t *testing.T) {
	s := mustParse(t, matchRules)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			identity := fmt.Sprint("198.51.100.", i)
			entries := []Entry{{"path", "/login"}, {"remote_address", identity}}
			var dst []Match
			for range 200 {
				var err error
				dst, err = s.Match(&Request{Domain: "edge", Descriptors: [][]Entry{entries}}, testSecret, dst[:0])
				if err != nil {
					t.Error(err)
					return
				}
				compareMatch(t, dst[0], "edge/path=/login/remote_address", entries)
				if _, err = s.Match(&Request{Rule: "login", Identity: identity}, testSecret, dst[:0]); err != nil {
					t.Error(err)
				}
				_ = s.Rules()
			}
		})
	}
	wg.Wait()
}

// thousand has a thousand rules, half of them two levels deep, and half of those under a wildcard.
func thousand(t testing.TB) *Set {
	var b strings.Builder
	b.WriteString("domain: edge\ndescriptors:\n")
	for i := range 250 {
		fmt.Fprintf(&b, `
- {key: tenant, value: tenant-%[1]d, rate_limit: {name: tenant-%[1]d, unit: minute, requests_per_unit: 100}}
- {key: tenant, value: team-%[1]d, rate_limit: {name: team-%[1]d, unit: minute, requests_per_unit: 100}}
- {key: path, value: /api/%[1]d, descriptors: [{key: remote_address,
    rate_limit: {name: api-%[1]d, unit: minute, requests_per_unit: 100}}]}
- {key: path, value: /files/%[1]d/*.txt, descriptors: [{key: remote_address,
    rate_limit: {name: files-%[1]d, unit: minute, requests_per_unit: 100}}]}
`, i)
	}
	return mustParse(t, b.String())
}

var hotRequests = map[string]Request{
	"one level":  {Domain: "edge", Descriptors: [][]Entry{{{"tenant", "tenant-123"}}}},
	"two levels": {Domain: "edge", Descriptors: [][]Entry{{{"path", "/api/123"}, {"remote_address", "198.51.100.7"}}}},
	"wildcard": {
		Domain:      "edge",
		Descriptors: [][]Entry{{{"path", "/files/123/readme.txt"}, {"remote_address", "198.51.100.7"}}},
	},
	"IPv6": {
		Domain:      "edge",
		Descriptors: [][]Entry{{{"path", "/api/123"}, {"remote_address", "2001:db8:1:2:3:4:5:6"}}},
	},
	"no rule": {Domain: "edge", Descriptors: [][]Entry{{{"path", "/nothing"}, {"remote_address", "198.51.100.7"}}}},
	"by rule": {Rule: "api-123", Identity: "198.51.100.7"},
}

func TestMatchAllocatesNothing(t *testing.T) {
	s := thousand(t)
	dst := make([]Match, 0, 4)
	for name, req := range hotRequests {
		allocs := testing.AllocsPerRun(100, func() {
			if _, err := s.Match(&req, testSecret, dst[:0]); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	s := thousand(b)
	for name, req := range hotRequests {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]Match, 0, 4)
			for b.Loop() {
				dst, _ = s.Match(&req, testSecret, dst[:0])
			}
		})
	}
	b.Run("parallel", func(b *testing.B) {
		req := hotRequests["two levels"]
		b.RunParallel(func(pb *testing.PB) {
			dst := make([]Match, 0, 4)
			for pb.Next() {
				dst, _ = s.Match(&req, testSecret, dst[:0])
			}
		})
	})
}
