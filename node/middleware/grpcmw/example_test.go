package grpcmw_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/middleware/grpcmw"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

func Example() {
	set, err := rulefile.Parse("rules.yaml", []byte(`
domain: edge
descriptors: [{key: method, value: /grpc.testing.TestService/UnaryCall,
    rate_limit: {name: shop, unit: hour, requests_per_unit: 2}}]`))
	if err != nil {
		panic(err)
	}
	cfg := node.DefaultConfig()
	cfg.HTTP, cfg.Health, cfg.RuleSet = "", "", set // no listeners: the program has its own
	n, err := node.New(cfg)
	if err != nil {
		panic(err)
	}
	guard, err := grpcmw.New(n, grpcmw.Options{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- n.Run(ctx) }()

	server := grpc.NewServer(grpc.ChainUnaryInterceptor(guard.Unary), grpc.ChainStreamInterceptor(guard.Stream))
	grpc_testing.RegisterTestServiceServer(server, &shop{})
	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()

	conn, err := grpc.NewClient(
		"passthrough:///shop",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) },
		),
	)
	if err != nil {
		panic(err)
	}
	for range 3 {
		_, err := grpc_testing.NewTestServiceClient(conn).UnaryCall(ctx, &grpc_testing.SimpleRequest{})
		fmt.Println(status.Code(err))
	}
	_ = conn.Close()
	server.Stop()
	cancel()
	fmt.Println(<-stopped)
	// Output:
	// OK
	// OK
	// ResourceExhausted
	// <nil>
}
