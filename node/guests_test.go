package node

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestRoomFor(t *testing.T) {
	for _, tt := range []struct{ files, doors, wanted, want int }{
		{20000, 1, 10000, 10000},
		{20000, 2, 10000, 9744},
		{20000, 2, 100, 100},
		{1024, 1, 10000, 512},
		{1024, 3, 10000, 170},
		{256, 2, 10000, 32}, // of few, a quarter
		{3, 2, 10000, 1},
		{math.MaxInt32, 2, 1_000_000, 1_000_000},
	} {
		if got := roomFor(tt.files, tt.doors, tt.wanted); got != tt.want {
			t.Errorf("%d files, %d doors, %d wanted: %d, want %d", tt.files, tt.doors, tt.wanted, got, tt.want)
		}
	}
}

// dialed is a connection to a door that ends with the test.
func dialed(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Each door has so many clients at a time, says to the next in its protocol that there are too many, and lets another in when one leaves.
func TestDoorsAreFull(t *testing.T) {
	const most = 3
	cfg := withRESP(withDoors(quiet(perClient)))
	cfg.MaxConnections = most
	log := new(logbook)
	cfg.Logger = log.logger()
	n := launch(t, cfg).ready(t)
	for _, door := range []struct{ name, ask, answer, refusal string }{
		{"http", "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 400 Bad Request\r\n", "HTTP/1.1 503 Service Unavailable\r\n"},
		{"resp", "PING\r\n", "+PONG\r\n", "-ERR max number of clients reached\r\n"},
	} {
		var in []net.Conn
		ask := func(conn net.Conn) string {
			t.Helper()
			_, _ = io.WriteString(conn, door.ask)
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %v after %q", door.name, err, line)
			}
			return line
		}
		for range most {
			conn := dialed(t, n.Addr(door.name))
			if got := ask(conn); got != door.answer {
				t.Errorf("%s: %q", door.name, got)
			}
			in = append(in, conn)
		}
		for range 2 {
			if got := ask(dialed(t, n.Addr(door.name))); got != door.refusal {
				t.Errorf("%s: when full it says %q", door.name, got)
			}
		}
		_ = in[1].Close()
		eventually(t, patience, "one has left", func() bool {
			_, series := scrape(t, n.Addr("health"))
			return series["edgelimit_connections door="+door.name] == most-1
		})
		if got := ask(dialed(t, n.Addr(door.name))); got != door.answer {
			t.Errorf("%s: after one has left it says %q", door.name, got)
		}
		_, series := scrape(t, n.Addr("health"))
		for id, want := range map[string]float64{"connections": most, "accepted_connections_total": most + 1, "refused_connections_total": 2} {
			if got, ok := series["edgelimit_"+id+" door="+door.name]; !ok || got != want {
				t.Errorf("%s of %s: %v (there: %v), want %v", id, door.name, got, ok, want)
			}
		}
		if !log.line("level=WARN", "a door is full", "door="+door.name) || strings.Count(log.String(), "a door is full") > 2 {
			t.Errorf("the log says\n%s", log)
		}
	}
	if got := n.Connections(); got < 2*most {
		t.Errorf("%d connections", got)
	}
	if err := n.stop(); err != nil {
		t.Error(err)
	}
	if got := n.Connections(); got != 0 {
		t.Errorf("%d connections after the end", got)
	}
}

// A refusal is a whole response: a client knows where it ends, and when to come again.
func TestRefusalOfHTTP(t *testing.T) {
	d := doorFor(t, 0)
	d.speakHTTP(http.NotFoundHandler(), 0)
	s := new(Node).serve(d, func(string, error) {})
	defer s.stop(0, patience)
	resp, err := web.Get("http://" + d.listener.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	status, body := slurp(t, resp)
	if status != 503 || resp.Header.Get("Retry-After") != "1" || !resp.Close || resp.Header.Get("Content-Type") != "application/problem+json" ||
		resp.ContentLength != int64(len(body)) || !strings.Contains(body, `"status":503`) || !strings.HasSuffix(body, "\"}\n") {
		t.Errorf("%d %v %q", status, resp.Header, body)
	}
}

// Where a protocol has no words for it, the connection is closed.
func TestRefusalWithoutWords(t *testing.T) {
	d := doorFor(t, 0)
	d.speakHTTP(http.NotFoundHandler(), 0)
	d.refusal = ""
	s := new(Node).serve(d, func(string, error) {})
	defer s.stop(0, patience)
	if b, err := io.ReadAll(dialed(t, d.listener.Addr().String())); len(b) > 0 || err != nil {
		t.Errorf("it says %q, %v", b, err)
	}
}

// However many are refused, and whatever they do then, few wait to be seen off, and none is left when the door has closed.
func TestManyAreRefused(t *testing.T) {
	d := doorFor(t, 0)
	d.speakHTTP(http.NotFoundHandler(), 0)
	s := new(Node).serve(d, func(string, error) {})
	const clients = 4 * mostPartings
	for range clients {
		conn := dialed(t, d.listener.Addr().String())
		fmt.Fprint(conn, "GET / HTTP/1.1\r\n")
		if got := d.parting.Load(); got > mostPartings+1 { // the one is on its way out
			t.Fatalf("%d are seen off at a time", got)
		}
	}
	eventually(t, patience, "all are refused", func() bool { return d.guests().refused == clients })
	s.stop(0, patience)
	if g := d.guests(); d.parting.Load() != 0 || g.open != 0 || g.accepted != 0 {
		t.Errorf("%d are still seen off, %+v", d.parting.Load(), g)
	}
}

// A connection counts as ended once, however often it is closed, and hands on that nothing more is sent.
func TestGuestsLeaveOnce(t *testing.T) {
	d := doorFor(t, 2)
	defer d.listener.Close()
	client := dialed(t, d.listener.Addr().String())
	conn, err := d.listener.Accept()
	if err != nil || d.guests() != (guests{open: 1, accepted: 1}) {
		t.Fatalf("%+v, %v", d.guests(), err)
	}
	if err := conn.(*guest).CloseWrite(); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(client); len(b) > 0 || err != nil {
		t.Errorf("after CloseWrite: %q, %v", b, err)
	}
	if d.guests().open != 1 {
		t.Error("CloseWrite ends it")
	}
	_, _ = conn.Close(), conn.Close()
	if d.guests() != (guests{accepted: 1}) {
		t.Errorf("%+v", d.guests())
	}
	here, there := net.Pipe()
	defer there.Close()
	if err := (&guest{Conn: here, door: d}).CloseWrite(); err == nil {
		t.Error("a pipe has no CloseWrite")
	}
	_ = here.Close()
}

func TestIdleTimeoutOfHTTP(t *testing.T) {
	cfg := withDoors(quiet(perClient))
	for idle, want := range map[time.Duration]time.Duration{0: time.Minute, 90 * time.Second: 90 * time.Second} {
		cfg.IdleTimeout = idle
		n := launch(t, cfg)
		for _, d := range []*door{n.http, n.health} {
			if got := d.server.(*http.Server).IdleTimeout; got != want {
				t.Errorf("%v: %v at the %s door", idle, got, d.name)
			}
		}
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	}
}
