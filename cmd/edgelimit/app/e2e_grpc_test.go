package app

import (
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// checkEnvoy asks as Envoy does, and watches the health. What it returns looks whether the node said that it leaves
// before it did.
func checkEnvoy(t *testing.T, addr string) (leaves func(*testing.T)) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	for i := range 6 {
		resp, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
			Domain: "edge", Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{
				{Key: "path", Value: "/login"}, {Key: "remote_address", Value: "192.0.2.77"},
			}}},
		}, grpc.WaitForReady(true))
		if want := []rls.RateLimitResponse_Code{rls.RateLimitResponse_OK,
			rls.RateLimitResponse_OVER_LIMIT}[i/5]; err != nil ||
			resp.OverallCode != want {
			t.Errorf("request %d of 5: %v, %v", i+1, resp, err)
		}
	}
	health, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), new(grpc_health_v1.HealthCheckRequest))
	testkit.Must(t, err)
	if got, err := health.Recv(); err != nil || got.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("before the end: %v, %v", got, err)
	}
	return func(t *testing.T) {
		if got, err := health.Recv(); err != nil || got.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("at first: %v, %v", got, err)
		}
		if _, err := health.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("and then: %v", err)
		}
	}
}
