package listen

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
)

const (
	// maxProbes is how many connections a listener for probes, metrics or operators has at a time.
	maxProbes = 128
	// spareFiles are the file descriptors left for probes, refusals, gossip, the store and rules.
	spareFiles = 512
	// sourceShare: by default one source may have 1/sourceShare of a listener's connections.
	sourceShare = 4
	// maxSample is how many connections are searched for an idle one: the longest idle of a sample goes, as in Redis'
	// eviction of keys.
	maxSample = 64
	// A connection that is idle for so long may be closed in favor of a new one. An HTTP server reports when a request
	// ends; of other protocols only bytes are seen, and none of their requests takes longer.
	evictHTTPAfter  = 5 * time.Second
	evictOtherAfter = 15 * time.Second
)

// Limits bound how many connections a listener has at a time.
type Limits struct {
	Max       int
	PerSource int                   // of one source, see limits.SourceOf
	Exempt    func(netip.Addr) bool // sources without a limit of their own; nil: none
	Budgets   *limits.Budgets       // has the listener's budgets; nil: they are neither exported nor logged
	// Behind returns the client whom a trusted proxy names in a request, for the budgets of HTTP; not valid: none does.
	// Nil: no proxy is trusted.
	Behind func(*http.Request) netip.Addr
	// Evict admits every new connection: at the limit it closes one of the source that has the most, exempt sources
	// taken together: the one that is idle for the longest time, or else the oldest. So a flood evicts itself, and not
	// a probe that comes from elsewhere. Without Evict a new connection takes the place of one that is idle for
	// IdleAfter, of its own source where that has its share, or is refused.
	Evict     bool
	IdleAfter time.Duration
}

// ProbeLimits are those of a listener for probes, metrics or operators: idle connections keep nobody out.
func ProbeLimits() Limits {
	return Limits{Max: maxProbes, PerSource: maxProbes / sourceShare, Evict: true, Exempt: netip.Addr.IsLoopback}
}

// ClientLimits are those of a listener for clients. maxConns is cut to one of equal shares of the file descriptors;
// perSource 0 means a quarter.
func ClientLimits(name string, maxConns, perSource, shares int, exempt func(netip.Addr) bool,
	log *slog.Logger) Limits {
	l := Limits{Max: ShareOfFiles(shares, maxConns), PerSource: perSource, Exempt: exempt,
		IdleAfter: evictOtherAfter}
	if l.Max < maxConns {
		log.Info("a listener has fewer connections than max_connections, for want of file descriptors: see ulimit -n",
			"door", name, "connections", l.Max, "max_connections", maxConns)
	}
	if perSource == 0 {
		l.PerSource = max(1, l.Max/sourceShare)
	}
	if name == "http" || name == "proxy" {
		l.IdleAfter = evictHTTPAfter
	}
	return l
}

// ShareOfFiles returns how many of the wanted connections there may be in one of equal shares of the file descriptors.
func ShareOfFiles(shares, wanted int) int { return shareOf(maxFiles(), shares, wanted) }

// shareOf is ShareOfFiles where the process may have so many files open: at least 1, and at most
// max(files - spareFiles, files/4) / shares.
func shareOf(files, shares, wanted int) int {
	return max(1, min(wanted, max(files-spareFiles, files/4)/max(1, shares)))
}

// refusal is why a connection was refused, as logs name it.
type refusal string

const (
	admitted      refusal = "evicted" // another one was closed for it, if the log names it
	listenerFull  refusal = "full"    // the listener has Limits.Max connections
	sourceAtShare refusal = "source"  // the client's source has Limits.PerSource
)

// Stats are the open connections, and totals since the listener was opened.
type Stats struct {
	Open                       int
	Accepted, Evicted          uint64
	RefusedFull, RefusedSource uint64 // because the listener, or the client's source, had as many as it may
}

