package xds_test

import (
	"context"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/xds"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

const nodeID = "the-node"

// manager is a management server: go-control-plane's, with its snapshots.
type manager struct {
	t         *testing.T
	snapshots cache.SnapshotCache
	stop      context.CancelFunc
	grpc      *grpc.Server
	served    sync.WaitGroup

	mu       sync.Mutex
	requests []*discovery.DiscoveryRequest
	headers  metadata.MD
}

// manage starts a management server at addr, which ends with the test, or by close.
func manage(t *testing.T, addr string, opt ...grpc.ServerOption) (m *manager, at string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	testkit.Must(t, err)
	m = &manager{t: t, snapshots: cache.NewSnapshotCache(true, cache.IDHash{}, nil), grpc: grpc.NewServer(opt...)}
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	discovery.RegisterAggregatedDiscoveryServiceServer(m.grpc, server.NewServer(ctx, m.snapshots, server.CallbackFuncs{
		StreamOpenFunc: func(ctx context.Context, _ int64, _ string) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.headers, _ = metadata.FromIncomingContext(ctx)
			return nil
		},
		StreamRequestFunc: func(_ int64, req *discovery.DiscoveryRequest) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.requests = append(m.requests, req)
			return nil
		},
	}))
	m.served.Go(func() { _ = m.grpc.Serve(l) })
	t.Cleanup(m.close)
	return m, l.Addr().String()
}

func (m *manager) close() {
	m.stop()
	m.grpc.Stop()
	m.served.Wait()
}

// publish makes resources the state of the world.
func (m *manager) publish(version string, configs ...*ratelimit.RateLimitConfig) {
	m.t.Helper()
	var list []types.Resource
	for _, c := range configs {
		list = append(list, c)
	}
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: list})
	testkit.Must(m.t, err)
	testkit.Must(m.t, m.snapshots.SetSnapshot(m.t.Context(), nodeID, snapshot))
}

// last returns the last request of a node.
func (m *manager) last() *discovery.DiscoveryRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.requests) == 0 {
		return new(discovery.DiscoveryRequest)
	}
	return m.requests[len(m.requests)-1]
}

func (m *manager) acknowledged(version string) func() bool {
	return func() bool { return m.last().GetVersionInfo() == version && m.last().GetErrorDetail() == nil }
}

// config limits key a of a domain to so many requests an hour.
func config(domain string, requests uint32) *ratelimit.RateLimitConfig {
	return &ratelimit.RateLimitConfig{Name: "of-" + domain, Domain: domain,
		Descriptors: []*ratelimit.RateLimitDescriptor{{
			Key: "a", RateLimit: &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_HOUR,
				RequestsPerUnit: requests},
		}}}
}

// launch runs a node with rules from a management server until the test ends.
func launch(t *testing.T, addr string, change func(*node.Config)) *node.Node {
	t.Helper()
	cfg := node.DefaultConfig()
	cfg.HTTP, cfg.Health, cfg.Admin = "", "", ""
	cfg.Compatibility, cfg.Logger = rulefile.Ratelimit, slog.New(slog.DiscardHandler)
	cfg.RulesFrom = xds.Source
	x := &cfg.RulesXDS
	x.Server, x.NodeID, x.MinBackoff, x.MaxBackoff = addr, nodeID, 10*time.Millisecond, 20*time.Millisecond
	if change != nil {
		change(&cfg)
	}
	n, err := node.New(cfg)
	testkit.Must(t, err)
	testkit.Background(t, n.Run)
	return n
}

// limitOf returns the limit of key a in a domain; 0 for none.
func limitOf(t *testing.T, n *node.Node, domain string) uint64 {
	t.Helper()
	d, err := n.Take(t.Context(), node.Request{Domain: domain, Peek: true,
		Descriptors: [][]rules.Entry{{{Key: "a", Value: "x"}}}})
	testkit.Must(t, err)
	return d.Limit
}

