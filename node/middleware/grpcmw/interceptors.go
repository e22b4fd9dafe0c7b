package grpcmw

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/node/rules"
)

// health is what the methods of the health service begin with: probes are never limited.
const health = "/grpc.health.v1.Health/"

// Options are the settings of New. The zero value is ready to use.
type Options struct {
	// Describe says what a call asks of the rules; FromActions makes such a function. One that names neither a rule nor descriptors passes
	// at once. It is called concurrently. nil: its sender's address (remote_address), its full method (method), and both together (method,
	// then remote_address), each a layer in the domain edge.
	Describe func(ctx context.Context, fullMethod string) rules.Request
	// PerMessage has Stream charge each message that is received, in place of the stream once.
	PerMessage bool
	// Headers are the families of fields in the trailers, as in httpapi.NewHeaders; nil: the default ones.
	Headers []string
	// Logger is told of calls on which the node could not decide; nil: slog.Default.
	Logger *slog.Logger
}

// Interceptors hold the calls of a server against limits. Their methods are what grpc.UnaryInterceptor and grpc.StreamInterceptor, or the
// chains, want. They are safe for concurrent use.
type Interceptors struct {
	limiter httpapi.Limiter
	headers *httpapi.Headers
	opt     Options
}

// New returns interceptors that have l, a node, decide on each call first. A call that a queue delays is handed on when its turn comes; one
// whose deadline is before that ends at once with DeadlineExceeded, though it was charged. One that no rule can be meant for, or on which
// the node cannot decide, is handed on at once, as are those of grpc.health.v1. The error is that of the names in Options.Headers.
func New(l httpapi.Limiter, opt Options) (*Interceptors, error) {
	headers, err := httpapi.NewHeaders(opt.Headers, nil, nil)
	if err != nil {
		return nil, err
	}
	if opt.Describe == nil {
		a, err := actions.New(defaultActions())
		if err != nil {
			return nil, err
		}
		opt.Describe = FromActions(a)
	}
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	return &Interceptors{l, headers, opt}, nil
}

// Unary is a grpc.UnaryServerInterceptor.
func (i *Interceptors) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	said, err := i.pass(ctx, info.FullMethod)
	if len(said) > 0 {
		_ = grpc.SetTrailer(ctx, said) // it fails only outside of a server, where nobody would read it
	}
	if err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// Stream is a grpc.StreamServerInterceptor. With Options.PerMessage opening a stream costs nothing; a message that is denied is the error of
// the handler's RecvMsg, then and ever after: the handler is to return it.
func (i *Interceptors) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if i.opt.PerMessage {
		return handler(srv, &charged{ServerStream: stream, by: i, fullMethod: info.FullMethod})
	}
	said, err := i.pass(stream.Context(), info.FullMethod)
	if len(said) > 0 {
		stream.SetTrailer(said)
	}
	if err != nil {
		return err
	}
	return handler(srv, stream)
}

// charged is a stream of which each received message is charged.
type charged struct {
	grpc.ServerStream
	by         *Interceptors
	fullMethod string
	denied     error
}

// RecvMsg implements grpc.ServerStream. As there, it is not called concurrently.
func (s *charged) RecvMsg(m any) error {
	if s.denied != nil {
		return s.denied
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	said, err := s.by.pass(s.Context(), s.fullMethod)
	if err != nil { // trailers of many messages would add up
		s.SetTrailer(said)
		s.denied = err
	}
	return err
}

// pass has the node decide, and waits for the call's turn. It returns the trailers that say so; the error is how the call is to end.
func (i *Interceptors) pass(ctx context.Context, fullMethod string) (metadata.MD, error) {
	if strings.HasPrefix(fullMethod, health) {
		return nil, nil
	}
	req := i.opt.Describe(ctx, fullMethod)
	if req.Rule == "" && len(req.Descriptors) == 0 {
		return nil, nil
	}
	var room [4]counters.Decision
	layers, err := i.limiter.Decide(ctx, &req, room[:0])
	if err != nil {
		i.opt.Logger.ErrorContext(ctx, "a call passes without a decision", "error", err)
		return nil, nil
	}
	fields := make(http.Header)
	retryAfter := i.headers.Write(fields, layers)
	said := make(metadata.MD, len(fields)+1)
	for name, values := range fields {
		said[strings.ToLower(name)] = values
	}
	v := counters.VerdictOf(layers)
	if !v.Allowed {
		return said, i.deny(&v, layers, retryAfter, said)
	}
	return said, await(ctx, v.Delay)
}

// await waits for a call's turn.
func await(ctx context.Context, delay time.Duration) error {
	if delay == 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < delay {
		return status.Errorf(codes.DeadlineExceeded, "the call's turn comes in %v, which is after its deadline", delay)
	}
	turn := time.NewTimer(delay)
	defer turn.Stop()
	select {
	case <-turn.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
