package listen

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A connection that was dialed ahead is idle until its first request, whose time counts from its first byte: neither
// does it end while the client may use it, nor does a slow request last longer than another one.
func TestDialedAhead(t *testing.T) {
	const (
		head  = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
		never = time.Hour
	)
	type part struct {
		after time.Duration // the part before it
		text  string
	}
	for _, tt := range []struct {
		name  string
		parts []part
		ends  time.Duration // after the last part; 0: it is answered
	}{
		{"at once", []part{{0, head + "body"}}, 0},
		{"after a while", []part{{119 * time.Second, head + "body"}}, 0},
		{"slowly after a while", []part{{time.Minute, head[:20]}, {1900 * time.Millisecond, head[20:] + "b"},
			{3 * time.Second, "ody"}}, 0},
		{"never", []part{{0, ""}}, 2 * time.Minute},
		{"its header hangs", []part{{0, head[:20]}}, 2 * time.Second},
		{"its header hangs after a while", []part{{time.Minute, head[:20]}}, 2 * time.Second},
		{"its header drips", []part{{time.Minute, head[:20]}, {1500 * time.Millisecond, head[20:21]}},
			500 * time.Millisecond},
		{"its body hangs", []part{{0, head}}, 5 * time.Second},
		{"its body hangs after a while", []part{{time.Minute, head}}, 5 * time.Second},
		{"its body hangs after a slow header", []part{{time.Minute, head[:20]}, {1500 * time.Millisecond, head[20:]}},
			3500 * time.Millisecond},
	} {
		for _, over := range []string{"plain text", "HTTP/2 or plain text", "TLS", "TLS joined", "PROXY",
			"PROXY joined"} {
			first := tt.parts[0]
			switch { // joined: what comes first comes with the end of the handshake
			case over == "PROXY joined" && first.after > 0,
				over == "TLS joined" && (first.after > 0 || !strings.HasPrefix(first.text, head)):
				continue
			}
			t.Run(tt.name+" over "+over, func(t *testing.T) {
				testkit.VirtualTime(t, func(t *testing.T) {
					conn := dialedAhead(t, over)
					for i, p := range tt.parts {
						time.Sleep(p.after)
						text := p.text
						if over == "PROXY joined" && i == 0 {
							text = header(t, 1, "192.0.2.1:1") + text
						}
						if text == "" {
							continue
						}
						if _, err := io.WriteString(conn, text); err != nil {
							t.Fatal(err)
						}
					}
					last := time.Now()
					_ = conn.SetReadDeadline(last.Add(never))
					resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
					took := time.Since(last)
					if tt.ends > 0 {
						if took != tt.ends {
							t.Errorf("it ends after %v, want %v: %v", took, tt.ends, err)
						}
						return
					}
					if err != nil || took != 0 {
						t.Fatalf("after %v: %v", took, err)
					}
					if got := read(t, resp); got != "4 bytes" {
						t.Errorf("%s %q", resp.Status, got)
					}
				})
			})
		}
	}
}

// Connections without a request keep nobody out once they are idle for as long as others may be, and Stop awaits their
// first request no longer than its header may take.
func TestSilentConnectionsGiveWay(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l, system := inMemory(t, Limits{Max: 2, PerSource: 2, IdleAfter: evictHTTPAfter})
		l.Start(func(string, error) {})
		first, second := system.Dial(), system.Dial()
		defer first.Close()
		defer second.Close()
		time.Sleep(evictHTTPAfter - 1)
		third := system.Dial()
		if got := answerTo(t, third); got != http.StatusServiceUnavailable {
			t.Errorf("while both may still speak: %d", got)
		}
		_ = third.Close()
		time.Sleep(time.Nanosecond)
		fourth := system.Dial()
		defer fourth.Close()
		if got := answerTo(t, fourth); got != http.StatusOK || l.Stats().Evicted != 1 || l.Stats().Open != 2 {
			t.Errorf("in place of a silent one: %d, %+v", got, l.Stats())
		}
		began := time.Now()
		l.Stop(0, time.Hour)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("Stop took %v beside a silent connection, want the 2 s of a header", took)
		}
	})
}

// joining writes the end of a client's TLS handshake, its second write, with the one after it.
type joining struct {
	net.Conn
	joins  bool
	writes int
	held   []byte
}

func (j *joining) Write(b []byte) (int, error) {
	if j.writes++; j.joins && j.writes == 2 {
		j.held = bytes.Clone(b)
		return len(b), nil
	}
	_, err := j.Conn.Write(append(j.held, b...))
	j.held = nil
	return len(b), err
}

// answerTo sends a request and returns the status of the answer.
func answerTo(t *testing.T, conn net.Conn) int {
	t.Helper()
	go func() { _, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n") }()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	read(t, resp)
	return resp.StatusCode
}

// inMemory returns a listener in memory with an HTTP server that counts a body's bytes, and what it listens at.
func inMemory(t *testing.T, limits Limits) (*Listener, *testkit.Pipes) {
	t.Helper()
	system := testkit.NewPipes()
	log := new(testkit.Log).Logger()
	l, err := Open(Setting{Name: "http", Socket: system}, limits, log)
	if err != nil {
		t.Fatal(err)
	}
	l.UseHTTP(httpapi.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, err := io.ReadAll(r.Body); err == nil {
			fmt.Fprintf(w, "%d bytes", len(b))
		}
	}), log), 0)
	return l, system
}

// dialedAhead returns a connection to a new listener.
func dialedAhead(t *testing.T, over string) net.Conn {
	t.Helper()
	l, system := inMemory(t, Limits{Max: 10, PerSource: 10})
	switch over {
	case "HTTP/2 or plain text":
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		protocols.SetUnencryptedHTTP2(true)
		l.Server.(*http.Server).Protocols = protocols
	case "TLS", "TLS joined":
		l.Protocols = []string{"http/1.1"}
		if err := l.UseTLS(serverTLS(testkit.NewAuthority(t, "ca").Issue(t, "server"))); err != nil {
			t.Fatal(err)
		}
	case "PROXY", "PROXY joined":
		l.ProxyProtocol = func(netip.Addr) bool { return true }
	}
	l.Start(func(string, error) {})
	client := system.Dial()
	t.Cleanup(func() {
		_ = client.Close()
		l.Stop(0, testkit.Patience)
	})
	switch over {
	case "TLS", "TLS joined":
		secure := tls.Client(&joining{Conn: client, joins: over == "TLS joined"}, &tls.Config{InsecureSkipVerify: true})
		if err := secure.Handshake(); err != nil {
			t.Fatal(err)
		}
		return secure
	case "PROXY":
		if _, err := io.WriteString(client, header(t, 1, "192.0.2.1:1")); err != nil {
			t.Fatal(err)
		}
	}
	return client
}