func TestRulesFollowTheServer(t *testing.T) {
	m, addr := manage(t, "127.0.0.1:0")
	m.publish("1", config("one", 10), config("two", 20))
	n := launch(t, addr, func(cfg *node.Config) {
		cfg.RulesXDS.Metadata = map[string]string{"zone": "z"}
		cfg.RulesXDS.Headers = map[string]string{"x-key": "k"}
	})
	testkit.Eventually(t, "ready", func() bool { return n.Ready() == nil })
	if one, two := limitOf(t, n, "one"), limitOf(t, n, "two"); one != 10 || two != 20 {
		t.Errorf("limits are %d and %d", one, two)
	}
	testkit.Eventually(t, "acknowledged", m.acknowledged("1"))
	m.mu.Lock()
	first := m.requests[0]
	if first.Node.GetId() != nodeID || first.Node.GetMetadata().GetFields()["zone"].GetStringValue() != "z" ||
		strings.Join(m.headers["x-key"], " ") != "k" {
		t.Errorf("it asked as %v, with headers %v", first.Node, m.headers)
	}
	m.mu.Unlock()

	m.publish("2", config("one", 11))
	testkit.Eventually(t, "the second version", m.acknowledged("2"))
	if one, two := limitOf(t, n, "one"), limitOf(t, n, "two"); one != 11 || two != 0 {
		t.Errorf("limits are %d and %d", one, two)
	}

	// what is wrong is refused with its reason, and the last good rules stay in force
	twice := config("one", 13)
	twice.Name = "another"
	m.publish("3", config("one", 12), twice)
	testkit.Eventually(t, "refused", func() bool { return m.last().GetErrorDetail() != nil })
	if r := m.last(); r.GetVersionInfo() != "2" || !strings.Contains(r.GetErrorDetail().GetMessage(), "already given") {
		t.Errorf("it answered %v", r)
	}
	if one := limitOf(t, n, "one"); one != 11 {
		t.Errorf("the limit is %d", one)
	}
	m.publish("4")
	testkit.Eventually(t, "no rules at all", m.acknowledged("4"))
	if one := limitOf(t, n, "one"); one != 0 {
		t.Errorf("the limit is %d", one)
	}
}

// A node that has rules keeps them while the server is away, and comes back to it.
func TestTheServerComesBack(t *testing.T) {
	m, addr := manage(t, "127.0.0.1:0")
	m.publish("1", config("one", 10))
	n := launch(t, addr, nil)
	testkit.Eventually(t, "acknowledged", m.acknowledged("1"))
	testkit.Eventually(t, "ready", func() bool { return n.Ready() == nil })
	m.close()
	if one := limitOf(t, n, "one"); one != 10 || n.Ready() != nil {
		t.Errorf("without the server the limit is %d, and the node is ready: %v", one, n.Ready())
	}
	m, _ = manage(t, addr)
	m.publish("2", config("one", 20))
	testkit.Eventually(t, "the rules of the server that came back", m.acknowledged("2"))
	m.mu.Lock()
	if first := m.requests[0]; first.GetVersionInfo() != "1" {
		t.Errorf("it came back with version %q", first.GetVersionInfo())
	}
	m.mu.Unlock()
	if one := limitOf(t, n, "one"); one != 20 {
		t.Errorf("the limit is %d", one)
	}
}

// Before the first rules a node is not ready, unless it is to start without.
func TestTheFirstRulesAreAwaited(t *testing.T) {
	m, addr := manage(t, "127.0.0.1:0")
	waiting := launch(t, addr, nil)
	eager := launch(t, addr, func(cfg *node.Config) { cfg.StartWithoutRules = true })
	testkit.Eventually(t, "the eager node is ready", func() bool { return eager.Ready() == nil })
	testkit.Eventually(t, "both have asked", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.requests) == 2
	})
	if waiting.Ready() == nil {
		t.Error("a node without rules is ready")
	}
	decides := func(on rules.Failure) node.Decision {
		d, err := eager.Take(t.Context(), node.Request{Domain: "one", Peek: true, OnFailure: on,
			Descriptors: [][]rules.Entry{{{Key: "key", Value: "x"}}}})
		testkit.Must(t, err)
		return d
	}
	if closed, open := decides(rules.FailClosed), decides(rules.FailOpen); closed.Allowed || !closed.Failed ||
		!open.Allowed {
		t.Errorf("without rules, closed is %+v, and open %+v", closed, open)
	}
	m.publish("1", config("one", 10))
	testkit.Eventually(t, "the other is ready", func() bool { return waiting.Ready() == nil })
	testkit.Eventually(t, "both have the rules", func() bool {
		return limitOf(t, waiting, "one") == 10 && limitOf(t, eager, "one") == 10
	})
	if d := decides(rules.FailClosed); !d.Allowed {
		t.Errorf("with rules, closed is %+v", d)
	}
}

