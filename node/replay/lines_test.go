package replay

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const goodLine = `192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "x"`

// collect reads all of a log: its entries, and its errors in their order.
func collect(r io.Reader) (entries []Entry, errs []error) {
	for e, err := range ReadLog(r) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		entries = append(entries, e)
	}
	return entries, errs
}

// format writes an entry as httpd does (with %q's escapes, which for what is drawn here are the same).
func format(e Entry) string {
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	return fmt.Sprintf("%s - %s [%s] %q %d %d %q %q", e.Addr, dash(e.User), e.Time.Format("02/Jan/2006:15:04:05 -0700"),
		e.Method+" "+e.Path+" "+e.Proto, e.Status, e.Bytes, dash(e.Referer), dash(e.Agent))
}

// generate makes up the traffic of some clients, with a seed.
func generate(n int) []Entry {
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(s ...string) string { return s[rnd.IntN(len(s))] }
	entries := make([]Entry, n)
	for i := range entries {
		entries[i] = Entry{
			Addr:    pick("192.0.2.1", "192.0.2.2", "2001:db8::7", "crawler.example.com"),
			User:    pick("", "", "ann", "bob b"),
			Time:    noon.Add(time.Duration(i) * time.Second),
			Method:  pick("GET", "GET", "POST", "M-SEARCH"),
			Path:    pick("/", "/a b", `/"quoted"`, `/back\slash`, "/?q=[1]"),
			Proto:   pick("HTTP/1.0", "HTTP/1.1", "HTTP/2.0"),
			Status:  []int{200, 304, 404, 429, 503}[rnd.IntN(5)],
			Bytes:   rnd.Int64N(1 << 40),
			Referer: pick("", "http://example.com/", `"`),
			Agent:   pick("", "curl/8.5.0", `the "best" \ browser`, "tab\tand\nnewline"),
		}
	}
	return entries
}

func TestReadGeneratedLog(t *testing.T) {
	want := generate(500)
	var log strings.Builder
	for i, e := range want {
		log.WriteString(format(e))
		log.WriteString([]string{"\n", "\r\n"}[i%2])
	}
	twice := compressed(t, log.String()[:1000]) + compressed(t, log.String()[1000:])
	for name, r := range map[string]io.Reader{
		"plain":                strings.NewReader(log.String()),
		"without a last end":   strings.NewReader(strings.TrimRight(log.String(), "\r\n")),
		"byte by byte":         iotest.OneByteReader(strings.NewReader(log.String())),
		"gzip":                 strings.NewReader(compressed(t, log.String())),
		"gzip, rotated halves": strings.NewReader(twice),
		"gzip, byte by byte":   iotest.OneByteReader(strings.NewReader(compressed(t, log.String()))),
	} {
		got, errs := collect(r)
		if len(errs) > 0 || len(got) != len(want) {
			t.Errorf("%s: %d entries and %v, want %d", name, len(got), errs, len(want))
			continue
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s, line %d:\n got %+v\nwant %+v", name, i+1, got[i], want[i])
			}
		}
	}
}

func TestReadGoesOnAfterMalformedLines(t *testing.T) {
	long := strings.Repeat("a", maxLine+1)
	veryLong := strings.Repeat("a", 5*maxLine)
	log := strings.Join([]string{goodLine, "nonsense", goodLine, "", long, veryLong, goodLine, veryLong}, "\n")
	got, errs := collect(strings.NewReader(log))
	if len(got) != 3 {
		t.Errorf("%d entries, want 3", len(got))
	}
	want := []struct {
		line int
		err  error
	}{{2, errFormat}, {4, errFormat}, {5, errTooLong}, {6, errTooLong}, {8, errTooLong}}
	if len(errs) != len(want) {
		t.Fatalf("errors %v, want %d", errs, len(want))
	}
	for i, w := range want {
		le, ok := errors.AsType[*LineError](errs[i])
		if !ok || le.Line != w.line || !errors.Is(le, w.err) {
			t.Errorf("error %d is %v, want line %d: %v", i, errs[i], w.line, w.err)
		}
		if !strings.HasPrefix(errs[i].Error(), fmt.Sprintf("access log line %d: ", w.line)) ||
			len(errs[i].Error()) > 200 {
			t.Errorf("error %d reads %q", i, errs[i])
		}
	}
}

