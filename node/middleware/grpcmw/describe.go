package grpcmw

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
)

// defaultActions are those of Options without Describe. They trust no proxy.
func defaultActions() actions.Config {
	client := actions.Entry{Key: "remote_address", Source: "client"}
	method := actions.Entry{Key: "method", Source: "path"}
	return actions.Config{
		Domain: "edge", Descriptors: []actions.Descriptor{{client}, {method}, {method, client}},
		PathCase: actions.PathCaseExact, // as methods of gRPC are
	}
}

// FromActions describes a call as the HTTP request that it is: a POST of the peer whose path is the full method, as in
// /shop.Cart/Buy, and whose headers are the metadata. So trusted proxies, metadata and token claims work as for HTTP. A
// call that a denies ends with InvalidArgument. Method names are case-sensitive: actions.PathCaseExact fits.
func FromActions(a *actions.Actions) func(ctx context.Context, fullMethod string) (rules.Request, error) {
	return func(ctx context.Context, fullMethod string) (req rules.Request, err error) {
		r := http.Request{Method: http.MethodPost, URL: &url.URL{Path: fullMethod}, Header: make(http.Header),
			RemoteAddr: "unknown"}
		if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
			r.RemoteAddr = p.Addr.String()
		}
		md, _ := metadata.FromIncomingContext(ctx)
		for name, values := range md {
			switch {
			case name == ":authority" && len(values) == 1:
				r.Host = values[0]
			case !strings.HasPrefix(name, ":"):
				r.Header[http.CanonicalHeaderKey(name)] = values
			}
		}
		if out := a.Describe(&r, &req); out.Denied != "" {
			return req, status.Error(codes.InvalidArgument, out.Detail)
		}
		return req, nil
	}
}
