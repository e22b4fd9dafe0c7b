package recipes

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/evasion"
	"github.com/edgelimit/edgelimit/testnet/parsers"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// evader is the address that all variations come from.
const evader = "127.100.0.1"

// lenient is an application that takes whatever a proxy hands to it, so that no form is missed because an
// application's own parser refuses it. It answers 200, and records the heads of the requests.
type lenient struct {
	mu    sync.Mutex
	heads []string
}

// take returns the heads of the requests since the last call.
func (a *lenient) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	heads := a.heads
	a.heads = nil
	return heads
}

// lenientApplication listens where the application is expected, until the test ends.
func (l *site) lenientApplication() *lenient {
	l.t.Helper()
	listener, err := net.Listen("tcp", l.at(portApplication))
	if err != nil {
		l.t.Fatal(err)
	}
	a := new(lenient)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { a.answer(conn) })
		}
	})
	l.t.Cleanup(func() {
		_ = listener.Close()
		conns.Wait()
	})
	return a
}

// answer reads one request, answers it and closes the connection.
func (a *lenient) answer(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(conn)
	var head strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if strings.TrimRight(line, "\r\n") == "" {
			break
		}
		head.WriteString(line)
	}
	text := head.String()
	a.mu.Lock()
	a.heads = append(a.heads, text)
	a.mu.Unlock()
	if length, err := strconv.ParseInt(headerOf(text, "content-length"), 10, 64); err == nil {
		_, _ = io.CopyN(io.Discard, in, length)
	}
	for line := ""; headerOf(text, "transfer-encoding") == "chunked" && line != "0\r\n"; {
		var err error
		if line, err = in.ReadString('\n'); err != nil {
			return
		}
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
}

// headerOf returns the first value of a header that is not empty; empty if there is none. It reads names as the most
// lenient application does: of any case, with underscores for hyphens and with blanks before the colon.
func headerOf(head, name string) string {
	for line := range strings.Lines(head) {
		n, value, _ := strings.Cut(line, ":")
		same := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(n)), "_", "-") == name
		if value = strings.TrimSpace(value); same && value != "" {
			return value
		}
	}
	return ""
}

// removedFrom are the layers whose header the application did not get.
func removedFrom(head string) (removed []string) {
	for key, header := range map[string]string{"api_key": "x-api-key", "session": "cookie",
		"sub": "authorization"} {
		if headerOf(head, header) == "" {
			removed = append(removed, key)
		}
	}
	return removed
}

// evasionEdgelimit is the real program with the recipe's configuration, but with the layers and rules of the
// variations.
func (l *site) evasionEdgelimit() evasion.Meter {
	l.t.Helper()
	config := l.recipe("edgelimit.yaml", "    - {user: jwt sub}\n",
		"    - {token: query token}\n    - {sub: jwt sub}\n    - {tenant: 'template /tenants/{tenant}/*'}\n")
	if err := os.WriteFile(filepath.Join(l.dir, "rules.yaml"), []byte(evasion.Rules()), 0o600); err != nil {
		l.t.Fatal(err)
	}
	startEdgelimit(l.t, l.dir, l.at(portHealth), 0, "serve", "--config", config)
	return evasion.MeterAt(l.t.Context(), l.at(portEdgelimit), l.at(portHealth), evader)
}

