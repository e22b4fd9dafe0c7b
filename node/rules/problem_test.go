package rules

import (
	"errors"
	"io"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

func TestErrorText(t *testing.T) {
	e := &Error{File: "edge.yaml", Line: 3, Column: 7, Reason: "the key is empty"}
	if got, want := e.Error(), "edge.yaml:3:7: the key is empty"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	_, err := Parse("edge.yaml", nil)
	if first, ok := errors.AsType[*Error](err); !ok || first.File != "edge.yaml" {
		t.Errorf("errors.AsType finds %v in %v", first, err)
	}
}

func TestExcerpt(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"domain: d\nlimit: 1", "limit: 1\n^"},
		{"domain: d\r\ndescriptors: [{key: a, valeu: b}]\r\n", "descriptors: [{key: a, valeu: b}]\n                       ^"},
		{"domain: d\ndescriptors: [{key: ä\t,\tvaleu: b}]\n", "descriptors: [{key: ä\t,\tvaleu: b}]\n                     \t \t^"},
		{"\ufeffdomian: d\n", "domian: d\n^"},
		{"", ""},
		{"domain: d\nlimit: " + strings.Repeat("x", 1000), "limit: " + strings.Repeat("x", maxSource-len("limit: ")) + "\n^"},
		{"domain: d\ndescriptors: [{key: a," + strings.Repeat(" ", 1000) + "limit: 1}]", ""},
	} {
		_, err := Parse("f", []byte(tt.text))
		if got := problemsOf(t, err)[0].Excerpt(); got != tt.want {
			t.Errorf("%.80q: the excerpt is\n%q, want\n%q", tt.text, got, tt.want)
		}
	}
}

func TestNearest(t *testing.T) {
	tests := []struct{ word, want string }{
		{"key", "key"}, {"kye", "key"}, {"keys", "key"}, {"KEY", "key"}, {"kex", "key"}, {"ey", "key"}, {"k", ""}, {"foo", ""},
		{"rate-limit", "rate_limit"}, {"ratelimit", "rate_limit"}, {"rateLimit", "rate_limit"}, {"rate_limits", "rate_limit"},
		{"descriptor", "descriptors"}, {"desciptors", "descriptors"}, {"shade", ""}, {"", ""}, {"vlaue", "value"},
		{strings.Repeat("value", 100), ""},
	}
	for _, tt := range tests {
		if got := nearest(tt.word, descriptorKeys); got != tt.want {
			t.Errorf("nearest to %q is %q, want %q", tt.word, got, tt.want)
		}
	}
	if got := nearest("requestsPerUnit", rateLimitKeys); got != "requests_per_unit" {
		t.Errorf("nearest to requestsPerUnit is %q", got)
	}
}

func TestDistance(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "ac", 1}, {"abc", "acb", 1},
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

func TestPosition(t *testing.T) {
	data := []byte("ab\ncäd\n\ne")
	want := []struct{ line, column int }{{1, 1}, {1, 2}, {1, 3}, {2, 1}, {2, 2}, {2, 3}, {2, 3}, {2, 4}, {3, 1}, {4, 1}}
	for offset, w := range want {
		if offset == 5 {
			continue // in the middle of a character
		}
		if got := position(data, offset); got.Line != w.line || got.Column != w.column {
			t.Errorf("offset %d is at %d:%d, want %d:%d", offset, got.Line, got.Column, w.line, w.column)
		}
	}
}

func TestUnreadable(t *testing.T) {
	for _, text := range []string{"", "a\tb\r\nc\n", "\ufeffa", "a\u0085b", "\u00a0", "\U0001f600"} {
		if at, reason := unreadable([]byte(text)); at != nil {
			t.Errorf("%q is said to be unreadable: %s", text, reason)
		}
	}
	// What passes here must pass the YAML reader, or its complaint would have no position; and the other way round.
	for r := rune(0); r < 0x10100; r++ {
		switch r {
		case '\'': // ends the string
			continue
		case 0x300: // nothing of interest for a while
			r = 0xff00
		}
		at, _ := unreadable([]byte(string(r)))
		_, err := decode(yaml.NewDecoder(strings.NewReader("'a" + string(r) + "a'")))
		if (at != nil) != (err != nil && err != io.EOF) {
			t.Errorf("%U: unreadable at %v, but the YAML reader says %v", r, at, err)
		}
	}
}
