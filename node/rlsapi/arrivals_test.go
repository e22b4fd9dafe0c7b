package rlsapi_test

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rlsapi"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// hangOn begins so many requests on one connection, and sends what is given of each.
func hangOn(t *testing.T, l *bufconn.Listener, n int, part []byte) {
	t.Helper()
	r := greet(t, l)
	go func() { _, _ = io.Copy(io.Discard, r) }()
	for i := range uint32(n) {
		r.begin(t, 2*i+1, "")
		if len(part) > 0 {
			testkit.Must(t, r.framer.WriteData(2*i+1, false, part))
		}
	}
	synctest.Wait()
}

func through(t *testing.T, l *bufconn.Listener) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///bubble", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// 2,200 requests that hang on ten connections, headers alone or half a message, keep nobody from being answered: the
// oldest of them give way.
func TestRequestsThatHangMakeRoom(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 20)
		s := serveOn(t, l)
		half := append([]byte{0, 0, 0, 0xf0, 0}, make([]byte, 8<<10)...)
		for i := range 10 {
			hangOn(t, l, 220, half[:[]int{0, len(half)}[i%2]])
		}
		conn := through(t, l)
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, edge(d("a=b"))); err != nil {
				t.Fatal(err)
			}
			if _, err := grpc_health_v1.NewHealthClient(conn).Check(ctx,
				&grpc_health_v1.HealthCheckRequest{}); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		if st := s.Arrivals(); st.Dropped < 1944 || st.Waiting > 256 {
			t.Errorf("%+v", st)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st := s.Arrivals(); st.Waiting != 0 || st.Late > 256 || st.Dropped+st.Late != 2200 {
			t.Errorf("after two seconds: %+v", st)
		}
	})
}

// A request whose message is under way is answered, however many requests others reset meanwhile.
func TestResetRequestsPushNobodyOut(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 20)
		s := serveOn(t, l)
		compliant := greet(t, l)
		compliant.begin(t, 1, "")
		synctest.Wait()

		abusive := greet(t, l)
		go func() { _, _ = io.Copy(io.Discard, abusive) }()
		for i := range uint32(2000) {
			abusive.begin(t, 2*i+1, "")
			testkit.Must(t, abusive.framer.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
		}
		synctest.Wait()

		testkit.Must(t, compliant.framer.WriteData(1, true, make([]byte, 5)))
		if got := compliant.ended(t, 1); got != "0" {
			t.Errorf("the compliant request ended with %s; %+v", got, s.Arrivals())
		}
		if st := s.Arrivals(); st.Dropped > 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A request that comes byte by byte is answered within its time, and not after.
func TestARequestHasTwoSecondsToCome(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 16)
		serveOn(t, l)
		r := greet(t, l)
		body := binary.BigEndian.AppendUint32([]byte{0}, 0)
		for i, pause := range []time.Duration{399 * time.Millisecond, 401 * time.Millisecond} {
			stream := uint32(2*i + 1)
			r.begin(t, stream, "")
			var sent sync.WaitGroup
			sent.Go(func() {
				for at := range body {
					time.Sleep(pause)
					_ = r.framer.WriteData(stream, at == len(body)-1, body[at:at+1])
				}
			})
			if got, late := r.ended(t, stream), i == 1; late != (got == "4" || got == "CANCEL") {
				t.Errorf("a byte each %v: %s", pause, got)
			}
			sent.Wait()
		}
	})
}

// broken panics at every question.
type broken struct{ yes }

func (broken) DecideMet(context.Context, *rules.Request, []counters.Decision, []*rules.Rule) ([]counters.Decision,
	error) {
	panic("a bug")
}

// A panic is INTERNAL to its client, and nothing to others; it is counted, and logged with where it was.
func TestPanics(t *testing.T) {
	var mu sync.Mutex
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(b)
	}), nil))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	service := rlsapi.New(broken{}, rlsapi.Options{Logger: logger})
	s := rlsapi.NewServer(service, rlsapi.ServerOptions{})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	client := rls.NewRateLimitServiceClient(dial(t, l.Addr().String()))
	for range 3 {
		_, err := client.ShouldRateLimit(t.Context(), edge(d("a=b")), grpc.WaitForReady(true))
		if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "bug") {
			t.Errorf("%v", err)
		}
	}
	_ = s.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := log.String(); strings.Count(got, "a bug") < 3 || !strings.Contains(got, "DecideMet") || s.Panics() != 3 {
		t.Errorf("%d panics, logged %s", s.Panics(), got)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
