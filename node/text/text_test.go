package text

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func TestClean(t *testing.T) {
	for s, want := range map[string]string{
		"":                      "",
		"e-1 é 世":               "e-1 é 世",
		"a\x00\n\x1b]0;x\x07":   "a???]0;x?",
		"\xff\u2028\u202e":      "???",
		"\u009b\u2066\u2069\t":  "????",
		"\ufffd\u200f\u061c\ta": "????a",
	} {
		if got := Clean(s); got != want {
			t.Errorf("%q becomes %q, want %q", s, got, want)
		}
	}
	if got := CleanUpTo("ééééé\té", 11); got != "ééééé?…" {
		t.Errorf("cut to %q", got)
	}
	if got := CleanUpTo("ééééééééé", 11); got != "ééééé…" {
		t.Errorf("cut to %q", got)
	}
}

// steers is what no terminal may be sent from outside, named apart from package unicode.
var steers = regexp.MustCompile(`[\x00-\x08\x0b-\x1f\x7f\x{80}-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]`)

// However a text comes in parts, nothing in it steers the terminal, and what is printable passes.
func TestWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune("\x1b\a\r\n\t\u009b\u202e\u2066é世 a")))).
			Draw(t, "text")
		broken := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		all := s + string(broken)
		var out strings.Builder
		w := NewWriter(&out)
		for rest := all; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "part")
			if written, err := w.Write([]byte(rest[:n])); written != n || err != nil {
				t.Fatalf("%d of %d bytes, %v", written, n, err)
			}
			rest = rest[n:]
		}
		if got := out.String(); steers.MatchString(got) || strings.ToValidUTF8(got, "") != got {
			t.Fatalf("%q becomes %q", all, got)
		}
		if plain := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0; plain &&
			!strings.HasPrefix(out.String(), s) {
			t.Fatalf("%q becomes %q", s, out.String())
		}
	})
}

// JSON keeps its meaning, with runes beyond the first 65,536 as well.
func TestWriterKeepsJSON(t *testing.T) {
	want := "\x1b]0;\u009b\u202e\U000e0001é\n\t\x00"
	var out strings.Builder
	enc := json.NewEncoder(NewWriter(&out))
	enc.SetEscapeHTML(false)
	if err := enc.Encode(want); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got != want ||
		steers.MatchString(out.String()) {
		t.Errorf("%q: %q, %v", out.String(), got, err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestWriterFails(t *testing.T) {
	w := NewWriter(broken{})
	if n, err := w.Write([]byte("a")); n != 0 || err == nil || NewWriter(w) != w || w.Raw() != (broken{}) {
		t.Errorf("%d, %v", n, err)
	}
}
