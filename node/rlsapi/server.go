package rlsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
)

const (
	// maxMessage caps a request, in bytes. Envoy copies headers into descriptors, and takes up to 60 KiB of them from a
	// client by default: four layers of a header as long as that still get a response. A longer request gets an error,
	// which a fail-open Envoy lets pass.
	maxMessage = 256 << 10

	// maxHeader caps the header of a request, in bytes, as gRPC advises. maxHeaders caps those of all requests under
	// way that are longer than freeHeader.
	maxHeader  = 8 << 10
	maxHeaders = 64 << 20
	freeHeader = 1 << 10

	// A connection that takes no responses keeps them until maxAge, and for ageGrace more. Envoy reconnects in time.
	maxAge   = 30 * time.Minute
	ageGrace = 10 * time.Second

	// maxBidiStreams caps concurrent streams on which clients go on sending, as those of reflection; each ends after
	// bidiTimeout.
	maxBidiStreams = 64
	bidiTimeout    = 10 * time.Second
)

// DefaultIdleTimeout ends a connection without requests unless ServerOptions say otherwise.
const DefaultIdleTimeout = 5 * time.Minute

// ServerOptions are a server's settings. The zero value is ready to use.
type ServerOptions struct {
	// Leaving, once closed, turns the health to NOT_SERVING; requests are answered as before. Nil: never.
	Leaving <-chan struct{}
	// IdleTimeout ends a connection without requests. 0 means DefaultIdleTimeout.
	IdleTimeout time.Duration
}

// Server serves a Service by gRPC, and beside it grpc.health.v1 and reflection. NewServer makes it; its methods are
// safe for concurrent use.
type Server struct {
	grpc        *grpc.Server
	log         *slog.Logger
	endWatches  context.CancelFunc // of the health
	arrivals    *arrivals
	budgets     *limits.Budgets
	bidiStreams *limits.Budget
	headers     *limits.Budget
	panics      atomic.Uint64
}

// NewServer returns a server of s. Serve or Close has to be called.
func NewServer(s *Service, opt ServerOptions) *Server {
	running, end := context.WithCancel(context.Background())
	server := &Server{log: s.log, endWatches: end, budgets: s.budgets,
		arrivals:    newArrivals(s.budgets.New("grpc", "arrivals", maxArriving)),
		headers:     s.budgets.New("grpc", "headers", maxHeaders),
		bidiStreams: s.budgets.New("grpc", "bidi_streams", maxBidiStreams)}
	server.grpc = grpc.NewServer(
		grpc.Creds(newListenerCredentials(s.budgets)),
		grpc.MaxConcurrentStreams(256), // of a connection
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.ConnectionTimeout(5*time.Second), // for the handshake
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: cmp.Or(opt.IdleTimeout, DefaultIdleTimeout),
			MaxConnectionAge:  maxAge, MaxConnectionAgeGrace: ageGrace,
			Time: time.Minute, Timeout: 20 * time.Second, // pings after a minute without traffic
		}),
		grpc.KeepaliveEnforcementPolicy(
			keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}), // pings of clients
		// Windows are fixed, so that they do not grow with what a client is able to send.
		grpc.StaticStreamWindowSize(maxMessage),
		grpc.StaticConnWindowSize(1<<20),
		grpc.InTapHandle(server.begin),
		// Goroutines that serve requests one after the other. A new one for each request would grow its stack each
		// time, an eighth of the time of a request; where all are busy there is a new one.
		grpc.NumStreamWorkers(64),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.UnaryInterceptor(server.unary),
		grpc.StreamInterceptor(server.stream),
	)
	rls.RegisterRateLimitServiceServer(server.grpc, s)
	grpc_health_v1.RegisterHealthServer(server.grpc, &health{leaving: opt.Leaving,
		ended: running.Done(), names: healthNames(s.healthName), budgets: s.budgets,
		watches: s.budgets.New("grpc", "watches", maxWatches)})
	reflection.Register(server.grpc)
	return server
}

// begin is called once the header of a request has come.
func (s *Server) begin(ctx context.Context, info *tap.Info) (context.Context, error) {
	source := holderOf(ctx, s.budgets)
	if n := limits.HeaderBytes(info.Header); n > freeHeader {
		if s.headers.Take(source, n) != "" {
			return ctx, status.Error(codes.ResourceExhausted, "too many requests with long headers are under way")
		}
		context.AfterFunc(ctx, func() { s.headers.Give(source, n) }) // ctx ends with the request
	}
	return s.arrivals.begin(ctx, source), nil
}

// Arrivals returns the totals of requests that did not arrive completely.
func (s *Server) Arrivals() ArrivalStats {
	s.arrivals.mu.Lock()
	defer s.arrivals.mu.Unlock()
	return s.arrivals.stats
}

// Incomplete returns how many requests were dropped before they had arrived completely: late ones took too long,
// dropped ones made room for newer ones.
func (s *Server) Incomplete() (late, dropped uint64) {
	a := s.Arrivals()
	return a.Late, a.Dropped
}

// Panics returns how many requests ended in a panic.
func (s *Server) Panics() uint64 { return s.panics.Load() }

// Serve accepts connections until Shutdown or Close, and returns nil then. It may be called once.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Shutdown accepts no more connections, sends clients elsewhere, answers the requests that have come, and waits for
// that, but no longer than ctx: its error says that some are left, which Close ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.endWatches()
	return answer.Within(ctx, s.grpc.GracefulStop)
}

// Close ends everything at once.
func (s *Server) Close() error {
	s.endWatches()
	s.grpc.Stop()
	return nil
}

// unary wraps each request with one message, which has arrived.
func (s *Server) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (resp any, err error) {
	complete(ctx)
	defer s.recoverInto(ctx, info.FullMethod, &err)
	return handler(ctx, req)
}

// stream wraps each request with a stream: a watch of the health, whose message is still to come, or reflection.
func (s *Server) stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) (err error) {
	ctx := stream.Context()
	defer s.recoverInto(ctx, info.FullMethod, &err)
	if info.IsClientStream {
		source := holderOf(ctx, s.budgets)
		if s.bidiStreams.Take(source, 1) != "" {
			return status.Error(codes.ResourceExhausted, "no more streams of this kind are kept for this source")
		}
		defer s.bidiStreams.Give(source, 1)
		if a, ok := complete(ctx); ok {
			defer time.AfterFunc(bidiTimeout, a.cancel).Stop()
		}
	}
	return handler(srv, stream)
}

// holderOf returns the source of a call, as budgets know it.
func holderOf(ctx context.Context, budgets *limits.Budgets) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return netip.Addr{}
	}
	return budgets.SourceAt(p.Addr)
}

// recoverInto turns a panic into INTERNAL. It has to be deferred.
func (s *Server) recoverInto(ctx context.Context, method string, err *error) {
	p := recover()
	if p == nil {
		return
	}
	s.panics.Add(1)
	s.log.LogAttrs(ctx, slog.LevelError, "panic in a gRPC request; its client gets INTERNAL",
		slog.String("method", method), slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
	*err = status.Error(codes.Internal, "the node failed to answer: see its log")
}
