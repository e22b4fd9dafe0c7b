package conformance

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/edgelimit/edgelimit/node"
)

// toEnvoy returns Envoy's form of a request. A peek has zero hits in each descriptor.
func toEnvoy(q request) *rls.RateLimitRequest {
	req := &rls.RateLimitRequest{Domain: "edge", HitsAddend: uint32(min(q.cost, math.MaxUint32))}
	for _, l := range q.layers {
		d := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: l.key, Value: l.value}}}
		if q.cost == 0 {
			d.HitsAddend = wrapperspb.UInt64(0)
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// fromEnvoy reads the headers of a response.
func fromEnvoy(t *testing.T, resp *rls.RateLimitResponse) answer {
	t.Helper()
	fields := make(http.Header)
	for _, h := range resp.ResponseHeadersToAdd {
		fields.Set(h.Key, h.Value)
	}
	return fromHeaders(t, resp.OverallCode == rls.RateLimitResponse_OK, fields)
}

func openEnvoy(t *testing.T, rules string) func(*testing.T, request) answer {
	n := open(t, rules, func(cfg *node.Config) { cfg.GRPC = "127.0.0.1:0" })
	conn, err := grpc.NewClient(n.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := rls.NewRateLimitServiceClient(conn)
	return func(t *testing.T, q request) answer {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		resp, err := client.ShouldRateLimit(ctx, toEnvoy(q))
		if err != nil {
			t.Fatal(err)
		}
		return fromEnvoy(t, resp)
	}
}

func openJSON(t *testing.T, rules string) func(*testing.T, request) answer {
	url, send := openHTTP(t, rules, nil)
	return func(t *testing.T, q request) answer {
		body, err := protojson.Marshal(toEnvoy(q))
		if err != nil {
			t.Fatal(err)
		}
		var text json.RawMessage
		answered := send(t, post(t, url+"/json", json.RawMessage(body)), &text)
		resp := new(rls.RateLimitResponse)
		if err := protojson.Unmarshal(text, resp); err != nil {
			t.Fatal(err)
		}
		if (answered.StatusCode == http.StatusOK) != (resp.OverallCode == rls.RateLimitResponse_OK) {
			t.Fatalf("%s: %v", answered.Status, resp)
		}
		return fromEnvoy(t, resp)
	}
}
