package main

import (
	"context"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

// bareGRPC is what one would write with grpc-go, with as many goroutines that last as a node has (see rlsapi).
func bareGRPC() *grpc.Server {
	s := grpc.NewServer(grpc.NumStreamWorkers(64))
	rls.RegisterRateLimitServiceServer(s, bareRLS{})
	return s
}

// bareRLS decides nothing. It makes the message that a node answers with anew, as whoever writes a service does.
type bareRLS struct {
	rls.UnimplementedRateLimitServiceServer
}

func (bareRLS) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK,
		Statuses: []*rls.RateLimitResponse_DescriptorStatus{{
			Code:           rls.RateLimitResponse_OK,
			CurrentLimit:   &rls.RateLimitResponse_RateLimit{Name: "per_ip", RequestsPerUnit: 100000000, Unit: rls.RateLimitResponse_RateLimit_MINUTE},
			LimitRemaining: 99999958, DurationUntilReset: &durationpb.Duration{Seconds: 60, Nanos: 1},
		}},
		ResponseHeadersToAdd: []*core.HeaderValue{
			{Key: "RateLimit-Policy", Value: `"per_ip";q=100000000;w=60`},
			{Key: "RateLimit", Value: `"per_ip";r=99999958;t=60`},
			{Key: "X-RateLimit-Limit", Value: "100000000"},
			{Key: "X-RateLimit-Remaining", Value: "99999958"},
			{Key: "X-RateLimit-Reset", Value: "60"},
		},
	}, nil
}
