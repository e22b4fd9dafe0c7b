package rlsapi

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/tap"
)

// What clients may take.
const (
	maxStreams = 256      // requests at a time, of a connection
	maxMessage = 64 << 10 // bytes of a request
	maxHeaders = 16 << 10 // bytes of a request's headers

	askAfter  = time.Minute      // of silence a client is asked whether it is still there
	answerIn  = 20 * time.Second // and has to say so
	greetIn   = 5 * time.Second  // from connecting to being ready for requests
	pingEvery = 10 * time.Second // how often clients may ask whether the server is there
	hangFor   = 10 * time.Second // from the headers of a request to its answer

	soon       = time.Second // a deadline that is no further away needs none of the server's
	maxHanging = 1 << 10     // requests of all connections that have no such deadline

	// A connection that takes no answers keeps them: until it is this old, and so much longer. Envoy opens another one in time.
	oldAge = 30 * time.Minute
)

// DefaultIdleTimeout is how long a connection may be without any request unless ServerOptions say otherwise.
const DefaultIdleTimeout = 5 * time.Minute

// ServerOptions are a server's settings. The zero value is ready to use.
type ServerOptions struct {
	// Leaving, once it is closed, has whoever watches the health be told NOT_SERVING; requests are answered as before. Nil: never.
	Leaving <-chan struct{}
	// IdleTimeout is how long a connection may be without any request. 0 means DefaultIdleTimeout.
	IdleTimeout time.Duration
}

// Server serves a Service by gRPC, and beside it grpc.health.v1 and reflection. NewServer makes it; its methods may be called from anywhere.
type Server struct {
	grpc   *grpc.Server
	health *health
	stop   sync.Once

	hanging     atomic.Int64 // requests without a deadline that is soon
	mostHanging int64
}

// streamWorkers is how many goroutines serve one request after the other. A new one for each would have to grow its stack each time, which
// is an eighth of the time that a request takes; where all are at work there is a new one.
const streamWorkers = 64

// NewServer returns a server of s. Serve or Close has to be called.
func NewServer(s *Service, opt ServerOptions) *Server {
	server := &Server{health: newHealth(opt.Leaving), mostHanging: maxHanging}
	server.grpc = grpc.NewServer(
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeaders), grpc.ConnectionTimeout(greetIn),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: cmp.Or(opt.IdleTimeout, DefaultIdleTimeout), Time: askAfter, Timeout: answerIn,
			MaxConnectionAge: oldAge, MaxConnectionAgeGrace: hangFor}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery, PermitWithoutStream: true}),
		grpc.InTapHandle(server.admit), grpc.NumStreamWorkers(streamWorkers),
	)
	rls.RegisterRateLimitServiceServer(server.grpc, s)
	grpc_health_v1.RegisterHealthServer(server.grpc, server.health)
	reflection.Register(server.grpc)
	return server
}

// admit bounds how many requests may hang, and for how long, whose clients send no end of them. Envoy says how long it waits, some
// milliseconds: there is nothing to do then. A watch is to last, from when its request is there.
func (s *Server) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	watch := info.FullMethodName == grpc_health_v1.Health_Watch_FullMethodName
	if end, ok := ctx.Deadline(); ok && !watch && time.Until(end) <= soon {
		return ctx, nil
	}
	if s.hanging.Add(1) > s.mostHanging {
		s.hanging.Add(-1)
		// An error would leave the timer of the request's own deadline running: it is too late for it instead.
		late, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
		cancel()
		return late, nil
	}
	release := sync.OnceFunc(func() { s.hanging.Add(-1) })
	if watch {
		return untilBegun(ctx, release), nil
	}
	bounded, cancel := context.WithTimeout(ctx, hangFor)
	context.AfterFunc(ctx, func() { // as the request has ended
		cancel()
		release()
	})
	return bounded, nil
}

// untilBegun is the context of a watch that ends unless it begins in time. It is released when it has begun or ended.
func untilBegun(ctx context.Context, release func()) context.Context {
	bounded, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(hangFor, cancel)
	begun := func() {
		timer.Stop()
		release()
	}
	context.AfterFunc(ctx, func() { // as the watch has ended
		begun()
		cancel()
	})
	return context.WithValue(bounded, begunKey{}, begun)
}

// begunKey is where the context of a watch has the func to be called when it begins.
type begunKey struct{}

// Serve accepts connections until Shutdown or Close, and returns nil then. It may be called once.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Shutdown accepts no more connections, tells clients to ask elsewhere, answers the requests that have come, and waits for that, but no
// longer than ctx: its error says that some are left, which Close ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(s.health.end)
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends everything at once.
func (s *Server) Close() error {
	s.stop.Do(s.health.end)
	s.grpc.Stop()
	return nil
}
