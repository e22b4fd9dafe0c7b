package respapi

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		in    string
		words []string
		rest  string
	}{
		{in: array("PING"), words: []string{"PING"}},
		{in: array("ECHO", "a\r\nb\x00"), words: []string{"ECHO", "a\r\nb\x00"}},
		{in: array("a", "", "b") + "*1", words: []string{"a", "", "b"}, rest: "*1"},
		{in: "*0\r\nPING\r\n", rest: "PING\r\n"},
		{in: "*-1\r\n"},
		{in: "*-9223372036854775808\r\n"},
		{in: "PING\r\n", words: []string{"PING"}},
		{in: "PING\nPING\n", words: []string{"PING"}, rest: "PING\n"},
		{in: "\r\n"},
		{in: " \t \r\nx", rest: "x"},
		{in: "  cl.throttle\tk  1 2   3 \r\n", words: []string{"cl.throttle", "k", "1", "2", "3"}},
		{in: `e "a b" 'c d' ""` + "\r\n", words: []string{"e", "a b", "c d", ""}},
		{in: `e "\x41\n\r\t\b\a\"\\\q\x4" 'it\'s \n'` + "\n", words: []string{"e", "A\n\r\t\b\a\"\\qx4", `it's \n`}},
		{in: `a"b c"` + "\n", words: []string{"ab c"}},
		{in: "$5\r\n", words: []string{"$5"}},
		{in: array(slices.Repeat([]string{""}, maxArgs)...), words: slices.Repeat([]string{""}, maxArgs)},
		{in: array(strings.Repeat("x", maxArg)), words: []string{strings.Repeat("x", maxArg)}},
	} {
		words, n, err := parse([]byte(tt.in), nil)
		if err != nil || tt.in[n:] != tt.rest || n == 0 || !slices.Equal(texts(words), tt.words) {
			t.Errorf("%.80q: %.80q, %d bytes, %v", tt.in, words, n, err)
		}
		for k := range n {
			if words, n, err := parse([]byte(tt.in[:k]), nil); n != 0 || err != nil {
				t.Fatalf("the first %d bytes of %.80q: %.80q, %d bytes, %v", k, tt.in, words, n, err)
			}
		}
	}
}

func texts(words [][]byte) (all []string) {
	for _, w := range words {
		all = append(all, string(w))
	}
	return all
}

func TestParseRefuses(t *testing.T) {
	big := fmt.Sprintf("$%d\r\n%s\r\n", maxArg, strings.Repeat("x", maxArg))
	for in, want := range map[string]string{
		"*\r\n":                              "invalid multibulk length",
		"*a\r\n":                             "invalid multibulk length",
		"*+1\r\n":                            "invalid multibulk length",
		"*01\r\n":                            "invalid multibulk length",
		"* 1\r\n":                            "invalid multibulk length",
		"*1\n":                               "invalid multibulk length",
		"*\n":                                "invalid multibulk length",
		"*1025\r\n":                          "invalid multibulk length",
		"*9223372036854775807\r\n":           "invalid multibulk length",
		"*9223372036854775808\r\n":           "invalid multibulk length",
		"*" + strings.Repeat("1", maxHeader): "too big multibulk count string",
		"*1\r\n:5\r\n":                       "expected '$', got ':'",
		"*1\r\n\x01":                         "expected '$', got '?'",
		"*1\r\n$-1\r\n":                      "invalid bulk length",
		"*1\r\n$-2\r\n":                      "invalid bulk length",
		"*1\r\n$\r\n":                        "invalid bulk length",
		"*1\r\n$16385\r\n":                   "invalid bulk length",
		"*1\r\n$4294967296\r\n":              "invalid bulk length",
		"*1\r\n$" + strings.Repeat("0", maxHeader): "too big bulk count string",
		"*1\r\n$1\r\nabc":                          "expected a line to end after the bulk string",
		"*9\r\n" + big + big + big + "$16384\r\n":  "too big request: more than 65536 bytes",
		strings.Repeat("x", maxInline):             "too big inline request",
		strings.Repeat("x ", maxArgs+1) + "\n":     "too many words in the request: more than 1024",
		"echo \"a\n":                               "unbalanced quotes in request",
		"echo 'a\n":                                "unbalanced quotes in request",
		"echo \"a\"b\n":                            "unbalanced quotes in request",
		"echo \"a\\\n":                             "unbalanced quotes in request",
	} {
		if words, n, err := parse([]byte(in), nil); err == nil || err.Error() != want || n != 0 {
			t.Errorf("%.60q: %.60q, %d bytes, %v; want %s", in, words, n, err, want)
		}
	}
}