// limiter keeps a listener's connections within its limits. Its memory is bounded by the open connections: a source
// without one is forgotten.
type limiter struct {
	limits Limits
	began  time.Time
	http   *http.Server  // the server says what requests come, as it speaks HTTP; nil: another protocol
	fewer  chan struct{} // receives when counts has become less

	mu      sync.Mutex
	stats   Stats
	conns   map[*limitedConn]bool
	sources map[netip.Addr]int
	exempt  int // connections of exempt sources
	silent  int // connections of HTTP that have brought no request yet
}

func newLimiter(limits Limits) *limiter {
	return &limiter{limits: limits, began: time.Now(), fewer: make(chan struct{}, 1),
		conns: make(map[*limitedConn]bool), sources: make(map[netip.Addr]int)}
}

// Stats returns the listener's statistics.
func (l *limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// clientOf returns the address of a connection's client; not valid on a Unix socket.
func clientOf(conn net.Conn) netip.Addr {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// sourceOf returns whose share a client's connection counts in; not valid: nobody's.
func (l *limiter) sourceOf(client netip.Addr) netip.Addr {
	if l.limits.Exempt != nil && l.limits.Exempt(client) {
		return netip.Addr{}
	}
	return limits.SourceOf(client)
}

// admit counts a connection or returns why it is refused. The caller closes the evicted connection, if there is one;
// it is no longer counted. A forwarded connection counts in nobody's share until identify.
func (l *limiter) admit(conn net.Conn, forwarded bool) (c, evicted *limitedConn, why refusal) {
	why = admitted
	c = &limitedConn{Conn: conn, limiter: l, forwarded: forwarded}
	if !forwarded {
		c.source = l.sourceOf(clientOf(conn))
	}
	c.opened = c.touch()
	c.silent = l.http != nil
	c.busy.Store(l.limits.Evict) // until it has had an answer
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.source.IsValid() && l.sources[c.source] >= l.limits.PerSource:
		evicted, why = l.yielding(c.source), sourceAtShare
	case l.stats.Open >= l.limits.Max && l.limits.Evict:
		most := l.largestShare()
		evicted = l.evictable(func(source netip.Addr) bool { return l.share(source) == most })
	case l.stats.Open >= l.limits.Max:
		evicted, why = l.replaceable(netip.Addr{}), listenerFull
	// nearly full: idle connections are closed earlier
	case l.stats.Open > l.limits.Max-l.limits.Max/8 && !l.limits.Evict:
		evicted = l.replaceable(netip.Addr{})
	}
	switch {
	case evicted != nil:
		l.evict(evicted)
	case why == listenerFull:
		l.stats.RefusedFull++
		return nil, nil, why
	case why == sourceAtShare:
		l.stats.RefusedSource++
		return nil, nil, why
	}
	l.add(c)
	return c, evicted, admitted
}

// identify counts a forwarded connection in the share of its client, if the PROXY header named one. Where that has no
// room it returns the connection that the caller closes for it, or why there is none, and counts this one no more.
func (l *limiter) identify(c *limitedConn) (evicted *limitedConn, why refusal) {
	if c.client == nil {
		return nil, admitted
	}
	source := l.sourceOf(clientOf(c))
	l.mu.Lock()
	defer l.mu.Unlock()
	if !source.IsValid() || !l.conns[c] { // exempt, or evicted meanwhile
		return nil, admitted
	}
	if l.sources[source] >= l.limits.PerSource {
		if evicted = l.yielding(source); evicted == nil {
			l.remove(c)
			l.stats.RefusedSource++
			return nil, sourceAtShare
		}
		l.evict(evicted)
	}
	c.source = source
	l.sources[source]++
	l.exempt--
	return evicted, admitted
}

// yielding returns the connection that a source at its share gives up for a new one; nil: none. The lock is held.
func (l *limiter) yielding(source netip.Addr) *limitedConn {
	if l.limits.Evict {
		return l.evictable(func(other netip.Addr) bool { return other == source })
	}
	return l.replaceable(source)
}

// replaceable returns a connection of a source, or of any if that is not valid, that is idle for Limits.IdleAfter; nil
// if a sample has none. The lock is held.
func (l *limiter) replaceable(of netip.Addr) (found *limitedConn) {
	now, seen := int64(time.Since(l.began)), 0
	longest := int64(l.limits.IdleAfter) - 1
	for c := range l.conns { // in a random order
		if seen++; seen > maxSample {
			break
		}
		if of.IsValid() && c.source != of {
			continue
		}
		if idle := now - c.active.Load(); !c.busy.Load() && idle > longest {
			found, longest = c, idle
		}
	}
	return found
}

// evictable returns the connection of some sources that is idle for the longest time, or else their oldest; nil if they
// have none. The lock is held.
func (l *limiter) evictable(of func(source netip.Addr) bool) *limitedConn {
	var oldest, idle *limitedConn
	for c := range l.conns {
		if !of(c.source) {
			continue
		}
		if !c.busy.Load() && (idle == nil || c.active.Load() < idle.active.Load()) {
			idle = c
		}
		if oldest == nil || c.opened < oldest.opened {
			oldest = c
		}
	}
	if idle != nil {
		return idle
	}
	return oldest
}

// share returns how many connections a source has; the exempt ones are one source. The lock is held.
func (l *limiter) share(source netip.Addr) int {
	if source.IsValid() {
		return l.sources[source]
	}
	return l.exempt
}

// largestShare returns how many connections the source has that has the most. The lock is held.
func (l *limiter) largestShare() int {
	most := l.exempt
	for _, n := range l.sources {
		most = max(most, n)
	}
	return most
}

// add counts a connection. The lock is held.
func (l *limiter) add(c *limitedConn) {
	l.conns[c] = true
	if c.source.IsValid() {
		l.sources[c.source]++
	} else {
		l.exempt++
	}
	if c.silent {
		l.silent++
	}
	l.stats.Open++
	l.stats.Accepted++
}

// remove stops counting a connection, however often it is called. The lock is held.
func (l *limiter) remove(c *limitedConn) {
	if !l.conns[c] {
		return
	}
	delete(l.conns, c)
	if c.source.IsValid() {
		if l.sources[c.source]--; l.sources[c.source] == 0 {
			delete(l.sources, c.source)
		}
	} else {
		l.exempt--
	}
	if c.silent {
		l.silent--
	}
	l.stats.Open--
	l.tell()
}

// evict stops counting a connection that the caller closes in favor of another one. The lock is held.
func (l *limiter) evict(c *limitedConn) {
	l.remove(c)
	l.stats.Evicted++
}

// tell wakes who waits for fewer connections.
func (l *limiter) tell() {
	select {
	case l.fewer <- struct{}{}:
	default:
	}
}

// counts returns how many connections are open, and how many of them have brought no request of HTTP yet.
func (l *limiter) counts() (open, silent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats.Open, l.silent
}

// endSilent ends the connections that have brought nothing of HTTP yet, or part of a header.
func (l *limiter) endSilent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if c.silent && !c.busy.Load() {
			_ = c.Conn.Close()
		}
	}
}

