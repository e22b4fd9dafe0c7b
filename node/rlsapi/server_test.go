package rlsapi_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rlsapi"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const oneRule = `
domain: edge
descriptors: [{key: client, rate_limit: {name: per_client, unit: hour, requests_per_unit: 3}}]
`

const (
	serving    = grpc_health_v1.HealthCheckResponse_SERVING
	notServing = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	service    = "envoy.service.ratelimit.v3.RateLimitService"
)

// yes allows everything.
type yes struct{}

func (yes) Compatible(string) bool { return false }

func (yes) HasDomain(string) bool { return true }

func (yes) DecideMet(
	_ context.Context, req *rules.Request, layers []counters.Decision, _ []*rules.Rule,
) ([]counters.Decision, error) {
	for range req.Descriptors {
		layers = append(layers, counters.Decision{Allowed: true})
	}
	return layers, nil
}

// server is one that runs until the test ends.
type server struct {
	*rlsapi.Server
	addr    string
	leaving chan struct{}
}

func serve(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	return serveOn(t, l)
}

func serveOn(t *testing.T, l net.Listener) *server {
	t.Helper()
	s := &server{addr: l.Addr().String(), leaving: make(chan struct{})}
	s.Server = rlsapi.NewServer(rlsapi.New(yes{}, rlsapi.Options{}), rlsapi.ServerOptions{Leaving: s.leaving})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

func watch(
	t *testing.T, conn *grpc.ClientConn, service string,
) grpc.ServerStreamingClient[grpc_health_v1.HealthCheckResponse] {
	t.Helper()
	stream, err := grpc_health_v1.NewHealthClient(conn).
		Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
	testkit.Must(t, err)
	return stream
}

func next(
	t *testing.T, stream grpc.ServerStreamingClient[grpc_health_v1.HealthCheckResponse],
	want grpc_health_v1.HealthCheckResponse_ServingStatus,
) {
	t.Helper()
	if got, err := stream.Recv(); err != nil || got.Status != want {
		t.Fatalf("told %v, %v, want %v", got, err, want)
	}
}

// Who watches is told NOT_SERVING first; then requests are answered as before, until the server is shut down.
func TestLeaving(t *testing.T) {
	s := serve(t)
	conn := dial(t, s.addr)
	complete, part := watch(t, conn, ""), watch(t, conn, service)
	next(t, complete, serving)
	next(t, part, serving)
	close(s.leaving)
	next(t, complete, notServing)
	next(t, part, notServing)
	client := rls.NewRateLimitServiceClient(conn)
	if resp, err := client.ShouldRateLimit(t.Context(), edge(d("a=b"))); err != nil ||
		resp.OverallCode != rls.RateLimitResponse_OK {
		t.Errorf("while leaving: %v, %v", resp, err)
	}
	check, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), new(grpc_health_v1.HealthCheckRequest))
	if err != nil || check.Status != notServing {
		t.Errorf("while leaving: %v, %v", check, err)
	}
	next(t, watch(t, conn, ""), notServing) // who begins late
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown waits for watches: %v", err)
	}
	if _, err := complete.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch ended with %v", err)
	}
	if _, err := client.ShouldRateLimit(t.Context(), edge(d("a=b"))); status.Code(err) != codes.Unavailable {
		t.Errorf("after the end: %v", err)
	}
}

// Without a word of leaving, the end itself is told before it comes.
func TestShutdownTellsWatches(t *testing.T) {
	s := serve(t)
	stream := watch(t, dial(t, s.addr), service)
	next(t, stream, serving)
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	next(t, stream, notServing)
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch ended with %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A node that is told to stop says so to who watches before it ends their connections.
func TestStopOfANodeTellsWatches(t *testing.T) {
	n, stop := launch(t, oneRule, nil)
	stream := watch(t, dial(t, n.Addr("grpc")), "")
	next(t, stream, serving)
	ended := make(chan struct{})
	go func() {
		stop()
		close(ended)
	}()
	next(t, stream, notServing)
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch ended with %v", err)
	}
	<-ended
}

func TestHealth(t *testing.T) {
	s := serve(t)
	conn := dial(t, s.addr)
	client := grpc_health_v1.NewHealthClient(conn)
	for _, name := range []string{"", service} {
		if got, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name},
			grpc.WaitForReady(true)); err != nil ||
			got.Status != serving {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "other"}); status.Code(
		err,
	) != codes.NotFound {
		t.Errorf("another service: %v", err)
	}
	list, err := client.List(t.Context(), new(grpc_health_v1.HealthListRequest))
	if err != nil || len(list.Statuses) != 2 || list.Statuses[service].Status != serving {
		t.Errorf("%v, %v", list, err)
	}
	next(t, watch(t, conn, "other"), grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("with a watch of another service: %v", err)
	}
}

// A source that takes all watches that it can leaves those of others alone. One more of its own gets the code by which
// clients go on without watching; one that ends makes room.
func TestWatchesHaveAShare(t *testing.T) {
	s := serve(t)
	watches := func(from string, n int) (cancel context.CancelFunc, last error) {
		ctx, cancel := context.WithCancel(t.Context())
		conn := dialFrom(t, s.addr, from)
		for range n {
			stream, err := grpc_health_v1.NewHealthClient(conn).
				Watch(ctx, new(grpc_health_v1.HealthCheckRequest), grpc.WaitForReady(true))
			testkit.Must(t, err)
			_, last = stream.Recv()
		}
		return cancel, last
	}
	var ends []context.CancelFunc
	for range 2 {
		cancel, err := watches("127.0.0.2", 256)
		defer cancel()
		testkit.Must(t, err)
		ends = append(ends, cancel)
	}
	cancel, err := watches("127.0.0.2", 1)
	defer cancel()
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("one more: %v", err)
	}
	cancel, err = watches("127.0.0.3", 256)
	defer cancel()
	if err != nil {
		t.Errorf("another source beside it: %v", err)
	}
	ends[0]()
	testkit.Eventually(t, "one that ends makes room", func() bool {
		cancel, err := watches("127.0.0.2", 1)
		defer cancel()
		return err == nil
	})
}

func TestReflection(t *testing.T) {
	s := serve(t)
	stream, err := grpc_reflection_v1.NewServerReflectionClient(dial(t, s.addr)).
		ServerReflectionInfo(t.Context(), grpc.WaitForReady(true))
	testkit.Must(t, err)
	ask := func(req *grpc_reflection_v1.ServerReflectionRequest) *grpc_reflection_v1.ServerReflectionResponse {
		t.Helper()
		testkit.Must(t, stream.Send(req))
		resp, err := stream.Recv()
		testkit.Must(t, err)
		return resp
	}
	var names []string
	listServices := &grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}
	for _, s := range ask(listServices).GetListServicesResponse().GetService() {
		names = append(names, s.Name)
	}
	if !slices.Contains(names, service) || !slices.Contains(names, "grpc.health.v1.Health") {
		t.Errorf("services: %v", names)
	}
	files := ask(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service},
	}).GetFileDescriptorResponse().GetFileDescriptorProto()
	if len(files) == 0 || !strings.Contains(string(files[0]), "ShouldRateLimit") {
		t.Errorf("%d files tell of the service", len(files))
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	n, _ := launch(t, oneRule, func(cfg *node.Config) { cfg.GRPC, cfg.HTTP = "unix:"+path, "" })
	if n.Addr("grpc") != path {
		t.Fatalf("it listens on %s", n.Addr("grpc"))
	}
	resp, err := byGRPC(t, n)(t.Context(), edge(d("client=a")))
	if err != nil || reported(resp) != "OK | OK per_client 2/3 HOUR" {
		t.Errorf("%v, %v", resp, err)
	}
}

// What is larger than a request can be is refused, and the connection lives on.
func TestSizes(t *testing.T) {
	s := serve(t)
	client := rls.NewRateLimitServiceClient(dial(t, s.addr))
	long := strings.Repeat("x", 240<<10)
	if _, err := client.ShouldRateLimit(t.Context(), edge(d("a="+long)), grpc.WaitForReady(true)); err != nil {
		t.Errorf("240 KiB: %v", err)
	}
	if _, err := client.ShouldRateLimit(t.Context(), edge(d("a="+long+long))); status.Code(
		err,
	) != codes.ResourceExhausted {
		t.Errorf("480 KiB: %v", err)
	}
	headers := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", 20<<10))
	if _, err := client.ShouldRateLimit(headers, edge(d("a=b"))); err == nil {
		t.Error("20 KiB of headers are taken")
	}
	if _, err := client.ShouldRateLimit(t.Context(), edge(d("a=b")), grpc.WaitForReady(true)); err != nil {
		t.Errorf("after all: %v", err)
	}
}

// A deadline that has passed is no decision.
func TestDeadline(t *testing.T) {
	n, _ := launch(t, oneRule, nil)
	ask := byGRPC(t, n)
	if _, err := ask(t.Context(), edge(d("client=other"))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	if _, err := ask(ctx, edge(d("client=a"))); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	if resp, err := ask(t.Context(), edge(d("client=a"))); err != nil ||
		reported(resp) != "OK | OK per_client 2/3 HOUR" {
		t.Errorf("%v, %v", resp, err)
	}
}

// A request whose end never comes is given up, by its own deadline or the server's, and does not hold the server up
// when it stops.
func TestRequestsThatHang(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 16)
		s := serveOn(t, l)
		r := greet(t, l)
		for i, tt := range []struct {
			timeout string
			after   time.Duration
		}{{"20m", 20 * time.Millisecond}, {"3S", 2 * time.Second}, {"", 2 * time.Second}, {"1H", 2 * time.Second}} {
			began, stream := time.Now(), uint32(2*i+1)
			r.begin(t, stream, tt.timeout)
			if got := r.ended(t, stream); got != "4" && got != "CANCEL" || time.Since(began) != tt.after {
				t.Errorf("with a deadline of %q: %s after %v, want %v", tt.timeout, got, time.Since(began), tt.after)
			}
		}
		began := time.Now()
		r.beginAt(t, 9, grpc_health_v1.Health_Watch_FullMethodName, "")
		if got := r.ended(t, 9); got != "4" && got != "CANCEL" || time.Since(began) != 2*time.Second {
			t.Errorf("a watch whose request never comes: %s after %v", got, time.Since(began))
		}
		began = time.Now()
		r.beginAt(t, 11, grpc_health_v1.Health_Watch_FullMethodName, "")
		testkit.Must(t, r.framer.WriteData(11, true, make([]byte, 5)))
		time.AfterFunc(time.Minute, func() { close(s.leaving) })
		time.AfterFunc(2*time.Minute, func() { _ = r.framer.WriteRSTStream(11, http2.ErrCodeCancel) })
		for frames := 0; frames < 2; {
			frame, err := r.framer.ReadFrame()
			testkit.Must(t, err)
			if f, ok := frame.(*http2.DataFrame); ok && f.StreamID == 11 {
				frames++
			}
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("a watch was frames of the leaving after %v", took)
		}
		go func() { _, _ = io.Copy(io.Discard, r) }() // it reads, but does not say what it has read
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// More requests than a connection may have at a time are refused, and the others are not disturbed.
func TestStreamsOfAConnection(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 20)
		serveOn(t, l)
		r := greet(t, l)
		for i := range uint32(257) {
			r.begin(t, 2*i+1, "5S")
		}
		if got := r.ended(t, 2*256+1); got != "REFUSED_STREAM" {
			t.Errorf("the 257th: %s", got)
		}
		body := binary.BigEndian.AppendUint32([]byte{0}, 0) // an empty message
		testkit.Must(t, r.framer.WriteData(1, true, body))
		if got := r.ended(t, 1); got != "0" && got != "3" {
			t.Errorf("the first: %s", got)
		}
	})
}

func TestNonsense(t *testing.T) {
	s := serve(t)
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", strings.Repeat("*1\r\n$4\r\nPING\r\n",
		2), http2.ClientPreface + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		conn, err := net.Dial("tcp", s.addr)
		testkit.Must(t, err)
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%q: the connection was not ended: %v", text, err)
		}
		_ = conn.Close()
	}
	if _, err := rls.NewRateLimitServiceClient(dial(t, s.addr)).ShouldRateLimit(t.Context(), edge(d("a=b")),
		grpc.WaitForReady(true)); err != nil {
		t.Error(err)
	}
}
