package listen

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// believing has a listener believe PROXY headers of everybody, or of nobody.
func believing(all bool) func(*Listener) {
	return func(l *Listener) {
		l.ProxyProtocol = func(netip.Addr) bool { return all }
		l.limits.Exempt, l.limits.PerSource = nil, 50
	}
}

// header returns a PROXY header of a version for a client.
func header(t *testing.T, version byte, client string) string {
	t.Helper()
	addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(client))
	h := proxyproto.HeaderProxyFromAddrs(version, addr, &net.TCPAddr{IP: addr.IP, Port: 80})
	b, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

// send sends text on a new connection, and returns what comes back.
func send(t *testing.T, l *Listener, text string) string {
	t.Helper()
	conn := testkit.Dial(t, l.Addr().String())
	_, _ = io.WriteString(conn, text) // it may be refused meanwhile
	b, _ := io.ReadAll(conn)
	return string(b)
}

// The client's address is that of the header, where the peer may send one.
func TestProxyHeader(t *testing.T) {
	const local = "\r\n\r\n\x00\r\nQUIT\n" + "\x20\x00\x00\x00"
	withFields := func() string { // of version 2, with 1,000 bytes of fields behind the addresses
		h := header(t, 2, "192.0.2.7:4711") + "\x04\x03\xe8" + strings.Repeat("x", 1000)
		b := []byte(h)
		binary.BigEndian.PutUint16(b[14:16], 12+1003)
		return string(b)
	}()
	for _, tt := range []struct {
		name, sent string
		want       string // the client; empty: this machine
	}{
		{"version 1", header(t, 1, "192.0.2.7:4711"), "192.0.2.7:4711"},
		{"version 1 of IPv6", header(t, 1, "[2001:db8::7]:4711"), "[2001:db8::7]:4711"},
		{"version 2", header(t, 2, "192.0.2.7:4711"), "192.0.2.7:4711"},
		{"version 2 of IPv6", header(t, 2, "[2001:db8::7]:4711"), "[2001:db8::7]:4711"},
		{"version 2 with fields", withFields, "192.0.2.7:4711"},
		{"unknown", "PROXY UNKNOWN\r\n", ""},
		{"the balancer's own", local, ""},
	} {
		log := new(testkit.Log)
		l := secure(t, TLS{}, log, believing(true))
		got := send(t, l, tt.sent+request)
		want := tt.want
		if want == "" {
			want = "127.0.0.1:"
		}
		if _, body, _ := strings.Cut(got, "\r\n\r\n"); !strings.HasPrefix(body, want) {
			t.Errorf("%s: %q, want %q; %s", tt.name, got, want, log)
		}
	}
}

// A header of version 2 may come in parts, and with the beginning of the first request; one of version 1 comes at once.
func TestProxyHeaderInParts(t *testing.T) {
	whole := header(t, 2, "192.0.2.7:4711")
	for _, parts := range [][]string{
		{whole, request}, {whole + request}, {whole + request[:3], request[3:]},
		{whole[:1], whole[1:5], whole[5:14], whole[14:20], whole[20:] + request},
		{header(t, 1, "192.0.2.7:4711"), request},
	} {
		here, there := net.Pipe() // each write is a read of its own
		go func() {
			for _, part := range parts {
				_, _ = io.WriteString(there, part)
			}
			_ = there.Close()
		}()
		c := &limitedConn{Conn: here, limiter: limiterOf(Limits{Max: 1})}
		err := c.readHeader()
		rest, _ := io.ReadAll(c)
		if err != nil || c.RemoteAddr().String() != "192.0.2.7:4711" || string(rest) != request {
			t.Errorf("%q: %v, %v, %q", parts, err, c.RemoteAddr(), rest)
		}
	}
}