// A request of the longest kind fits into the largest buffer of a session, whatever the client declares.
func TestParseNeverWaitsForMoreThanFits(t *testing.T) {
	for _, in := range []string{
		strings.Repeat("x", maxRequest), "*1024\r\n" + strings.Repeat("$1\r\nx\r\n", maxRequest/7+1),
		"*1024\r\n" + strings.Repeat(fmt.Sprintf("$%d\r\n%s\r\n", maxArg, strings.Repeat("x", maxArg)), 4),
		"*" + strings.Repeat("1", maxRequest), "*1\r\n$" + strings.Repeat("1", maxRequest),
	} {
		if _, n, err := parse([]byte(in[:maxRequest]), nil); n == 0 && err == nil {
			t.Errorf("%.40q: %d bytes are not enough", in, maxRequest)
		}
	}
}

func TestInteger(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "7": 7, "-1": -1, "1024": 1024, "9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63,
	} {
		if v, ok := parseInt([]byte(text)); !ok || v != want {
			t.Errorf("%s: %d, %v", text, v, ok)
		}
	}
	for _, text := range []string{"", "-", "+1", "-0", "00", "01", "-01", " 1", "1 ", "1.0", "1e3", "0x1",
		"9223372036854775808", "-9223372036854775809",
		"99999999999999999999", "18446744073709551617"} {
		if v, ok := parseInt([]byte(text)); ok {
			t.Errorf("%q is read as %d", text, v)
		}
	}
}

// FuzzParse: what is taken is taken whole, no sooner and no later than it is there, and comes out as it would if it
// were written anew.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		array("CL.THROTTLE", "user123", "15", "30", "60"), array("PING") + array("ECHO",
			"a\r\n"), "PING\r\nQUIT\r\n", `a "b\x41\"" 'c\''` + "\n",
		"*-1\r\n", "*1\r\n$-1\r\n", "*2\r\n$3\r\nabc", "*1000\r\n$16384\r\n", "\r\n", "*1\r\n$0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		words, n, err := parse(bytes.Clone(in), nil)
		if n < 0 || n > len(in) || n > maxRequest || len(words) > maxArgs || err != nil && n != 0 {
			t.Fatalf("%q: %q, %d bytes, %v", in, words, n, err)
		}
		if err == nil && n == 0 && len(in) >= maxRequest {
			t.Fatalf("%d bytes are not enough", len(in))
		}
		if n == 0 {
			return
		}
		for k := max(0, n-200); k < n; k++ {
			if _, early, err := parse(bytes.Clone(in[:k]), nil); early != 0 || err != nil {
				t.Fatalf("%d bytes of %d are taken for %d, %v", k, n, early, err)
			}
		}
		if len(words) == 0 {
			return
		}
		again := array(texts(words)...)
		if len(again) > maxRequest {
			return // a line may hold more than an array, which has lengths in it
		}
		if same, m, err := parse([]byte(again), nil); err != nil || m != len(again) ||
			!slices.EqualFunc(same, words, bytes.Equal) {
			t.Fatalf("%q: %q, and anew %q, %v", in[:n], words, same, err)
		}
	})
}
