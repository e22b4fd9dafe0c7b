package node

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Every door can be a path.
func TestDoorsOnPaths(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	cfg := quiet(perClient)
	cfg.HTTP, cfg.RESP, cfg.Health = "unix:"+at("http"), "unix:"+at("resp"), "unix:"+at("health")
	n := launch(t, cfg).ready(t)
	for _, name := range []string{"http", "resp", "health"} {
		if got := n.Addr(name); got != at(name) {
			t.Errorf("%s is at %q", name, got)
		}
	}
	unix := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(addr)
			return net.Dial("unix", at(host))
		}}}
	for url, want := range map[string]string{"http://health/livez": "ok", "http://http/v1/check": "POST"} {
		resp, err := unix.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		if _, body := slurp(t, resp); !strings.Contains(body, want) {
			t.Errorf("%s: %s", url, body)
		}
	}
	conn, err := net.Dial("unix", at("resp"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "PING\r\nQUIT\r\n")
	if b, err := io.ReadAll(conn); err != nil || string(b) != "+PONG\r\n+OK\r\n" {
		t.Errorf("resp: %q, %v", b, err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(at("*")); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}

// A socket that a process left when it was killed is replaced. One that somebody listens on is not, nor what is no socket.
func TestListenOnAPathInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "door")
	first, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := listen("unix:" + path); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("beside one that listens: %v, %v", l, err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = first.Close()
	again, err := listen("unix:" + path)
	if err != nil {
		t.Fatalf("after one that was killed: %v", err)
	}
	_ = again.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen("unix:" + path); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("in place of a file: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file holds %q, %v", b, err)
	}
}
