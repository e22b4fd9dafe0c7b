package proxy

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"

	"golang.org/x/net/http/httpguts"
)

// Options are what the proxy shares with the other APIs of its node.
type Options struct {
	// Requests are the descriptors of requests that no route matches.
	Requests actions.Config
	// OnFailure is what happens to requests that the limiter cannot decide, on routes without a word of their own.
	OnFailure rules.Failure
	// Headers names the families of response headers as in answer.NewHeaders.
	Headers []string
	// Connections is how many connections to upstreams are open at a time. 0 means DefaultConnections.
	Connections int
	// Budgets has the budget of these connections. Nil: it is neither exported nor logged.
	Budgets *limits.Budgets
	// Logger receives what clients are not shown. Nil means slog.Default().
	Logger *slog.Logger
}

// DefaultConnections is how many connections to upstreams are open unless Options say otherwise.
const DefaultConnections = 20_000

// Proxy forwards requests to its upstreams, those that its limiter admits. It is an http.Handler, safe for concurrent
// use. Run has to run as well: it checks the upstreams and writes the access log.
type Proxy struct {
	limiter   answer.Fallback
	cfg       Config
	log       *slog.Logger
	headers   *answer.Headers
	requests  *actions.Actions
	routes    []route // the last is for the requests that no other one matches
	upstreams []*upstream
	// connections are those to upstreams that serve a request, or are dialed for one. Others are idle.
	connections *limits.Budget

	page     []byte // DenialPage; nil: none
	pageType string
	access   *accessLog // nil: none

	exchanges sync.Pool // of *exchange
	turn      atomic.Uint64
	hints     limits.OncePerMinute

	tunnels    sync.WaitGroup // WebSockets
	tunnelsMu  sync.Mutex
	stopping   bool // no more are added; tunnelsMu is held to read and to set it
	endTunnels context.CancelFunc
	ending     context.Context // ends all WebSockets

	retries, panics atomic.Uint64
	open            atomic.Int64 // WebSockets
	classes         [6]atomic.Uint64
}

// New returns the proxy of a valid configuration. The error is about its files. The caller calls Close.
func New(l answer.Limiter, cfg Config, opt Options) (*Proxy, error) {
	if err := cfg.Validate(opt.Requests); err != nil {
		return nil, err
	}
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	headers, err := answer.NewHeaders(opt.Headers, nil, nil)
	if err != nil {
		return nil, err
	}
	p := &Proxy{limiter: answer.Fallback{Limiter: l, OnFailure: opt.OnFailure, Logger: opt.Logger}, cfg: cfg,
		log: opt.Logger, headers: headers}
	most := cmp.Or(opt.Connections, DefaultConnections)
	p.connections = opt.Budgets.New("proxy", "upstream_connections", int64(max(1, most-most/idleShare)))
	p.upstreams = newUpstreams(cfg.Upstreams, cfg.Timeouts, p.connections, max(1, most/idleShare))
	if err := p.compile(&cfg, opt.Requests); err != nil {
		return nil, err
	}
	p.exchanges.New = p.newExchange
	p.ending, p.endTunnels = context.WithCancel(context.Background())
	if cfg.DenialPage != "" {
		if p.page, err = os.ReadFile(cfg.DenialPage); err != nil {
			return nil, fmt.Errorf("denial_page: %w", err)
		}
		if p.pageType = mime.TypeByExtension(filepath.Ext(cfg.DenialPage)); p.pageType == "" {
			return nil,
				fmt.Errorf("denial_page: %s: its extension gives no content type: use one such as .html or .json",
					cfg.DenialPage)
		}
	}
	if cfg.AccessLog.File != "" {
		if p.access, err = openAccessLog(cfg.AccessLog, opt.Logger); err != nil {
			return nil, fmt.Errorf("access_log: %w", err)
		}
	}
	return p, nil
}

// compile sets the routes.
func (p *Proxy) compile(cfg *Config, requests actions.Config) error {
	for _, r := range append(cfg.Routes[:len(cfg.Routes):len(cfg.Routes)], Route{}) {
		made, err := r.compile(requests)
		if err != nil {
			return err
		}
		p.routes = append(p.routes, made)
	}
	p.requests = p.routes[len(p.routes)-1].actions
	return nil
}

// exchange is one request and its response. It is used again for others.
type exchange struct {
	http.ResponseWriter // of the client
	proxy               *Proxy
	reverse             httputil.ReverseProxy // calls the exchange's own methods
	got                 func(httptrace.GotConnInfo)

	admission
	target   string     // as it is forwarded
	trusted  bool       // the peer is a trusted proxy
	source   netip.Addr // of the client, as budgets know it
	upgrade  bool       // the request is for a WebSocket
	grpc     bool       // it is a call of gRPC
	http2    bool       // the client's
	expects  bool       // the client waits for 100 before it sends the body
	body     *clientBody
	upstream *upstream
	conn     *upstreamConn // to it; nil: none yet
	status   int           // of the response; 0: none yet
	informed atomic.Bool   // the client got an informational response
	failed   int           // the status that HTTP has for what a call of gRPC was answered; 0: the proxy answered none
	sent     int64         // bytes of the response's body
	unread   bool          // the client does not take them
	length   int64         // of the upstream's response; -1: unknown
	closing  []string      // Connection of the response, while informational ones go before it
	hijacked func() bool   // ends what closes the connection; nil: it is net/http's
}

