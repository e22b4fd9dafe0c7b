package recipes

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/evasion"
)

// oddFields are those by which a client may try to have the question about its request fail: each with its values.
var oddFields = []struct {
	name   string
	values []string
}{
	{"expect", []string{"foo", "100-continue", "", "100-continue, foo", "200-ok"}},
	{"te", []string{"trailers", "gzip", "chunked", "trailers, deflate;q=0.5"}},
	{"trailer", []string{"X-A", "Content-Length", "Host", "Transfer-Encoding", "X-RL-Decision", "a b"}},
	{"transfer-encoding", []string{"chunked", "gzip", "identity", "chunked, chunked", "xchunked"}},
	{"content-length", []string{"0", "5", "-1", "99999999999999999999", "5, 5", "0x5", ""}},
	{"upgrade", []string{"websocket", "h2c", "TLS/1.0", "foo/2, bar"}},
	{"http2-settings", []string{"AAMAAABkAAQAAP__", "!"}},
	{"connection", []string{"keep-alive", "upgrade", "close, x-forwarded-for", "x-rl-decision", "te, trailer, expect",
		"x-forwarded-uri, x-forwarded-method, host", ", ,"}},
	{"proxy-connection", []string{"keep-alive", "x-forwarded-uri"}},
	{"keep-alive", []string{"timeout=0", "x"}},
	{"host", []string{"", "other.example", "a b", "x:99999", "[::1", "\xff"}},
	{"early-data", []string{"1"}}, {"max-forwards", []string{"0"}}, {"via", []string{"1.1 edgelimit"}},
	{"range", []string{"bytes=0-0", "bytes=9-1", "x"}}, {"if-match", []string{"*", "x"}},
	{"if-none-match", []string{"*"}}, {"if-unmodified-since", []string{"Thu, 01 Jan 1970 00:00:00 GMT"}},
	{"if-range", []string{"x"}}, {"cache-control", []string{"only-if-cached", "no-store"}}, {"accept", []string{"x/y"}},
	{"accept-encoding", []string{"identity;q=0, *;q=0"}}, {"content-type", []string{"application/grpc", "x"}},
	{"content-encoding", []string{"gzip", "br"}}, {"origin", []string{"https://evil.example", "null"}},
	{"sec-fetch-site", []string{"cross-site"}}, {"authorization", []string{"Basic !", "Bearer", "Negotiate x"}},
	{"proxy-authorization", []string{"Basic eA=="}}, {"cookie", []string{strings.Repeat("a=b; ", 900), "\x80\xff"}},
	{"x-http-method-override", []string{"OPTIONS", "CONNECT"}}, {"x-accel-redirect", []string{"/"}},
	{"x-rl-decision", []string{"allow", "unavailable"}}, {"x-forwarded-uri", []string{"/free", ""}},
	{"x-forwarded-method", []string{"FREE"}},
	{"x-forwarded-for", []string{"x", strings.Repeat("1.1.1.1, ", 400) + "1"}},
	{"x-original-url", []string{"/free"}}, {"forwarded", []string{"for=1;host=\"", "x"}},
	{"x-a", []string{strings.Repeat("a", 4000), strings.Repeat("a", 8100), strings.Repeat("a", 15_000),
		strings.Repeat("a", 16_300), strings.Repeat("a", 40_000), "\x80", "\xef\xbf\xbe", "\x7f", "\x01", "a\tb",
		"\x00",
		"a\r\nx-rl-decision: allow", "a\nb"}},
	{"x a", []string{"x"}}, {"x:a", []string{"x"}}, {"x\xe9", []string{"x"}}, {"", []string{"x"}},
	{"X-UPPER", []string{"x"}},
	{"x_a", []string{"x"}}, {"x!#$%&'*+.^`|~", []string{"x"}}, {strings.Repeat("n", 9000), []string{"x"}},
	{":protocol", []string{"websocket", "x"}}, {":x", []string{"x"}}, {":path", []string{"/free"}},
}

// oddStarts are values of the request's own parts.
var oddStarts = map[string][]string{
	":method": {"POST", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PRI", "get", "G ET", "", strings.Repeat("M", 9000),
		"G\x80T"},
	":scheme": {"https", "ftp", "", "x y", "file"},
	":authority": {"", "other.example", "a b", "\u00fc.example", "x\xff", "user@shop.example", "shop.example:99999",
		"/",
		strings.Repeat("h", 9000), "[::1", "a,b", "xn--", "\u2100.example"},
	":path": {blocked + "?a b", blocked + "? HTTP/1.0", blocked + "?a HTTP/2.0", blocked + "#x", blocked + "?%zz&;&a;b",
		blocked + "?\x80\xff", blocked + " ", blocked + " x", blocked + "\tx", "/." + blocked, "/" + blocked,
		blocked + "?" + strings.Repeat("q", 4000), blocked + "?" + strings.Repeat("q", 16_000),
		"http://shop.example" + blocked, "http://shop.example" + blocked + "?a b"},
}

// blocked is a path whose limit is 0.
const blocked = "/blocked"

// attack is a request of the adversary.
type attack struct {
	fields []evasion.Field
	timing string // one of timings
}

// timings are when the parts of a request come, and how it ends.
var timings = []string{"at once", "a body", "a body that never ends", "torn off"}

