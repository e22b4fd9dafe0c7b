package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/evasion"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// take returns what the upstream has received since the last call.
func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.raw.Reset()
	return r.raw.String()
}

// Over HTTP/2 the target and the host may have bytes that HTTP/1.1 has no room for. What limits see is what the
// upstream gets, byte by byte, or nothing.
func TestOddBytesOverHTTP2(t *testing.T) {
	up := record(t)
	p := open(t, always(plenty), nil, up.url)
	passed := map[bool]int{}
	check := func(path, host string) {
		t.Helper()
		status, err := evasion.HTTP2{Fields: []evasion.Field{{Name: ":method", Value: "GET"},
			{Name: ":scheme", Value: "http"}, {Name: ":authority", Value: host}, {Name: ":path", Value: path}}}.
			Send(nil, p.addr)
		got := up.take()
		passed[got != ""]++
		switch want := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n", path, host); {
		case got == "" && err == nil && status != http.StatusBadRequest:
			t.Errorf("%q of %q: %d, want 400", path, host, status)
		case got != "" && (!strings.HasPrefix(got, want) || strings.ContainsAny(path, " \t\r\n")):
			t.Errorf("%q of %q: the upstream got %q", path, host, got)
		}
	}
	for c := range 256 {
		for _, format := range []string{"/a%sb", "/a?b%sc", "/%s"} {
			check(fmt.Sprintf(format, string([]byte{byte(c)})), "shop.example")
		}
		for _, format := range []string{"sh%sop.example", "%s", "shop.example%s", "shop.example:8%s0"} {
			check("/a", fmt.Sprintf(format, string([]byte{byte(c)})))
		}
	}
	for _, host := range []string{"ü.example", "\u2100.example", "shop。example", "xn--tda.example", "a b", "a/b",
		"user@a"} {
		check("/a", host)
	}
	for _, path := range []string{"/a HTTP/1.1", "/a HTTP/1.1\r\nX-A: b", "/a b c", "//a b", "/a?b c",
		"/a?b HTTP/1.0"} {
		check(path, "shop.example")
	}
	if passed[true] < 500 || passed[false] < 100 {
		t.Errorf("%d passed, %d did not", passed[true], passed[false])
	}
}

// Informational responses may come while the proxy gives the upstream up: the race detector finds nothing.
func TestInformationalResponsesWithoutEnd(t *testing.T) {
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
		}
	})
	for _, upstream := range []string{up, strings.Replace(up, "http:", "h2c:", 1)} {
		p := open(t, always(plenty), func(c *Config, _ *Options) {
			c.Timeouts.FirstByte, c.Retries = 20*time.Millisecond, 1
		}, upstream, upstream)
		for _, h2 := range []bool{false, true} {
			for range 5 {
				r, _ := http.NewRequestWithContext(t.Context(), "GET", p.url, nil)
				resp, err := clientOf(t, h2).Do(r)
				if err == nil { // clients bound how many of them they read
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		}
	}
}

// A client that resets its request, at whatever moment, is no failure of the upstream.
func TestClientsThatResetAreNoFailures(t *testing.T) {
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = w.Write(make([]byte, 100_000))
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, 100_000))
	})
	fields := []evasion.Field{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: "a"}, {Name: ":path", Value: "/"}}
	for _, upstream := range []string{up, strings.Replace(up, "http:", "h2c:", 1)} {
		p := open(t, always(plenty), nil, upstream)
		for i := range 300 {
			switch i % 3 {
			case 0:
				_, _ = evasion.HTTP2{Fields: fields, Body: []byte("part"), Open: true, Reset: true}.Send(nil, p.addr)
			case 1: // it leaves once the response has begun
				_, _ = evasion.HTTP2{Fields: fields, Body: []byte("part"), Open: true}.Send(nil, p.addr)
			case 2:
				conn := testkit.Dial(t, p.addr)
				fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\npart")
				if i%2 == 0 {
					_, _ = io.ReadFull(conn, make([]byte, 10))
				}
				_ = conn.Close()
			}
		}
		p.stop(testkit.Patience)
		if s := p.Stats().Upstreams[0]; s.Broken+s.Connects+s.Timeouts > 0 || p.log.HasLine("an upstream fails") {
			t.Errorf("%s: %+v, %s", upstream, s, p.log)
		}
	}
}