// limitedConn is a connection that its limiter counts.
type limitedConn struct {
	net.Conn
	limiter *limiter
	source  netip.Addr   // not valid: exempt from Limits.PerSource
	opened  int64        // nanoseconds after limiter.began
	active  atomic.Int64 // nanoseconds after limiter.began of the last byte read, or of the end of the last request
	busy    atomic.Bool  // a request is under way, as far as the server reports it
	spoke   atomic.Bool  // speak was called
	silent  bool         // counts in limiter.silent; limiter.mu is held to read and to set it
	resets  limits.ResetsOf

	asked  time.Time     // when the server began to wait for the first byte; zero: it does not
	header time.Duration // how long it would have waited for the first header
	began  time.Time     // when that byte came

	forwarded bool     // a PROXY header names the client
	client    net.Addr // that it named; nil: none
	early     []byte   // was read with the header
	unlisted  func()   // is called if the first bytes are a PROXY header; nil: one is expected, or they have come
}

// RemoteAddr implements net.Conn. It is the client's address, if a PROXY header named it.
func (c *limitedConn) RemoteAddr() net.Addr {
	if c.client != nil {
		return c.client
	}
	return c.Conn.RemoteAddr()
}

// Source implements limits.Sourced. It is the zero source of a nil connection, which no limiter counts.
func (c *limitedConn) Source() netip.Addr {
	if c == nil {
		return netip.Addr{}
	}
	return c.source
}

