package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
)

// upstream is a server that requests are forwarded to. It is safe for concurrent use.
type upstream struct {
	name      string // as it is configured
	scheme    string // http or https
	host      string // with its port
	transport transport

	down    atomic.Bool  // by its health checks
	avoided atomic.Int64 // Unix nanoseconds: it refused a connection, and gets no request until then
	warning limits.OncePerMinute

	requests, connects, timeouts, broken atomic.Uint64
}

// transport is an *http.Transport.
type transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

// idleUpstream is how long connections to upstreams stay open without a request: shorter than the 5 s after which Node
// closes its own, as a request that meets the close is lost unless it may be repeated.
const idleUpstream = 4 * time.Second

// maxResponseHeader is the maximum size of a response's header in bytes.
const maxResponseHeader = 1 << 20

// newTransport returns a transport for upstreams whose URL has the scheme, whose idle connections are so many at most.
func newTransport(scheme string, t Timeouts, budget *limits.Budget, idle int) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(scheme != "h2c")
	protocols.SetHTTP2(scheme == "https")
	protocols.SetUnencryptedHTTP2(scheme == "h2c")
	return &http.Transport{
		DialContext: dialCounted(&net.Dialer{Timeout: t.Connect}, budget), TLSHandshakeTimeout: t.Connect,
		Protocols: protocols, ResponseHeaderTimeout: t.FirstByte, ExpectContinueTimeout: time.Second,
		IdleConnTimeout: idleUpstream, MaxIdleConns: idle, MaxIdleConnsPerHost: min(idle, 1024),
		DisableCompression: true, MaxResponseHeaderBytes: maxResponseHeader,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// newUpstreams returns the upstreams of valid addresses. Those of one scheme share a transport. All together have so
// many idle connections at most; the budget has the others.
func newUpstreams(addresses []string, t Timeouts, budget *limits.Budget, idle int) (all []*upstream) {
	transports := make(map[string]*http.Transport)
	for _, text := range addresses {
		u, _ := parseUpstream(text) // it is valid
		transports[u.Scheme] = nil
	}
	for scheme := range transports {
		transports[scheme] = newTransport(scheme, t, budget, max(1, idle/len(transports)))
	}
	for _, text := range addresses {
		u, _ := parseUpstream(text)
		up := &upstream{name: text, scheme: u.Scheme, host: u.Host, transport: transports[u.Scheme]}
		if up.scheme == "h2c" {
			up.scheme = "http"
		}
		all = append(all, up)
	}
	return all
}

// up reports whether the upstream may get requests now.
func (u *upstream) up(now time.Time) bool {
	return !u.down.Load() && now.UnixNano() >= u.avoided.Load()
}

// choose returns the next upstream in turn that was not tried; one that is up, if there is. It returns nil if all were
// tried.
func (p *Proxy) choose(tried []*upstream) *upstream {
	if len(p.upstreams) == 1 && len(tried) == 0 {
		return p.upstreams[0]
	}
	turn, now := p.turn.Add(1), time.Now()
	var last *upstream
	for i := range p.upstreams {
		u := p.upstreams[(turn+uint64(i))%uint64(len(p.upstreams))]
		if slices.Contains(tried, u) {
			continue
		}
		if u.up(now) {
			return u
		}
		if last == nil {
			last = u
		}
	}
	return last
}

// RoundTrip implements http.RoundTripper: it sends the request to an upstream, and after a failure to others, if it may
// be repeated.
func (x *exchange) RoundTrip(out *http.Request) (*http.Response, error) {
	p := x.proxy
	if why := p.connections.Room(x.source, 1); why != "" { // also for one that is idle
		p.connections.Refuse(x.source, why)
		return nil, errNoConnection
	}
	if trace := httptrace.ContextClientTrace(out.Context()); trace != nil { // httputil's, of this request
		trace.GotConn = x.got
	}
	if x.body != nil {
		out = out.WithContext(out.Context())
		out.Body = x.body // in place of one whose Close does nothing
	}
	var room [4]*upstream
	tried := room[:0]
	for {
		u := p.choose(tried)
		tried, x.upstream = append(tried, u), u
		out.URL.Scheme, out.URL.Host = u.scheme, u.host
		u.requests.Add(1)
		resp, err := u.transport.RoundTrip(out)
		if err == nil {
			return resp, nil
		}
		if errors.Is(err, errNoConnection) {
			return nil, err
		}
		if !x.gone(out) && !x.body.unreadable() { // else it is the client's doing
			p.fails(u, out.Context(), err)
		}
		if len(tried) > p.cfg.Retries || len(tried) == len(p.upstreams) || !x.repeatable(out, err) {
			return nil, err
		}
		p.retries.Add(1)
		again, target := *out, *out.URL // the transport may still read the one that failed
		again.URL = &target
		out = &again
	}
}

// repeatable reports whether a request that failed may be sent to another upstream: it does the same twice, nothing of
// it is lost, and the client has seen nothing of a response. An upstream that is too slow is no reason: the others have
// enough to do.
func (x *exchange) repeatable(out *http.Request, err error) bool {
	switch out.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return out.Body == nil && !x.informed.Load() && out.Context().Err() == nil &&
			(isConnect(err) || !isTimeout(err))
	}
	return false
}

