package proxy

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// clientBody is the body of a request as a transport reads it. It remembers whether it could not be read, which is no
// fault of the upstream's. Close ends a Read that waits for the client: transports wait for it where the upstream ends
// its response, or fails, before the request has ended, as gRPC servers do.
type clientBody struct {
	io.Reader
	end func()          // ends a Read under way
	ctx context.Context // of the request

	mu              sync.Mutex
	reading, closed bool
	cut, failed     bool   // a Read was ended by Close; or it failed otherwise
	ahead           *ahead // nil: nothing was read ahead, or all of that has been read
}

// ahead is what was read of a body while its request waited for its turn. net/http notices that a client of HTTP/1.1
// has gone only while its connection is read.
type ahead struct {
	ended chan struct{} // closed once no more is read ahead

	mu    sync.Mutex
	data  []byte
	err   error
	taken bool // the body is wanted: no more is to be read ahead
}

// maxAhead is how much of a body is read ahead. A client that has sent more, and goes, is noticed at its turn.
const maxAhead = 16 << 10

// readAhead reads the beginning of a body of a length. If that fails, net/http ends the request's context.
func (b *clientBody) readAhead(length int64) {
	a := &ahead{ended: make(chan struct{})}
	b.ahead = a
	go func() {
		defer close(a.ended)
		part := make([]byte, min(length, maxAhead/4))
		for more := true; more; {
			n, err := b.read(part)
			a.mu.Lock()
			a.data, a.err = append(a.data, part[:n]...), err
			more = err == nil && !a.taken && len(a.data) < maxAhead
			a.mu.Unlock()
		}
	}()
}

// read returns what was read ahead. more is set if that is all, and the rest has to be read.
func (a *ahead) read(p []byte) (n int, more bool, err error) {
	a.mu.Lock()
	a.taken = true
	if len(a.data) == 0 {
		a.mu.Unlock()
		<-a.ended
		a.mu.Lock()
	}
	defer a.mu.Unlock()
	if n = copy(p, a.data); n > 0 {
		a.data = a.data[n:]
		return n, false, nil
	}
	return 0, a.err == nil, a.err
}

// bodyOf returns the body of the request as a transport is to read it.
func (x *exchange) bodyOf(r *http.Request) *clientBody {
	b := &clientBody{Reader: r.Body, ctx: r.Context(), end: func() { _ = r.Body.Close() }}
	if r.ProtoMajor == 1 { // Close would read what is left, or wait for the Read
		c := http.NewResponseController(x.ResponseWriter)
		_ = c.EnableFullDuplex() // so that a response may begin before the request ends
		b.end = func() { _ = c.SetReadDeadline(time.Now()) }
	}
	if most := x.proxy.cfg.MaxBodyBytes; most > 0 {
		b.Reader = http.MaxBytesReader(x.ResponseWriter, r.Body, most)
	}
	return b
}

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	if b.ahead != nil && len(p) > 0 {
		n, more, err := b.ahead.read(p)
		if !more {
			return n, err
		}
		b.ahead = nil
	}
	return b.read(p)
}

// read reads from the client.
func (b *clientBody) read(p []byte) (int, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	b.reading = true
	b.mu.Unlock()
	n, err := b.Reader.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	switch {
	case err == nil || err == io.EOF:
	case b.closed:
		err = http.ErrBodyReadAfterClose // rather than a deadline's error
	default:
		b.failed = true
	}
	return n, err
}

// Close implements io.Closer.
func (b *clientBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && b.reading {
		b.cut = b.ctx.Err() == nil // else the client has left
		b.end()
	}
	b.closed = true
	return nil
}

// unreadable reports whether the body could not be read. A nil body is fine.
func (b *clientBody) unreadable() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// gone reports whether the client of a failed request has gone. Where a Read was ended the request's context has ended
// as well, as net/http takes that for the client's end.
func (x *exchange) gone(r *http.Request) bool {
	cut := false
	if b := x.body; b != nil {
		b.mu.Lock()
		cut = b.cut
		b.mu.Unlock()
	}
	return x.unread || r.Context().Err() != nil && !cut
}
