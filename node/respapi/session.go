package respapi

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"time"
)

// session is the conversation with one client. It belongs to one goroutine, but for conn's deadlines, see Server.Shutdown.
type session struct {
	server *Server
	conn   net.Conn
	id     int64

	in         []byte // what was read
	begin, end int    // and is not answered yet: in[begin:end]
	more       bool   // the last read left no room: there may be more to read at once
	words      [][]byte
	reply
	now    time.Time // when what is answered was read
	until  time.Time // the command that has begun has to be whole; zero: none has
	read   deadline
	write  deadline
	counts [outcomes]uint64 // commands by what became of them, not yet in the totals

	name     string // that the client gave itself
	trusted  bool   // has said the password, or needs none
	answered bool   // at least one command
	quitting bool
}

// outcome is what became of a command.
type outcome int

const (
	other outcome = iota
	allowed
	denied
	failed
	outcomes
)

// What a session keeps while its client is silent.
const (
	idleIn    = 4 << 10 // bytes read
	idleOut   = 4 << 10 // bytes of replies
	idleWords = 32
	// maxLong is what all sessions may take together for commands that are longer than idleIn.
	maxLong = 64 << 20
	// flushAt is how many bytes of replies are written before the rest of a pipeline is answered.
	flushAt = 16 << 10
)

func newSession(s *Server, conn net.Conn) *session {
	c := &session{server: s, conn: conn, id: s.ids.Add(1), in: make([]byte, idleIn), now: time.Now()}
	c.reset()
	return c
}

// reset forgets what the client said of itself.
func (c *session) reset() {
	c.version, c.name, c.trusted = 2, "", !c.server.secret.set
}

// serve answers commands until the client or the door ends the conversation.
func (c *session) serve() {
	defer func() {
		if p := recover(); p != nil {
			c.server.opt.Logger.Error("panic in the Redis protocol; the client's connection ends", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	for c.wait() && c.answer() && c.flush() {
		if c.done() {
			c.hangUp()
			return
		}
		c.idle()
	}
}

// done reports whether the conversation ends now that all commands that were read are answered.
func (c *session) done() bool {
	return c.quitting || c.begin == c.end && !c.more && c.server.draining.Load()
}

// hangUp says that no more replies come, and gives the client a moment to end the connection itself: to close one on which it has just sent
// something would take replies from it that it has not read yet.
func (c *session) hangUp() {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(farewell))
	_, _ = io.Copy(io.Discard, c.conn)
}

// wait reads what comes next, and reports whether something did.
func (c *session) wait() bool {
	if !c.makeRoom() {
		c.refuse()
		return false
	}
	parting := false // it ends unless there is more at once
	switch {
	case c.begin < c.end && c.until.IsZero():
		c.until = c.now.Add(slowFor)
		c.read.set(c.conn.SetReadDeadline, c.now, slowFor)
	case c.begin < c.end:
	case c.answered && c.server.leaving():
		parting = true
		c.read.set(c.conn.SetReadDeadline, time.Now(), lastWords)
	default:
		c.read.renew(c.conn.SetReadDeadline, c.now, c.server.opt.IdleTimeout)
	}
	for {
		n, err := c.conn.Read(c.in[c.end:])
		c.end, c.now = c.end+n, time.Now()
		c.more = c.end == len(c.in)
		switch begun := !c.until.IsZero(); {
		case n > 0:
			return true
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return false
		case begun && !c.now.Before(c.until):
			c.server.totals.slow.Add(1)
			return false
		case begun: // Shutdown woke it in the midst of a command
			_ = c.conn.SetReadDeadline(c.until)
		case parting || !c.server.draining.Load():
			return false
		default: // Shutdown woke it
			parting = true
			c.read.set(c.conn.SetReadDeadline, c.now, lastWords)
		}
	}
}

// refuse says that there is no memory for the command that has begun.
func (c *session) refuse() {
	c.error("OOM too many long commands under way, try again")
	c.counts[failed]++
	if c.flush() {
		c.hangUp()
	}
}

// makeRoom sees to it that there is room to read into: a command always fits into maxRequest. It reports whether there is: long commands
// of all sessions have to share what there is for them.
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
		if more := int64(size - len(c.in)); c.server.long.Add(more) > c.server.mostLong {
			c.server.long.Add(-more)
			return false
		}
		larger := make([]byte, size)
		c.end = copy(larger, c.in)
		c.in = larger
	}
	return true
}

// giveBack gives back what a long command has taken of the memory that all sessions share.
func (c *session) giveBack() {
	if n := len(c.in) - idleIn; n > 0 {
		c.server.long.Add(-int64(n))
		c.in = nil
	}
}

// answer answers all commands that are whole. It reports whether the replies could be written.
func (c *session) answer() bool {
	for c.begin < c.end && !c.quitting {
		words, n, err := parse(c.in[c.begin:c.end], c.words[:0])
		c.words = words
		switch {
		case err != nil:
			c.server.totals.malformed.Add(1)
			c.error("ERR Protocol error: " + err.Error())
			c.quitting = true
			return true
		case n == 0:
			return true
		}
		c.begin, c.until = c.begin+n, time.Time{}
		if len(words) > 0 {
			c.answered = true
			c.counts[c.run(words)]++
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
	c.write.renew(c.conn.SetWriteDeadline, c.now, writeFor)
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.server.totals.slow.Add(1)
	}
	return err == nil
}

// idle gives back the memory that a long pipeline took, once it is answered.
func (c *session) idle() {
	if cap(c.out) > idleOut {
		c.out = nil
	}
	if c.begin < c.end {
		return
	}
	if len(c.in) > idleIn {
		c.giveBack()
		c.in = make([]byte, idleIn)
	}
	if cap(c.words) > idleWords {
		c.words = nil
	}
}

// deadline is a connection's deadline for reading or for writing. To set one costs as much as a decision, so it is renewed only when a
// quarter of it has passed: it comes a quarter early at most.
type deadline struct {
	since time.Time
	span  time.Duration
}

func (d *deadline) renew(set func(time.Time) error, now time.Time, span time.Duration) {
	if d.span != span || now.Sub(d.since) > span/4 {
		d.set(set, now, span)
	}
}

// set sets it whatever it was. An error shows when it comes to reading or writing.
func (d *deadline) set(set func(time.Time) error, now time.Time, span time.Duration) {
	_ = set(now.Add(span))
	d.since, d.span = now, span
}
