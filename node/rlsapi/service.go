package rlsapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/ratelimit"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Limiter decides; a node is one. It is called concurrently.
type Limiter interface {
	// HasDomain reports whether any rule is in that domain.
	HasDomain(name string) bool
	// Compatible reports whether requests of a domain are answered as envoyproxy/ratelimit answers them.
	Compatible(domain string) bool
	// DecideMet appends one Decision per descriptor of the request to layers, in order, and after them those of parents
	// that elastic rules bring along. The request is allowed if and only if all of them are. It writes to met the
	// matching rules of the first len(met) layers, nil where there is none. req is only valid during the call. Errors
	// are those of answer.Limiter.
	DecideMet(ctx context.Context, req *rules.Request, layers []counters.Decision,
		met []*rules.Rule) ([]counters.Decision, error)
}

// Options are the service's settings.
type Options = ratelimit.ServiceOptions

// Service answers ShouldRateLimit. It is safe for concurrent use.
type Service struct {
	rls.UnimplementedRateLimitServiceServer

	limiter   Limiter
	headers   *answer.Headers
	overrides *limits.Keeper[override]
	budgets   *limits.Budgets
	log       *slog.Logger
	totals    totals

	ratelimit ratelimit.Config
	shadow    func() bool
	stats     *ratelimit.Stats

	healthName string
}

// totals count requests by their outcome.
type totals struct{ ok, over, invalid, failed atomic.Uint64 }

// Stats are the service's totals.
type Stats = ratelimit.ServiceStats

// New returns a service over l. It panics if opt.Headers is invalid.
func New(l Limiter, opt Options) *Service {
	headers, err := answer.NewHeaders(opt.Headers, nil, nil)
	if err != nil {
		panic(err)
	}
	s := &Service{limiter: l, headers: headers, budgets: opt.Budgets, log: cmp.Or(opt.Logger, slog.Default()),
		ratelimit: opt.Ratelimit, shadow: opt.Shadow, stats: opt.Stats, healthName: opt.HealthName}
	if s.shadow == nil {
		s.shadow = func() bool { return false }
	}
	opt.Algorithm = cmp.Or(opt.Algorithm, counters.SlidingWindow)
	s.overrides = limits.NewKeeper(limits.Options[override]{
		Max: MaxOverrides, Limit: func(o override) (*counters.Limit, error) { return o.limit(opt.Algorithm) },
		Learn: opt.Learn, API: "grpc", Logger: s.log,
	})
	return s
}

// Stats returns the totals.
func (s *Service) Stats() Stats {
	t := &s.totals
	return Stats{OK: t.ok.Load(), OverLimit: t.over.Load(), Invalid: t.invalid.Load(), Failed: t.failed.Load(),
		Overrides: s.overrides.Len(), Evicted: s.overrides.Evicted()}
}

// ShouldRateLimit implements the service. Its errors are INVALID_ARGUMENT (UNKNOWN in compatible domains),
// DEADLINE_EXCEEDED, CANCELLED, and INTERNAL for the node's own.
func (s *Service) ShouldRateLimit(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	if s.stats != nil && s.limiter.Compatible(req.GetDomain()) {
		s.stats.Requests.Add(1)
		begin := time.Now()
		defer func() { s.stats.Took(time.Since(begin)) }()
	}
	resp, err := s.decide(ctx, req)
	if err != nil {
		return nil, s.statusOf(ctx, err)
	}
	return resp, nil
}

// JSON answers a request in protobuf's JSON in the same way, for the HTTP API (httpapi.Envoy).
func (s *Service) JSON(ctx context.Context, body []byte) (out []byte, allowed bool, err error) {
	var req rls.RateLimitRequest
	if err := protojson.Unmarshal(body, &req); err != nil {
		s.totals.invalid.Add(1)
		return nil, false, invalid("no RateLimitRequest: %v", err)
	}
	resp, err := s.decide(ctx, &req)
	if err != nil {
		return nil, false, err
	}
	if out, err = protojson.Marshal(resp); err != nil {
		return nil, false, err
	}
	return out, resp.OverallCode == rls.RateLimitResponse_OK, nil
}

// decide answers a request, and counts it.
func (s *Service) decide(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	t := takeScratch()
	defer t.release()
	var resp *rls.RateLimitResponse
	var err error
	if s.limiter.Compatible(req.GetDomain()) {
		resp, err = s.decideCompatibly(ctx, req, t)
	} else if err = t.translate(ctx, req, s); err == nil {
		if t.layers, err = s.limiter.DecideMet(ctx, &t.req, t.layers[:0], t.met); err == nil {
			resp = s.response(t)
		}
	}
	switch {
	case errors.Is(err, rules.ErrInvalidRequest):
		s.totals.invalid.Add(1)
		return nil, err
	case err != nil:
		s.totals.failed.Add(1)
		return nil, err
	}
	if resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
		s.totals.over.Add(1)
	} else {
		s.totals.ok.Add(1)
	}
	return resp, nil
}

// statusOf returns what a client may see of an error. The node's own errors are logged instead.
func (s *Service) statusOf(ctx context.Context, err error) error {
	var plain refusal
	switch {
	case errors.As(err, &plain):
		return status.Error(codes.Unknown, string(plain))
	case errors.Is(err, rules.ErrInvalidRequest):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	s.log.LogAttrs(ctx, slog.LevelError, "a rate limit request failed", slog.Any("error", err))
	return status.Error(codes.Internal, "the node failed to decide: see its log")
}
