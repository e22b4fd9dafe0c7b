package rlsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Limiter decides; it is all that the service needs of a node. It is called concurrently.
type Limiter interface {
	// HasDomain reports whether any rule is in that domain.
	HasDomain(name string) bool
	// DecideMet appends one Decision per descriptor of the request to layers, in order, and after them those of parents that elastic rules
	// bring along. The request is allowed if and only if all of them are. It writes to met the rules of the first len(met) layers, nil where
	// there is none. req is only valid during the call. Errors are those of httpapi.Limiter.
	DecideMet(ctx context.Context, req *rules.Request, layers []counters.Decision, met []*rules.Rule) ([]counters.Decision, error)
}

// Options are the service's settings. The zero value is ready to use.
type Options struct {
	// Headers names the families of response_headers_to_add, as those of the HTTP door. Empty means httpapi.DefaultHeaders. Names that it
	// does not know are a caller's bug.
	Headers []string
	// Algorithm is that of limits which requests bring. The zero value means SlidingWindow.
	Algorithm counters.Algorithm
	// Learn is called with all limits that requests bring and the service keeps, as by limits.NewKeeper. Nil: nobody wants to know.
	Learn func([]*counters.Limit)
	// Logger receives the errors that clients are not shown. Nil means slog.Default().
	Logger *slog.Logger
	// Now is the wall clock from which reset times are told as Unix time. Nil means time.Now.
	Now func() time.Time
	// Jitter returns numbers in [0, 1) that spread the clients' retries. It is called concurrently. Nil means math/rand/v2.
	Jitter func() float64
}

// Service answers ShouldRateLimit. It is safe for concurrent use.
type Service struct {
	rls.UnimplementedRateLimitServiceServer

	limiter   Limiter
	headers   *httpapi.Headers
	overrides *limits.Keeper[override]
	now       func() time.Time
	log       *slog.Logger
	totals    totals
}

// totals count requests by their outcome.
type totals struct{ ok, over, invalid, failed atomic.Uint64 }

// Stats are totals since the service was made, but for Overrides, which is of now.
type Stats struct {
	OK, OverLimit uint64 // requests by their overall code
	Invalid       uint64 // requests that made no sense
	Failed        uint64 // requests that found no answer: too late, too many limits of their own, or the node's own fault
	Overrides     int    // limits that requests brought and that are kept
}

// New returns a service that asks l. It panics if the headers' names are wrong.
func New(l Limiter, opt Options) *Service {
	headers, err := httpapi.NewHeaders(opt.Headers, opt.Now, opt.Jitter)
	if err != nil {
		panic(err)
	}
	s := &Service{limiter: l, headers: headers, log: cmp.Or(opt.Logger, slog.Default()), now: opt.Now}
	if s.now == nil {
		s.now = time.Now
	}
	opt.Algorithm = cmp.Or(opt.Algorithm, counters.SlidingWindow)
	s.overrides = limits.NewKeeper(MaxOverrides, func(o override) (*counters.Limit, error) { return o.limit(opt.Algorithm) }, opt.Learn)
	return s
}

// Stats returns the totals.
func (s *Service) Stats() Stats {
	t := &s.totals
	return Stats{OK: t.ok.Load(), OverLimit: t.over.Load(), Invalid: t.invalid.Load(), Failed: t.failed.Load(), Overrides: s.overrides.Len()}
}

// ShouldRateLimit implements the service. Its errors are INVALID_ARGUMENT for a request that makes no sense, RESOURCE_EXHAUSTED where
// requests bring more different limits than are kept, DEADLINE_EXCEEDED, CANCELLED, and INTERNAL for what is the node's own fault.
func (s *Service) ShouldRateLimit(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	answer, err := s.answer(ctx, req)
	if err != nil {
		return nil, s.statusOf(ctx, err)
	}
	return answer, nil
}

// JSON answers a request in protobuf's JSON in the same way, for the HTTP door (httpapi.Envoy).
func (s *Service) JSON(ctx context.Context, body []byte) (answer []byte, allowed bool, err error) {
	var req rls.RateLimitRequest
	if err := protojson.Unmarshal(body, &req); err != nil {
		s.totals.invalid.Add(1)
		return nil, false, invalid("no RateLimitRequest: %v", err)
	}
	resp, err := s.answer(ctx, &req)
	switch {
	case errors.Is(err, limits.ErrFull):
		return nil, false, invalid("%s", tooMany)
	case err != nil:
		return nil, false, err
	}
	if answer, err = protojson.Marshal(resp); err != nil {
		return nil, false, err
	}
	return answer, resp.OverallCode == rls.RateLimitResponse_OK, nil
}

// tooMany is what clients are told of limits.ErrFull.
var tooMany = fmt.Sprintf("%d different limits of requests are in use, and this node keeps no more: use fewer", MaxOverrides)

// answer answers a request, and counts it.
func (s *Service) answer(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	q := takeQuestion()
	defer q.giveBack()
	err := q.translate(req, s)
	if err == nil {
		q.layers, err = s.limiter.DecideMet(ctx, &q.req, q.layers[:0], q.met)
	}
	switch {
	case errors.Is(err, rules.ErrInvalidRequest):
		s.totals.invalid.Add(1)
		return nil, err
	case err != nil:
		s.totals.failed.Add(1)
		return nil, err
	}
	resp := s.response(q)
	if resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
		s.totals.over.Add(1)
	} else {
		s.totals.ok.Add(1)
	}
	return resp, nil
}

// statusOf is what a client may know of an error. Those that are the node's own are logged.
func (s *Service) statusOf(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, rules.ErrInvalidRequest):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, limits.ErrFull):
		return status.Error(codes.ResourceExhausted, tooMany)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	s.log.LogAttrs(ctx, slog.LevelError, "a request of Envoy's failed", slog.Any("error", err))
	return status.Error(codes.Internal, "the node failed to decide: see its log")
}