// Everything that a resource can say is understood.
func TestAllOfAResource(t *testing.T) {
	m, addr := manage(t, "127.0.0.1:0")
	fields, err := structpb.NewStruct(map[string]any{"plan": "gold", "nested": map[string]any{"n": 1.0}})
	testkit.Must(t, err)
	c := config("one", 10)
	c.Descriptors = append(c.Descriptors, &ratelimit.RateLimitDescriptor{
		Key: "path", Value: "/\u2028\"'\\ : #*", QuotaMode: true, DetailedMetric: true, Metadata: fields,
		RateLimit: &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_WEEK, RequestsPerUnit: 1<<32 - 1,
			Name: "n", Replaces: []*ratelimit.RateLimitReplace{{Name: "other"}}},
		Descriptors: []*ratelimit.RateLimitDescriptor{
			{Key: "free", RateLimit: &ratelimit.RateLimitPolicy{Unlimited: true}},
			{Key: "none", ShadowMode: true, RateLimit: &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_DAY}},
		},
	})
	m.publish("1", c)
	n := launch(t, addr, nil)
	testkit.Eventually(t, "acknowledged", func() bool {
		if detail := m.last().GetErrorDetail(); detail != nil {
			t.Fatalf("refused: %s", detail.GetMessage())
		}
		return m.acknowledged("1")()
	})
	d, err := n.Take(t.Context(), node.Request{Domain: "one", Peek: true,
		Descriptors: [][]rules.Entry{{{Key: "path", Value: "/\u2028\"'\\ : #x"}}}})
	if err != nil || d.Limit != 1<<32-1 || d.Rule != "n" || d.Window != 7*24*time.Hour {
		t.Errorf("%+v, %v", d, err)
	}
}

// A server that sends more than max_message, however often, changes nothing: the last good rules stay, and the next
// that fit are taken.
func TestTooLargeAResponse(t *testing.T) {
	m, addr := manage(t, "127.0.0.1:0")
	m.publish("1", config("one", 10))
	log := new(testkit.Log)
	n := launch(t, addr, func(cfg *node.Config) { cfg.RulesXDS.MaxMessage, cfg.Logger = 4<<10, log.Logger() })
	testkit.Eventually(t, "acknowledged", m.acknowledged("1"))
	large := config("one", 99)
	large.Descriptors[0].Value = strings.Repeat("x", 8<<10)
	m.publish("2", large)
	testkit.Eventually(t, "a warning", func() bool { return log.HasLine("WARN", "the rules in force stay", "larger") })
	if one := limitOf(t, n, "one"); one != 10 || n.Ready() != nil {
		t.Errorf("the limit is %d, and the node is ready: %v", one, n.Ready())
	}
	m.publish("3", config("one", 30))
	testkit.Eventually(t, "the next version", m.acknowledged("3"))
	if one := limitOf(t, n, "one"); one != 30 {
		t.Errorf("the limit is %d", one)
	}
}

// With TLS the node takes rules from the server that its authority vouches for, by its name, and from no other.
func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1 and example.com, which is its own authority
	web.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	testkit.Must(t, os.WriteFile(authority, text, 0o600))
	m, addr := manage(t, "127.0.0.1:0", grpc.Creds(credentials.NewServerTLSFromCert(&web.TLS.Certificates[0])))
	m.publish("1", config("one", 10))
	with := func(name, file string) *node.Node {
		return launch(t, addr, func(cfg *node.Config) {
			cfg.RulesXDS.TLS, cfg.RulesXDS.CAFile, cfg.RulesXDS.ServerName = true, file, name
		})
	}
	strangers := []*node.Node{with("other.example", authority), with("", ""), with("", authority+".missing")}
	n := with("example.com", authority)
	testkit.Eventually(t, "ready", func() bool { return n.Ready() == nil })
	for i, stranger := range strangers {
		if stranger.Ready() == nil {
			t.Errorf("node %d took rules from a server that it cannot know", i)
		}
	}
}
