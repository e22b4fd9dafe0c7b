package xds

import (
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func resource(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	testkit.Must(t, err)
	return a
}

func TestParseRefuses(t *testing.T) {
	good := resource(t, &ratelimit.RateLimitConfig{Name: "good", Domain: "d"})
	for what, tc := range map[string]struct {
		resource *anypb.Any
		want     string
	}{
		"another type": {resource(t, durationpb.New(1)), "resource 2: proto: mismatched message type"},
		"no message":   {&anypb.Any{TypeUrl: good.TypeUrl, Value: []byte("\xff")}, "resource 2: proto:"},
		"no domain":    {resource(t, &ratelimit.RateLimitConfig{Name: "empty"}), "empty:1:1"},
		"no unit": {resource(t, &ratelimit.RateLimitConfig{Name: "unitless", Domain: "e", Descriptors: []*ratelimit.
			RateLimitDescriptor{{Key: "k", RateLimit: new(ratelimit.RateLimitPolicy)}}}), "unitless:1:"},
	} {
		opt := rulefile.Options{Compatibility: rulefile.Ratelimit}
		_, err := parse(opt, []*anypb.Any{good, tc.resource})
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "\u00a0", " "), tc.want) {
			t.Errorf("%s: %v, want %q", what, err, tc.want)
		}
	}
}
