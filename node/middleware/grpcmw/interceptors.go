// Package grpcmw limits the calls of a Go program's own gRPC server by a node in the same program. It is a package of
// its own so that a program with an HTTP server alone does not build gRPC.
//
// A denied call ends with ResourceExhausted and the details RetryInfo and QuotaFailure; the handler is not called. The
// headers of HTTP (retry-after, ratelimit and so on) are in the trailers, beside grpc-retry-pushback-ms, which says
// when to retry, or that no wait helps: a client with a retry policy for RESOURCE_EXHAUSTED obeys it without an
// interceptor.
//
// Calls that pass have trailers too, no headers: a client retries only a response of trailers alone, and the handler's
// errors are to stay retryable.
package grpcmw

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/text"
)

// healthService is the prefix of the health service's methods: probes are never limited.
const healthService = "/grpc.health.v1.Health/"

// pushback is the trailer that a client's retry policy reads: how long to wait, in milliseconds; a negative number
// means for ever (https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback).
const pushback = "grpc-retry-pushback-ms"

// maxViolations caps the text of violations but for the first, in bytes: many clients take 8 KiB of trailers.
const maxViolations = 2048

// Options are the settings of New. The zero value is ready to use.
type Options struct {
	// Describe returns what a call asks of the rules; FromActions makes such a function. A call with neither a rule nor
	// descriptors passes at once; an error ends the call before the node decides. Describe is called concurrently. Nil:
	// the client's address (remote_address), the full method (method), and both (method, then remote_address), each a
	// layer in the domain edge.
	Describe func(ctx context.Context, fullMethod string) (rules.Request, error)
	// PerMessage has Stream charge each received message instead of the stream once.
	PerMessage bool
	// OnFailure is what happens to calls that the node cannot decide, whatever their rules say, unless Describe sets
	// it. Unset: what these say, and where there is no decision at all a call passes.
	OnFailure rules.Failure
	// Headers names the families of trailers as in answer.NewHeaders.
	Headers []string
	// Logger receives the calls that the node could not decide. Nil means slog.Default().
	Logger *slog.Logger
}

// Interceptors limit the calls of a server. Their methods fit grpc.UnaryInterceptor, grpc.StreamInterceptor and the
// chains. They are safe for concurrent use.
type Interceptors struct {
	limiter answer.Fallback
	headers *answer.Headers
	opt     Options
}

// New returns interceptors that have l, a node, decide on each call first. A call that a queue delays waits for its
// turn; if that is after its deadline it ends at once with DeadlineExceeded, and is not charged there. Calls without
// descriptors and those of grpc.health.v1 pass at once, as does one that the node cannot decide, unless
// Options.OnFailure denies it. The error is about Options.Headers.
func New(l answer.Limiter, opt Options) (*Interceptors, error) {
	headers, err := answer.NewHeaders(opt.Headers, nil, nil)
	if err != nil {
		return nil, err
	}
	if opt.Describe == nil {
		a, _ := actions.New(defaultActions()) // they are valid
		opt.Describe = FromActions(a)
	}
	opt.Logger = cmp.Or(opt.Logger, slog.Default())
	return &Interceptors{answer.Fallback{Limiter: l, Logger: opt.Logger}, headers, opt}, nil
}

// Unary is a grpc.UnaryServerInterceptor.
func (i *Interceptors) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	trailer, err := i.decide(ctx, info.FullMethod)
	_ = grpc.SetTrailer(ctx, trailer) // it fails only outside of a server, where nobody would read it
	if err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// Stream is a grpc.StreamServerInterceptor. With Options.PerMessage opening a stream costs nothing; a denied message is
// the error of this and every later RecvMsg: the handler is to return it.
func (i *Interceptors) Stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	if i.opt.PerMessage {
		return handler(srv, &meteredStream{ServerStream: stream, by: i, fullMethod: info.FullMethod})
	}
	trailer, err := i.decide(stream.Context(), info.FullMethod)
	stream.SetTrailer(trailer)
	if err != nil {
		return err
	}
	return handler(srv, stream)
}

// meteredStream is a stream whose received messages are charged.
type meteredStream struct {
	grpc.ServerStream
	by         *Interceptors
	fullMethod string
	denied     error
}

