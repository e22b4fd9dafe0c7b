package node

import (
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/listen"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// withGRPC adds a listener of Envoy's rate limit service.
func withGRPC(cfg Config) Config {
	cfg.GRPC = "127.0.0.1:0"
	return cfg
}

func envoy(t *testing.T, n *running) rls.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(n.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return rls.NewRateLimitServiceClient(conn)
}

// bringing is a request of a client that brings a limit of its own, an hour's; none if it is 0.
func bringing(client string, most uint32) *rls.RateLimitRequest {
	d := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "client", Value: client}}}
	if most > 0 {
		d.Limit = &common.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: most, Unit: envoytype.RateLimitUnit_HOUR,
		}
	}
	return &rls.RateLimitRequest{Domain: "test", Descriptors: []*common.RateLimitDescriptor{d}}
}

func shouldRateLimit(t *testing.T, c rls.RateLimitServiceClient,
	req *rls.RateLimitRequest) *rls.RateLimitResponse_DescriptorStatus {
	t.Helper()
	resp, err := c.ShouldRateLimit(t.Context(), req, grpc.WaitForReady(true))
	testkit.Must(t, err)
	return resp.Statuses[0]
}

func TestEnvoyMetrics(t *testing.T) {
	n := launch(t, withGRPC(withListeners(quiet(layered)))).ready(t)
	c := envoy(t, n)
	for range 11 {
		shouldRateLimit(t, c, bringing("a secret", 0))
	}
	shouldRateLimit(t, c, bringing("a secret", 5))
	if _, err := c.ShouldRateLimit(t.Context(), new(rls.RateLimitRequest)); err == nil {
		t.Error("an empty request is answered")
	}
	if status, _ := post(t, n.Addr("http"), "/json",
		`{"domain":"test","descriptors":[{"entries":[{"key":"client","value":"a secret"}]}]}`); status != 429 {
		t.Errorf("/json: %d", status)
	}
	text, series := scrape(t, n.Addr("health"))
	for id, want := range map[string]float64{
		"edgelimit_rls_requests_total outcome=ok": 11, "edgelimit_rls_requests_total outcome=over_limit": 2,
		"edgelimit_rls_requests_total outcome=invalid": 1, "edgelimit_rls_requests_total outcome=failed": 0,
		"edgelimit_near_limit_total rule=per_client": 2, // of ten: one is left, and none
		"edgelimit_rls_overrides":                    1, "edgelimit_rls_over_admission_bound_ratio": 0,
	} {
		if v, ok := series[id]; !ok || v != want {
			t.Errorf("%s = %v (there: %v), want %v", id, v, ok, want)
		}
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "override/") {
		t.Error("a value or a limit of a request is in the metrics")
	}
	if got := tallied(n.Node, "test/client"); got != [3]uint64{10, 2, 0} {
		t.Errorf("tallies are %v", got)
	}
}

// A limit that a request brings is kept by all nodes together.
func TestOverridesAcrossNodes(t *testing.T) {
	t.Parallel()
	first := launch(t, withGRPC(withListeners(gossiping("a", "eu")))).ready(t)
	second := launch(t, withGRPC(gossiping("b", "eu", first.Addr("lan")))).ready(t)
	allMembers(t, first, second)
	here, there := envoy(t, first), envoy(t, second)
	req := bringing("a", 100)
	req.HitsAddend = 60
	if got := shouldRateLimit(t, here, req); got.LimitRemaining != 40 {
		t.Fatalf("60 of 100: %v", got)
	}
	peek := bringing("a", 100)
	peek.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	testkit.Eventually(t, "the other node knows",
		func() bool { return shouldRateLimit(t, there, peek).LimitRemaining == 40 })
	req.HitsAddend = 41
	if got := shouldRateLimit(t, there, req); got.Code != rls.RateLimitResponse_OVER_LIMIT {
		t.Errorf("41 more at the other node: %v", got)
	}
}

// What peers tell of limits that requests bring is believed as little as of rules', and so on where clients of the
// Redis protocol make some too.
func TestOverridesAreKnown(t *testing.T) {
	n := launch(t, withGRPC(withRESP(quiet(layered)))).ready(t)
	shouldRateLimit(t, envoy(t, n), bringing("a", 5))
	slot := n.Slots()[0]
	if slot.Meter.Rule != "%override/5/1h0m0s" {
		t.Fatalf("slot of %s", slot.Meter.Rule)
	}
	slot.Origin, slot.Count = 77, 1_000_000
	for i, change := range []func(){
		func() {},
		func() { n.enforce(ruleSet(layered)) },
		func() {
			l, _ := counters.NewLimit(counters.NewMeter("%cl.throttle/1/1/1", counters.TokenBucket, time.Second), 1)
			n.learnAdHoc(redisAPI)([]*counters.Limit{l})
		},
	} {
		change()
		n.table.Merge([]counters.Slot{slot}, n.clock.Now())
		if got := n.table.Stats().Implausible; got != uint64(i+1) {
			t.Errorf("%d slots are beyond belief, want %d", got, i+1)
		}
	}
	if (*n.limits.Load())["%override/5/1h0m0s"] == nil || (*n.limits.Load())["%cl.throttle/1/1/1"] == nil ||
		(*n.limits.Load())["%override/6/1h0m0s"] != nil {
		t.Error("limits that clients made are not found")
	}
	if got := n.limitsAt(time.Now()); got["%override/5/1h0m0s"] == nil || got["%cl.throttle/1/1/1"] == nil ||
		got["test/client"] == nil {
		t.Errorf("limits in force: %v", got)
	}
}

