package replay

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// wantedFrom reads what stands at some paths of a line; they are the values' numbers.
func wantedFrom(line string, paths ...string) ([]string, error) {
	var b branch
	for i, p := range paths {
		at := b.at(p)
		at.targets = append(at.targets, target{index: i})
	}
	values := make([]string, len(paths))
	var p jsonLine
	err := p.parse(line, &b, values)
	return values, err
}

func TestJSONLine(t *testing.T) {
	for _, c := range []struct{ line, path, want string }{
		{`{"a":"x"}`, "a", "x"},
		{` { "a" : "x" , "b" : [ ] , "c" : { } } `, "a", "x"},
		{`{"b":{"a":"no"},"a":{"b":{"c":"deep"}}}`, "a.b.c", "deep"},
		{`{"a.b":"dotted"}`, `a\.b`, "dotted"},
		{`{"a":["first","second"]}`, "a", "first"},
		{`{"a":[{"b":"in a list"}]}`, "a.b", "in a list"},
		{`{"a":404}`, "a", "404"},
		{`{"a":-1.5e+3,"b":0}`, "a", "-1.5e+3"},
		{`{"a":true}`, "a", "true"},
		{`{"a":null}`, "a", ""},
		{`{"a":"-"}`, "a", ""},
		{`{"a":{"b":"c"}}`, "a", ""},
		{`{"a":"q\"\\\/\u00e9\n"}`, "a", "q\"\\/é\n"},
		{`{"\u0061":"an escaped key"}`, "a", "an escaped key"},
		{`{"a":"first","a":"last"}`, "a", "last"},
		{`{"A":"another"}`, "a", ""},
		{`{}`, "a", ""},
	} {
		got, err := wantedFrom(c.line, c.path)
		if err != nil || got[0] != c.want {
			t.Errorf("%s of %s is %q, %v, want %q", c.path, c.line, got, err, c.want)
		}
	}
}

func TestJSONLineRefuses(t *testing.T) {
	for _, line := range []string{
		``, `[]`, `"a"`, `1`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{a:1}`, `{"a":1}x`, `{"a":1}{}`,
		`{"a":01}`, `{"a":1.}`,
		`{"a":.5}`, `{"a":1e}`, `{"a":-}`, `{"a":+1}`, `{"a":tru}`, `{"a":nul}`, `{"a":"x}`, `{"a":"\x"}`,
		`{"a":"\u12g4"}`, `{"a":"\u12`, "{\"a\":\"\x01\"}", `{"a":[1,]}`, `{"a":[1}`, `{"a":"x\`, "{\x00}",
		`{"a":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`,
	} {
		if _, err := wantedFrom(line, "a"); err == nil || !strings.Contains(err.Error(), "not a JSON object") {
			t.Errorf("%s: %v, want it refused", line, err)
		}
	}
	fits := `{"a":` + strings.Repeat("[", maxDepth-1) + `"x"` + strings.Repeat("]", maxDepth-1) + `}`
	if _, err := wantedFrom(fits, "a"); err != nil {
		t.Errorf("the deepest that may be: %v", err)
	}
}

func TestJSONLineAllocatesNothing(t *testing.T) {
	var b branch
	b.at("request.headers.User-Agent").targets = []target{{index: 0}}
	values, line := make([]string, 1), caddyLine
	var p jsonLine
	if n := testing.AllocsPerRun(100, func() {
		testkit.Must(t, p.parse(line, &b, values))
	}); n != 0 || values[0] != "curl/8.5.0" {
		t.Errorf("%v allocations a line for %q, want none", n, values)
	}
}

// FuzzJSONLine: what is an object to encoding/json is one here, with the same text in it.
func FuzzJSONLine(f *testing.F) {
	f.Add(caddyLine)
	f.Add(`{"a":"\u00e9\ud834\udd1e","b":[1,-2.5e3,{"c":null}],"a":"twice"}`)
	f.Add(`{"a":["x"]} `)
	f.Add("{\"a\":\"\x9b\"}")
	f.Add(`{"b":{"c":1e900},"a":"x"}`)
	f.Fuzz(func(t *testing.T, line string) {
		got, err := wantedFrom(line, "a", "b.c")
		// Texts, not values: a number that no float can hold is a number all the same.
		var all map[string]json.RawMessage
		is := json.Unmarshal([]byte(line), &all) == nil && all != nil
		if (err == nil) != (is && depth(line) <= maxDepth) {
			t.Fatalf("%q: %v, and to encoding/json it is an object: %v", line, err, is)
		}
		var s string
		if isText := json.Unmarshal(all["a"], &s) == nil; err == nil && isText && s != "" && s != "-" && got[0] != s &&
			utf8.ValidString(line) {
			t.Fatalf("%q: %q, want %q", line, got[0], s)
		}
	})
}
