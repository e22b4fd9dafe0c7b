package proxy

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// calls makes a unary call and a stream, and returns how each ended, and its trailers.
func calls(t *testing.T, addr string, opts ...grpc.DialOption) map[string]func() (metadata.MD, error) {
	t.Helper()
	conn, err := grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	t.Cleanup(cancel)
	in, out := wrapperspb.String("x"), new(wrapperspb.StringValue)
	return map[string]func() (metadata.MD, error){
		"unary": func() (metadata.MD, error) {
			var trailer metadata.MD
			err := conn.Invoke(ctx, "/test.Echo/Echo", in, out, grpc.Trailer(&trailer))
			return trailer, err
		},
		"stream": func() (metadata.MD, error) {
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
				"/test.Echo/Echo")
			if err != nil {
				return nil, err
			}
			_ = stream.SendMsg(in) // the call may have ended
			err = stream.RecvMsg(out)
			return stream.Trailer(), err
		},
	}
}

// A denied call ends with RESOURCE_EXHAUSTED and the fields of HTTP as metadata, also where browsers get a page.
func TestDeniedGRPC(t *testing.T) {
	page := filepath.Join(t.TempDir(), "slow.html")
	testkit.Must(t, os.WriteFile(page, []byte("<p>slower"), 0o600))
	named, never := exhausted, exhausted
	named.Rule = "größe 100 %"
	never.RetryAfter = counters.Never
	for _, test := range []struct {
		denial   counters.Decision
		page     string
		message  string
		pushback string
	}{
		{exhausted, "", `rule "burst" admits 100 per 1 min: try again in `, "7"},
		{exhausted, page, `rule "burst" admits 100 per 1 min: try again in `, "7"},
		{named, "", `rule "größe 100 %" admits 100 per 1 min`, "7"},
		{never, "", "no wait helps", "-"},
	} {
		p := open(t, always(test.denial), func(c *Config, _ *Options) { c.DenialPage = test.page }, serveGRPC(t))
		for kind, call := range calls(t, p.addr) {
			trailer, err := call()
			if s := status.Convert(err); s.Code() != codes.ResourceExhausted ||
				!strings.Contains(s.Message(), test.message) {
				t.Errorf("%s: %v, want %q", kind, err, test.message)
			}
			one := func(name string) string { return strings.Join(trailer.Get(name), "|") }
			if one("ratelimit") == "" || one("ratelimit-policy") == "" ||
				!strings.HasPrefix(one("grpc-retry-pushback-ms"), test.pushback) ||
				(one("retry-after") == "") != (test.pushback == "-") {
				t.Errorf("%s: trailers %v", kind, trailer)
			}
		}
		if n := p.Stats().Upstreams[0].Requests; n != 0 {
			t.Errorf("%d denied calls reach the upstream", n)
		}
	}
}

// A client with a retry policy waits as long as the denial says, without a line of code.
func TestGRPCRetries(t *testing.T) {
	answers := make(chan counters.Decision, 2)
	denial := exhausted
	denial.RetryAfter = time.Millisecond
	answers <- denial
	answers <- plenty
	p := open(t, &script{answer: func(*rules.Request) []counters.Decision {
		return []counters.Decision{<-answers}
	}}, nil, serveGRPC(t))
	const policy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "3600s",
		"maxBackoff": "3600s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`
	if _, err := calls(t, p.addr, grpc.WithDefaultServiceConfig(policy))["unary"](); err != nil {
		t.Error(err)
	}
}

// What the proxy answers itself is a status of gRPC: who is to blame, and whether to try again.
func TestGRPCFailures(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for _, test := range []struct {
		name     string
		upstream string
		change   func(*Config, *Options)
		want     codes.Code
		message  string
	}{
		{"no connection", "h2c://127.0.0.1:1", nil, codes.Unavailable, "could not be reached"},
		{"no response", "h2c://" + silent.Addr().String(),
			func(c *Config, _ *Options) { c.Timeouts.FirstByte = 10 * time.Millisecond },
			codes.Unavailable, "did not answer in time"},
		{"not sent", serveGRPC(t), func(_ *Config, o *Options) {
			o.Requests.Descriptors = []actions.Descriptor{{{Key: "k", Source: "header X-Key"},
				{Key: actions.OnMissing, Source: actions.Deny}}}
		}, codes.InvalidArgument, "header X-Key"},
		{"too large", serveGRPC(t), func(c *Config, _ *Options) { c.MaxBodyBytes = 1 }, codes.ResourceExhausted,
			"larger than 1 bytes"},
		{"broken", backend(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}), nil, codes.Internal, ""},
	} {
		p := open(t, always(plenty), test.change, strings.Replace(test.upstream, "http://", "h2c://", 1))
		for kind, call := range calls(t, p.addr) {
			if test.name == "no response" && kind == "stream" {
				continue // first_byte begins once the upstream has the request, which goes on
			}
			trailer, err := call()
			if s := status.Convert(err); s.Code() != test.want || !strings.Contains(s.Message(), test.message) {
				t.Errorf("%s, %s: %v, want %v %q", test.name, kind, err, test.want, test.message)
			}
			if test.want == codes.Unavailable {
				testkit.Eventually(t, "it is a 5xx of the metrics", func() bool { return p.Stats().Classes[5] > 0 })
			}
			if test.want == codes.Unavailable && len(trailer.Get("ratelimit")) != 1 {
				t.Errorf("%s, %s: trailers %v", test.name, kind, trailer)
			}
		}
	}
}

// Only calls of gRPC get such answers: other requests read the status of HTTP.
func TestOthersAreNotGRPC(t *testing.T) {
	p := open(t, always(exhausted), nil, "http://127.0.0.1:1")
	for contentType, want := range map[string]int{
		"application/grpc": 200, "application/grpc+proto": 200, "application/grpc;x": 200,
		"application/grpc-web": 429, "application/grpcx": 429, "application/json": 429, "": 429,
	} {
		for _, h2 := range []bool{true, false} {
			want := want
			if !h2 {
				want = 429 // there is no gRPC over HTTP/1.1
			}
			r, err := http.NewRequestWithContext(t.Context(), "POST", p.url, nil)
			testkit.Must(t, err)
			resp, body := do(t, clientOf(t, h2), r, "Content-Type", contentType)
			if resp.StatusCode != want || (body == "") != (want == 200) {
				t.Errorf("%q over %s: %s %q, want %d", contentType, resp.Proto, resp.Status, body, want)
			}
		}
	}
}
