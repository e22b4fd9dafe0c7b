package rlsapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/envoy"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// patience is how long a test waits for what should come at once, on a machine that is busy with other things.
const patience = 30 * time.Second

// launch runs a node with the rules of a file, with listeners, until the test ends or stop is called.
func launch(t *testing.T, rule string, change func(*node.Config)) (n *node.Node, stop func()) {
	t.Helper()
	cfg := node.DefaultConfig()
	cfg.NodeID, cfg.HTTP, cfg.GRPC, cfg.Health, cfg.Memory = "a", "127.0.0.1:0", "127.0.0.1:0", "", counters.MinMemory
	cfg.Envoy, cfg.Logger = envoy.Service, slog.New(slog.DiscardHandler)
	var err error
	if cfg.RuleSet, err = rulefile.Parse("test.yaml", []byte(rule)); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&cfg)
	}
	if n, err = node.New(cfg); err != nil {
		t.Fatal(err)
	}
	stop = testkit.Background(t, n.Run)
	return n, stop
}

// dial connects to a listener, host:port or a path.
func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	if strings.HasPrefix(addr, "/") {
		addr = "unix:" + addr
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// dialFrom is dial from another address of this machine.
func dialFrom(t *testing.T, addr, from string) *grpc.ClientConn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", to)
		}))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// should asks a node. Its error is what a client is told.
type should func(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error)

// byGRPC asks by gRPC.
func byGRPC(t *testing.T, n *node.Node) should {
	client := rls.NewRateLimitServiceClient(dial(t, n.Addr("grpc")))
	return func(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		return client.ShouldRateLimit(ctx, req, grpc.WaitForReady(true))
	}
}

// byJSON asks at /json. What is refused there becomes an error that begins with its status.
func byJSON(t *testing.T, n *node.Node) should {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		body, err := protojson.Marshal(req)
		testkit.Must(t, err)
		question, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.Addr("http")+"/json",
			bytes.NewReader(body))
		answer, err := client.Do(question)
		testkit.Must(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		testkit.Must(t, err)
		if answer.StatusCode != 200 && answer.StatusCode != 429 {
			return nil, fmt.Errorf("%d: %s", answer.StatusCode, text)
		}
		resp := new(rls.RateLimitResponse)
		testkit.Must(t, protojson.Unmarshal(text, resp))
		if (answer.StatusCode == 200) != (resp.OverallCode == rls.RateLimitResponse_OK) {
			t.Errorf("status %d: %s", answer.StatusCode, text)
		}
		return resp, nil
	}
}

// request is of a domain and what its descriptors are.
func request(domain string, hits uint32, descriptors ...*common.RateLimitDescriptor) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: domain, HitsAddend: hits, Descriptors: descriptors}
}

// edge is a request of the domain edge, of one hit.
func edge(descriptors ...*common.RateLimitDescriptor) *rls.RateLimitRequest {
	return request("edge", 0, descriptors...)
}

