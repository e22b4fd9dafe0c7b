package replay

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"
)

// FuzzParseEntry: whatever the line, there is an entry that was in it, or an error.
func FuzzParseEntry(f *testing.F) {
	f.Add(goodLine)
	f.Add(`2001:db8::1 - "" [01/Mar/2026:17:30:00 +0530] "-" 408 - "\"\\\x41" "cut of`)
	f.Add(`a b c d [01/Mar/2026:12:00:00 -1300] "GET /" - -`)
	f.Add(`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "\x16\x03" 400 0 "-" "x" "203.0.113.9"`)
	f.Fuzz(func(t *testing.T, line string) {
		e, err := parseEntry(line)
		if err != nil {
			if e != (Entry{}) {
				t.Fatalf("%v, and yet %+v", err, e)
			}
			if tooLong := errors.Is(err, errTooLong); tooLong == errors.Is(err, errFormat) ||
				tooLong != (len(line) > maxLine) {
				t.Fatalf("a line of %d bytes: %v", len(line), err)
			}
			return
		}
		strs := e.Addr + e.User + e.Method + e.Path + e.Proto + e.Referer + e.Agent
		if len(strs) > len(line) {
			t.Fatalf("%d bytes in a line of %d: %+v", len(strs), len(line), e)
		}
		if e.Status < 0 || e.Status > 999 || e.Bytes < 0 || e.Time.Location() != time.UTC {
			t.Fatalf("%+v", e)
		}
		if (e.Method == "") != (e.Path == "" || !isRequest(e)) {
			t.Fatalf("method %q, path %q, proto %q", e.Method, e.Path, e.Proto)
		}
		if !strings.Contains(line, "\\") {
			for _, s := range []string{e.Addr, e.User, e.Method, e.Path, e.Proto, e.Referer, e.Agent} {
				if !strings.Contains(line, s) {
					t.Fatalf("%q is not in the line", s)
				}
			}
		}
	})
}

// isRequest reports whether the entry has what a request of HTTP needs.
func isRequest(e Entry) bool {
	return httpguts.ValidHeaderFieldName(e.Method) &&
		(strings.HasPrefix(e.Proto, "HTTP/") || e.Proto == "" && e.Method == "GET" && e.Path[0] == '/')
}

// FuzzReadLog: every line is an entry or an error of its own, and reading ends.
func FuzzReadLog(f *testing.F) {
	f.Add([]byte(goodLine+"\nnonsense\r\n\n"+goodLine), false)
	f.Add([]byte(goodLine+"\nnonsense\r\n\n"+goodLine), true)
	f.Add([]byte("\x1f\x8b\x08"), false)
	f.Add([]byte("\n\n"), false)
	f.Fuzz(func(t *testing.T, log []byte, zip bool) {
		plain := !bytes.HasPrefix(log, []byte("\x1f\x8b")) || zip
		lines := bytes.Count(log, []byte("\n"))
		if len(log) > 0 && log[len(log)-1] != '\n' {
			lines++
		}
		if zip {
			log = []byte(compressed(t, string(log)))
		}
		n := 0
		for _, err := range ReadLog(bytes.NewReader(log)) {
			n++
			le, ok := errors.AsType[*LineError](err)
			if plain && err != nil && (!ok || le.Line != n) {
				t.Fatalf("line %d: %v", n, err)
			}
		}
		if plain && n != lines {
			t.Fatalf("%d lines yielded %d times", lines, n)
		}
	})
}