func (p *Proxy) newExchange() any {
	x := &exchange{proxy: p}
	x.got = x.gotConn
	x.reverse = httputil.ReverseProxy{
		Rewrite: x.rewrite, Transport: x, ModifyResponse: x.modify, ErrorHandler: x.fail,
		// it flushes bodies of unknown length; see Write
		BufferPool: &buffers, ErrorLog: log.New(io.Discard, "", 0), // see exchange.fail and ServeHTTP
	}
	return x
}

// buffers are those through which bodies are copied.
var buffers bufferPool

type bufferPool struct{ sync.Pool }

const bufferSize = 32 << 10

func (b *bufferPool) Get() []byte {
	if buffer, ok := b.Pool.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferSize)
}

func (b *bufferPool) Put(buffer []byte) { b.Pool.Put((*[bufferSize]byte)(buffer)) }

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// Hijack implements http.Hijacker, for WebSockets. Shutdown closes the connection, as its client may read nothing.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err == nil {
		x.hijacked = context.AfterFunc(x.proxy.ending, func() { _ = conn.Close() })
	}
	return conn, rw, err
}

// WriteHeader implements http.ResponseWriter. It keeps Connection for the last response, as httputil.ReverseProxy
// clears all fields after informational ones.
func (x *exchange) WriteHeader(status int) {
	h := x.Header()
	if status < 200 && status != http.StatusSwitchingProtocols {
		x.inform(h, status)
		return
	}
	x.status = status
	if x.closing != nil {
		h["Connection"] = x.closing
	}
	x.ResponseWriter.WriteHeader(status)
}

// inform writes an informational response. A transport calls it while the request is under way.
func (x *exchange) inform(h http.Header, status int) {
	if x.informed.Store(true); h["Connection"] != nil {
		x.closing = h["Connection"]
		delete(h, "Connection")
	}
	if status == http.StatusContinue && x.expects {
		return // the server sends it when the body is read, perhaps at this moment: once is enough
	}
	if x.http2 {
		return // net/http may still read the fields when httputil.ReverseProxy clears them
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. It flushes each part of a body but the last, which the server flushes with its
// end: a response in one part is one write.
func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(b)
	if x.sent += int64(n); x.sent < x.length && err == nil {
		err = http.NewResponseController(x.ResponseWriter).Flush() // the rest may take its time
	}
	x.unread = x.unread || err != nil
	return n, err
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	x := p.exchanges.Get().(*exchange)
	x.ResponseWriter = w
	defer func() {
		failure := recover()
		x.leaveConn()
		x.chargeEnd(r, began)
		p.record(x, r, began)
		if failure == nil { // otherwise something may still use the exchange
			*x = exchange{proxy: p, reverse: x.reverse, got: x.got, admission: x.reset()}
			p.exchanges.Put(x)
			return
		}
		switch {
		case failure != http.ErrAbortHandler:
			p.panics.Add(1)
			p.log.Error("panic in a proxied request; its connection is closed", "path", r.URL.Path, "panic", failure,
				"stack", string(debug.Stack()))
		case x.status >= 200 && !x.gone(r):
			p.fails(x.upstream, r.Context(), errBroken)
		}
		panic(http.ErrAbortHandler)
	}()
	x.serve(r)
}

var errBroken = errors.New("its response breaks off")

var closing = []string{"close"}

func (x *exchange) serve(r *http.Request) {
	p := x.proxy
	x.grpc, x.http2, x.expects = isGRPC(r), r.ProtoMajor == 2, r.Header["Expect"] != nil
	x.source = limits.SourceOfContext(r.Context())
	target := *r.URL
	switch x.target = targetOf(r); {
	case r.Method == http.MethodConnect:
		x.refuse(http.StatusMethodNotAllowed, "this proxy opens no tunnels")
		return
	case x.target == "" || !setTarget(&target, x.target):
		x.refuse(http.StatusBadRequest, "the target of the request cannot be forwarded as it is: send a path")
		return
	case !httpguts.ValidHostHeader(r.Host): // net/http would forward another one
		x.refuse(http.StatusBadRequest, "the host of the request cannot be forwarded as it is: send it in ASCII")
		return
	case p.cfg.MaxBodyBytes > 0 && r.ContentLength > p.cfg.MaxBodyBytes:
		x.refuse(http.StatusRequestEntityTooLarge, tooLarge(p.cfg.MaxBodyBytes))
		return
	}
	dropNamed(r.Header)
	_, x.trusted = p.requests.Client(r)
	if !x.admit(r) {
		return
	}
	if r.ContentLength != 0 {
		x.body = x.bodyOf(r)
		defer x.body.Close()
	}
	if len(x.pending) > 0 {
		x.wait(r)
	}
	if x.upgrade = onlyWebSocket(r); x.upgrade {
		p.serveTunnel(x, r)
		return
	}
	x.reverse.ServeHTTP(x, r)
}

// serveTunnel forwards a request for a WebSocket, which Shutdown ends.
func (p *Proxy) serveTunnel(x *exchange, r *http.Request) {
	if !p.addTunnel() {
		x.refuse(http.StatusServiceUnavailable, "this proxy stops: try again")
		return
	}
	p.open.Add(1)
	defer func() {
		if x.hijacked != nil {
			x.hijacked()
		}
		p.open.Add(-1)
		p.tunnels.Done()
	}()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.ending, cancel)()
	delete(x.Header(), "Connection") // a listener that stops ends it by Shutdown
	x.reverse.ServeHTTP(x, r.WithContext(ctx))
}

