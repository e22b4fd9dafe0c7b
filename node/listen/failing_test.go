package listen

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// outOfFiles is a listener that has no file descriptor left for a connection while it is set.
type outOfFiles struct {
	net.Listener
	isOut, accepts atomic.Bool // accepts: it is about to accept a connection, out of files or not
}

func (l *outOfFiles) Accept() (net.Conn, error) {
	if l.isOut.Load() {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	l.accepts.Store(true)
	defer l.accepts.Store(false)
	return l.Listener.Accept()
}

// A listener without file descriptors says so until it accepts again, whether or not a client comes then.
func TestOutOfFiles(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	socket := &outOfFiles{Listener: inner}
	log := new(testkit.Log)
	l, err := Open(Setting{Name: "http", Socket: socket}, Limits{Max: 10, PerSource: 10}, log.Logger())
	testkit.Must(t, err)
	l.UseHTTP(&http.Server{Handler: http.NotFoundHandler()}, 0)
	l.Start(func(string, error) {})
	t.Cleanup(func() { l.Stop(0, testkit.Patience) })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func() {
		t.Helper()
		resp, err := client.Get("http://" + l.Addr().String())
		testkit.Must(t, err)
		read(t, resp)
	}
	get()
	if err := l.Failing(); err != nil {
		t.Errorf("it accepts, but %v", err)
	}
	for _, clientComes := range []bool{true, false} {
		testkit.Eventually(t, "it waits for a client", socket.accepts.Load)
		socket.isOut.Store(true)
		get() // the last that is accepted
		testkit.Eventually(t, "it fails", func() bool { return l.Failing() != nil })
		err := fmt.Sprint(l.Failing())
		if !strings.Contains(err, "ulimit -n") || !strings.Contains(err, "too many open") {
			t.Errorf("%s", err)
		}
		socket.isOut.Store(false)
		if clientComes {
			get()
		}
		testkit.Eventually(t, "it accepts again", func() bool { return l.Failing() == nil })
	}
}
