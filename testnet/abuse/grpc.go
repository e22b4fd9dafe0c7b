package abuse

import (
	"context"
	"fmt"
	"sync"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// grpcConn returns a connection, which is dialed by its first call.
func (r *run) grpcConn() *grpc.ClientConn {
	conn, err := grpc.NewClient(r.target.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err) // only an invalid address or option
	}
	return conn
}

// grpcClient is a compliant client that calls ShouldRateLimit.
func (r *run) grpcClient(i int) *client {
	conn := r.grpcConn()
	request := &rls.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{{
		Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "good", Value: fmt.Sprint(i)}}}}}
	return &client{addr: r.target.GRPC, close: func() { _ = conn.Close() }, send: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), r.opt.Timeout)
		defer cancel()
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request)
		return err
	}}
}

// watchesPerConn is below the limit of streams per connection.
const watchesPerConn = 200

// openWatches opens health watches, each of which receives one answer and stays open.
func (r *run) openWatches(ctx context.Context) (awaitOpen func(), stop func() map[string]int) {
	ctx, c := newConnections(ctx, r.opt.Watches)
	for first := 0; first < r.opt.Watches; first += watchesPerConn {
		conn := r.grpcConn()
		var watching sync.WaitGroup
		for range min(watchesPerConn, r.opt.Watches-first) {
			watching.Go(func() { c.add(watch(ctx, conn, sync.OnceFunc(c.opened.Done))) })
		}
		c.done.Go(func() {
			watching.Wait()
			_ = conn.Close()
		})
	}
	return c.opened.Wait, c.close
}

func watch(ctx context.Context, conn *grpc.ClientConn, opened func()) (outcome string) {
	defer opened()
	stream, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, new(grpc_health_v1.HealthCheckRequest))
	outcome = "no answer"
	for err == nil {
		var resp *grpc_health_v1.HealthCheckResponse
		if resp, err = stream.Recv(); err == nil {
			outcome = resp.GetStatus().String()
			opened()
		}
	}
	if ctx.Err() != nil {
		outcome += ", " + openToTheEnd
	}
	return outcome
}
