package listen

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/answer"
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
	l.streams.Store(maxStreams - 1)
	for _, major := range []int{1, 2, 2} {
		if got := ask(major).Code; got != 404 {
			t.Errorf("HTTP/%d with one stream left: %d, want 404", major, got)
		}
	}
	l.streams.Add(1)
	if got := ask(1).Code; got != 404 {
		t.Errorf("HTTP/1.1 beside too many streams: %d, want 404", got)
	}
	w := ask(2)
	if w.Code != 503 || w.Header().Get("Retry-After") != "1" || w.Header().Get("Content-Type") != answer.ProblemType ||
		!strings.Contains(w.Body.String(), "too many requests are under way") || l.streams.Load() != maxStreams {
		t.Errorf("%d %v %s, then %d streams", w.Code, w.Header(), w.Body, l.streams.Load())
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
