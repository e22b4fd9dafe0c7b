package grpcmw_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/test/bufconn"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/middleware/grpcmw"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// limiter decides by hand, and remembers what it was asked.
type limiter struct {
	answer func(asked int) ([]counters.Decision, error) // the first time 0

	mu    sync.Mutex
	asked []rules.Request
}

func (l *limiter) Decide(
	_ context.Context, req *rules.Request, layers []counters.Decision,
) ([]counters.Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked := *req
	asked.Header = nil
	l.asked = append(l.asked, asked)
	said, err := l.answer(len(l.asked) - 1)
	return append(layers, said...), err
}

func (l *limiter) requests() []rules.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

// inOrder answers with one decision after the other, and the last again and again.
func inOrder(ds ...counters.Decision) *limiter {
	return &limiter{answer: func(asked int) ([]counters.Decision, error) {
		i := min(asked, len(ds)-1)
		return ds[i : i+1], nil
	}}
}

// shop is a server whose calls say what they were sent. A payload's body "fail" makes a call fail.
type shop struct {
	grpc_testing.UnimplementedTestServiceServer
	mu     sync.Mutex
	served []string
}

func (s *shop) serve(p *grpc_testing.Payload) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = append(s.served, string(p.GetBody()))
	if string(p.GetBody()) == "fail" {
		return errors.New("failed")
	}
	return nil
}

func (s *shop) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.served)
}

func (s *shop) UnaryCall(_ context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	if err := s.serve(r.Payload); err != nil {
		return nil, err
	}
	return &grpc_testing.SimpleResponse{Payload: r.Payload}, nil
}

func (s *shop) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if _, again := stream.Recv(); again != err {
				return errors.New("the stream goes on after its error")
			}
			return err
		}
		if err := s.serve(r.Payload); err != nil {
			return err
		}
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: r.Payload}); err != nil {
			return err
		}
	}
}

func (s *shop) StreamingOutputCall(
	r *grpc_testing.StreamingOutputCallRequest, stream grpc_testing.TestService_StreamingOutputCallServer,
) error {
	if err := s.serve(r.Payload); err != nil {
		return err
	}
	return stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: r.Payload})
}

// world is a client of a shop with a limiter before it.
type world struct {
	grpc_testing.TestServiceClient
	health grpc_health_v1.HealthClient
	shop   *shop
}

// open runs a server and a client until the test, or its bubble, ends.
func open(t *testing.T, l *limiter, opt grpcmw.Options, dial ...grpc.DialOption) (w *world, end func()) {
	t.Helper()
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	guard, err := grpcmw.New(l, opt)
	testkit.Must(t, err)
	server := grpc.NewServer(grpc.UnaryInterceptor(guard.Unary), grpc.StreamInterceptor(guard.Stream))
	w = &world{shop: &shop{}}
	grpc_testing.RegisterTestServiceServer(server, w.shop)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	conn, stop := serve(t, server, dial...)
	w.TestServiceClient, w.health = grpc_testing.NewTestServiceClient(conn), grpc_health_v1.NewHealthClient(conn)
	return w, stop
}

// serve runs a server in memory, and returns a connection to it.
func serve(t testing.TB, server *grpc.Server, dial ...grpc.DialOption) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	conn, err := grpc.NewClient(
		"passthrough:///shop",
		append(
			dial,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		)...)
	testkit.Must(t, err)
	return conn, func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func ask(text string) *grpc_testing.SimpleRequest {
	return &grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Body: []byte(text)}}
}