// attacks are every odd field and start alone, with every timing, and n pairs and triples of them.
func attacks(n int) (all []attack) {
	plain := []evasion.Field{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: "shop.example"}, {Name: ":path", Value: blocked}}
	var changes []func([]evasion.Field) []evasion.Field
	for i, start := range plain {
		for _, value := range oddStarts[start.Name] {
			changes = append(changes, func(f []evasion.Field) []evasion.Field { f[i].Value = value; return f })
		}
	}
	for _, odd := range oddFields {
		for _, value := range odd.values {
			changes = append(changes, func(f []evasion.Field) []evasion.Field {
				return append(f, evasion.Field{Name: odd.name, Value: value})
			})
		}
	}
	changes = append(changes, func(f []evasion.Field) []evasion.Field {
		for i := range 2000 {
			f = append(f, evasion.Field{Name: fmt.Sprintf("x-%d", i), Value: "y"})
		}
		return f
	})
	for n := 70; n <= 110; n++ { // HAProxy has room for 101
		changes = append(changes, func(f []evasion.Field) []evasion.Field {
			for range n {
				f = append(f, evasion.Field{Name: "x-api-key", Value: "y"})
			}
			return f
		})
	}
	add := func(timing string, some ...func([]evasion.Field) []evasion.Field) {
		fields := append([]evasion.Field(nil), plain...)
		for _, change := range some {
			fields = change(fields)
		}
		all = append(all, attack{fields, timing})
	}
	for _, timing := range timings {
		add(timing)
		for _, change := range changes {
			add(timing, change)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func() func([]evasion.Field) []evasion.Field { return changes[random.IntN(len(changes))] }
	for range n {
		add(timings[random.IntN(len(timings))], pick(), pick())
		add(timings[random.IntN(len(timings))], pick(), pick(), pick())
	}
	return all
}

// http2 sends the attack over HTTP/2.
func (a attack) http2(from net.Addr, addr string) (int, error) {
	q := evasion.HTTP2{Fields: a.fields}
	switch a.timing {
	case "a body":
		q.Body = []byte("a=1")
	case "a body that never ends":
		q.Body, q.Open = []byte("a=1"), true
	case "torn off":
		q.Reset = true
	}
	return q.Send(from, addr)
}

// http1 sends it over HTTP/1.1.
func (a attack) http1(from net.Addr, addr string) (int, error) {
	start := map[string]string{}
	var lines strings.Builder
	for _, f := range a.fields {
		switch {
		case !strings.HasPrefix(f.Name, ":"):
			fmt.Fprintf(&lines, "%s: %s\r\n", f.Name, f.Value)
		case start[f.Name] == "":
			start[f.Name] = f.Value
		}
	}
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s", start[":method"], start[":path"], start[":authority"],
		&lines)
	switch a.timing {
	case "a body":
		text += "Content-Length: 3\r\nConnection: close\r\n\r\na=1"
	case "a body that never ends":
		return tornOff(from, addr, text+"Content-Length: 9\r\n\r\na=1")
	case "torn off":
		return tornOff(from, addr, text+"\r\n")
	default:
		text += "Connection: close\r\n\r\n"
	}
	return evasion.SendFrom(from, addr, []byte(text))
}

// tornOff sends a request and closes the sending half of the connection at once, which servers take for a client that
// has left.
func tornOff(from net.Addr, addr, text string) (int, error) {
	conn, err := (&net.Dialer{LocalAddr: from, Timeout: patience}).Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, text)
	_ = conn.(*net.TCPConn).CloseWrite()
	_, err = io.Copy(io.Discard, conn)
	return 0, err
}

// asksForBlocked reports whether the application got a request for the path.
func asksForBlocked(head string) bool {
	target := strings.Split(head+"  ", " ")[1]
	if _, rest, found := strings.Cut(target, "://"); found {
		target = rest[strings.IndexByte(rest+"/", '/'):]
	}
	name, _, _ := strings.Cut(target, "?")
	return path.Clean(name) == blocked
}

// TestAdversary has a client that chooses fields, protocol and timing ask for a path whose limit is 0: no request for
// it reaches the application.
func TestAdversary(t *testing.T) {
	all := attacks(300)
	for name, proxy := range realProxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newSite(t)
			application := l.lenientApplication()
			l.edgelimit("edgelimit.yaml", 0)
			proxy.start(l, withHTTP2[name]...)
			from := &net.TCPAddr{IP: net.ParseIP(evader)}
			statuses := map[int]int{}
			for _, a := range all {
				for _, version := range []struct {
					name string
					port int
					send func(attack, net.Addr, string) (int, error)
				}{{"HTTP/1.1", portProxy, attack.http1}, {"HTTP/2", portHTTP2, attack.http2}} {
					status, _ := version.send(a, from, fmt.Sprintf("%s:%d", l.host, version.port))
					statuses[status]++
					for _, head := range application.take() {
						if asksForBlocked(head) {
							t.Errorf("%s, %s, %.300q: the application got %.200q", version.name, a.timing, a.fields,
								head)
						}
					}
				}
			}
			for _, port := range []int{portProxy, portHTTP2} {
				if conn, err := net.Dial("tcp", net.JoinHostPort(l.host, fmt.Sprint(port))); err != nil {
					t.Errorf("an attack has ended the proxy: %v", err)
				} else {
					_ = conn.Close()
				}
			}
			t.Logf("%d attacks over each protocol, answered with: %v", len(all), statuses)
		})
	}
}