// touch marks the connection as active now.
func (c *limitedConn) touch() (now int64) {
	now = int64(time.Since(c.limiter.began))
	c.active.Store(now)
	return now
}

// speak notes that the connection's first request has reached its handler.
func (c *limitedConn) speak() {
	if c.spoke.Swap(true) {
		return
	}
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.silent && l.conns[c] {
		l.silent--
		l.tell()
	}
	c.silent = false
}

// SetReadDeadline implements net.Conn. For the first request net/http counts a client's time from the beginning of the
// connection. But a client may have dialed it ahead, as Go's does if another one becomes free first, and cannot repeat
// a request that crosses its end. So until its first byte it is idle like one between two requests, and the time for
// the request counts from that byte. Bytes that came with the end of a TLS handshake are seen once they are a header.
func (c *limitedConn) SetReadDeadline(t time.Time) error {
	s := c.limiter.http
	switch {
	case s == nil || s.IdleTimeout <= 0 || c.spoke.Load():
	case t.Before(c.limiter.began): // no deadline, or an end of all reading
		if !c.asked.IsZero() { // else others may read it
			c.asked = time.Time{}
		}
	case !c.asked.IsZero(): // nothing was read for the header: TLS had it
		c.began, c.asked = time.Now(), time.Time{}
	case c.began.IsZero():
		c.asked = time.Now()
		c.header = t.Sub(c.asked)
		t = c.asked.Add(s.IdleTimeout)
	case t.Before(c.began.Add(s.ReadTimeout)):
		t = c.began.Add(s.ReadTimeout)
	}
	return c.Conn.SetReadDeadline(t)
}

// Read implements net.Conn.
func (c *limitedConn) Read(b []byte) (n int, err error) {
	if len(c.early) > 0 {
		n = copy(b, c.early)
		c.early = c.early[n:]
	} else {
		n, err = c.Conn.Read(b)
	}
	if n == 0 {
		return n, err
	}
	c.touch()
	if !c.asked.IsZero() {
		c.began, c.asked = time.Now(), time.Time{}
		_ = c.Conn.SetReadDeadline(c.began.Add(c.header))
	}
	if unlisted := c.unlisted; unlisted != nil {
		c.unlisted = nil
		if isHeader(b[:n]) {
			unlisted()
			return 0, errUntrustedHeader
		}
	}
	return n, err
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.limiter.remove(c)
	return err
}

// CloseWrite ends the sending side. Servers use it so that clients can read their last answer.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// trackState is an http.Server's ConnState: a connection is idle while the server waits for its next request. At a
// listener that evicts a new one is not: its client has had no time to send a request yet.
func trackState(conn net.Conn, state http.ConnState) {
	if c := limitedOf(conn); c != nil {
		c.touch()
		if state != http.StateNew {
			c.busy.Store(state != http.StateIdle)
		}
		if state == http.StateIdle { // of HTTP/2 from the start: its Shutdown drops nothing
			c.speak()
		}
	}
}

// limitedOf returns the connection behind one that a server has; nil: it is another one.
func limitedOf(conn net.Conn) *limitedConn {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, _ := conn.(*limitedConn)
	return c
}
