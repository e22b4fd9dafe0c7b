package replay

import (
	"errors"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, line string
		want       Entry
	}{
		{"combined",
			`192.0.2.7 - ann [01/Mar/2026:12:00:00 +0000] "GET /a?b=c HTTP/1.1" 200 2326 "http://example.com/" ` +
				`"Mozilla/5.0 (X11)"`,
			Entry{"192.0.2.7", "ann", noon, "GET", "/a?b=c", "HTTP/1.1", 200, 2326, "http://example.com/",
				"Mozilla/5.0 (X11)"}},
		{"common",
			`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "POST /form HTTP/1.0" 302 0`,
			Entry{Addr: "192.0.2.7", Time: noon, Method: "POST", Path: "/form", Proto: "HTTP/1.0", Status: 302}},
		{"dashes",
			`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "-" 408 - "-" "-"`,
			Entry{Addr: "192.0.2.7", Time: noon, Status: 408}},
		{"nothing at all in quotes",
			`- - - [01/Mar/2026:12:00:00 +0000] "" - - "" ""`,
			Entry{Time: noon}},
		{"IPv6, another time zone",
			`2001:db8::1 - - [01/Mar/2026:17:30:00 +0530] "HEAD / HTTP/2.0" 204 0 "-" "curl/8.5.0"`,
			Entry{Addr: "2001:db8::1", Time: noon, Method: "HEAD", Path: "/", Proto: "HTTP/2.0", Status: 204,
				Agent: "curl/8.5.0"}},
		{"west of Greenwich, a name for an address, an ident",
			`client.example.com ident ann [28/Feb/2026:23:00:00 -1300] "OPTIONS * HTTP/1.1" 200 0`,
			Entry{Addr: "client.example.com", User: "ann", Time: noon, Method: "OPTIONS", Path: "*", Proto: "HTTP/1.1",
				Status: 200}},
		{"quotes escaped by httpd",
			`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET /\"x\" HTTP/1.1" 404 9 "a\\" "the \"best\" browser\\"`,
			Entry{Addr: "192.0.2.7", Time: noon, Method: "GET", Path: `/"x"`, Proto: "HTTP/1.1", Status: 404, Bytes: 9,
				Referer: `a\`, Agent: `the "best" browser\`}},
		{"escapes of nginx",
			`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "\x16\x03\x01 \x22\x5C" 400 150 "-" "\xE2\x82\xAC"`,
			Entry{Addr: "192.0.2.7", Time: noon, Path: "\x16\x03\x01 \"\\", Status: 400, Bytes: 150, Agent: "€"}},
		{"control characters, and backslashes that escape nothing",
			`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1 "\t\n\r\b\v" "C:\dir\xzz\x4"`,
			Entry{Addr: "192.0.2.7", Time: noon, Method: "GET", Path: "/", Proto: "HTTP/1.1", Status: 200, Bytes: 1,
				Referer: "\t\n\r\b\v", Agent: `C:\dir\xzz\x4`}},
		{"a target with spaces",
			`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET /a HTTP/1.1 b HTTP/1.1" 400 0`,
			Entry{Addr: "192.0.2.7", Time: noon, Method: "GET", Path: "/a HTTP/1.1 b", Proto: "HTTP/1.1", Status: 400}},
		{"a simple request of HTTP/0.9",
			`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET /" 200 5`,
			Entry{Addr: "192.0.2.7", Time: noon, Method: "GET", Path: "/", Status: 200, Bytes: 5}},
		{"a user with spaces, and what looks like a time",
			`192.0.2.7 - a b [01/Jan/1999:00:00:00 +0000] c [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 401 0`,
			Entry{Addr: "192.0.2.7", User: "a b [01/Jan/1999:00:00:00 +0000] c", Time: noon, Method: "GET", Path: "/",
				Proto: "HTTP/1.1", Status: 401}},
		{"a user with quotes",
			`192.0.2.7 - \"x\" [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 401 0`,
			Entry{Addr: "192.0.2.7", User: `"x"`, Time: noon, Method: "GET", Path: "/", Proto: "HTTP/1.1",
				Status: 401}},
		{"the empty user of httpd",
			`192.0.2.7 - "" [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 401 0`,
			Entry{Addr: "192.0.2.7", Time: noon, Method: "GET", Path: "/", Proto: "HTTP/1.1", Status: 401}},
		{"further fields",
			`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 499 0 "-" "x" "203.0.113.9" 0.003`,
			Entry{Addr: "192.0.2.7", Time: noon, Method: "GET", Path: "/", Proto: "HTTP/1.1", Status: 499, Agent: "x"}},
		{"an agent cut off",
			`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 0 "-" "Mozilla/5.0 (compatible; ` +
				`Googlebot/2.1;\`,
			Entry{Addr: "192.0.2.7", Time: noon, Method: "GET", Path: "/", Proto: "HTTP/1.1", Status: 200,
				Agent: `Mozilla/5.0 (compatible; Googlebot/2.1;\`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseEntry(c.line)
			testkit.Must(t, err)
			if got != c.want {
				t.Errorf("\n got %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// A request line that is none of HTTP is kept, whatever it is.
func TestParseGarbageRequests(t *testing.T) {
	for _, request := range []string{
		"hello", "GET", "GET ", " GET / HTTP/1.1", "GET  HTTP/1.1", "GET / HTTP/", "GET / HTTP/x", "GET / http/1.1",
		"POST /", "GET a", "GET /a b", "G(T / HTTP/1.1", "SSH-2.0-Go", "\x00\xff", "GÉT / HTTP/1.1",
	} {
		e, err := parseEntry(`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "` + request + `" 400 0 "-" "-"`)
		if err != nil {
			t.Errorf("%q: %v", request, err)
			continue
		}
		if e.Method != "" || e.Proto != "" || e.Path != request || e.Status != 400 {
			t.Errorf("%q: method %q, path %q, proto %q, status %d: want all of it as path", request, e.Method, e.Path,
				e.Proto, e.Status)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const client, request = `192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] `, `"GET / HTTP/1.1" `
	for _, c := range []struct{ line, why string }{
		{"", "address"},
		{"192.0.2.7", "address"},
		{` - - [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 0`, "address"},
		{`"GET / HTTP/1.1" 200 0`, "address"},
		{"192.0.2.7 -", "user"},
		{`192.0.2.7 - [01/Mar/2026:12:00:00 +0000] ` + request + `200 0`, "time"},
		{`192.0.2.7 - - ` + request + `200 0`, "time"},
		{`192.0.2.7 - - [] ` + request + `200 0`, "time"},
		{`192.0.2.7 - - [1/Mar/2026:12:00:00 +0000] ` + request + `200 0`, "time"},
		{`192.0.2.7 - - [30/Feb/2026:12:00:00 +0000] ` + request + `200 0`, "time"},
		{`192.0.2.7 - - [01/Mrz/2026:12:00:00 +0000] ` + request + `200 0`, "time"},
		{`192.0.2.7 - - [01/Mar/2026:24:00:00 +0000] ` + request + `200 0`, "time"},
		{`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000]` + request + `200 0`, "time"},
		{`192.0.2.7 - - [2026-03-01T12:00:00+00:00] ` + request + `200 0`, "time"},
		{client, "time"},
		{client + `GET / HTTP/1.1 200 0`, "time"},
		{client + `"GET / HTTP/1.1`, "closing quote"},
		{client + `"GET / HTTP/1.1\" 200 0`, "closing quote"},
		{client + `"GET / HTTP/1.1"`, "status"},
		{client + `"GET / HTTP/1.1"200 0`, "status"},
		{client + `"GET "x" HTTP/1.1" 200 0`, "status"},
		{client + request + `200`, "bytes"},
		{client + request + `20 0`, "status"},
		{client + request + `2000 0`, "status"},
		{client + request + `+20 0`, "status"},
		{client + request + `2x0 0`, "status"},
		{client + request + `200 `, "bytes"},
		{client + request + `200 -5`, "bytes"},
		{client + request + `200 1e3`, "bytes"},
		{client + request + `200 9223372036854775808`, "bytes"},
		{client + request + `200 0 `, "referer"},
		{client + request + `200 0 x`, "referer"},
		{client + request + `200 0 "x`, "referer"},
		{client + request + `200 0 "x"`, "agent"},
		{client + request + `200 0 "x" y`, "agent"},
		{client + request + `200 0 "x" "y"z`, "agent"},
		{`{"remote_addr":"192.0.2.7","request":"GET / HTTP/1.1"}`, ""},
	} {
		e, err := parseEntry(c.line)
		if !errors.Is(err, errFormat) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s\n got %v\nwant an errFormat that speaks of %q", c.line, err, c.why)
		}
		if e != (Entry{}) {
			t.Errorf("%s\na refused line left %+v", c.line, e)
		}
	}
}

