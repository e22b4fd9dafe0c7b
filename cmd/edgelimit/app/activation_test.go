package app

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

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
	testkit.Must(t, err)
	f, err := socket.(filed).File()
	testkit.Must(t, err)
	t.Cleanup(func() { _, _ = f.Close(), socket.(io.Closer).Close() })
	return f
}

// activatedNames are the listeners for clients, as socket units name them.
var activatedNames = []string{"http", "grpc", "resp", "proxy"}

// askers ask each listener for clients once, over connections that they keep. An asker fails if its client sees an
// error or no decision. Those of HTTP and gRPC repeat nothing themselves, but for calls that the server has not begun,
// as net/http and grpc-go do by default. The Redis protocol cannot announce the end of a connection: a command that
// meets it gets no reply, and clients send it again, as go-redis does by default.
func askers(t *testing.T, addr map[string]string) map[string]func() error {
	t.Helper()
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}, Timeout: patience}
	conn, err := grpc.NewClient(addr["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	rdb := goredis.NewClient(&goredis.Options{Addr: addr["resp"], ReadTimeout: patience, DisableIdentity: true})
	t.Cleanup(func() {
		web.CloseIdleConnections()
		_, _ = conn.Close(), rdb.Close()
	})
	fetch := func(method, url, body string) error {
		status, _, answer, err := testkit.Fetch(web, method, url, body)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, answer)
		}
		return err
	}
	return map[string]func() error{
		"http": func() error {
			return fetch("POST", "http://"+addr["http"]+"/v1/check", `{"rule":"per_ip","identity":"192.0.2.1"}`)
		},
		"proxy": func() error { return fetch("GET", "http://"+addr["proxy"]+"/", "") },
		"grpc": func() error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			entries := []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "192.0.2.2"}}
			resp, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rls.RateLimitRequest{
				Domain: "edge", Descriptors: []*common.RateLimitDescriptor{{Entries: entries}}})
			if err == nil && resp.OverallCode != rls.RateLimitResponse_OK {
				err = fmt.Errorf("%v", resp)
			}
			return err
		},
		"resp": func() error {
			reply, err := rdb.Do(t.Context(), "CL.THROTTLE", "user", 1_000_000, 1_000_000, 60).Slice()
			if err == nil && (len(reply) != 5 || reply[0] != int64(0)) {
				err = fmt.Errorf("%v", reply)
			}
			return err
		},
	}
}

// checkActivation restarts a node twice under load on all its listeners for clients. systemd holds the sockets
// meanwhile: no request is lost. It is ready, as the service manager is sent, once it serves.
func checkActivation(t *testing.T, binary string) {
	addr := make(map[string]string)
	var sockets []*os.File
	for _, name := range activatedNames {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		sockets = append(sockets, fileOf(t, l, err))
		addr[name] = l.Addr().String()
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	defer upstream.Close()
	notify := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	testkit.Must(t, err)
	defer manager.Close()
	await := func(state string) {
		t.Helper()
		testkit.Must(t, manager.SetReadDeadline(time.Now().Add(patience)))
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
	rules := hourly(t, 100_000_000)
	run := func() *testkit.Process {
		p := testkit.Start(t, activated(binary, sockets, strings.Join(activatedNames, ":"),
			[]string{"NOTIFY_SOCKET=" + notify, "WATCHDOG_USEC=4000000"}, "proxy", "--upstream", upstream.URL,
			"--rules", rules, "--http", "127.0.0.1:1", "--health", "", "--admin", ""))
		await("READY=1")
		return p
	}

	p := run()
	answered := make(map[string]*atomic.Int64)
	var failed atomic.Int64
	var clients sync.WaitGroup
	end := make(chan struct{})
	for name, ask := range askers(t, addr) {
		answers := new(atomic.Int64)
		answered[name] = answers
		for range 4 {
			clients.Go(func() {
				for {
					select {
					case <-end:
						return
					default:
					}
					err := ask()
					if answers.Add(1); err != nil {
						failed.Add(1)
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
	}
	more := func() {
		t.Helper()
		for name, answers := range answered {
			before := answers.Load()
			eventually(t, "more answers of "+name,
				func() bool { return answers.Load() > before+200 || failed.Load() > 0 })
		}
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
	for name, answers := range answered {
		t.Logf("%s: %d requests", name, answers.Load())
	}
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
	testkit.Must(t, os.Chmod(path, 0o666))
	regular, err := os.Open(binary)
	testkit.Must(t, err)
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
		{"the unit's name", []*os.File{listening}, "edgelimit.socket", nil,
			"want one of admin, dashboard, grpc, health, http"},
		{"admin beyond loopback", []*os.File{public}, "admin", nil, "admin: "},
		{"admin for everybody", []*os.File{open}, "admin", nil, "SocketMode=0600"},
		{"a process id", []*os.File{listening}, "http", []string{"LISTEN_PID=x"}, `LISTEN_PID "x"`},
	} {
		var said testkit.Log
		cmd := activated(binary, test.sockets, test.names, test.env, "serve", "--health", "", "--http", "127.0.0.1:0")
		cmd.Stderr = &said
		testkit.Must(t, cmd.Start())
		stop := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		stop.Stop()
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(said.String(), test.want) ||
			strings.Contains(said.String(), "panic") {
			t.Errorf("%s: %v:\n%s", test.name, err, said.String())
		}
	}
}
