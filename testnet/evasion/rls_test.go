package evasion

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/envoy"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// startEnvoy runs a node with Envoy's rate limit service.
func startEnvoy(t *testing.T) *node.Node {
	return startWith(t, func(cfg *node.Config) { cfg.GRPC, cfg.Envoy = "127.0.0.1:0", envoy.Service })
}

// verbatim is a codec that writes bytes as they are.
type verbatim struct{}

func (verbatim) Name() string                  { return "proto" }
func (verbatim) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (verbatim) Unmarshal(b []byte, v any) error {
	return proto.Unmarshal(b, v.(proto.Message))
}

// rlsSender sends requests to a node's Envoy rate limit service as bytes.
func rlsSender(t *testing.T, n *node.Node) func(envoyRequest) (*rls.RateLimitResponse, error) {
	t.Helper()
	conn, err := grpc.NewClient(n.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(verbatim{})))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return func(a envoyRequest) (*rls.RateLimitResponse, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		resp := new(rls.RateLimitResponse)
		return resp, conn.Invoke(ctx, rls.RateLimitService_ShouldRateLimit_FullMethodName, a.wire(), resp)
	}
}

// jsonSender sends them to /json.
func jsonSender(t *testing.T, n *node.Node) func(envoyRequest) (*rls.RateLimitResponse, error) {
	t.Helper()
	return func(a envoyRequest) (*rls.RateLimitResponse, error) {
		body, err := a.json()
		if err != nil {
			return nil, err
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+n.Addr("http")+"/json",
			bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		httpResp, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil, err
		}
		defer httpResp.Body.Close()
		answer, err := io.ReadAll(httpResp.Body)
		if err != nil {
			return nil, err
		}
		if httpResp.StatusCode != http.StatusOK && httpResp.StatusCode != http.StatusTooManyRequests {
			return nil, refusal{fmt.Sprintf("%s: %s", httpResp.Status, answer)}
		}
		resp := new(rls.RateLimitResponse)
		return resp, protojson.Unmarshal(answer, resp)
	}
}

// refusal is an answer by which the sender knows that its request is wrong.
type refusal struct{ text string }

func (r refusal) Error() string { return r.text }

