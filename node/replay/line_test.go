package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Lines as servers write them, of the same request.
const (
	caddyLine = `{"level":"info","ts":1772366400.25,"logger":"http.log.access","msg":"handled request",` +
		`"request":{"remote_ip":"10.0.0.1",` +
		`"remote_port":"4711","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"example.com",` +
		`"uri":"/a?b=c","headers":` +
		`{"Accept":["*/*"],"User-Agent":["curl/8.5.0"],"Referer":["http://example.com/"],"X-Api-Key":["k1"]}},` +
		`"bytes_read":0,` +
		`"user_id":"ann","duration":0.0009,"size":10900,"status":404}`
	traefikLine = `{"ClientAddr":"192.0.2.7:4711","ClientHost":"192.0.2.7","ClientPort":"4711",` +
		`"ClientUsername":"ann","DownstreamStatus":404,` +
		`"Duration":900,"OriginStatus":404,"RequestHost":"example.com","RequestMethod":"GET",` +
		`"RequestPath":"/a?b=c","RequestProtocol":"HTTP/2.0",` +
		`"StartUTC":"2026-03-01T12:00:00.25Z","level":"info","msg":"","request_Referer":"http://example.com/",` +
		`"request_User-Agent":"curl/8.5.0",` +
		`"request_X-Api-Key":"k1","time":"2026-03-01T12:00:01Z"}`
	nginxLine = `{"time_iso8601":"2026-03-01T12:00:00+00:00","msec":"1772366400.250","remote_addr":"192.0.2.7",` +
		`"remote_user":"ann",` +
		`"request":"GET /a?b=c HTTP/2.0","status": "404","http_host":"example.com",` +
		`"http_referer":"http://example.com/","http_user_agent":"curl/8.5.0",` +
		`"http_x_api_key":"k1"}`
	envoyLine = `{"start_time":"2026-03-01T12:00:00.250Z","method":"GET","path":"/a?b=c","protocol":"HTTP/2",` +
		`"response_code":404,` +
		`"authority":"example.com","user_agent":"curl/8.5.0","downstream_remote_address":"192.0.2.7:4711",` +
		`"x_forwarded_for":"203.0.113.9",` +
		`"referer":"http://example.com/","user":"ann","api_key":"k1"}`
	combinedLine = `192.0.2.7 - ann [01/Mar/2026:13:00:00 +0100] "GET /a?b=c HTTP/2.0" 404 10900 ` +
		`"http://example.com/" "curl/8.5.0"`
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// read parses a line for all fields and the keys of further places, and returns its values by key.
func read(t testing.TB, f Format, line string, places ...string) (at int64, got map[string]string, err error) {
	t.Helper()
	l, err := newLayout(places)
	testkit.Must(t, err)
	for _, known := range l.known {
		l.index(known.key)
	}
	p := parser{layout: l, format: f}
	values := make([]string, l.width())
	at, err = p.parse(line, values)
	got = make(map[string]string)
	for key, n := range l.indexes {
		if values[n] != "" && key != timeKey {
			got[key] = values[n]
		}
	}
	return at, got, err
}

func TestLinesOfServers(t *testing.T) {
	quarter := noon.Add(250 * time.Millisecond)
	for _, c := range []struct {
		name, line, field, without string
		at                         time.Time
	}{
		{"Caddy", caddyLine, "api_key=request.headers.X-Api-Key", "", quarter},
		{"Traefik", traefikLine, "api_key=request_X-Api-Key", "", quarter},
		{"nginx", nginxLine, "api_key=http_x_api_key", "", quarter},
		{"Envoy", envoyLine, "api_key=api_key", "", quarter},
		{"combined", combinedLine, "api_key=nowhere", "host api_key", noon},
		{"combined with a virtual host", "example.com:443 " + combinedLine, "api_key=nowhere", "api_key", noon},
		{"a byte order mark", "\ufeff" + caddyLine, "api_key=request.headers.X-Api-Key", "", quarter},
	} {
		want := map[string]string{
			"remote_address": "192.0.2.7",
			"method":         "GET",
			"path":           "/a",
			"uri":            "/a?b=c",
			"host":           "example.com",
			"status":         "404",
			"user_agent":     "curl/8.5.0",
			"referer":        "http://example.com/",
			"user":           "ann",
			"api_key":        "k1",
		}
		for key := range strings.FieldsSeq(c.without) {
			delete(want, key)
		}
		at, got, err := read(t, Auto, c.line, c.field)
		if err != nil || at != c.at.UnixNano() {
			t.Errorf("%s: at %v, %v, want %v", c.name, time.Unix(0, at).UTC(), err, c.at)
		}
		for key := range want {
			if got[key] != want[key] {
				t.Errorf("%s: %s is %q, want %q", c.name, key, got[key], want[key])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: it has %v, want %v", c.name, got, want)
		}
	}
}

func TestLineDetails(t *testing.T) {
	for _, c := range []struct{ name, line, key, want string }{
		{"a port of Envoy's IPv6", `{"ts":1772366400,"downstream_remote_address":"[2001:db8::1]:99"}`, "remote_address",
			"2001:db8::1"},
		{"IPv6 without a port", `{"ts":1772366400,"downstream_remote_address":"2001:db8::1"}`, "remote_address",
			"2001:db8::1"},
		{"a request that is none", `{"ts":1772366400,"request":"\u0016\u0003"}`, "path", "\x16\x03"},
		{"and has no method", `{"ts":1772366400,"request":"-"}`, "method", ""},
		{"the first place that has a value", `{"ts":1772366400,"request":{"client_ip":"","remote_ip":"10.0.0.1"}}`,
			"remote_address", "10.0.0.1"},
		{"whatever the order", `{"ts":1772366400,"request":{"remote_ip":"10.0.0.1","client_ip":"192.0.2.7"}}`,
			"remote_address", "192.0.2.7"},
		{"a status that is none", `192.0.2.7 - - [01/Mar/2026:13:00:00 +0100] "-" - -`, "status", ""},
		{"an ident that is no address", `192.0.2.7 dead - [01/Mar/2026:13:00:00 +0100] "GET / HTTP/1.1" 200 1`,
			"remote_address", "192.0.2.7"},
		{"a virtual host before IPv6", `[2001:db8::2]:80 2001:db8::1 - - [01/Mar/2026:13:00:00 +0100] "GET / ` +
			`HTTP/1.1" 200 1`, "host", "2001:db8::2"},
	} {
		_, got, err := read(t, Auto, c.line)
		if err != nil || got[c.key] != c.want {
			t.Errorf("%s: %s is %q, %v, want %q", c.name, c.key, got[c.key], err, c.want)
		}
	}
}

// The user's places take the place of the usual ones, in their order.
func TestFieldsReplace(t *testing.T) {
	line := `{"when":"1772366400","remote_addr":"10.0.0.1","fwd":["192.0.2.7"],"real":"192.0.2.8"}`
	at, got, err := read(t, Auto, line, "time=when", "remote_address=nowhere", "remote_address=fwd",
		"remote_address=real")
	if err != nil || at != noon.UnixNano() || got["remote_address"] != "192.0.2.7" {
		t.Errorf("%v at %v, %v", got, time.Unix(0, at).UTC(), err)
	}
	if _, got, err = read(t, Auto, line, "time=when", "remote_address=nowhere"); err != nil ||
		got["remote_address"] != "" {
		t.Errorf("%v, %v, want no address", got, err)
	}
	if _, got, _ = read(t, Auto, `{"ts":1772366400,"url":"/a?b","peer":"192.0.2.7:1"}`, "path=url",
		"remote_address=peer"); got["path"] != "/a" ||
		got["remote_address"] != "192.0.2.7" {
		t.Errorf("%v, want what is made of the usual places", got)
	}
	for _, bad := range []string{"", "a", "=a", "a="} {
		if _, err := newLayout([]string{bad}); err == nil || !strings.Contains(err.Error(), "KEY=PATH") {
			t.Errorf("field %q: %v", bad, err)
		}
	}
}

func TestParseTime(t *testing.T) {
	for s, want := range map[string]time.Time{
		"2026-03-01T12:00:00Z":        noon,
		"2026-03-01T12:00:00.000001Z": noon.Add(time.Microsecond),
		"2026-03-01T13:00:00+01:00":   noon,
		"2026-03-01T13:00:00.5+0100":  noon.Add(time.Second / 2),
		"2026-03-01 12:00:00Z":        noon,
		"01/Mar/2026:13:00:00 +0100":  noon,
		"1772366400":                  noon,
		"1772366400.5":                noon.Add(time.Second / 2),
		"1.7723664e9":                 noon,
		"1772366400500":               noon.Add(time.Second / 2),
		"1772366400500000":            noon.Add(time.Second / 2),
		"1772366400500000000":         noon.Add(time.Second / 2),
	} {
		at, err := parseTime(s)
		if off := time.Duration(at - want.UnixNano()).Abs(); err != nil || off > time.Microsecond {
			t.Errorf("%s is %v, %v, want %v", s, time.Unix(0, at).UTC(), err, want)
		}
	}
	for _, s := range []string{"", "x", "-1", "0", "5", "NaN", "Inf", "1e30", "99999999999999999999999",
		"2026-13-01T12:00:00Z", "2026-03-01", "noon",
		"0001-01-01T00:00:00Z", "9999-01-01T00:00:00Z", "01/Mar/1969:13:00:00 +0100", "01/Mar/2026 13:00",
		strings.Repeat("1", 65)} {
		if at, err := parseTime(s); err == nil {
			t.Errorf("%q is taken for %v", s, time.Unix(0, at).UTC())
		}
	}
}

func TestLineRefuses(t *testing.T) {
	for _, c := range []struct {
		format Format
		line   string
		why    string
	}{
		{Auto, "nonsense", "address"},
		{Auto, `{"remote_ip":"192.0.2.7"}`, "no time"},
		{Auto, `{"ts":"yesterday"}`, "the time is none"},
		{Auto, `{"ts":1772366400`, "not a JSON object"},
		{Combined, caddyLine, "common or combined"},
		{JSON, combinedLine, "not a JSON object"},
		{Auto, `192.0.2.7 - - [01/Mar/0026:13:00:00 +0100] "GET / HTTP/1.1" 200 1`, "outside the years"},
	} {
		if _, _, err := read(t, c.format, c.line); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s as %s: %v, want it to speak of %q", c.line, c.format, err, c.why)
		}
	}
}

// FuzzLine: whatever the line, there is a request in range with no more than the line holds, or an error.
func FuzzLine(f *testing.F) {
	for _, line := range []string{caddyLine, traefikLine, nginxLine, envoyLine, combinedLine, "example.com:443 " +
		combinedLine, "\x1b]0;x\a", "{", "{}"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if len(line) > maxLine {
			return
		}
		at, got, err := read(t, Auto, line)
		if err != nil {
			return
		}
		if y := time.Unix(0, at).UTC().Year(); y < firstYear || y > lastYear {
			t.Fatalf("at %d", at)
		}
		for key, v := range got {
			// an escape of JSON may stand for more bytes than it has: invalid ones become U+FFFD
			if len(v) > 3*len(line) {
				t.Fatalf("%s has %d bytes, in a line of %d", key, len(v), len(line))
			}
		}
	})
}

func BenchmarkLine(b *testing.B) {
	for name, line := range map[string]string{"combined": combinedLine, "caddy": caddyLine} {
		b.Run(name, func(b *testing.B) {
			l, _ := newLayout(nil)
			l.index("remote_address")
			l.index("path")
			p := parser{layout: l, format: Auto}
			values := make([]string, l.width())
			b.ReportAllocs()
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				if _, err := p.parse(line, values); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
