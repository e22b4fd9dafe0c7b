// Package listen has a node's listeners: each accepts as many connections as its [Limits] allow, tells the other
// clients in the words of its protocol that it is full, and stops without losing a request.
package listen

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
)

// Server serves a listener: net/http's, gRPC's, or that of the Redis protocol.
type Server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
}

// Listener is a listener with limits and its server. The exported fields are set before Start.
type Listener struct {
	Name    string
	Server  Server
	Refusal string        // the answer to clients beyond the limits; empty: none. UseHTTP sets it.
	Panics  func() uint64 // how many requests ended in a panic
	// Protocols are those that TLS clients choose from (ALPN), the preferred one first. UseHTTP sets them.
	Protocols []string
	// ProxyProtocol reports whether the peer at an address, not valid on a Unix socket, begins each connection with a
	// PROXY header, which names its client. Headers of others end their connections, with a line in the log. Nil:
	// nobody may send one.
	ProxyProtocol func(peer netip.Addr) bool

	net.Listener // of the system
	log          *slog.Logger
	done         sync.WaitGroup // Serve

	tls             *tlsFiles // nil: plain text
	accepted        chan accepted
	handshakes      sync.WaitGroup // and acceptAll
	accepting       sync.Once      // starts acceptAll
	handshakeWithin time.Duration
	failures        *handshakeFailures
	open            context.Context // until Close
	closeAll        context.CancelFunc

	failing   atomic.Pointer[acceptFailure] // nil: the last connection was accepted
	refusals  sync.WaitGroup                // clients that are being refused
	refusing  atomic.Int32                  // how many these are
	warningMu sync.Mutex
	warning   limits.OncePerMinute
	unwarned  int // refusals since the last warning

	*limiter

	leaving chan struct{}   // closed when Stop begins
	all     context.Context // ends when no connection is accepted any more, and all that were are counted
	endAll  context.CancelFunc
	inner   func() error   // closes the system's listener, once
	streams *limits.Budget // requests of HTTP/2 under way
	headers *limits.Budget // bytes of requests under way
	resets  limits.Resets  // of HTTP/2
}

// Open listens at the address of a setting, or takes over its socket. Nobody serves it before Start.
func Open(s Setting, limits Limits, log *slog.Logger) (*Listener, error) {
	inner, err := s.Socket, error(nil)
	if inner == nil {
		inner, err = listen(s.Addr)
	}
	if err != nil {
		return nil, s.Explain(err)
	}
	l := &Listener{Name: s.Name, Listener: inner, log: log, limiter: newLimiter(limits), leaving: make(chan struct{}),
		accepted: make(chan accepted), handshakeWithin: handshakeWithin, failures: newHandshakeFailures()}
	l.open, l.closeAll = context.WithCancel(context.Background())
	l.all, l.endAll = context.WithCancel(context.Background())
	l.inner = sync.OnceValue(inner.Close)
	return l, nil
}

// Close implements net.Listener. Connections whose handshake is not over are ended.
func (l *Listener) Close() error {
	l.closeAll()
	return l.inner()
}

// MaxConnections returns how many connections the listener has at a time.
func (l *Listener) MaxConnections() int { return l.limits.Max }

// Leaving is closed when Stop begins.
func (l *Listener) Leaving() <-chan struct{} { return l.leaving }

// Start serves until Stop, and then calls fail with what Serve returned. A nil listener serves nothing.
func (l *Listener) Start(fail func(name string, err error)) {
	if l != nil {
		if l.tls != nil { // no connection has been accepted yet
			l.tls.loaded.Load().config.NextProtos = l.Protocols
		}
		l.done.Go(func() {
			defer l.endAll()
			fail(l.Name, l.Server.Serve(l))
		})
	}
}

// Stop accepts no more connections: they are for who else has the socket, or refused. It serves those that are open for
// at most keepAlive longer while each answer ends its connection: a request that a client has just sent on an idle
// connection is still answered. Those of HTTP that have brought no request yet get the time that a handshake and a
// header may take, up to half of drain, as net/http drops what it reads after Shutdown. Requests in flight then end
// within drain. A nil listener has nothing to stop.
func (l *Listener) Stop(keepAlive, drain time.Duration) {
	if l == nil {
		return
	}
	close(l.leaving)
	_ = l.inner()
	<-l.all.Done()
	l.await(keepAlive, func(open, _ int) bool { return open == 0 })
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if l.http != nil {
		first := l.http.ReadHeaderTimeout
		if l.hasHandshakes() {
			first += l.handshakeWithin
		}
		l.await(min(drain/2, first), func(_, silent int) bool { return silent == 0 })
		l.endSilent()
	}
	if l.Server.Shutdown(ctx) != nil {
		_ = l.Server.Close()
	}
	l.done.Wait()
	l.handshakes.Wait()
	l.refusals.Wait()
}

// Abandon closes a listener that was never started.
func (l *Listener) Abandon() {
	_ = l.Close()
	if l.Server != nil {
		_ = l.Server.Close()
	}
}

// await waits until the connections are as they should be, for at most the given time.
func (l *Listener) await(within time.Duration, holds func(open, silent int) bool) {
	timeout := time.After(within)
	for !holds(l.counts()) {
		select {
		case <-l.fewer:
		case <-timeout:
			return
		}
	}
}
