package rulefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// problemsOf takes a joined error apart.
func problemsOf(t testing.TB, err error) []*Error {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T is no joined error: %v", err, err)
	}
	var list []*Error
	for _, e := range joined.Unwrap() {
		p, ok := errors.AsType[*Error](e)
		if !ok {
			t.Fatalf("%T is no *Error: %v", e, e)
		}
		list = append(list, p)
	}
	return list
}

// rejected has the problems of each file of testdata/reject, as line:column: and a part of the reason.
var rejected = map[string][]string{
	"alias_bomb":  {"31:32: aliases stand for more than 100000 nodes"},
	"alias_cycle": {"2:14: nested more than 32 deep"},
	"algorithm": {
		`4:29: unknown algorithm "token_buckets" in a rate_limit: did you mean "token_bucket"?`,
		"6:29: leaky_queue is written as algorithm: leaky_bucket with queue: true",
		"8:29: algorithm must be a string, not a list",
		`10:29: unknown algorithm ""`,
		"12:25: queue is for a leaky_bucket, and the algorithm is sliding_window",
		"14:50: queue is for a leaky_bucket, and the algorithm is token_bucket",
		`16:50: queue must be true or false, not "maybe"`,
		"18:73: meter edge/log: limit 16385 is above 16384",
		"20:84: burst is for a token_bucket or a leaky_bucket, and the algorithm is fixed_window",
		"20:95: refill is for a token_bucket or a leaky_bucket, and the algorithm is fixed_window",
	},
	"anchor_unknown": {"4:1: unknown anchor 'everyone'"},
	"bucket": {
		"4:71: unit and refill exclude each other: the refill already has",
		"6:73: window and refill exclude each other",
		"8:62: burst must be a whole number from 1 to 1099511627776, not 0",
		`10:62: burst must be a whole number from 1 to 1099511627776, not "many"`,
		"12:72: requests_per_unit is one too many: the capacity is the burst, or follows from max_wait",
		"14:17: a rate_limit needs requests_per_unit",
		"16:74: a refill must be a map, not 5",
		"18:74: a refill needs every",
		"20:74: a refill needs amount",
		"22:83: amount must be a whole number from 1 to 1099511627776, not 0",
		`22:93: every "1d" is no duration`,
		"24:93: every -1h must be positive",
		"26:74: a refill needs amount",
		`26:75: unknown key "interval" in a refill (known here: amount, every)`,
		"28:74: window 1 µs with sub-windows of 1 µs is outside",
		"30:85: takes longer to fill than",
		"32:84: a bucket without a refill would stay empty",
	},
	"control_character": {"3:12: control character U+0007"},
	"deep":              {"67:67: nested more than 32 deep"},
	"descriptor_twice": {
		`6:10: descriptor "path" with value "/login" was already given in line 3`,
		`8:10: descriptor "path" was already given in line 5`,
	},
	"descriptor_without_key": {"3:5: a descriptor needs a key"},
	"domain_empty":           {"1:9: the domain is empty", "3:8: the domain is empty"},
	"domain_missing":         {"1:1: a document needs a domain"},
	"domain_twice": {
		`5:9: domain "edge" was already given at testdata/reject/domain_twice.yaml:1`,
		"8:12: value must be a string, not a list",
	},
	"empty":       {"1:1: no domain in the file"},
	"indentation": {"6:1: not valid YAML: did not find expected '-' indicator"},
	"key_empty":   {"3:10: the key is empty", "4:9: the key is empty"},
	"key_not_a_string": {
		"2:1: a key in a document must be a string, not 1",
		"5:5: a key in a descriptor must be a string, not true",
		"6:5: must be a string, not a list",
		"7:5: must be a string, not empty",
	},
	"key_twice": {
		`4:5: key "key" was already given in line 3`, `7:7: key "unit" was already given in line 6`,
		`9:1: key "domain" was already given in line 1`,
	},
	"key_unknown": {
		`1:1: unknown key "domian" in a document: did you mean "domain"?`,
		`5:5: unknown key "Value" in a descriptor: did you mean "value"?`,
		`6:5: unknown key "rate-limit" in a descriptor: did you mean "rate_limit"?`,
		`11:7: unknown key "request_per_unit" in a rate_limit: did you mean "requests_per_unit"?`,
		`13:7: unknown key "colour" in a rate_limit (known here:`,
		`14:1: unknown key "limits" in a document (known here:`,
	},
	"list_for_a_map": {
		"3:5: a descriptor must be a map, not a list",
		"6:7: a rate_limit must be a map, not a list",
		"8:16: a rate_limit must be a map, not empty",
		"10:3: a rule must be a map, not a list",
	},
	"map_for_a_list": {"3:3: descriptors must be a list, not a map", `8:18: descriptors must be a list, not "c"`},
	"map_for_a_string": {
		"1:9: domain must be a string, not a map",
		"3:10: key must be a string, not a list",
		"4:12: value must be a string, not a map",
		"5:10: key must be a string, not a value tagged !secret",
		"8:13: name must be a string, not a list",
		"9:13: unit must be a string, not a map",
		"13:15: window must be a string, not a list",
		"14:26: requests_per_unit must be a whole number from 0 to 1099511627776, not a list",
	},
	"merge_key": {
		"5:13: unit and unlimited exclude each other",
		"7:11: a rate_limit must be a map, not 5",
		"10:21: a rate_limit must be a map, not a list",
		"14:9: merged into one another more than 32 deep",
	},
	"name_too_long":         {"4:10: the full name edge/bbb", "9:13: the name has 513 bytes, at most 512"},
	"no_domain":             {"1:1: no domain in the file"},
	"not_closed":            {"4:1: not valid YAML: found unexpected end of stream"},
	"not_utf8":              {"3:13: not UTF-8"},
	"not_yaml":              {"4:1: not valid YAML: could not find expected ':'"},
	"requests_fractional":   {"6:26: whole number from 0 to 1099511627776, not 1.5"},
	"requests_missing":      {"5:7: a rate_limit needs requests_per_unit"},
	"requests_negative":     {"6:26: whole number from 0 to 1099511627776, not -1"},
	"requests_not_a_number": {`6:26: whole number from 0 to 1099511627776, not "5"`},
	"requests_too_large": {
		"6:26: to 1099511627776, not 1099511627777",
		"8:51: to 1099511627776, not 18446744073709551616",
	},
	"several": {
		`6:13: unknown unit "fortnight"`,
		"7:26: not -3",
		"8:14: burst is for a token_bucket or a leaky_bucket, and the algorithm is sliding_window",
		"11:7: a rate_limit needs requests_per_unit",
		"11:15: window 0s must be positive",
		"13:9: a descriptor needs a key",
		`16:22: unlimited must be true or false, not "maybe"`,
	},
	"tab":             {"3:1: not valid YAML"},
	"unit_and_window": {"6:15: unit and window exclude each other"},
	"unit_missing":    {"5:7: a rate_limit needs a unit or a window"},
	"unit_unknown": {
		`5:13: unknown unit "minutes" in a rate_limit: did you mean "minute"?`,
		`8:24: unknown unit "fortnight" in a rate_limit (known here: second,`, `10:24: unknown unit ""`,
	},
	"unlimited_and_limited": {"6:13: unit and unlimited exclude", "10:15: window and unlimited exclude"},
	"unlimited_false": {"5:7: a rate_limit needs requests_per_unit",
		"5:7: a rate_limit needs a unit or a window"},
	"unlimited_not_a_bool": {
		"5:18: unlimited must be true or false, not 1",
		"9:29: unlimited must be true or false, not empty",
	},
	"window_not_a_duration": {
		`5:15: window "10" is no duration`, `8:26: window "1d" is no duration`, `10:26: window "" is no duration`,
	},
	"window_not_positive": {"5:15: window -10s must be positive", "8:26: window 0s must be positive"},
	"window_too_long":     {"5:15: window 366 days 1 h with"},
	"window_too_short":    {"5:15: window 999 µs with"},
}

func TestRejectedFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/reject/*.*")
	if err != nil || len(files) != len(rejected)+len(rejectedExtensions) {
		t.Fatalf("%d files, %d of them expected: %v", len(files), len(rejected)+len(rejectedExtensions), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			testkit.Must(t, err)
			set, err := Parse(filepath.ToSlash(file), data)
			if set != nil || err == nil {
				t.Fatalf("accepted as %v", set)
			}
			compareProblems(t, filepath.ToSlash(file), err, append(rejected[name], rejectedExtensions[name]...))
		})
	}
}

// compareProblems holds the problems against wanted lines of "line:column: part of the reason".
func compareProblems(t *testing.T, file string, err error, want []string) {
	t.Helper()
	got := problemsOf(t, err)
	if len(got) != len(want) {
		t.Fatalf("%d problems, want %d:\n%v", len(got), len(want), err)
	}
	for i, p := range got {
		where, reason, _ := strings.Cut(want[i], ": ")
		if p.File != file || fmt.Sprintf("%d:%d", p.Line, p.Column) != where || !strings.Contains(p.Reason, reason) {
			t.Errorf("problem %d is\n\t%v\nwant\n\t%s:%s", i+1, p, file, want[i])
		}
	}
}

func TestRejectedSizes(t *testing.T) {
	comment := func(size int) []byte { return []byte("domain: edge\n#" + strings.Repeat("x", size-14)) }
	if _, err := Parse("f", comment(maxFileSize)); err != nil {
		t.Errorf("a file of exactly the allowed size: %v", err)
	}
	_, err := Parse("f", comment(maxFileSize+1))
	compareProblems(t, "f", err, []string{"1:1: larger than 4194304 bytes"})
}

func TestRejectedNumberOfLimits(t *testing.T) {
	const three = "domain: edge\ndescriptors:\n- {key: a, rate_limit: {unlimited: true}}\n" +
		"- {key: b, rate_limit: {unit: day, requests_per_unit: 1}}\n- {key: c, rate_limit: {unit: day, " +
		"requests_per_unit: 1}}\n"
	b := newBuilder(Options{})
	b.limited = MaxLimited - 2
	b.parse(content{file: "f", data: []byte(three)})
	if errs := b.finish(); len(errs) > 0 {
		t.Errorf("exactly as many as allowed: %v", errs)
	}
	b = newBuilder(Options{})
	b.limited = MaxLimited - 1
	b.parse(content{file: "f", data: []byte(three)})
	compareProblems(t, "f", errors.Join(b.finish()...),
		[]string{"5:24: there are more than 24576 rules with a limit, where one with a ban counts twice"})
}

// Descriptors are counted over all files of a set.
func TestRejectedNumberOfDescriptors(t *testing.T) {
	const three = "domain: edge\ndescriptors:\n  - key: a\n    descriptors: [{key: b}]\n  - key: c\n"
	b := newBuilder(Options{})
	b.descriptors = maxDescriptors - 3
	b.parse(content{file: "f", data: []byte(three)})
	if errs := b.finish(); len(errs) > 0 {
		t.Errorf("exactly as many as allowed: %v", errs)
	}
	b = newBuilder(Options{})
	b.descriptors = maxDescriptors - 2
	b.parse(content{file: "f", data: []byte(three)})
	compareProblems(t, "f", errors.Join(b.finish()...), []string{"5:5: more than 100000 descriptors"})
}

func TestProblemsAreBounded(t *testing.T) {
	file := "domain: edge\ndescriptors:\n" + strings.Repeat("- []\n", 3*maxProblems)
	_, err := Parse("f", []byte(file))
	got := problemsOf(t, err)
	if len(got) != maxProblems+1 {
		t.Fatalf("%d problems, want %d and a last one", len(got), maxProblems)
	}
	last := got[maxProblems]
	if want := "1000 problems are enough"; !strings.Contains(last.Reason, want) || last.Line != maxProblems+2 {
		t.Errorf("the last problem is %v, want %q", last, want)
	}
}

func TestProblemsOfAliasesAreReportedOnce(t *testing.T) {
	_, err := Parse("f", []byte(`domain: edge
descriptors:
  - key: a
    rate_limit: &broken {unit: never, requests_per_unit: 1}
  - key: b
    rate_limit: *broken
  - key: c
    rate_limit: *broken
`))
	compareProblems(t, "f", err, []string{`4:32: unknown unit "never"`})
}

// The YAML reader names the block around a mistake, or nothing at all. Whatever follows, the line is to be that of the
// mistake.
func TestSyntaxErrorLines(t *testing.T) {
	tests := []struct {
		text string
		line int
	}{
		{"a: b: c", 1},
		{"domain: x\ndescriptors:\n  - key: a\n   value: b", 4},
		{"domain: x\ndescriptors:\n  - key: a\n    rate_limit:\n      unit: a\n     window: c", 6},
		{"domain: x\ndescriptors:\n  - key: a\n  value: b", 4},
		{"domain: x\n- key: a", 2},
		{"domain: x\n  descriptors:", 2},
		{"domain: x\n}", 2},
		{"domain: x\n@", 2},
		{"domain: @", 1},
		{"domain: *x", 1},
		{"domain: x\ndescriptors: [*y]", 2},
		{"domain: x\ndescriptors: [1, 2", 2},
		{"domain: x\ndescriptors: {a: b\n  c: d}", 2},
		{"domain: x\ndescriptors: \"\\q\"", 2},
		{"%YAML 2.0\n---\ndomain: x", 1},
		{"domain: !x!y z", 1},
	}
	for _, tt := range tests {
		for _, tail := range []string{"", "\n", "\n\n\n", "\n# a comment\n\n  # another\n", "\ny:\n  - z: 1\n",
			"\n# c\n\n\ny: 1\nz: 2\n"} {
			_, err := Parse("f", []byte(tt.text+tail))
			got := problemsOf(t, err)
			if last := got[len(got)-1]; last.Line != tt.line || !strings.Contains(last.Reason, "not valid YAML") {
				t.Errorf("%q: %v, want it in line %d", tt.text+tail, last, tt.line)
			}
		}
	}
}

func TestProblemsBeforeASyntaxErrorAreReported(t *testing.T) {
	_, err := Parse("f", []byte("domain: a\nlimit: 1\n---\ndomain: b\ndescriptors: {\n"))
	got := problemsOf(t, err)
	if len(got) != 2 || !strings.Contains(got[0].Reason, "unknown key") ||
		!strings.Contains(got[1].Reason, "not valid YAML") {
		t.Errorf("want an unknown key and a syntax error, not:\n%v", err)
	}
}
