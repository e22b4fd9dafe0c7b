package grpcmw

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
)

// defaultActions are those of Options without Describe. They trust no proxy.
func defaultActions() actions.Config {
	client, method := actions.Entry{Key: "remote_address", Source: "client"}, actions.Entry{Key: "method", Source: "path"}
	return actions.Config{Domain: "edge", Descriptors: []actions.Descriptor{{client}, {method}, {method, client}}}
}

// FromActions describes calls as a makes descriptors of HTTP requests, which is what they are: a POST whose path is the full method, as in
// /shop.Cart/Buy, and whose headers are the metadata, with the address of the peer. So proxies are trusted, and metadata and claims of tokens
// used, as for HTTP.
func FromActions(a *actions.Actions) func(ctx context.Context, fullMethod string) rules.Request {
	return func(ctx context.Context, fullMethod string) (req rules.Request) {
		r := http.Request{Method: http.MethodPost, URL: &url.URL{Path: fullMethod}, Header: make(http.Header), RemoteAddr: "unknown"}
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
		a.Describe(&r, &req)
		return req
	}
}
