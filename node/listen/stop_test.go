package listen

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A connection that was accepted when Stop began brings its first request later: it is answered, and ends the
// connection.
func TestStopAwaitsNewConnections(t *testing.T) {
	l := serving(t, 10, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "yes") }))
	l.Server.(*http.Server).ReadHeaderTimeout = testkit.Patience
	l.Start(func(string, error) {})
	addr := l.Addr().String()
	conn := testkit.Dial(t, addr)
	testkit.Eventually(t, "the connection", func() bool { return l.Stats().Open == 1 })
	stopped := make(chan struct{})
	go func() {
		l.Stop(0, testkit.Patience)
		close(stopped)
	}()
	testkit.Eventually(t, "the listener is closed", func() bool {
		other, err := net.Dial("tcp", addr)
		if err == nil {
			_ = other.Close()
		}
		return err != nil
	})
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if body := read(t, resp); body != "yes" || !resp.Close {
		t.Errorf("%s %q, closes: %v", resp.Status, body, resp.Close)
	}
	<-stopped
}

// Processes that take over a socket one after the other answer every request, each on a connection of its own: clients
// cannot repeat what such a connection loses.
func TestNoRequestIsLostOverRestarts(t *testing.T) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	socket, err := first.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	start := func() *Listener {
		l := takeOver(t, socket)
		l.Start(func(_ string, err error) {
			if err != http.ErrServerClosed {
				t.Errorf("serve: %v", err)
			}
		})
		return l
	}

	l := start()
	end := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testkit.Patience}
			for {
				select {
				case <-end:
					return
				default:
				}
				status, _, _, err := testkit.Fetch(web, "POST", "http://"+first.Addr().String(), "x")
				if err != nil || status != http.StatusNotFound {
					t.Errorf("%d %v", status, err)
					return
				}
			}
		})
	}
	for range 100 {
		before := l
		testkit.Eventually(t, "answers", func() bool { return t.Failed() || before.Stats().Accepted > 20 })
		l.Stop(time.Millisecond, testkit.Patience)
		l = start()
		if t.Failed() {
			break
		}
	}
	close(end)
	clients.Wait()
	l.Stop(0, testkit.Patience)
}

// takeOver returns a listener for a copy of a socket.
func takeOver(t *testing.T, socket *os.File) *Listener {
	t.Helper()
	inherited, err := net.FileListener(socket)
	if err != nil {
		t.Fatal(err)
	}
	log := new(testkit.Log).Logger()
	l, err := Open(Setting{Name: "http", Socket: inherited}, Limits{Max: 100, PerSource: 100}, log)
	if err != nil {
		t.Fatal(err)
	}
	s := httpapi.Server(http.NotFoundHandler(), log)
	s.ReadHeaderTimeout = testkit.Patience
	l.UseHTTP(s, 0)
	return l
}

// From the beginning of Stop on, new connections are for who else has the socket.
func TestStopLeavesTheSocket(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	socket, err := other.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	l := takeOver(t, socket)
	l.Start(func(string, error) {})
	kept := testkit.Dial(t, other.Addr().String()) // it keeps Stop waiting
	testkit.Eventually(t, "the connection", func() bool { return l.Stats().Open == 1 })
	stopped := make(chan struct{})
	go func() {
		l.Stop(time.Hour, testkit.Patience)
		close(stopped)
	}()
	<-l.all.Done()
	accepted := l.Stats().Accepted
	late := testkit.Dial(t, other.Addr().String())
	_ = other.(*net.TCPListener).SetDeadline(time.Now().Add(testkit.Patience))
	conn, err := other.Accept()
	if err != nil || conn.RemoteAddr().String() != late.LocalAddr().String() {
		t.Fatalf("nobody else gets the connection: %v", err)
	}
	_ = conn.Close()
	if l.Stats().Accepted != accepted {
		t.Error("it accepts connections after Stop has begun")
	}
	_ = kept.Close()
	<-stopped
}
