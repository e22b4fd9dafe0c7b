package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// manager is a service manager: it records the messages that a notifier sends.
type manager struct {
	net.Conn
	mu   sync.Mutex
	sent []string
}

func (m *manager) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = append(m.sent, string(b))
	return len(b), nil
}

func (m *manager) SetWriteDeadline(time.Time) error { return nil }
func (m *manager) Close() error                     { return nil }

// take returns the messages since the last call.
func (m *manager) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	sent := m.sent
	m.sent = nil
	return sent
}

// scriptedNode is a node that ticks as often as its test has it.
type scriptedNode struct {
	serving chan struct{}
	ticks   atomic.Uint64
	mu      sync.Mutex
	reasons []string
}

func (n *scriptedNode) Serving() <-chan struct{} { return n.serving }
func (n *scriptedNode) Ticks() uint64            { return n.ticks.Load() }
func (n *scriptedNode) Degraded() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reasons
}

func (n *scriptedNode) degrade(reasons ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reasons = reasons
}

// The manager is sent each state in turn. A node whose tick stands still sends no keep-alive, and one whose peers are
// away does: it ticks, and says that it is degraded.
func TestNotifyStates(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		m, node := new(manager), &scriptedNode{serving: make(chan struct{})}
		n := &notifier{conn: m, watchdog: 20 * time.Second, log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stop := n.follow(ctx, node)
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := m.take(); !slices.Equal(got, want) {
				t.Errorf("%s: it sent %q, want %q", when, got, want)
			}
		}
		time.Sleep(time.Minute)
		expect("starting, and its tick stands still", "STATUS=starting: waiting for peers, store and rules")
		for range 3 {
			node.ticks.Add(1)
			time.Sleep(10 * time.Second)
			expect("starting, after a tick", "EXTEND_TIMEOUT_USEC=30000000")
		}
		n.reloading(ctx, node, func() {})
		expect("reloading before it serves")
		close(node.serving)
		expect("serving", "READY=1\nSTATUS=serving")
		node.ticks.Add(1)
		time.Sleep(6 * time.Second)
		expect("after a tick", "WATCHDOG=1")
		node.degrade("peer \"x\" is away\nMAINPID=1\nREADY=0", strings.Repeat("long ", 1000))
		node.ticks.Add(1)
		time.Sleep(5 * time.Second)
		sent := m.take()
		if len(sent) != 2 || !slices.Contains(sent, "WATCHDOG=1") {
			t.Errorf("degraded: it sent %q", sent)
		}
		for _, s := range sent {
			if strings.Contains(s, "\n") || len(s) > maxStatus {
				t.Errorf("it sent %d bytes: %q", len(s), s)
			}
		}
		time.Sleep(time.Minute)
		expect("its tick stands still")
		node.degrade()
		n.reloading(ctx, node, func() {})
		expect("reloading", "RELOADING=1\nSTATUS=reading rules and certificates again", "READY=1\nSTATUS=serving")
		cancel()
		expect("stopping", "STOPPING=1\nSTATUS=stopping: draining requests, sending the last counts")
		n.reloading(ctx, node, func() {})
		time.Sleep(6 * time.Second)
		expect("draining", "WATCHDOG=1")
		stop()
	})
}

// What the environment has of a service manager is right, or an error that says what to do; children do not see it.
func TestNewNotifier(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, test := range []struct {
		socket, usec, pid string
		interval          time.Duration
		watchdog          time.Duration
		want              string
	}{
		{"", "soon", "", time.Second, -1, ""},
		{socket, "", "", time.Second, 0, ""},
		{socket, "10000000", "1", time.Second, 0, ""}, // of another process
		{socket, "10000000", "", 5 * time.Second, 10 * time.Second, ""},
		{socket, "10000000", "", 6 * time.Second, 0, "want at least 12 s"},
		{socket, "soon", "", time.Second, 0, `WATCHDOG_USEC "soon"`},
		{socket, "0", "", time.Second, 0, "WatchdogSec="},
		{socket + ".gone", "", "", time.Second, 0, "NOTIFY_SOCKET: the service manager cannot be reached"},
	} {
		t.Setenv("NOTIFY_SOCKET", test.socket)
		t.Setenv("WATCHDOG_USEC", test.usec)
		t.Setenv("WATCHDOG_PID", test.pid)
		n, err := newNotifier(test.interval, slog.New(slog.DiscardHandler))
		switch {
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%+v: %v", test, err)
		case test.want == "" && (err != nil || (n == nil) != (test.watchdog < 0)):
			t.Errorf("%+v: %v, %v", test, n, err)
		case n != nil && n.watchdog != test.watchdog:
			t.Errorf("%+v: the watchdog is %v", test, n.watchdog)
		}
		if n != nil {
			_ = n.conn.Close()
		}
		for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
			if value, ok := os.LookupEnv(name); ok {
				t.Errorf("%s=%s is still in the environment", name, value)
			}
		}
	}
	var none *notifier
	none.send("READY=1")
	none.follow(t.Context(), nil)()
}

// A manager that receives nothing any more delays the node by a second at most, and the log says so.
func TestNotifyWithoutReceiver(t *testing.T) {
	log := new(testkit.Log)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	(&notifier{conn: ours, log: log.Logger()}).send("READY=1")
	if !log.HasLine("the service manager does not receive", "READY=1", os.ErrDeadlineExceeded.Error()) {
		t.Errorf("it logs %s", log.String())
	}
	if errors.Is(ours.SetWriteDeadline(time.Time{}), net.ErrClosed) {
		t.Error("the connection was closed")
	}
}

// A node that ends by itself, as when a listener fails, is not kept from saying why.
func TestNotifyAfterAnError(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		m, node := new(manager), &scriptedNode{serving: make(chan struct{})}
		n := &notifier{conn: m, watchdog: 20 * time.Second, log: slog.New(slog.DiscardHandler)}
		stop := n.follow(t.Context(), node)
		close(node.serving)
		synctest.Wait()
		m.take()
		stop()
		if got := m.take(); len(got) != 1 || !strings.HasPrefix(got[0], "STOPPING=1") {
			t.Errorf("it sent %q", got)
		}
	})
}
