package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Streams of peers are few and short: a comparison of member lists, a snapshot. A stream whose first message has not
// yet shown that it is a peer's may be closed in favor of another one.
const (
	maxStreams       = 64       // that others have opened, in a pool
	maxSourceStreams = 16       // of one address, or /64 of IPv6, beyond this machine
	maxStreamBytes   = 64 << 20 // of messages that are being read, together
	prefixWithin     = 2 * time.Second
)

var errNoSpace = errors.New("too many streams, or too large ones")

// streamLimiter bounds the streams that others open, and the bytes of their messages.
type streamLimiter struct {
	mu    sync.Mutex
	open  []*inspectedConn // the oldest first
	bytes int
}

// admit takes in a stream and closes another one in its favor if it has to; it reports whether there is space for it.
func (l *streamLimiter) admit(c *inspectedConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	rivals := l.open // of which one has to end
	var ofSource []*inspectedConn
	for _, o := range l.open {
		if c.source.IsValid() && o.source == c.source {
			ofSource = append(ofSource, o)
		}
	}
	if len(ofSource) >= maxSourceStreams {
		rivals = ofSource
	}
	if len(ofSource) >= maxSourceStreams || len(l.open) >= maxStreams {
		oldest := slices.IndexFunc(rivals, func(o *inspectedConn) bool { return !o.known })
		if oldest < 0 {
			return false
		}
		_ = l.end(rivals[oldest])
	}
	l.open = append(l.open, c)
	return true
}

// grow counts bytes of a stream's message. Where there are too many, the stream with the most ends.
func (l *streamLimiter) grow(c *inspectedConn, n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bytes+n > maxStreamBytes {
		largest := c
		for _, o := range l.open {
			if !o.known && o.bytes > largest.bytes {
				largest = o
			}
		}
		_ = l.end(largest)
		if largest == c {
			return errNoSpace
		}
	}
	if c.ended {
		return errNoSpace
	}
	l.bytes += n
	c.bytes += n
	return nil
}

// accept notes that a stream is a peer's.
func (l *streamLimiter) accept(c *inspectedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.known = true
}

// end closes a stream and gives back what it took, once however often it is called. The lock is held.
func (l *streamLimiter) end(c *inspectedConn) error {
	if c.ended {
		return net.ErrClosed
	}
	c.ended = true
	err := c.Conn.Close()
	l.bytes -= c.bytes
	l.open = slices.DeleteFunc(l.open, func(o *inspectedConn) bool { return o == c })
	return err
}

func (l *streamLimiter) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.open) > 0 {
		_ = l.end(l.open[0])
	}
}

// inspectedConn is a stream whose first message is looked at before anybody reads it. Only one goroutine may read.
type inspectedConn struct {
	net.Conn
	sockets *sockets
	source  netip.Addr // not valid: it has no share
	inbound bool       // a peer has opened it

	known, ended bool // limiter.mu guards these
	bytes        int

	deadline  time.Time
	inspected bool
	read      bytes.Buffer // what the inspector has read and the reader has not
	err       error
}

// Read implements net.Conn.
func (c *inspectedConn) Read(b []byte) (int, error) {
	if !c.inspected {
		c.inspected = true
		if c.err = c.inspect(); c.err != nil && c.err != io.EOF {
			c.sockets.refusedStreams.Add(1)
		}
		if tcp, ok := c.Conn.RemoteAddr().(*net.TCPAddr); ok && c.err == errOtherKey && c.inbound {
			c.sockets.otherKeys.note(tcp.AddrPort().Addr(), time.Now())
		}
	}
	switch {
	case c.err != nil:
		return 0, c.err
	case c.read.Len() > 0:
		return c.read.Read(b)
	}
	return c.Conn.Read(b)
}

func (c *inspectedConn) inspect() error {
	if c.inbound {
		_ = c.Conn.SetReadDeadline(time.Now().Add(prefixWithin))
	}
	r := io.TeeReader(c.Conn, &c.read)
	inspector := c.sockets.inspector
	kind, err := inspector.prefix(r, c.inbound)
	if err != nil {
		return err
	}
	_ = c.Conn.SetReadDeadline(c.deadline)
	grow := func(n int) error { return c.sockets.limiter.grow(c, n) }
	if inspector.encrypts() {
		if kind != msgEncrypted {
			return fmt.Errorf("%w: it is not encrypted", errNoMessage)
		}
		err = inspector.encrypted(r, grow)
	} else {
		var claimed int
		if claimed, err = inspector.plaintext(kind, r); err == nil {
			err = grow(claimed)
		}
	}
	if err == nil {
		c.sockets.limiter.accept(c)
	}
	return err
}

// SetDeadline implements net.Conn.
func (c *inspectedConn) SetDeadline(t time.Time) error {
	c.deadline = t
	return c.Conn.SetDeadline(t)
}

// Close implements net.Conn.
func (c *inspectedConn) Close() error {
	l := &c.sockets.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end(c)
}

// streamSource returns what the streams of an address are counted by; not valid for those of this machine.
func streamSource(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	if addr.IsLoopback() {
		return netip.Addr{}
	}
	if addr.Is6() {
		p, _ := addr.Prefix(64) // an error: a zone, and there is none
		return p.Addr()
	}
	return addr
}