// wire are forms that concern the connection and the body, which only a proxy sees: their bytes by their names.
func wire() (variations []evasion.Variation, requests map[string][]byte) {
	requests = map[string][]byte{}
	plain := evasion.Plain()
	rest := "Host: " + plain.Host + "\r\n" + strings.Join(plain.Lines, "\r\n") + "\r\n"
	add := func(name, method, version, more string, loses ...string) {
		v := plain
		v.Name, v.Loses = "wire: "+name, loses
		variations = append(variations, v)
		requests[v.Name] = fmt.Appendf(nil, "%s %s %s\r\n%s%s", method, plain.Target, version, rest, more)
	}
	const eleven, end = "HTTP/1.1", "Connection: close\r\n\r\n"
	add("HTTP/1.0", "GET", "HTTP/1.0", "\r\n")
	add("HTTP/1.0 kept", "GET", "HTTP/1.0", "Connection: keep-alive, close\r\n\r\n")
	add("HTTP/1.2", "GET", "HTTP/1.2", end)
	add("HTTP/2.0", "GET", "HTTP/2.0", end)
	add("small letters in the version", "GET", "http/1.1", end)
	add("a body", "POST", eleven, "Content-Length: 3\r\n"+end+"a=1", "method")
	add("a body of GET", "GET", eleven, "Content-Length: 3\r\n"+end+"a=1")
	add("chunks", "POST", eleven, "Transfer-Encoding: chunked\r\n"+end+"3\r\na=1\r\n0\r\n\r\n", "method")
	add("chunks of GET", "GET", eleven, "Transfer-Encoding: chunked\r\n"+end+"3\r\na=1\r\n0\r\n\r\n")
	add("a trailer", "GET", eleven,
		"Transfer-Encoding: chunked\r\nTrailer: X-Api-Key\r\n"+end+"1\r\na\r\n0\r\nX-Api-Key: k2\r\n\r\n")
	add("both lengths", "GET", eleven, "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"+end+"0\r\n\r\n")
	add("two lengths", "GET", eleven, "Content-Length: 0\r\nContent-Length: 1\r\n"+end+"a")
	add("a body that is awaited", "POST", eleven, "Content-Length: 3\r\nExpect: 100-continue\r\n"+end+"a=1",
		"method")
	for _, method := range []string{"TRACE", "CONNECT", "PRI", "PURGE", "GET\t", "G\x00T"} {
		add("method "+strconv.Quote(method), method, eleven, end, "method")
	}
	for _, name := range []string{
		"Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
		"Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", "Upgrade\r\nUpgrade: x",
		"X-Forwarded-For, close", "X-Forwarded-Method, close", "X-Forwarded-Host, close", "X-Forwarded-Uri, close",
		"X-Rl-Decision, close", "Host, close", "Cookie, close", "Authorization, close", "close, x, ,,",
		"close\r\nProxy-Connection: X-Forwarded-Uri", "close\r\nKeep-Alive: X-Forwarded-Uri",
	} {
		add("Connection: "+name, "GET", eleven, "Connection: "+name+"\r\n\r\n")
	}
	add("a second host", "GET", eleven, "Host: other.example\r\n"+end)
	add("bare line feeds", "GET", eleven, "Connection: close\n\n")
	add("a bare carriage return", "GET", eleven, "X-A: b\rX-Api-Key: k2\r\n"+end)
	add("a header without a colon", "GET", eleven, "X-Api-Key\r\n"+end)
	add("a header without a name", "GET", eleven, ": k2\r\n"+end)
	requests["wire: an empty line before"] = append([]byte("\r\n"), plain.Direct()...)
	v := plain
	v.Name = "wire: an empty line before"
	return append(variations, v), requests
}

// TestEvasion holds that no form of a request that gets through a proxy to the application evades a layer, over either
// version of HTTP.
func TestEvasion(t *testing.T) {
	forms, bytes := wire()
	forms = append(evasion.Variations(), forms...)
	for name, proxy := range realProxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newSite(t)
			application := l.lenientApplication()
			meter := l.evasionEdgelimit()
			proxy.start(l)
			from := &net.TCPAddr{IP: net.ParseIP(evader)}
			evasion.CheckBehind(t, meter, forms, func(v evasion.Variation) (evasion.Outcome, error) {
				request := v.Direct()
				if b, ok := bytes[v.Name]; ok {
					request = b
				}
				return application.outcome(func() (int, error) { return evasion.SendFrom(from, l.proxy(), request) })
			})
			second := l.sibling() // one that knows h2c answers its upgrade, and the application gets nothing
			proxy.start(second, withHTTP2[name]...)
			address := fmt.Sprintf("%s:%d", second.host, portHTTP2)
			evasion.CheckBehind(t, meter, evasion.Variations(), func(v evasion.Variation) (evasion.Outcome, error) {
				return application.outcome(func() (int, error) {
					return evasion.HTTP2{Fields: v.Fields()}.Send(from, address)
				})
			})
			checkPipelined(t, l, meter, application)
		})
	}
}