// RecvMsg implements grpc.ServerStream. As there, it is not called concurrently.
func (s *meteredStream) RecvMsg(m any) error {
	if s.denied != nil {
		return s.denied
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	trailer, err := s.by.decide(s.Context(), s.fullMethod)
	if err != nil { // trailers of many messages would add up
		s.SetTrailer(trailer)
		s.denied = err
	}
	return err
}

// decide has the node decide, and waits for the call's turn. It returns the trailers, and the error that ends the call.
func (i *Interceptors) decide(ctx context.Context, fullMethod string) (metadata.MD, error) {
	if strings.HasPrefix(fullMethod, healthService) {
		return nil, nil
	}
	req, err := i.opt.Describe(ctx, fullMethod)
	if err != nil {
		return nil, err
	}
	if req.Rule == "" && len(req.Descriptors) == 0 {
		return nil, nil
	}
	var room [4]counters.Decision
	req.Header, _ = metadata.FromIncomingContext(ctx)
	req.OnFailure = cmp.Or(req.OnFailure, i.opt.OnFailure)
	layers, pending, err := i.limiter.Begin(ctx, &req, room[:0])
	if err != nil && ctx.Err() != nil { // the client left, or its time was up, while a store was asked
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	fields, retryAfter := i.headers.Append(nil, layers)
	trailer := make(metadata.MD, len(fields)+1)
	for _, f := range fields {
		trailer.Set(f.Name, f.Value)
	}
	v := counters.VerdictOf(layers)
	if !v.Allowed {
		return trailer, i.deny(&v, layers, retryAfter, trailer)
	}
	if pending == nil {
		return trailer, nil
	}
	defer pending.End(ctx, nil, nil) // the responses of calls are not charged
	if at, ok := ctx.Deadline(); ok && time.Until(at) < v.Delay {
		return trailer, status.Errorf(codes.DeadlineExceeded,
			"the call's turn comes in %v, which is after its deadline", text.Duration(v.Delay))
	}
	if _, err := pending.Wait(ctx); err != nil {
		return trailer, status.FromContextError(err).Err()
	}
	return trailer, nil
}

// defaultActions are those of Options without Describe. They trust no proxy.
func defaultActions() actions.Config {
	client := actions.Entry{Key: "remote_address", Source: "client"}
	method := actions.Entry{Key: "method", Source: "path"}
	return actions.Config{
		Domain: "edge", Descriptors: []actions.Descriptor{{client}, {method}, {method, client}},
		PathCase: actions.PathCaseExact, // as methods of gRPC are
	}
}

// FromActions describes a call as the HTTP request that it is: a POST of the peer whose path is the full method, as in
// /shop.Cart/Buy, and whose headers are the metadata. So trusted proxies, metadata and token claims work as for HTTP. A
// call that a denies ends with InvalidArgument. Method names are case-sensitive: actions.PathCaseExact fits.
func FromActions(a *actions.Actions) func(ctx context.Context, fullMethod string) (rules.Request, error) {
	return func(ctx context.Context, fullMethod string) (req rules.Request, err error) {
		r := http.Request{Method: http.MethodPost, URL: &url.URL{Path: fullMethod}, Header: make(http.Header),
			RemoteAddr: "unknown"}
		if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
			r.RemoteAddr = p.Addr.String()
		}
		md, _ := metadata.FromIncomingContext(ctx)
		for name, values := range md {
			switch {
			case name == ":authority" && len(values) == 1:
				r.Host = values[0]
			case !strings.HasPrefix(name, ":"):
				r.Header[http.CanonicalHeaderKey(name)] = values
			}
		}
		if out := a.Describe(&r, &req); out.Denied != "" {
			return req, status.Error(codes.InvalidArgument, out.Detail)
		}
		return req, nil
	}
}

// deny returns the status of a denied call, and adds to its trailer when to retry.
func (i *Interceptors) deny(
	v *counters.Verdict, layers []counters.Decision, retryAfter int64, trailer metadata.MD,
) error {
	details := []protoadapt.MessageV1{violations(layers)}
	again := i.headers.Pushback(v.Governing.RetryAfter)
	trailer.Set(pushback, strconv.FormatInt(again, 10))
	if again >= 0 {
		wait := durationpb.New(time.Duration(again) * time.Millisecond)
		details = append(details, &errdetails.RetryInfo{RetryDelay: wait})
	}
	denial := status.New(codes.ResourceExhausted, answer.Advice(&v.Governing, retryAfter))
	if detailed, err := denial.WithDetails(details...); err == nil { // it fails for a name that is not UTF-8
		denial = detailed
	}
	return denial.Err()
}

// violations names the rules that deny.
func violations(layers []counters.Decision) *errdetails.QuotaFailure {
	var failure errdetails.QuotaFailure
	size := 0
	for _, rule := range answer.Violated(layers) {
		d := &layers[slices.IndexFunc(layers, func(d counters.Decision) bool { return !d.Allowed && d.Rule == rule })]
		text := fmt.Sprintf("it admits %d per %v", d.Limit, text.Duration(d.Window))
		if size += len(rule) + len(text); size > maxViolations && len(failure.Violations) > 0 {
			break
		}
		failure.Violations = append(failure.Violations,
			&errdetails.QuotaFailure_Violation{Subject: "rule:" + rule, Description: text})
	}
	return &failure
}
