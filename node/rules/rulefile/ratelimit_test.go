package rulefile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// verdict is a file and what envoyproxy/ratelimit (July 2026) says about it: why it refuses it, or what its /rlconfig
// shows, sorted.
type verdict struct {
	name    string
	file    []byte
	refused string
	config  []string
}

// verdicts returns those of testdata/ratelimit, got by loading each file with that server. NAME.yaml of an archive is
// followed by NAME.refused or NAME.config. A file that an archive of text cannot hold is NAME.quoted, quoted as in Go,
// and so is a line of /rlconfig that begins with a quotation mark.
func verdicts(t testing.TB) (all []verdict) {
	t.Helper()
	archives, err := filepath.Glob("testdata/ratelimit/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal("no archives", err)
	}
	unquote := func(text string) string {
		text, err := strconv.Unquote(strings.TrimSuffix(text, "\n"))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return text
	}
	for _, archive := range archives {
		a, err := txtar.ParseFile(archive)
		if err != nil || len(a.Files)%2 != 0 {
			t.Fatalf("%s: %d files and verdicts, %v", archive, len(a.Files), err)
		}
		for pair := range slices.Chunk(a.Files, 2) {
			name, kind, _ := strings.Cut(pair[0].Name, ".")
			v := verdict{name: name + ".yaml", file: pair[0].Data}
			if kind == "quoted" {
				v.file = []byte(unquote(string(v.file)))
			}
			switch pair[1].Name {
			case name + ".refused":
				v.refused = string(pair[1].Data)
			case name + ".config":
				for line := range strings.Lines(string(pair[1].Data)) {
					if line[0] == '"' {
						line = unquote(line)
					}
					v.config = append(v.config, strings.TrimSuffix(line, "\n"))
				}
			default:
				t.Fatalf("%s: want %s.refused or .config after %s, got %s", archive, name, v.name, pair[1].Name)
			}
			all = append(all, v)
		}
	}
	return all
}

// compatible are the options of envoyproxy/ratelimit.
var compatible = Options{Compatibility: Ratelimit}

// rlconfig writes rules as the /rlconfig of envoyproxy/ratelimit does, sorted.
func rlconfig(s *rules.Set) []string {
	lines := []string{}
	for _, r := range s.Rules() {
		as := r.Reference
		lines = append(lines, fmt.Sprintf("%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t",
			r.ReferenceKey(), as.Unit, as.RequestsPerUnit, as.ShadowMode, as.QuotaMode))
	}
	slices.Sort(lines)
	return lines
}

// What envoyproxy/ratelimit takes is taken and read in the same way, what it refuses is refused.
func TestRatelimitVerdicts(t *testing.T) {
	all := verdicts(t)
	if len(all) != 219 {
		t.Errorf("%d files, want 219", len(all))
	}
	for _, want := range all {
		t.Run(strings.TrimSuffix(want.name, ".yaml"), func(t *testing.T) {
			s, err := compatible.Parse(want.name, want.file)
			switch {
			case err != nil && want.refused == "":
				t.Errorf("refused: %v", err)
			case err == nil && want.refused != "":
				t.Errorf("taken, want it refused: %s", want.refused)
			case err == nil && !slices.Equal(rlconfig(s), want.config):
				t.Errorf("got  %q\nwant %q", rlconfig(s), want.config)
			}
		})
	}
}

// What is taken here and refused otherwise has a warning.
func TestRatelimitWarnings(t *testing.T) {
	for _, v := range verdicts(t) {
		if v.refused != "" {
			continue
		}
		s, err := compatible.Parse(v.name, v.file)
		if err != nil {
			continue // reported above
		}
		if _, err := Parse(v.name, v.file); err != nil && len(s.Warnings()) == 0 {
			t.Errorf("%s: no warning, and otherwise: %v", v.name, err)
		}
		for _, w := range s.Warnings() {
			if e, ok := w.(*Error); !ok || e.Line < 1 || e.File != v.name {
				t.Errorf("%s: a warning without a place: %v", v.name, w)
			}
		}
	}
}

const plainRule = "descriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: 1}}]\n"

