package listen

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
)

const (
	// probeIdle is the longest time that a connection may be idle at a listener that evicts: probes and scrapes that
	// come later open another one.
	probeIdle = 5 * time.Second
	// MaxStreams caps requests of HTTP/2 that are under way. Those of HTTP/1.1 are as many as connections at most.
	MaxStreams = 10_000
	// maxHeaders caps the headers of requests under way, in bytes; those of up to freeHeader do not count.
	maxHeaders = 64 << 20
	freeHeader = 4 << 10
	// atOnce is how soon the client of a request of HTTP/2 resets it for that to count as a reset: a longer one, as a
	// download, ends so as well.
	atOnce = time.Second
)

// UseHTTP sets an HTTP server. Its idle connections end after the given time; 0: after the server's own.
func (l *Listener) UseHTTP(s *http.Server, idle time.Duration) {
	s.IdleTimeout = cmp.Or(idle, s.IdleTimeout)
	if l.limits.Evict {
		s.IdleTimeout = min(s.IdleTimeout, probeIdle)
	}
	s.ConnState = trackState
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return limits.WithSource(ctx, limitedOf(conn))
	}
	l.streams = l.limits.Budgets.New(l.Name, "streams", MaxStreams)
	l.headers = l.limits.Budgets.New(l.Name, "headers", maxHeaders)
	l.resets = limits.NewResets(l.limits.Budgets, l.Name)
	l.http = s
	s.Handler = l.guard(s.Handler)
	l.Server, l.Protocols, l.Refusal = s, []string{"h2", "http/1.1"}, full()
}

// guard does for all HTTP APIs what concerns connections: it refuses a request of HTTP/2 for which its source has no
// stream left, and one whose long header finds no room; it closes connections that reset too many; and it ends the
// connections that ends names with their answers.
func (l *Listener) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := limits.SourceIn(r.Context()).(*limitedConn)
		source, r := l.identifyRequest(conn, r)
		if r.ProtoMajor == 2 && conn != nil && conn.source == source { // else the proxy in front bounds its clients
			defer l.countReset(conn, r.Context(), time.Now())
			if r.Context().Err() != nil {
				return
			}
		}
		if l.ends(r) {
			w.Header().Set("Connection", "close")
		}
		if r.ProtoMajor == 2 {
			if l.streams.Take(source, 1) != "" {
				refuseRequest(w, "too many requests are under way: try again")
				return
			}
			defer l.streams.Give(source, 1)
		}
		if n := limits.HeaderBytes(r.Header) + int64(len(r.RequestURI)); n > freeHeader {
			if l.headers.Take(source, n) != "" {
				refuseRequest(w, "too many requests with long headers are under way: try again, or send a shorter one")
				return
			}
			defer l.headers.Give(source, n)
		}
		h.ServeHTTP(w, r)
	})
}

// countReset counts the end of a request of HTTP/2 that has not come through a proxy: an answer, or a reset. It closes
// the connection that resets more than it may: net/http sends no GOAWAY that ends one at once.
func (l *Listener) countReset(conn *limitedConn, ctx context.Context, began time.Time) {
	if ctx.Err() == nil {
		conn.resets.Answered()
	} else if time.Since(began) < atOnce && !l.resets.Reset(&conn.resets, conn.source) {
		_ = conn.Close()
	}
}

// refuseRequest answers a request for which a budget has no room.
func refuseRequest(w http.ResponseWriter, detail string) {
	w.Header().Set("Retry-After", "1")
	answer.NewProblem(http.StatusServiceUnavailable, detail).Write(w)
}

// identifyRequest returns the source of a request, and the request with it: its connection's or, where that has none,
// that of the client whom a trusted proxy names.
func (l *Listener) identifyRequest(c *limitedConn, r *http.Request) (netip.Addr, *http.Request) {
	source := c.Source()
	if c != nil {
		c.speak()
	}
	if source.IsValid() || l.limits.Behind == nil {
		return source, r
	}
	if source = l.limits.Budgets.Source(l.limits.Behind(r)); source.IsValid() {
		r = r.WithContext(limits.WithSource(r.Context(), limits.From(source)))
	}
	return source, r
}

// ends reports whether the answer to a request ends its connection: once Stop has begun, so that the client opens the
// next one elsewhere; at a listener that evicts, while more than half of the connections are in use; and where proxies
// may have seen the request end elsewhere (RFC 9112, section 6.1): a chunked one may have had a Content-Length as well,
// which net/http does not show.
func (l *Listener) ends(r *http.Request) bool {
	return l.isLeaving() || r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 ||
		l.limits.Evict && l.Stats().Open > l.limits.Max/2
}

// isLeaving reports whether Stop has begun.
func (l *Listener) isLeaving() bool {
	select {
	case <-l.leaving:
		return true
	default:
		return false
	}
}

// full returns the whole response to connections beyond the limits.
func full() string {
	p := answer.NewProblem(http.StatusServiceUnavailable,
		"the node has as many connections as it may: try again in a second, or another node")
	body := p.JSON()
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nRetry-After: 1\r\n"+
		"Connection: close\r\n\r\n%s", p.Status, p.Title, answer.ProblemType, len(body), body)
}