// The kill switch holds for what requests bring as well.
func TestOverrideInShadowMode(t *testing.T) {
	n := launch(t, withGRPC(quiet(layered))).ready(t)
	c := envoy(t, n)
	n.Shadow(true)
	for range 3 {
		if got := shouldRateLimit(t, c, bringing("a", 1)); got.Code != rls.RateLimitResponse_OK {
			t.Errorf("in shadow mode: %v", got)
		}
	}
	n.Shadow(false)
	if got := shouldRateLimit(t, c, bringing("a", 1)); got.Code != rls.RateLimitResponse_OVER_LIMIT {
		t.Errorf("after shadow mode: %v", got)
	}
}

// DecideMet tells the rules of as many layers as there is room for.
func TestDecideMet(t *testing.T) {
	n := idle(t, layered)
	req := ask(by("plan", "partner"), by("nobody", "x"), by("client", "x"))
	met := []*rules.Rule{nil, new(rules.Rule)}
	layers, err := n.DecideMet(t.Context(), &req, nil, met)
	if err != nil || len(layers) != 3 || met[0] == nil || met[0].Name != "partner" || met[1] != nil {
		t.Errorf("%v, %v, %v", layers, met, err)
	}
	many := make([]*rules.Rule, 5)
	if layers, err = n.DecideMet(t.Context(), &req, layers, many); err != nil || len(layers) != 6 ||
		many[2].Name != "per_client" ||
		many[3] != nil {
		t.Errorf("%v, %v, %v", layers, many, err)
	}
}

// Asks of each descriptor are charged and counted by themselves: a peek beside a charge is no decision of its rule.
func TestDecideAsks(t *testing.T) {
	n := idle(t, layered)
	req := ask(by("client", "x"), by("endpoint", "/a"))
	req.Asks = []rules.Ask{{Cost: 4}, {}}
	for range 2 {
		if _, err := n.Decide(t.Context(), &req, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := spent(t, n, "test/client", "x"); got != 8 {
		t.Errorf("the client is charged %d", got)
	}
	if got := spent(t, n, "test/endpoint", "/a"); got != 0 {
		t.Errorf("the endpoint is charged %d", got)
	}
	if got := tallied(n, "test/client"); got != [3]uint64{2, 0, 0} {
		t.Errorf("tallies of the client: %v", got)
	}
	if got := tallied(n, "test/endpoint"); got != [3]uint64{} {
		t.Errorf("tallies of the endpoint: %v", got)
	}
}

// What is told right after a report leaves no trace, also where each descriptor asks for something of its own.
func TestReportAsks(t *testing.T) {
	n := idle(t, layered)
	req := ask(by("client", "x"), by("endpoint", "/a"))
	req.Asks = []rules.Ask{{Cost: 4}, {}}
	layers, err := n.Report(t.Context(), &req, nil)
	if err != nil || layers[0].Remaining != 6 || layers[1].Remaining != 3 {
		t.Fatalf("%+v, %v", layers, err)
	}
	if got := spent(t, n, "test/client", "x"); got != 4 || req.Asks[0].Cost != 4 {
		t.Errorf("the client is charged %d, asks are %v", got, req.Asks)
	}
}

// Clients beyond those that the listener has room for are hung up on, and those that are there go on.
func TestEnvoysListenerIsCapped(t *testing.T) {
	cfg := withGRPC(quiet(layered))
	cfg.MaxConnections = 1
	n := launch(t, cfg).ready(t)
	c := envoy(t, n)
	shouldRateLimit(t, c, bringing("a", 0))
	conn, err := net.Dial("tcp", n.Addr("grpc"))
	testkit.Must(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(3 * testkit.Patience))
	if said, err := io.ReadAll(conn); len(said) > 0 || err != nil {
		t.Errorf("who was refused was told %q, %v", said, err)
	}
	shouldRateLimit(t, c, bringing("a", 0))
	if got := n.listeners["grpc"].Stats(); got != (listen.Stats{Open: 1, Accepted: 1, RefusedFull: 1}) {
		t.Errorf("%+v", got)
	}
}

// A node that cannot be made leaves nothing behind of the listener that was open already.
func TestNewFailsAfterEnvoysListener(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer taken.Close()
	cfg := quiet(perClient)
	cfg.GRPC, cfg.RESP, cfg.HTTP, cfg.Health = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", taken.Addr().String()
	before := runtime.NumGoroutine()
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}
	testkit.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}
