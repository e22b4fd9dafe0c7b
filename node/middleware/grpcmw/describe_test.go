package grpcmw_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/middleware/grpcmw"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// from is the context of a call from an address, with metadata.
func from(ctx context.Context, addr net.Addr, md ...string) context.Context {
	return metadata.NewIncomingContext(peer.NewContext(ctx, &peer.Peer{Addr: addr}), metadata.Pairs(md...))
}

var proxy = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4711}

// TestDescribeByDefault: the sender, the method, and both; what metadata says of the sender is not believed.
func TestDescribeByDefault(t *testing.T) {
	l := inOrder(allowed)
	guard, err := grpcmw.New(l, grpcmw.Options{})
	testkit.Must(t, err)
	ctx := from(t.Context(), proxy, "x-forwarded-for", "192.0.2.1", ":authority", "shop")
	call := func(ctx context.Context) {
		t.Helper()
		answer, err := guard.Unary(ctx, "question", &grpc.UnaryServerInfo{FullMethod: "/shop.Cart/Buy"},
			func(_ context.Context, req any) (any, error) { return req, nil })
		if err != nil || answer != "question" {
			t.Errorf("%v, %v", answer, err)
		}
	}
	call(ctx)
	call(from(t.Context(), &net.UnixAddr{Name: "@", Net: "unix"}))
	call(t.Context())
	method := rules.Entry{Key: "method", Value: "/shop.Cart/Buy"}
	client := rules.Entry{Key: "remote_address", Value: "10.0.0.1"}
	anonymous := rules.Request{Domain: "edge", Descriptors: [][]rules.Entry{{method}}}
	want := []rules.Request{
		{Domain: "edge", Descriptors: [][]rules.Entry{{client}, {method}, {method, client}},
			Client: netip.MustParseAddr("10.0.0.1")},
		anonymous,
		anonymous,
	}
	if got := l.requests(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("asked %v, want %v", got, want)
	}
}

// TestFromActions: all sources of HTTP requests are there, and trusted proxies are believed.
func TestFromActions(t *testing.T) {
	a, err := actions.New(actions.Config{
		Domain: "shop", PathCase: actions.PathCaseExact, TrustedProxies: []string{"10.0.0.0/8", actions.UnixPeers},
		Descriptors: []actions.Descriptor{{
			{
				Key: "client", Source: "client",
			}, {Key: "key", Source: "header X-Api-Key"}, {Key: "service", Source: "template /{service}/*"},
			{Key: "host", Source: "host"}, {Key: "verb", Source: "method"},
		}},
	})
	testkit.Must(t, err)
	describe := grpcmw.FromActions(a)
	for _, addr := range []net.Addr{proxy, &net.UnixAddr{Name: "@", Net: "unix"}} {
		ctx := from(t.Context(), addr, "x-forwarded-for", "192.0.2.1", ":authority", "Shop.example", "x-api-key", "k")
		req, err := describe(ctx, "/shop.Cart/Buy")
		testkit.Must(t, err)
		want := rules.Request{
			Domain: "shop", Client: netip.MustParseAddr("192.0.2.1"),
			Descriptors: [][]rules.Entry{{{Key: "client", Value: "192.0.2.1"}, {Key: "key", Value: "k"},
				{
					Key: "service", Value: "shop.Cart",
				}, {Key: "host", Value: "shop.example"}, {Key: "verb", Value: "POST"}}},
		}
		if fmt.Sprint(req) != fmt.Sprint(want) {
			t.Errorf("from %v: %v, want %v", addr, req, want)
		}
	}
	for _, md := range [][]string{nil, {"x-api-key", "k", "x-api-key", "l"}, {"x-api-key", "k"}} {
		if req, err := describe(from(t.Context(), proxy, md...), "/shop.Cart/Buy"); err != nil ||
			len(req.Descriptors) != 0 {
			t.Errorf("with %v: %v, %v", md, req, err)
		}
	}
}

// TestDeniedByDescription: a call that the actions deny ends, and so does one that cannot be decided for the many forms
// of what it sent.
func TestDeniedByDescription(t *testing.T) {
	a, err := actions.New(actions.Config{Domain: "shop", Descriptors: []actions.Descriptor{
		{{Key: "key", Source: "header X-Api-Key"}, {Key: actions.OnMissing, Source: actions.Deny}},
	}})
	testkit.Must(t, err)
	l := &limiter{answer: func(int) ([]counters.Decision, error) { return nil, rules.ErrInvalidRequest }}
	guard, err := grpcmw.New(l, grpcmw.Options{Describe: grpcmw.FromActions(a), Logger: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	for name, tt := range map[string]struct {
		md    []string
		code  codes.Code
		asked int
	}{
		"missing": {nil, codes.InvalidArgument, 0},
		"two":     {[]string{"x-api-key", "k", "x-api-key", "l"}, codes.InvalidArgument, 1},
		"one":     {[]string{"x-api-key", "k"}, codes.OK, 1},
	} {
		before := len(l.requests())
		_, err := guard.Unary(from(t.Context(), proxy, tt.md...), "question",
			&grpc.UnaryServerInfo{FullMethod: "/shop.Cart/Buy"},
			func(context.Context, any) (any, error) { return "answer", nil })
		if status.Code(err) != tt.code || len(l.requests())-before != tt.asked {
			t.Errorf("%s: %v, asked %d times", name, err, len(l.requests())-before)
		}
	}
}
