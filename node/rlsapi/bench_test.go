//go:build unix

package rlsapi_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rlsapi"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// benchRules limit nobody in a benchmark.
const benchRules = `
domain: edge
descriptors: [{key: client, rate_limit: {name: per_client, unit: hour, requests_per_unit: 1000000000}}]
`

func benchNode(b *testing.B, headers ...string) *node.Node {
	cfg := node.DefaultConfig()
	cfg.NodeID, cfg.HTTP, cfg.Health, cfg.Memory, cfg.Headers = "a", "", "", counters.MinMemory, headers
	cfg.Logger = slog.New(slog.DiscardHandler)
	var err error
	if cfg.RuleSet, err = rulefile.Parse("test.yaml", []byte(benchRules)); err != nil {
		b.Fatal(err)
	}
	n, err := node.New(cfg)
	testkit.Must(b, err)
	testkit.Background(b, n.Run)
	return n
}

// BenchmarkShouldRateLimit measures what the service and a node do for a request that has been decoded, without
// sockets.
func BenchmarkShouldRateLimit(b *testing.B) {
	for _, headers := range []string{"off", "draft11"} {
		b.Run("headers "+headers, func(b *testing.B) {
			s := rlsapi.New(benchNode(b, headers), rlsapi.Options{Headers: []string{headers}})
			req := edge(d("client=a"))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.ShouldRateLimit(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// bare answers every request with the same response, and decides nothing.
type bare struct {
	rls.UnimplementedRateLimitServiceServer
	answer *rls.RateLimitResponse
}

func (s bare) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return s.answer, nil
}

// BenchmarkServed measures what a decision costs beside all that a server does for any request. The bare server decodes
// the same request and encodes the same response, without deciding. Another process asks, 64 requests at a time over
// one connection as Envoy does, each with a deadline; what is reported is this process' own time on the processor, for
// each request.
func BenchmarkServed(b *testing.B) {
	for _, headers := range []string{"off", "draft11"} {
		service := rlsapi.New(benchNode(b, headers), rlsapi.Options{Headers: []string{headers}})
		answer, err := service.ShouldRateLimit(b.Context(), edge(d("client=a")))
		testkit.Must(b, err)
		b.Run("bare, headers "+headers, func(b *testing.B) {
			s := grpc.NewServer()
			rls.RegisterRateLimitServiceServer(s, bare{answer: answer})
			flood(b, s)
		})
		b.Run("node, headers "+headers,
			func(b *testing.B) { flood(b, rlsapi.NewServer(service, rlsapi.ServerOptions{})) })
	}
}

// flood has another process ask the server.
func flood(b *testing.B, s interface{ Serve(net.Listener) error }) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(b, err)
	defer l.Close()
	go func() { _ = s.Serve(l) }()
	client := exec.CommandContext(b.Context(), os.Args[0])
	client.Env = append(os.Environ(), "EDGELIMIT_TEST_ASK="+l.Addr().String(),
		"EDGELIMIT_TEST_REQUESTS="+strconv.Itoa(b.N))
	before := processorTime(b)
	if out, err := client.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/request")
}

// processorTime is what the process has used, in nanoseconds.
func processorTime(b *testing.B) int64 {
	var u syscall.Rusage
	testkit.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}