func isConnect(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// fails counts a request without a response. An upstream that cannot be reached is avoided for a while.
func (p *Proxy) fails(u *upstream, ctx context.Context, err error) {
	now, hint := time.Now(), "it accepted the request and closed the connection, or answered no HTTP: see its log"
	switch {
	case isConnect(err):
		u.connects.Add(1)
		u.avoided.Store(now.Add(p.cfg.Health.Interval).UnixNano())
		hint = "no connection: check that it runs, listens at this address, and can be reached from here"
	case isTimeout(err):
		u.timeouts.Add(1)
		hint = "no response in time: see what keeps it busy, or raise proxy.timeouts.first_byte"
	default:
		u.broken.Add(1)
	}
	if u.warning.Due(now) {
		p.log.LogAttrs(ctx, slog.LevelWarn, "an upstream fails; its clients get 502 or 504 where no other one helps",
			slog.String("upstream", u.name), slog.Any("error", err), slog.String("hint", hint))
	}
}

// Run checks the upstreams, if there is something to ask them, and writes the access log, until ctx ends.
func (p *Proxy) Run(ctx context.Context) {
	var parts sync.WaitGroup
	if p.cfg.Health.Path != "" {
		for _, u := range p.upstreams {
			parts.Go(func() { p.watch(ctx, u) })
		}
	}
	if p.access != nil {
		parts.Go(func() { p.access.Run(ctx, nil) })
	}
	parts.Wait()
	for _, u := range p.upstreams {
		u.transport.CloseIdleConnections()
	}
}

// watch asks an upstream for its health until ctx ends.
func (p *Proxy) watch(ctx context.Context, u *upstream) {
	h := &p.cfg.Health
	ticker := time.NewTicker(h.Interval)
	defer ticker.Stop()
	for inARow := 0; ; {
		err := u.check(ctx, h)
		if ctx.Err() != nil {
			return
		}
		down, needed := u.down.Load(), h.Unhealthy
		if down {
			needed = h.Healthy
		}
		if inARow++; (err == nil) != down {
			inARow = 0
		}
		if inARow == needed {
			inARow = 0
			u.down.Store(!down)
			if down {
				u.avoided.Store(0)
				p.log.Info("an upstream is up again", "upstream", u.name)
			} else {
				p.log.Warn("an upstream is down: it gets no requests unless all are", "upstream", u.name, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// check asks the upstream once. The error says why it is not up.
func (u *upstream) check(ctx context.Context, h *Health) error {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	target, _ := url.ParseRequestURI(h.Path) // it is valid
	target.Scheme, target.Host = u.scheme, u.host
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	resp, err := u.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return errors.New("it answers " + resp.Status)
	}
	return nil
}