// A document may say whose it is, whatever the options are.
func TestCompatibilityOfDocuments(t *testing.T) {
	for _, test := range []struct {
		options    Options
		text       string
		compatible []string // domains
		others     []string
	}{
		{Options{}, "domain: a\n" + plainRule, nil, []string{"a"}},
		{compatible, "domain: a\n" + plainRule, []string{"a"}, nil},
		{compatible, "domain: a\ncompatibility: none\n" + plainRule, nil, []string{"a"}},
		{compatible, "domain: a\ncompatibility: ''\n" + plainRule, nil, []string{"a"}},
		{compatible, "domain: a\ncompatibility:\n" + plainRule, nil, []string{"a"}},
		{Options{}, "domain: a\n---\ncompatibility: ratelimit\ndomain: b\n" + plainRule, []string{"b"}, []string{"a"}},
		{compatible, "domain: a\n---\ndomain: b\n---\ndomain: c\ncompatibility: none\n", []string{"a"}, []string{"c"}},
		{compatible, "domain: a\ncompatibility: none\n---\ndomain: b\ncompatibility: none\n", nil, []string{"a", "b"}},
		{compatible, "- {rule_id: r, limit: 1, window_seconds: 1}\n", nil, nil},
	} {
		s, err := test.options.Parse("f", []byte(test.text))
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		if got := s.Domains(); len(got) != len(test.compatible)+len(test.others) {
			t.Errorf("%q: domains %q", test.text, got)
		}
		for _, d := range test.compatible {
			if !s.HasDomain(d) || !s.Compatible(d) {
				t.Errorf("%q: %s is not compatible", test.text, d)
			}
		}
		for _, d := range test.others {
			if !s.HasDomain(d) || s.Compatible(d) {
				t.Errorf("%q: %s is compatible", test.text, d)
			}
		}
	}
	for _, test := range []struct{ text, want string }{
		{"domain: a\ncompatibility: redis\n", "f:2:16: compatibility must be ratelimit or none, not \"redis\""},
		{"domain: a\n---\ndomain: a\ncompatibility: ratelimit\n", "f:3:9: domain \"a\" was already given"},
		{"compatibility: ratelimit\ndomain: a\nbogus: 1\n", "f:3:1: unknown key \"bogus\" in a document"},
		{"compatibility: ratelimit\ndomain: a\ndescriptors: [{value: b}]\n", "f:3:15: a descriptor needs a key"},
	} {
		_, err := Options{MergeDomains: true}.Parse("f", []byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %s", test.text, err, test.want)
		}
	}
}

// Defaults are those of the other server; a rule may say otherwise with this package's keys.
func TestRatelimitDefaults(t *testing.T) {
	s, err := Options{Compatibility: Ratelimit, Algorithm: "sliding_log", IPv6Prefix: 48}.Parse("f", []byte(`domain: d
descriptors:
- {key: remote_address, rate_limit: {unit: month, requests_per_unit: 5, unlimited: no}}
- key: client_ip
  ipv6_prefix: 56
  regions: [eu]
  rate_limit: {name: own, window: 90s, requests_per_unit: 5, algorithm: token_bucket, burst: 9, charge: all}
- {key: s*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 5, count_rejected: true}}
`))
	testkit.Must(t, err)
	all := s.Rules()
	plain, own, shared := all[0], all[1], all[2]
	if l := plain.Limit; !l.Tallies() || !plain.Each || plain.Given != "" ||
		plain.Steps[0] != (rules.Step{Open: true}) ||
		l.Meter().Window.Hours() != 30*24 {
		t.Errorf("%+v", plain)
	}
	if l := own.Limit; l.Tallies() || own.Each || own.Given != "own" || own.Steps[0].IPv6 != 56 || l.Max() != 9 ||
		own.Reference.Unit != "UNKNOWN" || own.Reference.Line != 7 || own.Reference.File != "f" {
		t.Errorf("%+v", own)
	}
	if shared.Steps[0].Open || shared.Limit.Tallies() || !shared.CountRejected {
		t.Errorf("%+v", shared)
	}
	if met := s.In("us").Rules(); len(met) != 2 || len(s.In("us").Warnings()) != 1 {
		t.Errorf("elsewhere there are %d rules, and warnings %v", len(met), s.In("us").Warnings())
	}
}

// Descriptors of several files are joined, and told apart by key and value together.
func TestRatelimitMergedDomains(t *testing.T) {
	dir := dirOf(t, map[string]string{"a": oneRule("d"), "b": strings.ReplaceAll(oneRule("d"), "key: a", "key: b")})
	_, err := compatible.Load(dir)
	if err == nil || !strings.Contains(err.Error(), "b:1:9: domain \"d\" was already given") {
		t.Errorf("%v", err)
	}
	merged := Options{Compatibility: Ratelimit, MergeDomains: true}
	if s, err := merged.Load(dir); err != nil || len(s.Rules()) != 2 {
		t.Errorf("%v", err)
	}
	twice := "domain: d\ndescriptors: [{key: e, value: f}, {key: e_f}]\n"
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "c"), []byte(twice), 0o600))
	_, err = merged.Load(dir)
	if err == nil || !strings.Contains(err.Error(), `c:2:41: descriptor "e_f" was already given`) {
		t.Errorf("%v", err)
	}
}