// json is the request in JSON. Bytes that are no UTF-8 stay as they are.
func (a envoyRequest) json() ([]byte, error) {
	quoted := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil || !strings.Contains(string(b), `\ufffd`) {
			return string(b)
		}
		return `"` + s + `"`
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"domain":%s,"descriptors":[`, quoted(a.domain))
	for i, d := range a.descriptors {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(`{"entries":[`)
		for j, e := range d.entries {
			if j > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, `{"key":%s,"value":%s}`, quoted(e[0]), quoted(e[1]))
		}
		b.WriteString("]")
		if d.hits != nil {
			fmt.Fprintf(&b, `,"hitsAddend":"%d"`, *d.hits)
		}
		if d.limit != nil {
			b.WriteString(`,"limit":{"requestsPerUnit":1000,"unit":"HOUR"}`)
		}
		b.WriteString("}")
	}
	b.WriteString("]")
	if a.hits != nil {
		fmt.Fprintf(&b, `,"hitsAddend":%d`, *a.hits)
	}
	b.WriteString("}")
	return []byte(b.String()), nil
}

// met are the rules that an answer names.
func met(resp *rls.RateLimitResponse) map[string]bool {
	names := map[string]bool{}
	for _, s := range resp.GetStatuses() {
		if l := s.GetCurrentLimit(); l != nil {
			names[l.GetName()] = true
		}
	}
	return names
}

// checkMet sends a request twice. It holds that both meet each layer that the request does not spare, and that the
// second finds less left there, unless the first was denied. It returns the error of a request that was refused.
func checkMet(t *testing.T, a envoyRequest, send func(envoyRequest) (*rls.RateLimitResponse, error)) (refused error) {
	t.Helper()
	first, err := send(a)
	if err != nil {
		return err
	}
	second, err := send(a)
	if err != nil {
		return err
	}
	layers := map[string]bool{}
	for i, d := range a.descriptors {
		if len(d.entries) == 0 || slices.Contains(a.spares, d.entries[0][0]) {
			continue
		}
		key := d.entries[0][0]
		was, is := first.GetStatuses()[i], second.GetStatuses()[i]
		layers[key] = was.GetCurrentLimit().GetName() == key && is.GetCurrentLimit().GetName() == key
		if first.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT || !layers[key] {
			continue
		}
		if charge := int64(was.GetLimitRemaining()) - int64(is.GetLimitRemaining()); charge < max(a.atLeast[key], 1) {
			t.Errorf("%s: layer %s is charged %d", a.name, key, charge)
		}
	}
	for _, l := range Layers() {
		if !layers[l.Key] && !slices.Contains(a.spares, l.Key) {
			t.Errorf("%s: layer %s is not met", a.name, l.Key)
		}
	}
	return nil
}

// TestRLSValues: whatever a client puts into a value, Envoy gets an answer by which all layers are met. An error is
// none: Envoy lets the request pass unless it is configured otherwise. Envoy sends a header's bytes as they are, also
// those that are no UTF-8, and up to 60 KiB of them in each layer.
func TestRLSValues(t *testing.T) {
	n := startEnvoy(t)
	send := rlsSender(t, n)
	all := slices.Concat(
		valued(values),
		valued(otherBytes),
		[]envoyRequest{plainEnvoyRequest().with("60 KiB in all layers", func(a *envoyRequest) {
			for _, d := range a.descriptors[:4] {
				d.entries[0][1] = strings.Repeat("x", 60<<10)
			}
		})},
	)
	for _, a := range append([]envoyRequest{plainEnvoyRequest()}, all...) {
		if err := checkMet(t, a, send); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
	}
	t.Logf("%d variations", len(all))
}

// TestRLSRequests: nor does another form of a sender's request lose a layer that it does not concern.
func TestRLSRequests(t *testing.T) {
	n := startEnvoy(t)
	send := rlsSender(t, n)
	var refused []string
	for _, a := range envoyRequests() {
		if err := checkMet(t, a, send); err != nil {
			refused = append(refused, a.name+": "+err.Error())
		}
	}
	t.Logf("%d variations, of which %d are refused: %q", len(envoyRequests()), len(refused), refused)
}

// TestRLSDomains: another spelling of the domain is another domain, and meets nothing of this one.
func TestRLSDomains(t *testing.T) {
	n := startEnvoy(t)
	send := rlsSender(t, n)
	for _, domain := range []string{"EDGE", "Edge", "edge ", " edge", "edge\x00", "edge.", "edge/", "edg", "*"} {
		a := plainEnvoyRequest().with(domain, func(a *envoyRequest) { a.domain = domain })
		if resp, err := send(a); err != nil || len(met(resp)) > 0 || resp.GetOverallCode() != rls.RateLimitResponse_OK {
			t.Errorf("%q: %v, %v", domain, resp, err)
		}
	}
	a := plainEnvoyRequest().with("", func(a *envoyRequest) { a.domain = "" })
	if _, err := send(a); status.Code(err) != codes.InvalidArgument {
		t.Errorf("without a domain: %v", err)
	}
}

// TestJSON: nor does one at /json, where a sender is refused what is no JSON.
func TestJSON(t *testing.T) {
	n := startEnvoy(t)
	send := jsonSender(t, n)
	var refused []string
	text := append(valued(values), plainEnvoyRequest())
	all := slices.Concat(text, valued(otherBytes), envoyRequests())
	for i, a := range all {
		err := checkMet(t, a, send)
		var expected refusal
		switch {
		case errors.As(err, &expected) && i >= len(text):
			refused = append(refused, a.name+": "+expected.text)
		case err != nil:
			t.Errorf("%s: %v", a.name, err)
		}
	}
	t.Logf("%d variations, of which %d are refused: %.3000q", len(all), len(refused), refused)
}
