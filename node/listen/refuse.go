package listen

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

const (
	// maxRefusing is how many refused clients at a time get the time to read why, at each listener.
	maxRefusing = 64
	// refuseWithin is how long a refused client may take to read why and to hang up.
	refuseWithin = 500 * time.Millisecond
)

// Accept implements net.Listener. It refuses connections beyond the limits, and returns others once their handshake, if
// they have one, is over.
func (l *Listener) Accept() (net.Conn, error) {
	if !l.hasHandshakes() {
		if c, err := l.accept(); err == nil {
			return c, nil
		} else {
			return nil, err
		}
	}
	l.accepting.Do(func() { l.handshakes.Go(l.acceptAll) })
	select {
	case s := <-l.accepted:
		return s.conn, s.err
	case <-l.open.Done():
		return nil, net.ErrClosed
	}
}

// accept returns the next connection within the limits.
func (l *Listener) accept() (*limitedConn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil && l.isLeaving() { // the server ends if it sees the error before its Shutdown
			l.endAll()
			<-l.open.Done()
		}
		l.noteAccept(err)
		if err != nil {
			return nil, err
		}
		client := clientOf(conn)
		forwarded := l.ProxyProtocol != nil && l.ProxyProtocol(client)
		c, evicted, why := l.admit(conn, forwarded)
		if evicted != nil {
			_ = evicted.Conn.Close()
		}
		if c == nil || evicted != nil && l.limits.Evict {
			l.warn(client, why)
		}
		if c == nil {
			l.refuse(conn)
			continue
		}
		if !forwarded {
			c.unlisted = func() {
				if l.tls == nil { // else the handshake fails
					l.fail(client, errUntrustedHeader)
				}
			}
		}
		return c, nil
	}
}

// failingFor is how long an error counts: servers try again at least once a second.
const failingFor = 2 * time.Second

// acceptFailure is the last error of the system's listener.
type acceptFailure struct {
	err error
	at  time.Time
}

// noteAccept remembers an error of the system's listener, or that it has accepted a connection.
func (l *Listener) noteAccept(err error) {
	switch {
	case err != nil && !errors.Is(err, net.ErrClosed):
		l.failing.Store(&acceptFailure{err, time.Now()})
	case err == nil && l.failing.Load() != nil:
		l.failing.Store(nil)
	}
}

// Failing returns why the listener cannot accept connections; nil: it can. It is safe for concurrent use.
func (l *Listener) Failing() error {
	f := l.failing.Load()
	switch {
	case f == nil || time.Since(f.at) > failingFor:
		return nil
	case errors.Is(f.err, syscall.EMFILE), errors.Is(f.err, syscall.ENFILE):
		return fmt.Errorf("it cannot accept connections, for want of file descriptors: see ulimit -n, and who holds "+
			"them by ls -l /proc/PID/fd: %w", f.err)
	}
	return fmt.Errorf("it cannot accept connections: %w", f.err)
}

// refuse sends the refusal, if the protocol has one, and hangs up. Over TLS it hangs up at once: words would need a
// handshake, which costs more than a request.
func (l *Listener) refuse(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(refuseWithin))
	switch {
	case l.Refusal == "", l.tls != nil:
		_ = conn.Close()
	case l.refusing.Add(1) > maxRefusing: // the client may not be able to read it
		l.refusing.Add(-1)
		_, _ = io.WriteString(conn, l.Refusal) // does not block: it fits a new connection's send buffer
		_ = conn.Close()
	default:
		l.refusals.Go(func() {
			defer l.refusing.Add(-1)
			sendRefusal(conn, l.Refusal)
		})
	}
}

// sendRefusal first reads from the client, as many clients ignore an answer that comes before their request. Then it
// lets the client hang up: closing a connection with unread bytes would reset it, and lose the refusal.
func sendRefusal(conn net.Conn, refusal string) {
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 512)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(refuseWithin))
	if _, err := io.WriteString(conn, refusal); err == nil {
		awaitClose(conn)
	}
}

// awaitClose ends the sending side, and waits until the client hangs up, for as long as the deadline says. The caller
// closes the connection.
func awaitClose(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 64<<10))
	}
}

// warn logs once a minute that connections are refused or evicted, with the last client.
func (l *Listener) warn(client netip.Addr, why refusal) {
	l.warningMu.Lock()
	defer l.warningMu.Unlock()
	l.unwarned++
	if !l.warning.Due(time.Now()) {
		return
	}
	message := "connections are refused"
	if why == admitted {
		message = "too many connections: the longest idle or oldest are closed in favor of new ones"
	}
	l.log.Warn(message, "door", l.Name, "reason", string(why), "source", client.String(), "connections", l.unwarned,
		"max_connections", l.limits.Max, "max_connections_per_source", l.limits.PerSource)
	l.unwarned = 0
}
