package proxy

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The target reaches the upstream byte by byte, over both protocols.
func TestTargetIsForwardedUnchanged(t *testing.T) {
	targets := []string{"/", "/?", "/a?", "/a//b", "//a/b", "/a/../b", "/a/./b", "/a%2Fb", "/a%2fb", "/%61", "/a;b=1/c",
		"/a?x=1;y=2", "/a?x=%zz", "/a?;", "/a?x=1&&y", "/a?x=a+b", "/a?q=http://x/?y", "/a%00", "/a%23b", "/[x]",
		"/a|b",
		`/a\b`, "/ä", "/a?ä", "/a%3Fb", "/a,b", "/'a'", `/"a"`, "/a<b>", "/..", "/../../x", "/a?#", "/a#b", "/~a",
		"/a:b",
		"/a@b", "/^", "/{a}", "/a%E4"}
	for _, h2c := range []bool{false, true} {
		up := backend(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Target", r.RequestURI) })
		if h2c {
			up = strings.Replace(up, "http:", "h2c:", 1)
		}
		p := open(t, always(plenty), nil, up)
		for _, target := range targets {
			if h2c && strings.HasPrefix(target, "//") {
				continue // Go's servers of HTTP/2 show another one than they were sent
			}
			conn := testkit.Dial(t, p.addr)
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", target)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			testkit.Must(t, err)
			if got := resp.Header.Get("Target"); got != target {
				t.Errorf("HTTP/2 %v: %s is forwarded as %q, %s", h2c, target, got, resp.Status)
			}
		}
	}
}

func TestTargetOf(t *testing.T) {
	for raw, want := range map[string]string{
		"GET http://b/x?y":  "/x?y",
		"GET http://b?y":    "/?y",
		"GET http://b":      "/",
		"GET HTTP://b/x":    "/x",
		"GET http://b//x":   "//x",
		"GET ftp://b/x":     "",
		"OPTIONS *":         "*",
		"GET *":             "",
		"CONNECT b:443":     "",
		"OPTIONS http://b/": "/",
	} {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw + " HTTP/1.1\r\nHost: a\r\n\r\n")))
		if err != nil {
			t.Fatal(raw, err)
		}
		if got := targetOf(r); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

// echo answers with the fields that it was sent.
func echo(w http.ResponseWriter, r *http.Request) {
	for name, values := range r.Header {
		w.Header()["Got-"+name] = values
	}
	w.Header().Set("Got-Host", r.Host)
}

// What the client says about itself is replaced unless the peer is trusted; then the peer is appended.
func TestForwardingFields(t *testing.T) {
	up := backend(t, echo)
	forged := []string{"X-Forwarded-For", "1.1.1.1", "X-Forwarded-For", "2.2.2.2", "X-Forwarded-Proto", "https",
		"X-Forwarded-Host", "evil", "Forwarded", `for=1.1.1.1;host="evil"`, "X-Real-IP", "1.1.1.1", "X_Forwarded_For",
		"1.1.1.1", "x-forwarded_for", "1.1.1.1", "X-Forwarded-Port", "1", "X-Original-URL", "/admin", "Host",
		"shop.example:8080", "X-Forwarded", "kept"}
	for _, test := range []struct {
		trusted []string
		want    map[string]string
	}{
		{nil, map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http",
			"X-Forwarded-Host": "shop.example:8080", "Forwarded": `for=127.0.0.1;host="shop.example:8080";proto=http`,
			"X-Real-Ip": "", "X_forwarded_for": "", "X-Forwarded_for": "", "X-Forwarded-Port": "", "X-Original-Url": "",
			"X-Forwarded": "kept", "Host": "shop.example:8080"}},
		{[]string{"127.0.0.0/8"}, map[string]string{"X-Forwarded-For": "1.1.1.1, 2.2.2.2, 127.0.0.1",
			"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil",
			"Forwarded": `for=1.1.1.1;host="evil", for=127.0.0.1;host="shop.example:8080";proto=http`,
			"X-Real-Ip": "1.1.1.1", "X_forwarded_for": "", "X-Forwarded_for": "", "X-Forwarded-Port": "1",
			"X-Original-Url": "/admin"}},
	} {
		p := open(t, always(plenty), func(_ *Config, o *Options) { o.Requests.TrustedProxies = test.trusted }, up)
		for _, connection := range []string{"", "X-Forwarded-For",
			"close, x-forwarded-for,Forwarded, X-Forwarded-Proto, " +
				"X-Forwarded-Host, X-Real-IP, X-Forwarded-Port, X-Original-URL"} {
			fields := forged
			if connection != "" {
				fields = append(fields[:len(fields):len(fields)], "Connection", connection)
			}
			want := test.want
			if test.trusted != nil && len(connection) > 20 { // for this proxy alone, if the trusted one says so
				want = map[string]string{"X-Forwarded-For": want["X-Forwarded-For"], "Forwarded": want["Forwarded"],
					"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil"}
			}
			resp, _ := get(t, p.url, fields...)
			for name, value := range want {
				if got := strings.Join(resp.Header["Got-"+name], "|"); got != value {
					t.Errorf("trusted %v, Connection %q: %s is %q, want %q", test.trusted, connection, name, got, value)
				}
			}
		}
	}
}