// d is a descriptor of entries key=value.
func d(entries ...string) *common.RateLimitDescriptor {
	made := new(common.RateLimitDescriptor)
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		made.Entries = append(made.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return made
}

// hits gives a descriptor hits of its own.
func hits(n uint64, d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

// limited gives a descriptor a limit of its own.
func limited(most uint32, unit envoytype.RateLimitUnit, d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: most, Unit: unit}
	return d
}

// every gives the limit of a descriptor a multiple of its unit.
func every(n uint32, d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.Limit.UnitMultiplier = wrapperspb.UInt32(n)
	return d
}

// reported is a response in short: the overall code, and each status with what is left of which limit.
func reported(resp *rls.RateLimitResponse) string {
	parts := []string{resp.OverallCode.String()}
	for _, s := range resp.Statuses {
		text := s.Code.String()
		switch l := s.CurrentLimit; {
		case l != nil:
			text += fmt.Sprintf(" %s %d/%d %s", l.Name, s.LimitRemaining, l.RequestsPerUnit, l.Unit)
		case s.LimitRemaining == math.MaxUint32:
			text += " unlimited"
		case s.LimitRemaining != 0:
			text += fmt.Sprintf(" %d", s.LimitRemaining)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " | ")
}

// sound holds what is true of every response.
func sound(t *testing.T, req *rls.RateLimitRequest, resp *rls.RateLimitResponse) {
	t.Helper()
	if len(resp.Statuses) != len(req.Descriptors) {
		t.Errorf("%d statuses for %d descriptors", len(resp.Statuses), len(req.Descriptors))
	}
	over, limits := false, false
	for _, s := range resp.Statuses {
		over = over || s.Code == rls.RateLimitResponse_OVER_LIMIT
		limits = limits || s.CurrentLimit != nil
		if (s.CurrentLimit == nil) != (s.DurationUntilReset == nil) {
			t.Errorf("limit %v, reset %v", s.CurrentLimit, s.DurationUntilReset)
		}
		if reset := s.DurationUntilReset; reset != nil && (reset.CheckValid() != nil || reset.AsDuration() < 0) {
			t.Errorf("until reset: %v", reset)
		}
		if s.CurrentLimit != nil && s.CurrentLimit.RequestsPerUnit == 0 && s.DurationUntilReset.AsDuration() == 0 {
			t.Errorf("a limit of 0 resets now: %v", s)
		}
		if l := s.CurrentLimit; l != nil && s.LimitRemaining > l.RequestsPerUnit {
			t.Errorf("%d of %d are left", s.LimitRemaining, l.RequestsPerUnit)
		}
	}
	headers := make(map[string]string)
	for _, h := range resp.ResponseHeadersToAdd {
		if _, twice := headers[h.Key]; twice {
			t.Errorf("%s is told twice", h.Key)
		}
		headers[h.Key] = h.Value
	}
	if denied := resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT; denied {
		var problem struct {
			Status   int
			Violated []string `json:"violated-policies"`
		}
		if err := json.Unmarshal(resp.RawBody, &problem); err != nil || problem.Status != 429 ||
			len(problem.Violated) == 0 {
			t.Errorf("the body of a denial is %s", resp.RawBody)
		}
		if headers["Content-Type"] != "application/problem+json" || headers["Cache-Control"] != "no-store" || !over {
			t.Errorf("a denial with %v", resp)
		}
	} else if resp.RawBody != nil || headers["Content-Type"] != "" {
		t.Errorf("allowed, with body %s and headers %v", resp.RawBody, headers)
	}
	if (headers["Ratelimit"] != "") != limits {
		t.Errorf("headers %v where %v", headers, resp.Statuses)
	}
}

// waitReady waits until the node serves.
func waitReady(t *testing.T, n *node.Node) {
	t.Helper()
	ticker := time.NewTicker(3 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.After(patience); n.Ready() != nil; {
		select {
		case <-deadline:
			t.Fatalf("not ready within %v", patience)
		case <-ticker.C:
		}
	}
}

// raw is a connection on which frames are written by hand.
type raw struct {
	net.Conn
	framer *http2.Framer
}

// greet dials a listener and begins to speak HTTP/2.
func greet(t *testing.T, l *bufconn.Listener) *raw {
	t.Helper()
	conn, err := l.Dial()
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	r := &raw{conn, http2.NewFramer(conn, conn)}
	r.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	testkit.Must(t, r.framer.WriteSettings())
	return r
}

// begin sends the headers of a request, and no more.
func (r *raw) begin(t *testing.T, stream uint32, timeout string) {
	t.Helper()
	r.beginAt(t, stream, "/"+service+"/ShouldRateLimit", timeout)
}

func (r *raw) beginAt(t *testing.T, stream uint32, method, timeout string) {
	t.Helper()
	testkit.Must(t, r.tryBeginAt(stream, method, timeout))
}

// tryBeginAt is beginAt on a connection that the node may have closed.
func (r *raw) tryBeginAt(stream uint32, method, timeout string) error {
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"grpc-timeout", timeout}} {
		if f[1] != "" {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
	}
	return r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte(block.String()),
		EndHeaders: true})
}

// ended reads until the stream ends and returns its grpc-status, or the code of a reset.
func (r *raw) ended(t *testing.T, stream uint32) string {
	t.Helper()
	for {
		frame, err := r.framer.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if f.StreamID == stream && h.Name == "grpc-status" {
					return h.Value
				}
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return f.ErrCode.String()
			}
		}
	}
}

func TestMain(m *testing.M) {
	if addr := os.Getenv("EDGELIMIT_TEST_ASK"); addr != "" {
		requests, _ := strconv.ParseInt(os.Getenv("EDGELIMIT_TEST_REQUESTS"), 10, 64)
		if err := ask(addr, requests); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testkit.MainWithoutLeaks(m)
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
