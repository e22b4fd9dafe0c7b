package main

import (
	"context"
	"errors"
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

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

// grpcConns is the number of connections that the clients share: Envoy opens one per worker thread, here of two cores.
const grpcConns = 2

// dialGRPC distributes the clients over grpcConns connections, which the first of them close.
func dialGRPC(_ context.Context, addr string) (all []rig.Client, err error) {
	var services [grpcConns]rls.RateLimitServiceClient
	for i := range rig.NumClients {
		c := rig.Client{Close: func() error { return nil }}
		if i < grpcConns {
			conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return nil, errors.Join(err, rig.CloseAll(all))
			}
			services[i], c.Close = rls.NewRateLimitServiceClient(conn), conn.Close
		}
		c.Check = func(n int) error { return checkGRPC(services[i%grpcConns], n) }
		all = append(all, c)
	}
	return all, nil
}

func checkGRPC(service rls.RateLimitServiceClient, n int) error {
	entry := &common.RateLimitDescriptor_Entry{Key: "remote_address", Value: identity(n)}
	request := &rls.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{entry}}}}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		resp, err := service.ShouldRateLimit(ctx, request)
		cancel()
		switch {
		case status.Code(err) == codes.DeadlineExceeded: // a busy machine
		case err != nil:
			return err
		case resp.OverallCode != rls.RateLimitResponse_OK:
			return fmt.Errorf("%w: %v", errLimited, resp.OverallCode)
		default:
			return nil
		}
	}
}

// bareGRPC is a plain grpc-go server, with as many stream workers as a node has (see rlsapi).
func bareGRPC() *grpc.Server {
	s := grpc.NewServer(grpc.NumStreamWorkers(64))
	rls.RegisterRateLimitServiceServer(s, bareRLS{})
	return s
}

// bareRLS admits every request. It builds a new response each time, as a service does.
type bareRLS struct {
	rls.UnimplementedRateLimitServiceServer
}

func (bareRLS) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK,
		Statuses: []*rls.RateLimitResponse_DescriptorStatus{{
			Code: rls.RateLimitResponse_OK,
			CurrentLimit: &rls.RateLimitResponse_RateLimit{
				Name: "per_ip", RequestsPerUnit: 100000000, Unit: rls.RateLimitResponse_RateLimit_MINUTE,
			},
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
