package text

import (
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
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

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 5: "5 ns", 1500: "1.5 µs", 100 * time.Millisecond: "100 ms", 1500 * time.Microsecond: "1.5 ms",
		time.Second: "1 s", 1500 * time.Millisecond: "1.5 s", 30 * time.Second: "30 s", time.Minute: "1 min",
		90 * time.Second: "90 s", 105 * time.Second: "1 min 45 s", 187123 * time.Millisecond: "3 min 8 s",
		time.Hour: "1 h", 90 * time.Minute: "90 min", 2*time.Hour + 5*time.Minute: "2 h 5 min", 36 * time.Hour: "36 h",
		time.Hour + 5*time.Second: "60 min 5 s", day: "1 day", 7 * day: "7 days", 77 * time.Hour: "3 days 5 h",
		-time.Minute: "-1 min", 26*time.Hour + time.Second: "26 h 1 s", 120 * time.Second: "2 min",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-5: "0 s", 1500 * time.Microsecond: "1 ms", 1500 * time.Millisecond: "1 s", 187 * time.Second: "3 min",
		3*time.Hour + 59*time.Minute + 59*time.Second: "3 h 59 min", 50*time.Hour + 59*time.Minute: "2 days 2 h",
	} {
		if got := Roughly(d); got != want {
			t.Errorf("%v is roughly %q, want %q", d, got, want)
		}
	}
}

// Each duration is a text of its own, but for parts of a second beyond 100, and is none of Go's.
func TestDurationLosesNothing(t *testing.T) {
	units := map[string]time.Duration{"ns": 1, "µs": time.Microsecond, "ms": time.Millisecond, "s": time.Second,
		"min": time.Minute, "h": time.Hour, "day": day, "days": day}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, 1<<62).Draw(t, "d") >> rapid.IntRange(0, 62).Draw(t, "shift"))
		if d > 100*time.Second {
			d = d.Truncate(time.Second)
		}
		words, sum := strings.Fields(Duration(d)), time.Duration(0)
		for i := 0; i < len(words); i += 2 {
			n, err := strconv.ParseFloat(words[i], 64)
			if err != nil || units[words[i+1]] == 0 {
				t.Fatalf("%v is %q", d, words)
			}
			sum += time.Duration(math.Round(n * float64(units[words[i+1]])))
		}
		if sum != d {
			t.Fatalf("%v is %q", d, words)
		}
	})
}