// Just as long as may be, whatever ends the line.
func TestReadLongestLine(t *testing.T) {
	head, tail := `192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET /`, ` HTTP/1.1" 414 0`
	longest := head + strings.Repeat("a", maxLine-len(head)-len(tail)) + tail
	got, errs := collect(strings.NewReader(longest + "\r\n" + longest + "\n" + longest))
	if len(got) != 3 || len(errs) != 0 {
		t.Errorf("%d entries and %v, want 3", len(got), errs)
	}
	got, errs = collect(strings.NewReader("x" + longest + "\nx" + longest + "\r\nx" + longest))
	if len(got) != 0 || len(errs) != 3 {
		t.Errorf("a byte more: %d entries and %v, want 3 errors", len(got), errs)
	}
}

func TestReadNothing(t *testing.T) {
	for name, log := range map[string]string{"empty": "", "empty gzip": compressed(t, "")} {
		if got, errs := collect(strings.NewReader(log)); len(got)+len(errs) > 0 {
			t.Errorf("%s: %v, %v", name, got, errs)
		}
	}
	got, errs := collect(strings.NewReader("\x1f")) // half of gzip's magic is a line like any other
	if len(got) != 0 || len(errs) != 1 || !errors.Is(errs[0], errFormat) {
		t.Errorf("one byte: %v, %v, want a malformed line", got, errs)
	}
}

func TestReadReportsItsReader(t *testing.T) {
	broken := errors.New("disk on fire")
	whole := compressed(t, goodLine+"\n"+goodLine)
	spoilt := []byte(whole)
	spoilt[len(spoilt)-5] ^= 0xff
	for _, c := range []struct {
		name    string
		r       io.Reader
		entries int
		want    error
	}{
		{"at once", iotest.ErrReader(broken), 0, broken},
		{"within a line", io.MultiReader(strings.NewReader(goodLine+"\n"+goodLine), iotest.ErrReader(broken)), 1,
			broken},
		{"within a line too long", io.MultiReader(strings.NewReader(goodLine+"\n"+strings.Repeat("a", 3*maxLine)),
			iotest.ErrReader(broken)), 1, broken},
		{"gzip without a header", strings.NewReader("\x1f\x8b"), 0, io.ErrUnexpectedEOF},
		{"gzip that is none", strings.NewReader("\x1f\x8b" + goodLine), 0, gzip.ErrHeader},
		{"gzip cut off", strings.NewReader(whole[:len(whole)-6]), 1, io.ErrUnexpectedEOF},
		{"gzip with a wrong sum", bytes.NewReader(spoilt), 1, gzip.ErrChecksum},
	} {
		got, errs := collect(c.r)
		if len(got) != c.entries || len(errs) != 1 || !errors.Is(errs[0], c.want) {
			t.Errorf("%s: %d entries and %v, want %d and then %v", c.name, len(got), errs, c.entries, c.want)
			continue
		}
		if _, ok := errors.AsType[*LineError](errs[0]); ok {
			t.Errorf("%s: %v is said to be a line's fault", c.name, errs[0])
		}
	}
}

func TestReadStopsWhenAsked(t *testing.T) {
	for _, first := range []string{goodLine, "nonsense", strings.Repeat("a", maxLine+1)} {
		n := 0
		for range ReadLog(strings.NewReader(first + "\n" + goodLine + "\n")) {
			n++
			break
		}
		if n != 1 {
			t.Errorf("%.10s: %d yielded after a break", first, n)
		}
	}
	for range ReadLog(iotest.ErrReader(io.ErrClosedPipe)) {
		break
	}
}

func ExampleReadLog() {
	log := `192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl/8.5.0"
what is this?
2001:db8::1 - - [01/Mar/2026:12:00:01 +0000] "GET /b HTTP/1.1" 429 0`

	for e, err := range ReadLog(strings.NewReader(log)) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(e.Time.Format(time.TimeOnly), e.Addr, e.Method, e.Path, e.Status)
	}
	// Output:
	// 12:00:00 192.0.2.7 GET /a 200
	// access log line 2: the time in brackets before the request is missing: not in common or combined log format
	// 12:00:01 2001:db8::1 GET /b 429
}
