package rlsapi

import (
	"context"
	"sync/atomic"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// health serves grpc.health.v1 of the whole server (service "") and of the rate limit service.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	leaving <-chan struct{} // nil: never
	ended   chan struct{}   // closed when watches are to end
	watches atomic.Int64
}

// maxWatches is how many watches there may be at a time.
const maxWatches = 1024

func newHealth(leaving <-chan struct{}) *health {
	return &health{leaving: leaving, ended: make(chan struct{})}
}

func (h *health) end() { close(h.ended) }

func known(service string) bool {
	return service == "" || service == rls.RateLimitService_ServiceDesc.ServiceName
}

func (h *health) status() grpc_health_v1.HealthCheckResponse_ServingStatus {
	select {
	case <-h.leaving:
		return grpc_health_v1.HealthCheckResponse_NOT_SERVING
	case <-h.ended:
		return grpc_health_v1.HealthCheckResponse_NOT_SERVING
	default:
		return grpc_health_v1.HealthCheckResponse_SERVING
	}
}

// Check implements grpc.health.v1.
func (h *health) Check(_ context.Context, req *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if !known(req.GetService()) {
		return nil, status.Errorf(codes.NotFound, "there is no service %.100q", req.GetService())
	}
	return &grpc_health_v1.HealthCheckResponse{Status: h.status()}, nil
}

// List implements grpc.health.v1.
func (h *health) List(context.Context, *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	now := &grpc_health_v1.HealthCheckResponse{Status: h.status()}
	return &grpc_health_v1.HealthListResponse{Statuses: map[string]*grpc_health_v1.HealthCheckResponse{
		"": now, rls.RateLimitService_ServiceDesc.ServiceName: now,
	}}, nil
}

// Watch implements grpc.health.v1. Once the server stops, a watch ends by itself, after it has told NOT_SERVING: the server waits for it.
func (h *health) Watch(req *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	ctx := stream.Context()
	if begun, ok := ctx.Value(begunKey{}).(func()); ok {
		begun()
	}
	if h.watches.Add(1) > maxWatches {
		h.watches.Add(-1)
		return status.Errorf(codes.ResourceExhausted, "there are %d watches, and no more are kept: use Check", maxWatches)
	}
	defer h.watches.Add(-1)
	tell := func(s grpc_health_v1.HealthCheckResponse_ServingStatus) error {
		return stream.Send(&grpc_health_v1.HealthCheckResponse{Status: s})
	}
	if !known(req.GetService()) { // by the protocol this is no error, as a service may come later
		if err := tell(grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN); err != nil {
			return err
		}
		return h.hold(ctx)
	}
	now := h.status()
	if err := tell(now); err != nil {
		return err
	}
	if now == grpc_health_v1.HealthCheckResponse_SERVING {
		select {
		case <-h.leaving:
		case <-h.ended:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
		if err := tell(grpc_health_v1.HealthCheckResponse_NOT_SERVING); err != nil {
			return err
		}
	}
	return h.hold(ctx)
}

// hold waits until the server stops or whoever watches has gone.
func (h *health) hold(ctx context.Context) error {
	select {
	case <-h.ended:
		return errEnded
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

var errEnded = status.Error(codes.Unavailable, "the node is leaving")
