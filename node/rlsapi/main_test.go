package rlsapi_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/edgelimit/edgelimit/testnet/leaks"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv("EDGELIMIT_TEST_ASK"); addr != "" {
		requests, _ := strconv.ParseInt(os.Getenv("EDGELIMIT_TEST_REQUESTS"), 10, 64)
		if err := ask(addr, requests); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leaks.Main(m)
}

// ask is the other process of BenchmarkServed: it asks for so many requests.
func ask(addr string, requests int64) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := rls.NewRateLimitServiceClient(conn)
	var left atomic.Int64
	left.Store(requests)
	var askers sync.WaitGroup
	failed := make(chan error, 64)
	for i := range 64 {
		askers.Go(func() {
			req := edge(d(fmt.Sprintf("client=%d", i)))
			for left.Add(-1) >= 0 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second) // soon, as Envoy's are
				_, err := client.ShouldRateLimit(ctx, req)
				cancel()
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	askers.Wait()
	close(failed)
	return <-failed // nil if there is none
}