// oddSpellings are names that some server takes for the given one: each symbol that a name may have in the place of its
// hyphens, doubled, before, behind, and in the place of one of them.
func oddSpellings(name string) (all []string) {
	for _, symbol := range "!#$%&'*+.^_`|~" {
		s := string(symbol)
		all = append(all, strings.ReplaceAll(name, "-", s), strings.ReplaceAll(name, "-", s+s), s+name, name+s,
			strings.Replace(name, "-", s, 1), strings.ReplaceAll(name, "-", "-"+s),
			strings.ToUpper(strings.ReplaceAll(name, "-", s)))
	}
	return append(all, strings.ReplaceAll(name, "-", ""), strings.ReplaceAll(name, "-", "--"))
}

// No spelling of a forwarding field gets past, whoever sends it, but the usual one of a trusted proxy.
func TestOddSpellingsOfForwardingFields(t *testing.T) {
	up := record(t)
	for _, trusted := range [][]string{nil, {"127.0.0.0/8"}} {
		p := open(t, always(plenty), func(_ *Config, o *Options) { o.Requests.TrustedProxies = trusted }, up.url)
		sent := 0
		for _, name := range append(forwardingNames, "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Uri",
			"X-Forwarded-Port") {
			conn := testkit.Dial(t, p.addr)
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n")
			for _, odd := range oddSpellings(name) {
				if strings.EqualFold(odd, name) { // a name of one word has no hyphens
					continue
				}
				sent++
				fmt.Fprintf(conn, "%s: 6.6.6.6\r\n", odd)
			}
			fmt.Fprint(conn, "X-Forwardedfor: 6.6.6.6\r\nXForwarded: kept\r\nX-Real: kept\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			testkit.Must(t, err)
			got := up.take()
			if resp.StatusCode != 200 || strings.Contains(got, "6.6.6.6") || strings.Count(got, "kept") != 2 {
				t.Errorf("trusted %v: %s: %s, the upstream got %s", trusted, name, resp.Status, got)
			}
		}
		if sent < 1000 {
			t.Errorf("%d names", sent)
		}
	}
}

// What Connection names is gone before the limits look, and before the upstream does.
func TestNamedFieldsAreNotSeen(t *testing.T) {
	l := always(plenty)
	p := open(t, l, func(_ *Config, o *Options) {
		o.Requests.Descriptors = []actions.Descriptor{{{Key: "key", Source: "header X-Api-Key"},
			{Key: actions.OnMissing, Source: actions.Count}}}
	}, backend(t, echo))
	resp, _ := get(t, p.url, "X-Api-Key", "k1", "Connection", "x-api-key")
	if got := l.seen("key"); len(got) != 1 || got[0] != actions.MissingValue || resp.Header["Got-X-Api-Key"] != nil {
		t.Errorf("the limits saw %q, the upstream %q", got, resp.Header["Got-X-Api-Key"])
	}
}

// Fields for one connection are not forwarded, in either direction; all others are, in both.
func TestHopByHop(t *testing.T) {
	hop := []string{"Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Named"}
	p := open(t, always(plenty), nil, backend(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range hop {
			w.Header().Set(name, "x")
		}
		w.Header().Set("Connection", "Named")
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
		echo(w, r)
	}))
	fields := []string{"Connection", "Named", "TE", "gzip", "Cookie", "a=1", "Accept-Encoding", "br", "Range",
		"bytes=0-1"}
	for _, name := range hop {
		fields = append(fields, name, "x")
	}
	resp, _ := get(t, p.url, fields...)
	for _, name := range append(hop, "Te", "Transfer-Encoding") {
		if resp.Header[name] != nil || resp.Header["Got-"+name] != nil {
			t.Errorf("%s: %q, %q", name, resp.Header[name], resp.Header["Got-"+name])
		}
	}
	for name, want := range map[string]string{"Got-Cookie": "a=1", "Got-Accept-Encoding": "br",
		"Got-Range":  "bytes=0-1",
		"Set-Cookie": "a=1|b=2", "Got-User-Agent": "Go-http-client/1.1"} {
		if got := strings.Join(resp.Header[name], "|"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A Unix socket's peers have no address.
func TestForwardedWithoutAnAddress(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		in, _ := http.NewRequest("GET", "/", nil)
		in.Host, in.RemoteAddr = "a", "@"
		in.Header.Set("X-Forwarded-For", "1.1.1.1")
		out := in.Header.Clone()
		describeClient(out, in, peerOf(in), trusted)
		want := map[bool]string{false: "", true: "1.1.1.1"}[trusted]
		if got := out.Get("X-Forwarded-For"); got != want || out.Get("Forwarded") != `for=unknown;host="a";proto=http` {
			t.Errorf("trusted %v: %q, %q", trusted, got, out.Get("Forwarded"))
		}
	}
}

func FuzzTargetIsForwardedUnchanged(f *testing.F) {
	for _, target := range []string{"/", "//a", "/a%2f?b;c", "/a#b", "*", "http://x//y?z"} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n")))
		if err != nil {
			return
		}
		raw, u := targetOf(r), *r.URL
		if raw == "" || !setTarget(&u, raw) {
			return
		}
		u.Scheme, u.Host = "http", "upstream"
		if got := u.RequestURI(); got != raw || !strings.HasSuffix(target, raw) && raw != "/" && target[:4] != "http" {
			t.Errorf("%q is forwarded as %q, for %q", target, got, raw)
		}
	})
}
