package rules

import (
	"math/rand/v2"
	"os"
	"path/filepath"
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
		checkReachable(t, s, r)
	}
}

// checkReachable sends a request through the tree that must meet the rule, and one by its full name.
func checkReachable(t *testing.T, s *Set, r *Rule) {
	t.Helper()
	entries := make([]Entry, len(r.path))
	for i, e := range r.path {
		entries[i] = e
		if e.Value == "" {
			entries[i].Value = "*" // no file can hold this value, so that no exact one wins
		}
	}
	through, err := s.Match(&Request{Domain: r.Domain, Descriptors: [][]Entry{entries}}, testSecret, nil)
	if err != nil || through[0].Rule != r {
		t.Fatalf("%q meets %v, want %s (%v)", entries, through, r, err)
	}
	if r.open > 1 {
		return
	}
	req := Request{Rule: r.FullName}
	if r.open == 1 {
		req.Identity = "*"
	}
	direct, err := s.Match(&req, testSecret, nil)
	if err != nil || direct[0] != through[0] {
		t.Fatalf("%+v is %v, want %v (%v)", req, direct, through, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add([]byte(matchRules))
	f.Add([]byte("domain: &d edge\ndescriptors: &l\n- &e {key: *d, value: !!binary aGk=, rate_limit: {<<: {unit: second}}, descriptors: *l}\n"))
	f.Add([]byte("? {}\n: !!int 1.5\n--- |\n a\n...\n%TAG ! !x\n--- !y\n"))
	files, err := filepath.Glob("testdata/reject/*.yaml")
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
	alphabet := []byte(" \n\t:-*&!|>{}[],'\"#%?<~\\0aé\x00\xff")
	for range 1000 {
		data := append([]byte(nil), sample...)
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
