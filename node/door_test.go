package node

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// doorFor opens a door on loopback for so many connections.
func doorFor(t *testing.T, most int) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return openedDoor("http", l, most, slog.New(slog.DiscardHandler))
}

// A request on a connection that was idle when the door began to close is answered, ends its connection, and nobody waits any longer then.
func TestDoorLingers(t *testing.T) {
	d := doorFor(t, 10)
	d.speakHTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "yes") }), 0)
	s := new(Node).serve(d, func(_ string, err error) {
		if err != nil && err != http.ErrServerClosed {
			t.Errorf("serve: %v", err)
		}
	})
	conn, err := net.Dial("tcp", d.listener.Addr().String())
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
		if status, body := slurp(t, resp); status != http.StatusOK || body != "yes" {
			t.Errorf("%d %q", status, body)
		}
		return resp.Close
	}
	if ask() {
		t.Error("an open door ends its connections")
	}
	stopped := make(chan struct{})
	go func() {
		s.stop(time.Hour, time.Second)
		close(stopped)
	}()
	<-d.leaving
	if !ask() {
		t.Error("a door that is about to close keeps its connections")
	}
	<-stopped // long before the hour has passed: no connection is left
}

// Without connections there is nothing to wait for, and with an idle one no longer than asked for.
func TestDoorClosesInTime(t *testing.T) {
	for _, idle := range []bool{false, true} {
		d := doorFor(t, 10)
		d.speakHTTP(http.NotFoundHandler(), 0)
		s := new(Node).serve(d, func(string, error) {})
		lingering := time.Hour
		if idle {
			conn, err := net.Dial("tcp", d.listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			eventually(t, patience, "the connection", func() bool {
				d.mu.Lock()
				defer d.mu.Unlock()
				return d.open == 1
			})
			lingering = time.Millisecond
		}
		s.stop(lingering, time.Millisecond)
	}
}