// addTunnel counts a WebSocket, unless Shutdown waits for them already.
func (p *Proxy) addTunnel() bool {
	p.tunnelsMu.Lock()
	defer p.tunnelsMu.Unlock()
	if p.stopping {
		return false
	}
	p.tunnels.Add(1)
	return true
}

// modify makes the response that the client gets, of that of the upstream.
func (x *exchange) modify(resp *http.Response) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if !x.upgrade {
			return errors.New("it switches to another protocol, which nobody asked for")
		}
		x.status = resp.StatusCode
	}
	if x.length = resp.ContentLength; x.length > 0 && resp.ProtoMajor > 1 {
		x.length = math.MaxInt64 // HTTP/2 does not end a body with its last byte
	}
	if len(resp.Trailer) > 0 && resp.Request.ProtoMajor == 1 && resp.Request.Method != http.MethodHead {
		delete(resp.Header, "Content-Length") // HTTP/1.1 has trailers in chunked bodies only
	}
	x.chargeHeader(resp.Request, resp)
	x.addHeaders(resp.Header)
	return nil
}

// refuse answers with a problem document.
func (x *exchange) refuse(status int, detail string) {
	x.headersOf(x.Header())
	x.answer(answer.NewProblem(status, detail))
}

func tooLarge(most int64) string {
	return fmt.Sprintf("the request's body is larger than %d bytes", most)
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

// fail answers where there is no response to forward. The log says why, see Proxy.fails.
func (x *exchange) fail(_ http.ResponseWriter, r *http.Request, err error) {
	if x.upgrade && x.status == http.StatusSwitchingProtocols { // the connection is no longer net/http's
		return
	}
	switch {
	case isTooLarge(err):
		x.refuse(http.StatusRequestEntityTooLarge, tooLarge(x.proxy.cfg.MaxBodyBytes))
	case x.gone(r):
		panic(http.ErrAbortHandler) // nobody reads it
	case x.body.unreadable():
		x.Header()["Connection"] = closing
		x.refuse(http.StatusBadRequest, "the body of the request is malformed")
	case errors.Is(err, errNoConnection):
		x.Header().Set("Retry-After", "1")
		x.refuse(http.StatusServiceUnavailable, "this proxy has as many connections to the servers behind it as it "+
			"may, or your requests have their share of them: try again in a second")
	case isTimeout(err):
		x.refuse(http.StatusGatewayTimeout, "the server behind this proxy did not answer in time: try again later")
	default:
		x.refuse(http.StatusBadGateway, "the server behind this proxy could not be reached: try again later")
	}
}

// Close writes the last lines of the access log, after Run and all requests have ended.
func (p *Proxy) Close() {
	if p.access != nil {
		p.access.Close()
	}
}

// Server serves a listener. Its Shutdown also waits for WebSockets.
type Server struct {
	*http.Server
	proxy *Proxy
}

// Server returns the server of the proxy's listener: HTTP/1.1, HTTP/2, and HTTP/2 without TLS.
func (p *Proxy) Server() *Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &Server{&http.Server{
		Handler: p, Protocols: protocols, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: p.cfg.Timeouts.Header, IdleTimeout: p.cfg.Timeouts.Idle,
		MaxHeaderBytes: p.cfg.MaxHeaderBytes,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second,
			MaxConcurrentStreams: 100},
		ErrorLog: limits.ServerLog(p.log),
	}, p}
}

// Shutdown waits until all requests and WebSockets have ended. With ctx it ends the WebSockets.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.Server.Shutdown(ctx)
	s.proxy.tunnelsMu.Lock()
	s.proxy.stopping = true
	s.proxy.tunnelsMu.Unlock()
	if answer.Within(ctx, s.proxy.tunnels.Wait) != nil {
		s.proxy.endTunnels()
		s.proxy.tunnels.Wait()
	}
	return err
}

// Close ends all connections.
func (s *Server) Close() error {
	s.proxy.endTunnels()
	return s.Server.Close()
}
