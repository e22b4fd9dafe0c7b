package testkit

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Fetch sends a request and returns the status of its answer, its Content-Type and its body.
func Fetch(web *http.Client, method, url, body string) (status int, kind, answer string, err error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", "", err
	}
	resp, err := web.Do(req)
	if err != nil {
		return 0, "", "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(text), err
}

// Dial returns a connection that ends with the test, and waits for nothing longer than Patience.
func Dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(Patience))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
