package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/edgelimit/edgelimit/node/limits"
)

// idleShare is the part of the connections to upstreams that may be open without a request: 1/idleShare.
const idleShare = 4

// errNoConnection means that the budget of connections has no room for another one.
var errNoConnection = errors.New("the budget of connections to upstreams has no room")

// upstreamConn is a connection to an upstream.
//
// It counts in the share of the source whose request it serves, or was opened for; in nobody's while it is idle. Where
// it serves several (HTTP/2), it is the source of the first.
//
// Once it cannot be read it closes the body of its request: a transport of HTTP/1 waits for a Read of it before it
// returns an error, and the client may wait for the response before it sends more.
type upstreamConn struct {
	net.Conn
	budget *limits.Budget
	body   atomic.Pointer[clientBody] // of the last request that has one

	mu     sync.Mutex // guards all below
	held   bool       // counts in the budget
	holder netip.Addr // in whose share
	last   netip.Addr // the source of the last request
	users  int        // requests under way
	closed bool
}

// dialCounted dials for the request of a context, as far as the budget allows. Health checks may overdraw it.
func dialCounted(dialer *net.Dialer, budget *limits.Budget) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		source := netip.Addr{}
		if from := limits.SourceIn(ctx); from == nil {
			budget.Overdraw(source, 1)
		} else if source = from.Source(); budget.Take(source, 1) != "" {
			return nil, errNoConnection
		}
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			budget.Give(source, 1)
			return nil, err
		}
		return &upstreamConn{Conn: conn, budget: budget, held: true, holder: source}, nil
	}
}

// begin counts a request of a source that the connection serves.
func (c *upstreamConn) begin(source netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
	c.last = source
	if c.users == 1 && !c.closed {
		c.hold(source)
	}
}

// end ends a request of a source. A transport may have given the connection to the next request before.
func (c *upstreamConn) end(source netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.users--; {
	case c.users == 0:
		c.free()
	case c.held && c.holder == source:
		c.hold(c.last)
	}
}

// hold has the connection count in the share of a source. The lock is held.
func (c *upstreamConn) hold(source netip.Addr) {
	if c.held && c.holder == source {
		return
	}
	c.free()
	c.held, c.holder = true, source
	c.budget.Overdraw(source, 1) // see exchange.RoundTrip
}

// free has the connection count in nobody's share. The lock is held.
func (c *upstreamConn) free() {
	if c.held {
		c.held = false
		c.budget.Give(c.holder, 1)
	}
}

// Close implements net.Conn.
func (c *upstreamConn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.free()
	return err
}

// Read implements net.Conn.
func (c *upstreamConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		if body := c.body.Load(); body != nil {
			_ = body.Close()
		}
	}
	return n, err
}

// gotConn notes the connection that a transport uses for the exchange.
func (x *exchange) gotConn(info httptrace.GotConnInfo) {
	conn := info.Conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, ok := conn.(*upstreamConn)
	if !ok {
		return
	}
	x.leaveConn()
	c.begin(x.source)
	if x.conn = c; x.body != nil {
		c.body.Store(x.body)
	}
}

// leaveConn ends the use of the connection, if there is one.
func (x *exchange) leaveConn() {
	if x.conn != nil {
		x.conn.end(x.source)
		x.conn = nil
	}
}
