package netem

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// pipeSize is the buffer of one direction of a stream in bytes. It is large enough for two ends that both write first,
// as memberlist's do when one of them answers with an error.
const pipeSize = 256 << 10

// conn is one end of a stream in memory: reliable, ordered, bounded, with deadlines and with the delay of its link.
type conn struct {
	in, out     *pipe
	local, peer net.Addr
	// delay draws the one-way delay of a write.
	delay func() time.Duration
	// forget is called when this end closes or is reset, once or more.
	forget func(*conn)
	closed atomic.Bool
	stream *stream
}

// stream is the state that the two ends share.
type stream struct {
	ends  [2]*conn
	alive atomic.Int32
	// ended is called when both ends are closed.
	ended func()
}

// newStream returns a stream between two addresses, the dialer's end first. The caller sets forget and ended.
func newStream(links *Links, dialer, acceptor *net.TCPAddr) *stream {
	forth, back := newPipe(), newPipe()
	s := &stream{}
	s.ends[0] = &conn{in: back, out: forth, local: dialer, peer: acceptor, stream: s}
	s.ends[1] = &conn{in: forth, out: back, local: acceptor, peer: dialer, stream: s}
	for _, c := range s.ends {
		from, to := c.local.String(), c.peer.String()
		c.delay = func() time.Duration { return links.streamDelay(from, to) }
	}
	s.alive.Store(int32(len(s.ends)))
	return s
}

// reset drops buffered bytes and fails both ends with ErrPartitioned.
func (s *stream) reset() {
	for _, c := range s.ends {
		c.in.fail(ErrPartitioned)
		c.forget(c)
	}
}

// close closes both ends.
func (s *stream) close() {
	for _, c := range s.ends {
		_ = c.Close()
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.wrap("read", err)
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b, c.delay())
	return n, c.wrap("write", err)
}

// Close ends both directions of this end. What was written before still arrives, then the peer reads io.EOF.
func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return c.wrap("close", net.ErrClosed)
	}
	c.out.finish(c.delay())
	c.in.abandon()
	c.forget(c)
	if c.stream.alive.Add(-1) == 0 {
		c.stream.ended()
	}
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.peer }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.readBy = t })
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.change(func() { c.out.writeBy = t })
	return nil
}

// wrap returns errors like those of TCP: memberlist takes a net.OpError for a failed peer.
func (c *conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.peer, Err: err}
}

// pipe is one direction of a stream: chunks of bytes, in order, none readable before its own time.
type pipe struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever anything below changes
	chunks  []chunk
	queued  int // bytes in chunks
	// finished: the writer closed, an end mark is queued. abandoned: the reader closed. broken: a partition came.
	finished, abandoned bool
	broken              error
	readBy, writeBy     time.Time
}

// chunk is a piece of a stream; without bytes it is the end mark.
type chunk struct {
	due   time.Time
	bytes []byte
}

func newPipe() *pipe { return &pipe{changed: make(chan struct{})} }

func (l *pipe) read(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.abandoned:
			return 0, net.ErrClosed
		case l.broken != nil:
			return 0, l.broken
		case passed(l.readBy):
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		}
		until := l.readBy
		if len(l.chunks) > 0 {
			head := &l.chunks[0]
			if passed(head.due) {
				return l.take(b, head)
			}
			until = earlier(until, head.due)
		}
		l.await(until)
	}
}

// take reads from the chunk at the head, which is due. The end mark stays where it is, so that every later read returns
// io.EOF.
func (l *pipe) take(b []byte, head *chunk) (int, error) {
	if len(head.bytes) == 0 {
		return 0, io.EOF
	}
	n := copy(b, head.bytes)
	head.bytes = head.bytes[n:]
	if len(head.bytes) == 0 {
		l.chunks = l.chunks[1:]
	}
	l.queued -= n
	l.announce()
	return n, nil
}

func (l *pipe) write(b []byte, delay time.Duration) (written int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.finished:
			return written, net.ErrClosed
		case l.broken != nil:
			return written, l.broken
		case passed(l.writeBy):
			return written, os.ErrDeadlineExceeded
		case l.abandoned:
			return written, io.ErrClosedPipe
		case len(b) == 0:
			return written, nil
		}
		n := min(len(b), pipeSize-l.queued)
		if n == 0 {
			l.await(l.writeBy)
			continue
		}
		l.push(append([]byte(nil), b[:n]...), delay)
		written, b = written+n, b[n:]
	}
}

// finish queues the end mark behind what was written.
func (l *pipe) finish(delay time.Duration) {
	l.change(func() {
		l.finished = true
		l.push(nil, delay)
	})
}

// push queues a chunk. It waits for those before it even if jitter makes it due earlier. It needs the lock.
func (l *pipe) push(b []byte, delay time.Duration) {
	l.chunks = append(l.chunks, chunk{due: time.Now().Add(delay), bytes: b})
	l.queued += len(b)
	l.announce()
}

// abandon is the reader's close: it drops what is queued and fails later writes.
func (l *pipe) abandon() { l.change(func() { l.abandoned, l.chunks, l.queued = true, nil, 0 }) }

// fail makes every later read and write return err.
func (l *pipe) fail(err error) { l.change(func() { l.broken, l.chunks, l.queued = err, nil, 0 }) }

// change makes a change and wakes all waiters.
func (l *pipe) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.announce()
}

// announce wakes all waiters. It needs the lock.
func (l *pipe) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// await releases the lock until something changes or until the time; the zero time never comes.
func (l *pipe) await(until time.Time) {
	changed := l.changed
	l.mu.Unlock()
	defer l.mu.Lock()
	if until.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

// passed and earlier take the zero time for never.
func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
