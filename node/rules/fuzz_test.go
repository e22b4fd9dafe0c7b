package rules

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// checkParse holds whatever Parse makes of data against what it promises.
func checkParse(t *testing.T, data []byte) {
	t.Helper()
	s, err := Parse("f", data)
	if (s == nil) == (err == nil) {
		t.Fatalf("set %v and error %v", s, err)
	}
	if err != nil {
		line := 0
		for _, p := range problemsOf(t, err) {
			if p.File != "f" || p.Line < max(line, 1) || p.Column < 1 || p.Reason == "" {
				t.Fatalf("%+v after line %d", p, line)
			}
			line = p.Line
		}
		return
	}
	names := make(map[string]bool)
	for _, r := range s.Rules() {
		if r.Name == "" || names[r.FullName] {
			t.Fatalf("%q is there twice, or %q is empty", r.FullName, r.Name)
		}
		names[r.FullName] = true
		if r.Limit != nil && r.Limit.Meter().Validate() != nil {
			t.Fatalf("%s has the meter %v", r, r.Limit.Meter())
		}
		if r.parent != nil && (s.byFullName[r.Parent] != r.parent || r.parent.elastic || r.parent.Limit == nil) {
			t.Fatalf("%s borrows from %v", r, r.parent)
		}
		checkReachable(t, s, r)
	}
}

// checkReachable sends a request through the tree that must meet the rule, unless a wildcard before it in the file takes all, and one by
// its full name.
func checkReachable(t *testing.T, s *Set, r *Rule) {
	t.Helper()
	var through []Match
	if r.Domain != "" {
		entries := make([]Entry, len(r.path))
		shadowed := false
		for i, e := range r.path {
			entries[i] = e // of a wildcard it is an exact value too
			if e.Value == "" {
				entries[i].Value = identity
			}
			for _, sibling := range s.at(r, i).children {
				w := sibling.entry
				shadowed = shadowed || e.Value == "" && w.Key == e.Key && isWild(w.Value) && matchWildcards(w.Value, identity)
			}
		}
		var err error
		through, err = s.Match(&Request{Domain: r.Domain, Descriptors: [][]Entry{entries}}, testSecret, nil)
		if replaced := slices.Contains(r.Replaces, r.Name); err != nil || through[0].Rule != r && !shadowed && !replaced {
			t.Fatalf("%q meets %v, want %s (%v)", entries, through, r, err)
		}
		if through[0].Rule != r {
			return
		}
	}
	if len(r.open) > 1 {
		return
	}
	req := Request{Rule: r.FullName}
	if len(r.open) == 1 {
		if req.Identity = r.path[r.open[0]].Value; req.Identity == "" {
			req.Identity = identity
		}
	}
	direct, err := s.Match(&req, testSecret, nil)
	if err != nil || direct[0].Rule != r || through != nil && direct[0].Key != through[0].Key {
		t.Fatalf("%+v is %v, want %v (%v)", req, direct, through, err)
	}
}

// identity is no value of any file: none holds this character.
const identity = "\x01"

// at returns the node under which entry i of the rule's path stands.
func (s *Set) at(r *Rule, i int) *node {
	n := s.domains[r.Domain]
	for _, e := range r.path[:i] {
		for _, c := range n.children {
			if c.entry == e {
				n = c
				break
			}
		}
	}
	return n
}

func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add([]byte(matchRules))
	f.Add([]byte("domain: &d edge\ndescriptors: &l\n- &e {key: *d, value: !!binary aGk=, rate_limit: {<<: {unit: second}}, descriptors: *l}\n"))
	f.Add([]byte("? {}\n: !!int 1.5\n--- |\n a\n...\n%TAG ! !x\n--- !y\n"))
	files, err := filepath.Glob("testdata/*/*.*")
	if err != nil || len(files) == 0 {
		f.Fatal("no test files: ", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(checkParse)
}

// A rule file that an editor, a template or a disk has mangled must leave the node standing.
func TestMutatedFiles(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	texts := [][]byte{sample}
	for _, name := range []string{"reference.yaml", "extensions.yaml", "flat.json"} {
		text, err := os.ReadFile("testdata/valid/" + name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	alphabet := []byte(" \n\t:-*&!|>{}[],'\"#%?<~\\0aé\x00\xff")
	for i := range 2000 {
		data := append([]byte(nil), texts[i%len(texts)]...)
		for range 1 + rnd.IntN(8) {
			from := rnd.IntN(len(data))
			to := min(from+rnd.IntN(12), len(data))
			switch rnd.IntN(3) {
			case 0: // something is missing
				data = append(data[:from], data[to:]...)
			case 1: // something is there twice
				data = append(data[:to:to], data[from:]...)
			default: // something is wrong
				data[from] = alphabet[rnd.IntN(len(alphabet))]
			}
		}
		checkParse(t, data)
	}
}
