package rules_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// checkParse checks the invariants of Parse on data.
func checkParse(t *testing.T, data []byte) {
	t.Helper()
	s, err := rulefile.Parse("f", data)
	if (s == nil) == (err == nil) {
		t.Fatalf("set %v and error %v", s, err)
	}
	if err != nil {
		line := 0
		for _, problem := range rulefile.Problems(err) {
			p, ok := problem.(*rulefile.Error)
			if !ok || p.File != "f" || p.Line < max(line, 1) || p.Column < 1 || p.Reason == "" {
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
		parent := r.Lender()
		if parent != nil && (s.Rule(r.Parent) != parent || parent.Elastic || parent.Limit == nil) {
			t.Fatalf("%s borrows from %v", r, parent)
		}
		checkReachable(t, s, r)
	}
}

// checkReachable sends a request through the tree that must meet the rule, unless a wildcard before it in the file
// takes all, and one by its full name.
func checkReachable(t *testing.T, s *rules.Set, r *rules.Rule) {
	t.Helper()
	var through []rules.Match
	if r.Domain != "" {
		entries := make([]rules.Entry, len(r.Path()))
		shadowed := false
		for i, e := range r.Path() {
			entries[i] = e // of a wildcard it is an exact value too
			if e.Value == "" {
				entries[i].Value = identity
			}
			shadowed = shadowed || e.Value == "" && s.WildcardFits(r, i, identity)
		}
		var err error
		req := rules.Request{Domain: r.Domain, Descriptors: [][]rules.Entry{entries}}
		through, err = s.Match(&req, rules.Secret{1}, nil)
		if replaced := slices.Contains(r.Replaces, r.Name); err != nil ||
			through[0].Rule != r && !shadowed && !replaced {
			t.Fatalf("%q meets %v, want %s (%v)", entries, through, r, err)
		}
		if through[0].Rule != r {
			return
		}
	}
	if len(r.OpenPlaces()) > 1 {
		return
	}
	req := rules.Request{Rule: r.FullName}
	if len(r.OpenPlaces()) == 1 {
		if req.Identity = r.Path()[r.OpenPlaces()[0]].Value; req.Identity == "" {
			req.Identity = identity
		}
	}
	direct, err := s.Match(&req, rules.Secret{1}, nil)
	if err != nil || direct[0].Rule != r || through != nil && direct[0].Key != through[0].Key {
		t.Fatalf("%+v is %v, want %v (%v)", req, direct, through, err)
	}
}

// identity is no value of any file: none holds this character.
const identity = "\x01"

func sampleFile(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("rulefile/sample.yaml")
	testkit.Must(t, err)
	return text
}

func init() {
	rules.SetParse(func(text string, ipv6Prefix int) (*rules.Set, error) {
		return rulefile.Options{IPv6Prefix: ipv6Prefix}.Parse("test.yaml", []byte(text))
	})
}

func FuzzParse(f *testing.F) {
	f.Add(sampleFile(f))
	f.Add([]byte(rules.MatchRules))
	f.Add(
		[]byte(
			"domain: &d edge\ndescriptors: &l\n- &e {key: *d, value: !!binary aGk=, rate_limit: {<<: {unit: " +
				"second}}, descriptors: *l}\n",
		),
	)
	f.Add([]byte("? {}\n: !!int 1.5\n--- |\n a\n...\n%TAG ! !x\n--- !y\n"))
	files, err := filepath.Glob("rulefile/testdata/*/*.*")
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
	texts := [][]byte{sampleFile(t)}
	for _, name := range []string{"reference.yaml", "extensions.yaml", "flat.json"} {
		text, err := os.ReadFile("rulefile/testdata/valid/" + name)
		testkit.Must(t, err)
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