func TestParseBoundsTheLine(t *testing.T) {
	head, tail := `192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET /`, ` HTTP/1.1" 414 0`
	longest := head + strings.Repeat("a", maxLine-len(head)-len(tail)) + tail
	if e, err := parseEntry(longest); err != nil || e.Status != 414 {
		t.Errorf("a line of maxLine: status %d, %v", e.Status, err)
	}
	if _, err := parseEntry(longest + " "); err != errTooLong {
		t.Errorf("a longer line: %v, want errTooLong", err)
	}
}

// The largest number of bytes fits.
func TestParseLargestResponse(t *testing.T) {
	e, err := parseEntry(`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 9223372036854775807`)
	if err != nil || e.Bytes != 1<<63-1 {
		t.Errorf("bytes = %d, %v", e.Bytes, err)
	}
}

// A line without escapes is cut up where it lies.
func TestParseAllocatesNothing(t *testing.T) {
	const line = `2001:db8::1 - ann [01/Mar/2026:13:00:00 +0100] "GET /a?b=c HTTP/1.1" 200 2326 ` +
		`"http://example.com/" "Mozilla/5.0 (X11)"`
	if n := testing.AllocsPerRun(100, func() {
		if _, err := parseEntry(line); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a line, want none", n)
	}
}

func BenchmarkParse(b *testing.B) {
	const line = `192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET /a?b=c HTTP/1.1" 200 2326 "http://example.com/" ` +
		`"Mozilla/5.0 (X11)"`
	b.ReportAllocs()
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, err := parseEntry(line); err != nil {
			b.Fatal(err)
		}
	}
}
