package rulefile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// manyRules is a file of n rules.
func manyRules(n int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - key: client\n    value: partner-%d\n    rate_limit:\n      name: partner_%[1]d\n"+
			"      unit: minute\n      requests_per_unit: %[1]d\n", i)
	}
	return b.String()
}

// Files of as many rules as people have load, soon.
func TestRatelimitManyRules(t *testing.T) {
	for _, n := range []int{3_100, 20_000} {
		text := []byte(manyRules(n))
		begun := time.Now()
		s, err := compatible.Parse("f", text)
		if err != nil || len(s.Rules()) != n || len(s.Warnings()) != 0 {
			t.Fatalf("%d rules: %.300v", n, err)
		}
		t.Logf("%d rules, %d bytes: %v", n, len(text), time.Since(begun))
	}
}

// nested is a file of descriptors in one another, in one line.
func nested(depth int, inner string) string {
	return "domain: d\ndescriptors: " + strings.Repeat("[{key: a, descriptors: ", depth) + inner +
		strings.Repeat("}]", depth) + "\n"
}

func TestRatelimitDeep(t *testing.T) {
	const rule = "[{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]"
	for _, test := range []struct {
		depth, rules, warnings int
	}{{31, 1, 0}, {32, 1, 1}, {maxDepthThere - 1, 1, 1}, {maxDepthThere, 0, 2}, {1000, 0, 10}, {4000, 0, 60}} {
		s, err := compatible.Parse("f", []byte(nested(test.depth, rule)))
		if err != nil {
			t.Fatalf("depth %d: %.300v", test.depth, err)
		}
		if len(s.Rules()) != test.rules || len(s.Warnings()) < min(test.warnings, 1) {
			t.Errorf("depth %d: %d rules, warnings %.300v", test.depth, len(s.Rules()), s.Warnings())
		}
	}
	for _, depth := range []int{50, 200, 4000} { // what is wrong is found at any depth
		for _, wrong := range []string{"[{key: ''}]", "[{key: b}, {key: b}]", "[{key: b, rate_limit: {unit: x}}]",
			"[{bogus: b}]"} {
			if _, err := compatible.Parse("f", []byte(nested(depth, wrong))); err == nil {
				t.Errorf("depth %d: %s is taken", depth, wrong)
			}
		}
	}
	if _, err := compatible.Parse("f", []byte(nested(100_000, rule))); err == nil {
		t.Error("descriptors 100,000 deep are taken")
	}
}

// Rules deeper than other files have them are met by Envoy's requests, and by their name.
func TestRatelimitDeepMatch(t *testing.T) {
	text := nested(40, "[{key: b, rate_limit: {name: n, unit: day, requests_per_unit: 1}}]")
	text = strings.ReplaceAll(text, "key: a,", "key: a, value: x,")
	s, err := compatible.Parse("f", []byte(text))
	testkit.Must(t, err)
	entries := slices.Repeat([]rules.Entry{{Key: "a", Value: "x"}}, 40)
	entries = append(entries, rules.Entry{Key: "b", Value: "y"})
	var keys []counters.Key
	for _, req := range []rules.Request{
		{Domain: "d", Descriptors: [][]rules.Entry{entries}}, {Domain: "d", Rule: "n", Identity: "y"},
	} {
		met, err := s.Match(&req, rules.Secret{}, nil)
		if err != nil || met[0].Rule == nil || met[0].Rule.Name != "n" {
			t.Fatalf("%v: %v", err, met)
		}
		keys = append(keys, met[0].Key)
		if _, err := s.Explain(&req, rules.Secret{}, time.Time{}); err != nil {
			t.Error(err)
		}
	}
	if keys[0] != keys[1] {
		t.Error("by its name the rule counts something else")
	}
}

// What a small file expands to is bounded.
func TestRatelimitBombs(t *testing.T) {
	bomb := func(leaf, item string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "domain: d\nname: &a0 %s\n", leaf)
		for i := range 12 {
			fmt.Fprintf(&b, "name: &a%d %s\n", i+1, strings.ReplaceAll(item, "@", fmt.Sprintf("*a%d", i)))
		}
		return b.String()
	}
	ten := func(item string) string { return "[" + strings.Repeat(item+", ", 10) + "]" }
	for name, text := range map[string]string{
		"lists":       bomb("[{key: x}]", ten("{descriptors: @}")) + "descriptors: *a12\n",
		"merged maps": bomb("{key: x}", "{<<: "+ten("@")+"}") + "descriptors: [*a12]\n",
		"metadata":    bomb("[x]", "{metadata: "+ten("@")+"}") + "descriptors: [{key: k, metadata: {x: *a12}}]\n",
		"replaces": "domain: d\nname: &r [" + strings.Repeat("{name: n}, ", 2000) + "]\ndescriptors: [" +
			strings.Repeat("{key: k, rate_limit: {unit: day, replaces: *r}}, ", 2000) + "]\n",
		"cycle":          "domain: d\ndescriptors: &l [{key: a, descriptors: *l}]\n",
		"cycle of a map": "domain: d\ndescriptors: [&m {key: a, rate_limit: *m}]\n",
		"merge cycle":    "domain: d\ndescriptors: [&m {key: a, <<: *m}]\n",
	} {
		within(t, name, func() {
			if _, err := compatible.Parse("f", []byte(text)); err == nil {
				t.Errorf("%s: taken", name)
			}
		})
	}
}

// Files that are too large are refused with the bound.
func TestRatelimitLarge(t *testing.T) {
	dir := t.TempDir()
	err := os.WriteFile(filepath.Join(dir, "f"), []byte(oneRule("d")+strings.Repeat("# comment\n", 16<<20/10)), 0o600)
	testkit.Must(t, err)
	_, err = compatible.Load(dir)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint("larger than ", maxFileSize, " bytes")) {
		t.Errorf("16 MiB: %.300v", err)
	}
	long := strings.Repeat("k", 1<<20)
	text := fmt.Sprintf("domain: d\ndescriptors:\n- key: %s\n  descriptors: [%s]\n", long,
		strings.Repeat("{key: a, rate_limit: {unit: day, requests_per_unit: 1}},", 1))
	s, err := compatible.Parse("f", []byte(text))
	if err != nil {
		t.Fatalf("a long key: %.300v", err)
	}
	r := s.Rules()[0]
	if max(len(r.FullName), len(r.Name)) > counters.MaxRuleName {
		t.Errorf("a long key: its names have %d and %d bytes", len(r.FullName), len(r.Name))
	}
	if s.Rule(r.FullName) != r || len(r.ReferenceKey()) != len("d.")+len(long)+len(".a") {
		t.Error("a long key: its rule is not found")
	}
}
