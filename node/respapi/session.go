package respapi

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
)

// session is the connection of one client. It belongs to one goroutine, but for conn's deadlines, see Server.Shutdown.
type session struct {
	server *Server
	conn   net.Conn
	source netip.Addr // see limits.SourceOf
	holder netip.Addr // the source as budgets know it
	id     int64

	in         []byte // what was read; in[begin:end] is not executed yet
	begin, end int
	more       bool // the last read left no room: there may be more to read at once
	args       [][]byte
	reply
	now             time.Time // of the last read
	commandDeadline time.Time // for the rest of the current command; zero: there is none
	read, write     deadline
	counts          [outcomes]uint64 // not yet in the server's totals

	db            byte   // by SELECT
	name          string // by CLIENT SETNAME
	transaction   transaction
	key           []byte // see identity
	authenticated bool   // or no password is set
	failedLogins  int    // in a row
	executed      bool   // at least one command
	quitting      bool
}

// outcome classifies a command for the totals.
type outcome int

const (
	other outcome = iota
	allowed
	denied
	failed
	outcomes
)

const (
	// An idle session keeps buffers of at most these sizes.
	idleIn   = 4 << 10 // bytes read
	idleOut  = 4 << 10 // bytes of replies
	idleArgs = 32
	// maxLong caps what all sessions hold together for commands longer than idleIn, in bytes.
	maxLong = 64 << 20
	// flushAt is the size of replies that are written before the rest of a pipeline is executed, in bytes.
	flushAt = 16 << 10
)

func newSession(s *Server, conn net.Conn) *session {
	c := &session{server: s, conn: conn, id: s.lastID.Add(1), in: make([]byte, idleIn), now: time.Now()}
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		c.source = limits.SourceOf(tcp.AddrPort().Addr())
	}
	c.holder = s.opt.Budgets.SourceAt(conn.RemoteAddr())
	c.reset()
	return c
}

// reset drops what the client set by HELLO, AUTH, SELECT, MULTI and CLIENT.
func (c *session) reset() {
	c.version, c.db, c.name, c.authenticated = 2, 0, "", c.server.opt.Password == ""
	c.discardQueue()
}

// serve executes commands until the client or the server ends the connection.
func (c *session) serve() {
	defer func() {
		if p := recover(); p != nil {
			c.server.totals.panics.Add(1)
			c.server.opt.Logger.Error("panic in the Redis protocol; the client's connection ends", "panic", p,
				"stack", string(debug.Stack()))
		}
	}()
	for c.fill() && c.execute() && c.flush() {
		if c.done() {
			c.closeWrite()
			return
		}
		c.shrink()
	}
}

// done reports whether the connection ends now that all commands that were read are executed.
func (c *session) done() bool {
	return c.quitting || c.begin == c.end && !c.more && c.server.draining.Load()
}

// closeWrite ends the replies, and gives the client a moment to close the connection itself: a close while the client's
// data is unread would reset the connection, and the client would lose replies.
func (c *session) closeWrite() {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(closeGrace))
	_, _ = io.Copy(io.Discard, c.conn)
}

// fill reads more, and reports whether something came.
func (c *session) fill() bool {
	if !c.makeRoom() {
		c.refuse()
		return false
	}
	leaving := false // the connection ends unless there is more at once
	switch {
	case c.begin < c.end && c.commandDeadline.IsZero():
		c.commandDeadline = c.now.Add(commandTimeout)
		c.read.set(c.conn.SetReadDeadline, c.now, commandTimeout)
	case c.begin < c.end:
	case c.executed && c.server.leaving():
		leaving = true
		c.read.set(c.conn.SetReadDeadline, time.Now(), drainGrace)
	default:
		c.read.renew(c.conn.SetReadDeadline, c.now, c.server.opt.IdleTimeout)
	}
	for {
		n, err := c.conn.Read(c.in[c.end:])
		c.end, c.now = c.end+n, time.Now()
		c.more = c.end == len(c.in)
		switch begun := !c.commandDeadline.IsZero(); {
		case n > 0:
			return true
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return false
		case begun && !c.now.Before(c.commandDeadline):
			c.server.totals.slow.Add(1)
			return false
		case begun: // woken by Shutdown amid a command
			_ = c.conn.SetReadDeadline(c.commandDeadline)
		case leaving || !c.server.draining.Load():
			return false
		default: // woken by Shutdown
			leaving = true
			c.read.set(c.conn.SetReadDeadline, c.now, drainGrace)
		}
	}
}

