package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A name that no rule has is answered with the nearest one, and with those that there are: the names that rule files
// give. What a rule without a name is called holds values of the file, which are nobody's business.
func TestUnknownRuleNamesTheOthers(t *testing.T) {
	set := mustParse(t, `
domain: edge
descriptors:
  - {key: client, rate_limit: {name: login, unit: minute, requests_per_unit: 3}}
  - {key: user, rate_limit: {name: per_user, unit: minute, requests_per_unit: 3}}
  - {key: api_key, value: secret, rate_limit: {unit: minute, requests_per_unit: 3}}
---
domain: other
descriptors:
  - {key: client, rate_limit: {name: elsewhere, unit: minute, requests_per_unit: 3}}
`)
	for _, test := range []struct{ rule, domain, want string }{
		{"logni", "",
			`unknown rule "logni" (did you mean "login"? There are login, per_user, elsewhere, and others)`},
		{"nothing_like_it", "",
			`unknown rule "nothing_like_it" (there are login, per_user, elsewhere, and others)`},
		{"elsewhere", "edge",
			`unknown rule "elsewhere" in domain "edge" (there are login, per_user, and others)`},
		{"login", "nowhere", `unknown rule "login" in domain "nowhere" (there are none)`},
	} {
		_, err := set.Match(&Request{Rule: test.rule, Domain: test.domain, Identity: "x"}, Secret{}, nil)
		if !errors.Is(err, ErrUnknownRule) || err.Error() != test.want {
			t.Errorf("%s in %q:\n got %v\nwant %s", test.rule, test.domain, err, test.want)
		}
	}
}

// However many rules there are, an unknown name costs little time and little text.
func TestUnknownRuleAmongMany(t *testing.T) {
	var text strings.Builder
	text.WriteString("domain: edge\ndescriptors:\n")
	for i := range 2000 {
		fmt.Fprintf(&text, "  - {key: k%d, rate_limit: {name: %s_%04d, unit: minute, requests_per_unit: 3}}\n", i,
			strings.Repeat("long", 10), i)
	}
	set := mustParse(t, text.String())
	near := strings.Repeat("long", 10) + "_0"
	if _, err := set.Match(&Request{Rule: near + "042x", Identity: "x"}, Secret{}, nil); err == nil ||
		!strings.Contains(err.Error(), "did you mean \"long") {
		t.Errorf("%v", err)
	}
	_, err := set.Match(&Request{Rule: strings.Repeat("x", 60), Identity: "x"}, Secret{}, nil)
	if err == nil || len(err.Error()) > 500 || !strings.Contains(err.Error(), "and others)") {
		t.Errorf("%v", err)
	}
}

// A prefix with bits beyond its length was meant to be another: which one is for its author to say.
func TestParsePrefixRefusesHostBits(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1/8":            "10.0.0.1/8 has bits beyond its length: write 10.0.0.0/8, or 10.0.0.1",
		"2001:db8::1/32":        "2001:db8::1/32 has bits beyond its length: write 2001:db8::/32, or 2001:db8::1",
		"::ffff:10.0.0.1/104":   "::ffff:10.0.0.1/104 has bits beyond its length: write 10.0.0.0/8, or 10.0.0.1",
		"10.0.0.0/8":            "",
		"10.0.0.1":              "",
		"10.0.0.1/32":           "",
		"::ffff:10.0.0.0/104":   "",
		"0.0.0.0/0":             "",
		"2001:db8::dead:beef/0": "2001:db8::dead:beef/0 has bits beyond its length: write ::/0, or 2001:db8::dead:beef",
	} {
		switch prefix, err := ParsePrefix(text); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("%s is %v, %v; want %s", text, prefix, err, want)
		}
	}
}

func TestDistance(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{
		{
			"", "", 0,
		}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "ac", 1}, {"abc", "acb", 1},
		{"window", "widnow", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"abcd", "badc", 2},
	}
	for _, tt := range tests {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance of %q and %q is %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
	word := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := distance(a, b)
		if d != distance(b, a) {
			t.Fatalf("distance is not symmetric for %q and %q", a, b)
		}
		if (d == 0) != (a == b) || d > max(len(a), len(b)) || d < max(len(a), len(b))-min(len(a), len(b)) {
			t.Fatalf("distance of %q and %q is %d", a, b, d)
		}
	})
}
