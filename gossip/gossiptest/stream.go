package gossiptest

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// laneSize is how many bytes one direction of a stream holds before its writer waits for its reader. Two ends that both
// write first, as memberlist's do when one of them answers with an error, must find room for what they say.
const laneSize = 256 << 10

// conn is one end of a stream in memory: reliable, ordered, bounded, with deadlines, and every byte as late as its link is
// long. Safe for concurrent use, as net.Conn asks.
type conn struct {
	in, out     *lane
	local, peer net.Addr
	// delay draws the one-way latency of what is written here.
	delay func() time.Duration
	// forget is told when this end closes or is severed; more than once is harmless.
	forget func(*conn)
	closed atomic.Bool
	stream *stream
}

// stream is what the two ends share.
type stream struct {
	ends  [2]*conn
	alive atomic.Int32
	// ended is told when both ends are closed.
	ended func()
}

// newStream returns a stream whose ends, dialler first, belong to the addresses given. The caller fills in forget and ended.
func newStream(links *Links, dialler, acceptor *net.TCPAddr) *stream {
	there, back := newLane(), newLane()
	s := &stream{}
	s.ends[0] = &conn{in: back, out: there, local: dialler, peer: acceptor, stream: s}
	s.ends[1] = &conn{in: there, out: back, local: acceptor, peer: dialler, stream: s}
	for _, c := range s.ends {
		from, to := c.local.String(), c.peer.String()
		c.delay = func() time.Duration { return links.streamDelay(from, to) }
	}
	s.alive.Store(int32(len(s.ends)))
	return s
}

// sever breaks the stream at once: what is under way is gone, both ends fail with ErrCut.
func (s *stream) sever() {
	for _, c := range s.ends {
		c.in.fail(ErrCut)
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
	c.in.setReadDeadline(t)
	c.out.setWriteDeadline(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setWriteDeadline(t)
	return nil
}

// wrap makes errors look like those of TCP, because memberlist looks into a net.OpError to tell a failed peer.
func (c *conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.peer, Err: err}
}

// lane is one direction of a stream: chunks of bytes, in order, none readable before its own time.
type lane struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever anything below changes
	chunks  []chunk
	queued  int // bytes in chunks
	// finished: the writer closed, an end mark is queued. abandoned: the reader closed. broken: the link was cut.
	finished, abandoned bool
	broken              error
	readBy, writeBy     time.Time
}

// chunk is a piece of a stream; without bytes it is the end mark.
type chunk struct {
	due   time.Time
	bytes []byte
}

func newLane() *lane {
	return &lane{changed: make(chan struct{})}
}

func (l *lane) read(b []byte) (int, error) {
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

// take reads from the chunk at the head, which is due. The end mark stays where it is, so that every later read meets it.
func (l *lane) take(b []byte, head *chunk) (int, error) {
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

func (l *lane) write(b []byte, delay time.Duration) (written int, err error) {
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
		n := min(len(b), laneSize-l.queued)
		if n == 0 {
			l.await(l.writeBy)
			continue
		}
		l.push(append([]byte(nil), b[:n]...), delay)
		written, b = written+n, b[n:]
	}
}

// finish queues the end mark behind what was written.
func (l *lane) finish(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished = true
	l.push(nil, delay)
}

// push queues a chunk. One that jitter makes due before those ahead of it waits for them: readers look at the head only.
func (l *lane) push(b []byte, delay time.Duration) {
	l.chunks = append(l.chunks, chunk{due: time.Now().Add(delay), bytes: b})
	l.queued += len(b)
	l.announce()
}

// abandon is the reader's close: nothing queued will be read, nothing more will be accepted.
func (l *lane) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abandoned = true
	l.chunks, l.queued = nil, 0
	l.announce()
}

// fail makes every read and write from now on end in err.
func (l *lane) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = err
	l.chunks, l.queued = nil, 0
	l.announce()
}

func (l *lane) setReadDeadline(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readBy = t
	l.announce()
}

func (l *lane) setWriteDeadline(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writeBy = t
	l.announce()
}

// announce wakes everybody who waits on the lane. It needs the lock.
func (l *lane) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// await gives the lock up until something changes or the time has come; the zero time never comes.
func (l *lane) await(until time.Time) {
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

// passed and earlier read the zero time as never.
func passed(t time.Time) bool {
	return !t.IsZero() && !time.Now().Before(t)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
