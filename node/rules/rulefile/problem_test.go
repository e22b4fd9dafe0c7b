package rulefile

import (
	"errors"
	"io"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/node/rules"
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
		{"domain: d\r\ndescriptors: [{key: a, valeu: b}]\r\n",
			"descriptors: [{key: a, valeu: b}]\n                       ^"},
		{"domain: d\ndescriptors: [{key: ä\t,\tvaleu: b}]\n",
			"descriptors: [{key: ä\t,\tvaleu: b}]\n                     \t \t^"},
		{"\ufeffdomian: d\n", "domian: d\n^"},
		{"", ""},
		{"domain: d\nlimit: " + strings.Repeat("x", 1000), "limit: " + strings.Repeat("x", maxSource-len("limit: ")) +
			"\n^"},
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
		{
			"key", "key",
		}, {"kye", "key"}, {"keys", "key"}, {"KEY", "key"}, {"kex", "key"}, {"ey", "key"}, {"k", ""}, {"foo", ""},
		{
			"rate-limit", "rate_limit",
		}, {"ratelimit", "rate_limit"}, {"rateLimit", "rate_limit"}, {"rate_limits", "rate_limit"},
		{"descriptor", "descriptors"}, {"desciptors", "descriptors"}, {"shade", ""}, {"", ""}, {"vlaue", "value"},
		{strings.Repeat("value", 100), ""},
	}
	for _, tt := range tests {
		if got := rules.Nearest(tt.word, descriptorKeys.names()); got != tt.want {
			t.Errorf("nearest to %q is %q, want %q", tt.word, got, tt.want)
		}
	}
	if got := rules.Nearest("requestsPerUnit", rateLimitKeys.names()); got != "requests_per_unit" {
		t.Errorf("nearest to requestsPerUnit is %q", got)
	}
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

func TestPrefixesWithHostBits(t *testing.T) {
	_, err := Parse(
		"a.yaml",
		[]byte("domain: d\ndescriptors:\n  - key: remote_address\n    rate_limit: {unit: minute, "+
			"requests_per_unit: 1}\n    allow: [10.0.0.1/8]\n"),
	)
	if err == nil || !strings.Contains(err.Error(), "a.yaml:5:13: allow: 10.0.0.1/8 has bits beyond its length: write "+
		"10.0.0.0/8, or 10.0.0.1") {
		t.Errorf("%v", err)
	}
}