// A header that is missing, malformed, long or slow ends the connection, and so does one from a peer that may not send
// any: without it that peer is served under its own address.
func TestRefusedProxyHeader(t *testing.T) {
	long := []byte(header(t, 2, "192.0.2.7:4711"))
	binary.BigEndian.PutUint16(long[14:16], 60_000)
	for _, tt := range []struct {
		name     string
		believed bool
		sent     string
		why      failure
	}{
		{"missing", true, request, "proxy_header"},
		{"malformed", true, "PROXY TCP4 192.0.2.7\r\n" + request, "proxy_header"},
		{"an address that is none", true, "PROXY TCP4 a b 1 2\r\n" + request, "proxy_header"},
		{"without an end", true, "PROXY " + strings.Repeat("x", 300), "proxy_header"},
		{"long", true, string(long) + strings.Repeat("x", 60_000), "proxy_header"},
		{"slow", true, "PROX", "timeout"},
		{"version 1 of a stranger", false, header(t, 1, "192.0.2.7:4711") + request, "proxy_header"},
		{"version 2 of a stranger", false, header(t, 2, "192.0.2.7:4711") + request, "proxy_header"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			log := new(testkit.Log)
			l := secure(t, TLS{}, log, believing(tt.believed), func(l *Listener) {
				if tt.why == "timeout" {
					l.handshakeWithin = 50 * time.Millisecond
				}
			})
			if got := send(t, l, tt.sent); strings.Contains(got, "127.0.0.1") || strings.Contains(got, "192.0.2") {
				t.Errorf("it is answered: %q", got)
			}
			failed(t, l, log, tt.why, 1)
			testkit.Eventually(t, "its place is free", func() bool { return l.Stats().Open == 0 })
		})
	}
	log := new(testkit.Log)
	plain := secure(t, TLS{}, log) // which expects no headers at all
	if got := send(t, plain, header(t, 1, "192.0.2.7:4711")+request); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("without proxy_protocol a header gets %q", got)
	}
	failed(t, plain, log, "proxy_header", 1)
	l := secure(t, TLS{}, new(testkit.Log), believing(false))
	if got := send(t, l, request); !strings.Contains(got, "\r\n\r\n127.0.0.1:") {
		t.Errorf("without a header a stranger gets %q", got)
	}
}

// The header comes before TLS, and is refused there as well.
func TestProxyHeaderBeforeTLS(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	settings := serverTLS(ca.Issue(t, "server"))
	overTLS := func(l *Listener) (string, error) {
		conn := testkit.Dial(t, l.Addr().String())
		_, _ = io.WriteString(conn, header(t, 2, "192.0.2.7:4711"))
		cfg := ca.Client()
		cfg.ServerName = "localhost"
		secure := tls.Client(conn, cfg)
		if _, err := io.WriteString(secure, request); err != nil {
			return "", err
		}
		resp, err := http.ReadResponse(bufio.NewReader(secure), nil)
		if err != nil {
			return "", err
		}
		return read(t, resp), nil
	}
	log := new(testkit.Log)
	if got, err := overTLS(secure(t, settings, log, believing(true))); err != nil ||
		!strings.HasPrefix(got, "192.0.2.7:4711") {
		t.Errorf("%q, %v; %s", got, err, log)
	}
	l := secure(t, settings, log, believing(false))
	if got, err := overTLS(l); err == nil {
		t.Errorf("a stranger's header is believed: %q", got)
	}
	failed(t, l, log, "proxy_header", 1)
}

// The share of a source is that of the client behind the balancer, and the balancer itself has none.
func TestSharesBehindABalancer(t *testing.T) {
	l := secure(t, TLS{}, new(testkit.Log), believing(true), func(l *Listener) { l.limits.PerSource = 2 })
	keep := func(client string) net.Conn {
		conn := testkit.Dial(t, l.Addr().String())
		_, _ = io.WriteString(conn, header(t, 1, client))
		return conn
	}
	sources := func() (all map[string]int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		all = make(map[string]int)
		for source, n := range l.sources {
			all[source.String()] = n
		}
		return all
	}
	first := keep("192.0.2.7:1")
	keep("192.0.2.7:2")
	keep("192.0.2.8:1")
	testkit.Eventually(t, "the clients are known", func() bool {
		s := sources()
		return s["192.0.2.7"] == 2 && s["192.0.2.8"] == 1 && len(s) == 2
	})
	if got := send(t, l, header(t, 1, "192.0.2.7:3")+request); !strings.HasPrefix(got, "HTTP/1.1 503 ") {
		t.Errorf("a third connection of a source gets %q", got)
	}
	if got := send(t, l, header(t, 1, "192.0.2.9:1")+request); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("another source gets %q", got)
	}
	if s := l.Stats(); s.RefusedSource != 1 {
		t.Errorf("%+v", s)
	}
	_ = first.Close()
	testkit.Eventually(t, "its place is free", func() bool { return sources()["192.0.2.7"] == 1 })
}