// refuse ends the connection for want of memory for the current command.
func (c *session) refuse() {
	c.error("OOM too many long commands under way, try again")
	c.counts[failed]++
	if c.flush() {
		c.closeWrite()
	}
}

// makeRoom makes room in the buffer, which grows to maxRequest: every command fits. It reports false where the long
// commands of all sessions are at their cap.
func (c *session) makeRoom() bool {
	switch {
	case c.begin == c.end:
		c.begin, c.end = 0, 0
	case c.end < len(c.in):
	case c.begin > 0:
		c.end = copy(c.in, c.in[c.begin:c.end])
		c.begin = 0
	default:
		size := min(2*len(c.in), maxRequest)
		if c.server.long.Take(c.holder, int64(size-len(c.in))) != "" {
			return false
		}
		larger := make([]byte, size)
		c.end = copy(larger, c.in)
		c.in = larger
	}
	return true
}

// release returns the buffer of a long command to the cap that all sessions share.
func (c *session) release() {
	if n := len(c.in) - idleIn; n > 0 {
		c.server.long.Give(c.holder, int64(n))
		c.in = nil
	}
}

// execute runs all complete commands. It reports whether the replies could be written.
func (c *session) execute() bool {
	for c.begin < c.end && !c.quitting {
		args, n, err := parse(c.in[c.begin:c.end], c.args[:0])
		c.args = args
		switch {
		case err != nil:
			c.server.totals.malformed.Add(1)
			c.error("ERR Protocol error: " + err.Error())
			c.quitting = true
			return true
		case n == 0:
			return true
		}
		c.begin, c.commandDeadline = c.begin+n, time.Time{}
		if len(args) > 0 {
			c.executed = true
			c.counts[c.run(args)]++
		}
		if len(c.out) >= flushAt && !c.flush() {
			return false
		}
	}
	return true
}

// flush writes the replies, and reports whether it could.
func (c *session) flush() bool {
	for i, n := range c.counts {
		if n > 0 {
			c.server.totals.outcomes[i].Add(n)
			c.counts[i] = 0
		}
	}
	if len(c.out) == 0 {
		return true
	}
	c.write.renew(c.conn.SetWriteDeadline, c.now, writeTimeout)
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.server.totals.slow.Add(1)
	}
	return err == nil
}

// shrink frees the memory of a long pipeline, once it is executed.
func (c *session) shrink() {
	if cap(c.out) > idleOut {
		c.out = nil
	}
	if c.begin < c.end {
		return
	}
	if len(c.in) > idleIn {
		c.release()
		c.in = make([]byte, idleIn)
	}
	if cap(c.key) > idleIn {
		c.key = nil
	}
	if cap(c.args) > idleArgs {
		c.args = nil
	}
}

// deadline is a connection's deadline for reads or writes. Setting one costs as much as a decision, so it is renewed
// only when a quarter of it has passed: it comes a quarter early at most.
type deadline struct {
	since time.Time
	span  time.Duration
}

func (d *deadline) renew(set func(time.Time) error, now time.Time, span time.Duration) {
	if d.span != span || now.Sub(d.since) > span/4 {
		d.set(set, now, span)
	}
}

// set sets it whatever it was. An error shows at the next read or write.
func (d *deadline) set(set func(time.Time) error, now time.Time, span time.Duration) {
	_ = set(now.Add(span))
	d.since, d.span = now, span
}
