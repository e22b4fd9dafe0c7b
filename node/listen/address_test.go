package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A stale socket is replaced; neither a socket in use nor another file is.
func TestListenOnAPathInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
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

// What is no address is not local: whoever takes it as such would open to everybody.
func TestIsLocal(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:0": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, "localhost:1": true,
		"unix:/run/x": true,
		":1":          false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.7:1": false, "localhost.example:1": false,
		"": false, "nonsense": false, "127.0.0.1": false, "localhost": false, "::1:1": false, "127.0.0.1:1:1": false,
		"[127.0.0.1:1": false, "unix:": false, "unix:" + strings.Repeat("x", 104): false,
	} {
		if got := IsLocal(addr); got != want {
			t.Errorf("%q: %v", addr, got)
		}
	}
}

// The error says what is in the way, how to find its owner, and which setting to change.
func TestListenErrors(t *testing.T) {
	dir := t.TempDir()
	fail := func(err error) error {
		return &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", err)}
	}
	for _, test := range []struct {
		setting Setting
		err     error
		want    string
	}{
		{Setting{"http", "--http", "127.0.0.1:8080", nil}, fail(syscall.EADDRINUSE),
			"http: 127.0.0.1:8080 is in use (by whom: ss -ltunp 'sport = :8080'); " +
				"choose another with --http, 127.0.0.1:0 for any port: listen tcp: bind: address already " +
				"in use"},
		{Setting{"gossip.lan", "--gossip", "[::1]:7946", nil}, fail(syscall.EADDRINUSE),
			"gossip.lan: [::1]:7946 is in use (by whom: ss -ltunp 'sport = :7946'); " +
				"choose another with --gossip, [::1]:0 for any port: listen tcp: bind: address already " +
				"in use"},
		{Setting{"grpc", "--grpc", ":80", nil}, fail(syscall.EACCES), "grpc: :80 is not for " + CurrentUser() +
			", as ports below 1024 are not; " +
			"choose a higher one with --grpc, or grant CAP_NET_BIND_SERVICE: listen tcp: bind: permission denied"},
		{Setting{"resp", "--resp", "unix:/run/x/s", nil}, fail(syscall.EACCES),
			"resp: unix:/run/x/s may not be created by " +
				CurrentUser() + "; give that user " +
				"the right to write to /run/x, or choose another path with --resp: listen tcp: bind: " +
				"permission denied"},
		{Setting{"resp", "--resp", "unix:/run/x/s", nil}, fail(syscall.EADDRINUSE),
			"resp: unix:/run/x/s is in use, or no socket; choose another path with --resp: " +
				"listen tcp: bind: address already in use"},
		{Setting{"health", "--health", "203.0.113.7:7948", nil}, fail(syscall.EADDRNOTAVAIL),
			"health: 203.0.113.7:7948 is of no interface of this machine; " +
				"choose another with --health: listen tcp: bind: cannot assign requested address"},
	} {
		if got := test.setting.Explain(test.err).Error(); got != test.want {
			t.Errorf("it says\n%s\nwant\n%s", got, test.want)
		}
	}
	none := Setting{"http", "--http", "unix:" + filepath.Join(dir, "none", "socket"), nil}
	if _, err := Open(none, Limits{}, nil); err == nil ||
		!strings.Contains(err.Error(), "there is no folder "+filepath.Join(dir, "none")) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// The error names the user and the file's owner. root may read everything, so the system's error is made here.
func TestFileErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cluster.key")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	denied := &fs.PathError{Op: "open", Path: file, Err: syscall.EACCES}
	want := fmt.Sprintf("open %s: permission denied: %s may not read it (mode -rw-------, of uid %d); make it that "+
		"user's own (chown), with mode 0600",
		file, CurrentUser(), os.Getuid())
	if got := ExplainFile(file, denied).Error(); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
	if !strings.Contains(CurrentUser(), fmt.Sprintf("uid %d", os.Geteuid())) {
		t.Errorf("the user is %q", CurrentUser())
	}
}
