package conformance

import (
	"context"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/middleware/grpcmw"
)

// trailers are where a call's trailers go.
type trailers struct {
	grpc.ServerTransportStream
	md metadata.MD
}

func (s *trailers) SetTrailer(md metadata.MD) error {
	s.md = metadata.Join(s.md, md)
	return nil
}

func openInterceptors(t *testing.T, rules string) func(*testing.T, request) answer {
	n := open(t, rules, nil)
	var now request
	guard, err := grpcmw.New(n, grpcmw.Options{
		Describe: func(context.Context, string) (node.Request, error) { return toRequest(now), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, q request) answer {
		now = q
		var stream trailers
		passed := false
		_, err := guard.Unary(grpc.NewContextWithServerTransportStream(t.Context(), &stream), nil,
			&grpc.UnaryServerInfo{FullMethod: "/shop.Cart/Buy"},
			func(context.Context, any) (any, error) { passed = true; return nil, nil })
		if code := status.Code(err); passed != (code == codes.OK) || !passed && code != codes.ResourceExhausted {
			t.Fatalf("handed on: %v, with %v", passed, err)
		}
		fields := make(http.Header)
		for name, values := range stream.md {
			fields[http.CanonicalHeaderKey(name)] = values
		}
		return fromHeaders(t, passed, fields)
	}
}
