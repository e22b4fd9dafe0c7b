package main

import (
	"context"
	"fmt"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// bareGRPC is what one would write with grpc-go.
func bareGRPC() *grpc.Server {
	s := grpc.NewServer()
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

// grpcClient asks as Envoy does, with a deadline that is soon.
type grpcClient struct {
	*grpc.ClientConn
	ctx context.Context
}

func dialGRPC(ctx context.Context, addr string, _ int) (client, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &grpcClient{conn, ctx}, nil
}

// ask asks again where the machine was too busy for the deadline.
func (c *grpcClient) ask(n int) error {
	req := &rls.RateLimitRequest{
		Domain: "edge", Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: who(n)}}}},
	}
	resp, err := c.once(req)
	for status.Code(err) == codes.DeadlineExceeded && c.ctx.Err() == nil {
		resp, err = c.once(req)
	}
	if err == nil && resp.OverallCode != rls.RateLimitResponse_OK {
		err = fmt.Errorf("%w: %v", errLimited, resp)
	}
	return err
}

func (c *grpcClient) once(req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(c.ctx, time.Second)
	defer cancel()
	return rls.NewRateLimitServiceClient(c.ClientConn).ShouldRateLimit(ctx, req)
}
