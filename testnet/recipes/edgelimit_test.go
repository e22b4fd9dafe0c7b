package recipes

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithPrograms(m) }

var program = testkit.Program("../../cmd/edgelimit")

// fewFiles limits the file descriptors of an edgelimit that a test fills.
const fewFiles = 64

// edgelimit runs the real program with a recipe's configuration until the test ends, and returns once it is ready.
// maxFiles limits its open file descriptors; 0: as many as the test.
func (l *site) edgelimit(config string, maxFiles int, args ...string) *testkit.Process {
	l.t.Helper()
	l.recipe("rules.yaml")
	args = append([]string{"serve", "--config", l.recipe(config)}, args...)
	return startEdgelimit(l.t, l.dir, l.at(portHealth), maxFiles, args...)
}

func startEdgelimit(t *testing.T, dir, health string, maxFiles int, args ...string) *testkit.Process {
	t.Helper()
	script := "exec \"$@\""
	if maxFiles > 0 {
		script = fmt.Sprintf("ulimit -n %d; ", maxFiles) + script
	}
	cmd := exec.Command("sh", append([]string{"-c", script, "sh", program(t)}, args...)...)
	cmd.Dir = dir
	return startProgram(t, cmd, "http://"+health+"/readyz")
}

// startProgram runs a program until the test ends, and returns once url answers 200.
func startProgram(t *testing.T, cmd *exec.Cmd, url string) *testkit.Process {
	t.Helper()
	p := testkit.Start(t, cmd)
	p.Await("edgelimit is ready", func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// fill takes all connections of an edgelimit until release is called: it answers the next one with 503.
func (l *site) fill() (release func()) {
	l.t.Helper()
	var open []net.Conn
	release = func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}
	l.t.Cleanup(release)
	for i := range 1000 {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 101, byte(i>>8), byte(i))}, Timeout: patience}
		conn, err := dialer.Dial("tcp", l.at(portEdgelimit))
		if err != nil {
			l.t.Fatal(err)
		}
		open = append(open, conn)
		_, _ = fmt.Fprint(conn, "GET /v1/auth HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			l.t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable {
			return release
		}
	}
	l.t.Fatal("edgelimit is not full")
	return release
}
