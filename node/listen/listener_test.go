package listen

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// open opens a listener on loopback for so many connections.
func open(t *testing.T, maxConns int) *Listener {
	t.Helper()
	l, err := Open(Setting{"http", "--http", "127.0.0.1:0", nil},
		Limits{Max: maxConns, Exempt: netip.Addr.IsLoopback, IdleAfter: time.Hour}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serving is open with an HTTP server, as a node has one.
func serving(t *testing.T, maxConns int, h http.Handler) *Listener {
	t.Helper()
	l := open(t, maxConns)
	l.UseHTTP(httpapi.Server(h, l.log), 0)
	return l
}

func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A refusal is a complete response with Retry-After.
func TestRefusalOfHTTP(t *testing.T) {
	l := serving(t, 0, http.NotFoundHandler())
	l.Start(func(string, error) {})
	defer l.Stop(0, testkit.Patience)
	resp, err := http.Get("http://" + l.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	body := read(t, resp)
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || !resp.Close ||
		resp.Header.Get("Content-Type") != "application/problem+json" ||
		resp.ContentLength != int64(len(body)) || !strings.Contains(body, `"status":503`) ||
		!strings.HasSuffix(body, "\"}\n") {
		t.Errorf("%d %v %q", resp.StatusCode, resp.Header, body)
	}
}

// Where the protocol has no refusal, the connection is closed.
func TestRefusalWithoutAnAnswer(t *testing.T) {
	l := serving(t, 0, http.NotFoundHandler())
	l.Refusal = ""
	l.Start(func(string, error) {})
	defer l.Stop(0, testkit.Patience)
	if b, err := io.ReadAll(testkit.Dial(t, l.Addr().String())); len(b) > 0 || err != nil {
		t.Errorf("it says %q, %v", b, err)
	}
}

// Few refused clients at a time may read why, and none is left after Stop.
func TestManyAreRefused(t *testing.T) {
	l := serving(t, 0, http.NotFoundHandler())
	l.Start(func(string, error) {})
	const clients = 4 * maxRefusing
	for range clients {
		conn := testkit.Dial(t, l.Addr().String())
		fmt.Fprint(conn, "GET / HTTP/1.1\r\n")
		if got := l.refusing.Load(); got > maxRefusing+1 { // the one is on its way out
			t.Fatalf("%d are being refused at a time", got)
		}
	}
	testkit.Eventually(t, "all are refused", func() bool { return l.Stats().RefusedFull == clients })
	l.Stop(0, testkit.Patience)
	if c := l.Stats(); l.refusing.Load() != 0 || c.Open != 0 || c.Accepted != 0 {
		t.Errorf("%d are still being refused, %+v", l.refusing.Load(), c)
	}
}

// A connection is counted as closed once, however often it is closed; CloseWrite does not close it.
func TestConnectionsEndOnce(t *testing.T) {
	l := open(t, 2)
	defer l.Close()
	client := testkit.Dial(t, l.Addr().String())
	conn, err := l.Accept()
	if err != nil || l.Stats() != (Stats{Open: 1, Accepted: 1}) {
		t.Fatalf("%+v, %v", l.Stats(), err)
	}
	if err := conn.(*limitedConn).CloseWrite(); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(client); len(b) > 0 || err != nil {
		t.Errorf("after CloseWrite: %q, %v", b, err)
	}
	if l.Stats().Open != 1 {
		t.Error("CloseWrite ends it")
	}
	_, _ = conn.Close(), conn.Close()
	if l.Stats() != (Stats{Accepted: 1}) {
		t.Errorf("%+v", l.Stats())
	}
	here, there := net.Pipe()
	defer there.Close()
	if err := (&limitedConn{Conn: here, limiter: l.limiter}).CloseWrite(); err == nil {
		t.Error("a pipe has no CloseWrite")
	}
	_ = here.Close()
}

// A request on a connection that was idle when Stop began is answered and ends the connection; then Stop returns.
func TestStopEndsKeepAlive(t *testing.T) {
	l := serving(t, 10, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "yes") }))
	l.Start(func(_ string, err error) {
		if err != nil && err != http.ErrServerClosed {
			t.Errorf("serve: %v", err)
		}
	})
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	ask := func() (closes bool) {
		t.Helper()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		if body := read(t, resp); resp.StatusCode != http.StatusOK || body != "yes" {
			t.Errorf("%d %q", resp.StatusCode, body)
		}
		return resp.Close
	}
	if ask() {
		t.Error("an open listener ends its connections")
	}
	stopped := make(chan struct{})
	go func() {
		l.Stop(time.Hour, time.Second)
		close(stopped)
	}()
	<-l.leaving
	if !ask() {
		t.Error("a stopping listener keeps its connections")
	}
	<-stopped // long before the hour has passed: no connection is left
}

// Stop returns at once without connections, and with an idle one after keepAlive.
func TestStopInTime(t *testing.T) {
	for _, idle := range []bool{false, true} {
		l := serving(t, 10, http.NotFoundHandler())
		l.Start(func(string, error) {})
		keepAlive := time.Hour
		if idle {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			testkit.Eventually(t, "the connection", func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.stats.Open == 1
			})
			keepAlive = time.Millisecond
		}
		l.Stop(keepAlive, time.Millisecond)
	}
}

// The log says once a minute that connections are refused, how many, and of whom the last one was.
func TestRefusalsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(testkit.Log)
		l, err := Open(Setting{"http", "--http", "127.0.0.1:0", nil}, Limits{Max: 1, PerSource: 1}, log.Logger())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for i := range 200 {
			l.warn(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), sourceAtShare)
			time.Sleep(time.Second)
		}
		if got := strings.Count(log.String(), "\n"); got != 4 {
			t.Errorf("%d lines in 200 s", got)
		}
		if !log.HasLine("level=WARN", "connections are refused", "reason=source", "source=192.0.2.60",
			"connections=60 ", "max_connections_per_source=1") {
			t.Errorf("it says %s", log)
		}
	})
}
