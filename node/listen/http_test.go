package listen

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A request of HTTP/2 beyond the cap gets a complete answer; those of HTTP/1.1 do not count.
func TestTooManyStreams(t *testing.T) {
	l := serving(t, 1, http.NotFoundHandler())
	defer l.Abandon()
	ask := func(major int) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.ProtoMajor = major
		l.Server.(*http.Server).Handler.ServeHTTP(w, r)
		return w
	}
	l.streams.Take(netip.Addr{}, MaxStreams-1)
	for _, major := range []int{1, 2, 2} {
		if got := ask(major).Code; got != 404 {
			t.Errorf("HTTP/%d with one stream left: %d, want 404", major, got)
		}
	}
	l.streams.Take(netip.Addr{}, 1)
	if got := ask(1).Code; got != 404 {
		t.Errorf("HTTP/1.1 beside too many streams: %d, want 404", got)
	}
	w := ask(2)
	if w.Code != 503 || w.Header().Get("Retry-After") != "1" || w.Header().Get("Content-Type") != answer.ProblemType ||
		!strings.Contains(w.Body.String(), "too many requests are under way") || l.streams.Left() != 0 {
		t.Errorf("%d %v %s, then %d streams are left", w.Code, w.Header(), w.Body, l.streams.Left())
	}
}

// A source whose requests of HTTP/2 fill its share of the streams leaves those of others alone.
func TestStreamsHaveAShare(t *testing.T) {
	log := new(testkit.Log)
	l, err := Open(Setting{Name: "http", Addr: "127.0.0.1:0"}, Limits{Max: 100, PerSource: 100,
		Budgets: limits.NewBudgets(nil, log.Logger())}, log.Logger())
	testkit.Must(t, err)
	end := make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			http.NewResponseController(w).Flush()
			<-end
		}
	}), Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	l.UseHTTP(s, 0)
	l.Start(func(string, error) {})
	t.Cleanup(func() { l.Stop(0, testkit.Patience) })
	client := func(from string) *http.Client {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		tr := &http.Transport{Protocols: s.Protocols, DialContext: dialer.DialContext}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	get := func(c *http.Client, path string) *http.Response {
		t.Helper()
		resp, err := c.Get("http://" + l.Addr().String() + path)
		testkit.Must(t, err)
		return resp
	}
	greedy, other := client("127.0.0.2"), client("127.0.0.3")
	for range 3 {
		defer get(greedy, "/held").Body.Close()
	}
	for l.streams.Take(netip.MustParseAddr("127.0.0.2"), 1) == "" { // as many more streams
	}
	for c, want := range map[*http.Client]int{greedy: 503, other: 200} {
		resp := get(c, "/")
		if read(t, resp); resp.StatusCode != want {
			t.Errorf("%d, want %d", resp.StatusCode, want)
		}
	}
	close(end)
	if held := l.streams.Stats(); held.Largest != MaxStreams/2 || held.Refused[limits.AtShare] == 0 ||
		!log.HasLine("level=WARN", "a budget has no room", "door=http", "budget=streams", "source=127.0.0.2") {
		t.Errorf("%+v, and the log is %s", held, log)
	}
}

// Where a request may have both lengths, what follows it on the connection is not answered.
func TestTransferEncodingEndsTheConnection(t *testing.T) {
	l := serving(t, 10, http.NotFoundHandler())
	l.Start(func(string, error) {})
	t.Cleanup(func() { l.Stop(0, testkit.Patience) })
	for lengths, closes := range map[string]bool{
		"Content-Length: 4\r\nTransfer-Encoding: chunked": true,
		"Transfer-Encoding: chunked":                      true,
		"Content-Length: 5":                               false,
	} {
		conn := testkit.Dial(t, l.Addr().String())
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", lengths)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if read(t, resp); resp.StatusCode != 404 || resp.Close != closes {
			t.Errorf("%q: %s, closes: %v", lengths, resp.Status, resp.Close)
		}
		resp, err = http.ReadResponse(in, nil)
		if answered := err == nil; answered == closes {
			t.Errorf("%q: the next request is answered: %v", lengths, answered)
		}
		if err == nil {
			read(t, resp)
		}
		_ = conn.Close()
	}
}