// TestRecordedForms holds that no form which a real server reads as the plain request gets through a proxy uncharged,
// over either version of HTTP.
func TestRecordedForms(t *testing.T) {
	recorded, err := parsers.Recording()
	testkit.Must(t, err)
	unread := map[string][]string{}
	var forms []evasion.Variation
	for i, r := range recorded {
		v := r.Variation()
		if r.Sendable() && (i < testkit.Tenth(len(recorded)) || v.Target[0] != '/') {
			forms, unread[v.Name] = append(forms, v), r.Unread()
			if v.Target[0] != '/' { // it may name another host
				unread[v.Name] = append(unread[v.Name], "host")
			}
		}
	}
	for name, proxy := range realProxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newSite(t)
			application := l.lenientApplication()
			meter := l.evasionEdgelimit()
			from := &net.TCPAddr{IP: net.ParseIP(evader)}
			check := func(send func(evasion.Variation) (int, error)) {
				evasion.CheckBehind(t, meter, forms, func(v evasion.Variation) (evasion.Outcome, error) {
					out, err := application.outcome(func() (int, error) { return send(v) })
					out.Removed = append(out.Removed, unread[v.Name]...)
					if !strings.Contains(out.Head, ": k1") { // nginx drops names with underscores
						out.Removed = append(out.Removed, "api_key")
					}
					return out, err
				})
			}
			proxy.start(l)
			check(func(v evasion.Variation) (int, error) { return evasion.SendFrom(from, l.proxy(), v.Direct()) })
			second := l.sibling()
			proxy.start(second, withHTTP2[name]...)
			check(func(v evasion.Variation) (int, error) {
				return evasion.HTTP2{Fields: v.Fields()}.Send(from, fmt.Sprintf("%s:%d", second.host, portHTTP2))
			})
		})
	}
}

// outcome sends a request through a proxy, and returns what came of it. What the application got counts, whatever
// became of its answer.
func (a *lenient) outcome(send func() (status int, err error)) (evasion.Outcome, error) {
	a.take()
	status, err := send()
	heads := a.take()
	switch {
	case len(heads) == 0 && err != nil: // it closed without an answer
		return evasion.Outcome{Status: http.StatusBadRequest}, nil
	case len(heads) == 0 && status < http.StatusBadRequest:
		return evasion.Outcome{}, fmt.Errorf("%d, and the application got nothing", status)
	case len(heads) == 0:
		return evasion.Outcome{Status: status}, nil
	case len(heads) > 1:
		return evasion.Outcome{}, fmt.Errorf("the application got %d requests: %q", len(heads), heads)
	}
	return evasion.Outcome{Status: http.StatusOK, Removed: removedFrom(heads[0]), Head: heads[0]}, nil
}

// checkPipelined holds that each request of a connection is charged, also if they are sent at once.
func checkPipelined(t *testing.T, l *site, meter evasion.Meter, application *lenient) {
	t.Helper()
	const requests = 5
	before, err := meter.Plain()
	if err != nil {
		t.Fatal(err)
	}
	application.take()
	one := strings.Replace(string(evasion.Plain().Direct()), "Connection: close\r\n", "", 1)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(evader)}, Timeout: patience}
	conn, err := dialer.Dial("tcp", l.proxy())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	text := strings.Repeat(one, requests-1) + string(evasion.Plain().Direct())
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	after, err := meter.Plain()
	if err != nil {
		t.Fatal(err)
	}
	reached := uint64(len(application.take()))
	if reached != requests {
		t.Errorf("%d of %d requests that were sent at once reached the application", reached, requests)
	}
	for _, layer := range evasion.Layers() {
		if after[layer.Key]-before[layer.Key] != reached {
			t.Errorf("%d requests at once charged layer %s %d", reached, layer.Key, after[layer.Key]-before[layer.Key])
		}
	}
}
