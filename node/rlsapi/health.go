package rlsapi

import (
	"context"
	"slices"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/edgelimit/edgelimit/node/limits"
)

// maxWatches caps concurrent watches.
const maxWatches = 1024

// errEnded ends the watches of a server that stops.
var errEnded = status.Error(codes.Unavailable, "the node is leaving")

// health serves grpc.health.v1 of the whole server (service "") and of services, which are all alike. gRPC's own health
// server does not fit: its watches outlive Shutdown, which waits for them, and have no cap.
type health struct {
	pb.UnimplementedHealthServer
	leaving <-chan struct{} // nil: never
	ended   <-chan struct{} // closed when watches are to end
	names   []string        // of the services
	budgets *limits.Budgets
	watches *limits.Budget
}

// healthNames returns the services with a health: the server, the rate limit service, and other, unless that is empty.
func healthNames(other string) []string {
	names := []string{"", rls.RateLimitService_ServiceDesc.ServiceName}
	if other != "" {
		names = append(names, other)
	}
	return names
}

func (h *health) isKnown(service string) bool { return slices.Contains(h.names, service) }

func (h *health) status() *pb.HealthCheckResponse {
	select {
	case <-h.leaving:
	case <-h.ended:
	default:
		return &pb.HealthCheckResponse{Status: pb.HealthCheckResponse_SERVING}
	}
	return &pb.HealthCheckResponse{Status: pb.HealthCheckResponse_NOT_SERVING}
}

// Check implements grpc.health.v1.
func (h *health) Check(_ context.Context, req *pb.HealthCheckRequest) (*pb.HealthCheckResponse, error) {
	if !h.isKnown(req.GetService()) {
		return nil, status.Error(codes.NotFound, "unknown service") // as grpc-go has it
	}
	return h.status(), nil
}

// List implements grpc.health.v1.
func (h *health) List(context.Context, *pb.HealthListRequest) (*pb.HealthListResponse, error) {
	all := make(map[string]*pb.HealthCheckResponse)
	for _, name := range h.names {
		all[name] = h.status()
	}
	return &pb.HealthListResponse{Statuses: all}, nil
}

// Watch implements grpc.health.v1. When the server stops, it sends NOT_SERVING and ends: the server waits for it.
func (h *health) Watch(req *pb.HealthCheckRequest, stream grpc.ServerStreamingServer[pb.HealthCheckResponse]) error {
	ctx := stream.Context()
	complete(ctx)
	source := holderOf(ctx, h.budgets)
	if h.watches.Take(source, 1) != "" {
		// By the protocol a client that gets this code goes on without watching.
		return status.Error(codes.Unimplemented, "no more watches are kept for this source: use Check")
	}
	defer h.watches.Give(source, 1)
	// By the protocol an unknown service is no error, as it may come later.
	now := &pb.HealthCheckResponse{Status: pb.HealthCheckResponse_SERVICE_UNKNOWN}
	if h.isKnown(req.GetService()) {
		now = h.status()
	}
	if err := stream.Send(now); err != nil {
		return err
	}
	if now.Status == pb.HealthCheckResponse_SERVING {
		select {
		case <-h.leaving:
		case <-h.ended:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
		if err := stream.Send(h.status()); err != nil {
			return err
		}
	}
	select {
	case <-h.ended:
		return errEnded
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
