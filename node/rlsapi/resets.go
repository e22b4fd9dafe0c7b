package rlsapi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/edgelimit/edgelimit/node/limits"
)

// errTooManyResets ends a connection.
var errTooManyResets = errors.New("the client resets more requests than it lets the node answer")

// frames finds the headers of frames (RFC 9113, section 4.1) in the bytes of one direction.
type frames struct {
	skip   int // bytes before the next header: of a frame, or of the client's preface
	header [9]byte
	have   int // bytes of header
}

// each calls f with the type, the flags and the stream of each frame whose header ends in b, until f returns false.
func (s *frames) each(b []byte, f func(kind http2.FrameType, flags http2.Flags, stream uint32) bool) {
	for len(b) > 0 {
		if s.skip >= len(b) {
			s.skip -= len(b)
			return
		}
		b, s.skip = b[s.skip:], 0
		n := copy(s.header[s.have:], b)
		b, s.have = b[n:], s.have+n
		if s.have < len(s.header) {
			return
		}
		h := s.header
		s.have, s.skip = 0, int(h[0])<<16|int(h[1])<<8|int(h[2])
		if !f(http2.FrameType(h[3]), http2.Flags(h[4]), binary.BigEndian.Uint32(h[5:])&(1<<31-1)) {
			return
		}
	}
}

// between reports whether the next byte begins a frame.
func (s *frames) between() bool { return s.skip == 0 && s.have == 0 }

// calmConn closes a connection that resets more requests than it may, with ENHANCE_YOUR_CALM. One goroutine reads it
// and one writes to it, as gRPC does.
type calmConn struct {
	net.Conn
	source netip.Addr
	resets limits.Resets
	own    limits.ResetsOf
	in     frames
	last   uint32 // the newest stream

	mu  sync.Mutex // guards out, and writes
	out frames
}

func newCalmConn(conn net.Conn, source netip.Addr, resets limits.Resets) *calmConn {
	return &calmConn{Conn: conn, source: source, resets: resets, in: frames{skip: len(http2.ClientPreface)}}
}

// Read implements net.Conn.
func (c *calmConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	ok := true
	c.in.each(b[:n], func(kind http2.FrameType, _ http2.Flags, stream uint32) bool {
		switch kind {
		case http2.FrameHeaders:
			c.last = stream
		case http2.FrameRSTStream:
			ok = c.resets.Reset(&c.own, c.source)
		}
		return ok
	})
	if !ok {
		c.goAway()
		return 0, errTooManyResets
	}
	return n, err
}

// Write implements net.Conn. Trailers, or headers alone, are the end of an answer.
func (c *calmConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.each(b, func(kind http2.FrameType, flags http2.Flags, _ uint32) bool {
		if kind == http2.FrameHeaders && flags.Has(http2.FlagHeadersEndStream) {
			c.own.Answered()
		}
		return true
	})
	return c.Conn.Write(b)
}

// goAwayWithin bounds how long a connection that is about to be closed waits for its client.
const goAwayWithin = 100 * time.Millisecond

// goAway says why the connection is closed, unless that would wait for others or cut a frame.
func (c *calmConn) goAway() {
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	if !c.out.between() {
		return
	}
	var frame bytes.Buffer
	_ = http2.NewFramer(&frame, nil).WriteGoAway(c.last, http2.ErrCodeEnhanceYourCalm, []byte("too_many_resets"))
	_ = c.Conn.SetWriteDeadline(time.Now().Add(goAwayWithin))
	_, _ = c.Conn.Write(frame.Bytes())
}
