package app

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// activated returns a command that starts the binary as systemd does with sockets: names are theirs, LISTEN_PID is its
// own, and environment goes over that.
func activated(binary string, sockets []*os.File, names string, environment []string, args ...string) *exec.Cmd {
	cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=${LISTEN_PID-$$} exec "$0" "$@"`, binary}, args...)...)
	cmd.ExtraFiles = sockets
	cmd.Env = append(os.Environ(), fmt.Sprint("LISTEN_FDS=", len(sockets)), "LISTEN_FDNAMES="+names)
	cmd.Env = append(cmd.Env, environment...)
	return cmd
}

type filed interface{ File() (*os.File, error) }

// fileOf returns a copy of a socket to pass on. It is closed with the test.
func fileOf(t *testing.T, socket any, err error) *os.File {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	f, err := socket.(filed).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = f.Close(), socket.(io.Closer).Close() })
	return f
}

// checkActivation restarts a node twice under load. systemd holds the sockets meanwhile: no request is lost. It is
// ready, as the service manager is sent, once it serves.
func checkActivation(t *testing.T, binary string) {
	door, err := net.Listen("tcp", "127.0.0.1:0")
	socket := fileOf(t, door, err)
	notify := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	await := func(state string) {
		t.Helper()
		if err := manager.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		for buf := make([]byte, 4096); ; {
			k, err := manager.Read(buf)
			if err != nil {
				t.Fatalf("the service manager waits for %s: %v", state, err)
			}
			if strings.HasPrefix(string(buf[:k]), state) {
				return
			}
		}
	}
	run := func() *testkit.Process {
		p := testkit.Start(t, activated(binary, []*os.File{socket}, "http",
			[]string{"NOTIFY_SOCKET=" + notify, "WATCHDOG_USEC=4000000"}, "serve", "--http", "127.0.0.1:1", "--health",
			"", "--admin", ""))
		await("READY=1")
		return p
	}

	p := run()
	var answered, failed atomic.Int64
	var clients sync.WaitGroup
	end := make(chan struct{})
	for range 8 {
		clients.Go(func() {
			web := &http.Client{Transport: &http.Transport{}, Timeout: patience}
			defer web.CloseIdleConnections()
			for {
				select {
				case <-end:
					return
				default:
				}
				status, _, answer, err := testkit.Fetch(web, "POST", "http://"+door.Addr().String()+"/v1/check",
					`{"rule":"per_ip","identity":"192.0.2.1"}`)
				if answered.Add(1); status != 200 || err != nil {
					failed.Add(1)
					t.Errorf("%d %s %v", status, answer, err)
					return
				}
			}
		})
	}
	more := func() {
		t.Helper()
		before := answered.Load()
		eventually(t, "more answers", func() bool { return answered.Load() > before+500 || failed.Load() > 0 })
	}
	more()
	await("WATCHDOG=1")
	for range 2 {
		p.Signal(syscall.SIGTERM)
		await("STOPPING=1")
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
		p = run()
		more()
	}
	close(end)
	clients.Wait()
	t.Logf("%d requests, %d failed", answered.Load(), failed.Load())
	p.Signal(syscall.SIGTERM)
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

// checkForgedActivation starts a node with descriptors that are not what the environment says, or that it should not
// serve.
func checkForgedActivation(t *testing.T, binary string) {
	dir := t.TempDir()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	listening := fileOf(t, tcp, err)
	everywhere, err := net.Listen("tcp", "0.0.0.0:0")
	public := fileOf(t, everywhere, err)
	client, err := net.Dial("tcp", tcp.Addr().String())
	connected := fileOf(t, client, err)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	packets := fileOf(t, udp, err)
	path := filepath.Join(dir, "admin")
	unix, err := net.Listen("unix", path)
	open := fileOf(t, unix, err)
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	regular, err := os.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer regular.Close()
	for _, test := range []struct {
		name    string
		sockets []*os.File
		names   string
		env     []string
		want    string
	}{
		{"no descriptor", nil, "http", []string{"LISTEN_FDS=1"}, `descriptor 3, "http": is no socket`},
		{"a file", []*os.File{regular}, "http", nil, "is no socket"},
		{"a connection", []*os.File{connected}, "http", nil, "does not listen"},
		{"packets", []*os.File{packets}, "http", nil, "does not listen"},
		{"the second is none", []*os.File{listening, regular}, "http:grpc", nil, `descriptor 4, "grpc": is no socket`},
		{"one name twice", []*os.File{listening, public}, "http:http", nil, `two sockets are named "http"`},
		{"the unit's name", []*os.File{listening}, "edgelimit.socket", nil, "want one of admin, grpc, health, http"},
		{"admin beyond loopback", []*os.File{public}, "admin", nil, "admin: "},
		{"admin for everybody", []*os.File{open}, "admin", nil, "SocketMode=0600"},
		{"a process id", []*os.File{listening}, "http", []string{"LISTEN_PID=x"}, `LISTEN_PID "x"`},
	} {
		var said testkit.Log
		cmd := activated(binary, test.sockets, test.names, test.env, "serve", "--health", "", "--http", "127.0.0.1:0")
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stop := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		stop.Stop()
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(said.String(), test.want) ||
			strings.Contains(said.String(), "panic") {
			t.Errorf("%s: %v:\n%s", test.name, err, said.String())
		}
	}
}
