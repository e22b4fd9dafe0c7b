package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/text"
)

const (
	// statusInterval is how often the service manager is sent the status of the node, if that has changed.
	statusInterval = 2 * time.Second
	// notifyWithin is how long the service manager may take to receive a message.
	notifyWithin = time.Second
	// maxStatus is the longest status in bytes: the manager reads 4 KiB at most.
	maxStatus = 1 << 10
	// startExtension is how much longer the manager is asked to wait for a node that starts, each time it is asked, and
	// extendInterval how often: a node may wait for its first rules for as long as whoever writes them takes.
	startExtension = 30 * time.Second
	extendInterval = startExtension / 3
)

// notifier sends the state of the process to the service manager, as sd_notify(3) describes. A nil notifier sends
// nothing.
type notifier struct {
	conn     net.Conn
	watchdog time.Duration // the manager ends the process after so long without a keep-alive; 0: never
	log      *slog.Logger
}

// newNotifier connects to the service manager that the environment names; there may be none. It removes the variables:
// children have no state to send. A watchdog must leave time for two ticks, which are interval apart.
func newNotifier(interval time.Duration, log *slog.Logger) (*notifier, error) {
	socket, usec, pid := os.Getenv("NOTIFY_SOCKET"), os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	if socket == "" {
		return nil, nil
	}
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: the service manager cannot be reached: %w", err)
	}
	n := &notifier{conn: conn, log: log}
	if usec != "" && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		us, err := strconv.ParseUint(usec, 10, 48)
		n.watchdog = time.Duration(us) * time.Microsecond
		if least := max(time.Second, 2*interval); err != nil || n.watchdog < least {
			_ = conn.Close()
			return nil, fmt.Errorf("WATCHDOG_USEC %.20q: want at least %v, which is a second or two gossip "+
				"intervals: raise WatchdogSec=", usec, text.Duration(least))
		}
	}
	return n, nil
}

// send sends assignments as READY=1.
func (n *notifier) send(state ...string) {
	if n == nil {
		return
	}
	_ = n.conn.SetWriteDeadline(time.Now().Add(notifyWithin))
	if _, err := n.conn.Write([]byte(strings.Join(state, "\n"))); err != nil {
		n.log.Warn("the service manager does not receive the node's state", "state", state[0], "error", err)
	}
}

// reloading sends that the node reads its files again, while f does, if it serves and ctx has not ended.
func (n *notifier) reloading(ctx context.Context, of notified, f func()) {
	serves := ctx.Err() == nil
	select {
	case <-of.Serving():
	default:
		serves = false
	}
	if serves {
		n.send("RELOADING=1", "STATUS=reading rules and certificates again")
		defer func() { n.send("READY=1", statusOf(of)) }()
	}
	f()
}

// statusOf describes a node that serves, in one line: what causes it to be degraded may quote what others sent.
func statusOf(of notified) string {
	why := strings.Join(of.Degraded(), "; ")
	if why == "" {
		return "STATUS=serving"
	}
	text := "STATUS=serving, degraded: " + strings.Join(strings.Fields(why), " ")
	return strings.ToValidUTF8(text[:min(len(text), maxStatus)], "")
}

// notified is what a notifier needs of a node.
type notified interface {
	Serving() <-chan struct{}
	Ticks() uint64
	Degraded() []string
}

// follow sends what becomes of the node, until the returned function is called: that it serves, whether its decisions
// are degraded, that it stops as ctx ends. A keep-alive is sent after each tick of replication, and so a node that
// replicates no more is restarted, and not one whose peers are away. In the same way a node that waits for its first
// rules has as much time to start as that takes.
func (n *notifier) follow(ctx context.Context, of notified) (stop func()) {
	if n == nil {
		return func() {}
	}
	return background(func(ended <-chan struct{}) {
		defer func() { _ = n.conn.Close() }()
		n.send("STATUS=starting: waiting for peers, store and rules")
		if n.whileStarting(ctx.Done(), ended, of) {
			n.send("READY=1", "STATUS=serving")
			n.whileServing(ctx.Done(), ended, of)
		}
		n.send("STOPPING=1", "STATUS=stopping: draining requests, sending the last counts")
		n.untilEnded(ended)
	})
}

// whileStarting asks for more time to start after each tick, until the node serves, or is to stop, or has ended.
func (n *notifier) whileStarting(stops, ended <-chan struct{}, of notified) (serves bool) {
	extend := time.NewTicker(extendInterval)
	defer extend.Stop()
	for ticks := uint64(0); ; {
		select {
		case <-ended:
			return false
		case <-stops:
			return false
		case <-of.Serving():
			return true
		case <-extend.C:
			now := of.Ticks()
			if now != ticks {
				n.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", startExtension.Microseconds()))
			}
			ticks = now
		}
	}
}

// whileServing sends keep-alives and what changes of the status until the node is to stop, or has ended by itself.
func (n *notifier) whileServing(stops, ended <-chan struct{}, of notified) {
	keepAlive := time.NewTicker(cmp.Or(n.watchdog/4, statusInterval))
	defer keepAlive.Stop()
	look := time.NewTicker(statusInterval)
	defer look.Stop()
	was := "STATUS=serving"
	for ticks := uint64(0); ; {
		select {
		case <-stops:
			return
		case <-ended:
			return
		case <-keepAlive.C:
			now := of.Ticks()
			if now != ticks && n.watchdog > 0 {
				n.send("WATCHDOG=1")
			}
			ticks = now
		case <-look.C:
			is := statusOf(of)
			if is != was {
				n.send(is)
			}
			was = is
		}
	}
}

// untilEnded keeps the process alive while it stops: how long that may take is TimeoutStopSec's to say.
func (n *notifier) untilEnded(ended <-chan struct{}) {
	ticker := time.NewTicker(cmp.Or(n.watchdog/4, statusInterval))
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C:
			if n.watchdog > 0 {
				n.send("WATCHDOG=1")
			}
		}
	}
}
