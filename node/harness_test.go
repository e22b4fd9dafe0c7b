package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// gossiping is the configuration of a node on loopback that joins through others of its region, or wan:others of any.
func gossiping(id, region string, join ...string) Config {
	cfg := quiet(perClient)
	cfg.NodeID, cfg.Region = id, region
	cfg.Gossip.LAN, cfg.Gossip.WAN = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Gossip.Interval = 50 * time.Millisecond
	cfg.Gossip.Join = join
	return cfg
}

// through lets all gossip of the node pass the links, as an endpoint of the group.
func through(links *netem.Links, group string, cfg Config) Config {
	cfg.WrapTransport = func(_ string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		addr := fmt.Sprintf("127.0.0.1:%d", t.(interface{ GetAutoBindPort() int }).GetAutoBindPort())
		links.Register(addr, group)
		return netem.Wrap(t, addr, links)
	}
	return cfg
}

// allMembers waits until every node knows every other one.
func allMembers(t *testing.T, nodes ...*running) {
	t.Helper()
	testkit.Eventually(t, "all nodes know each other", func() bool {
		return !slices.ContainsFunc(nodes, func(n *running) bool { return len(n.Members()) != len(nodes)-1 })
	})
}

func degraded(t *testing.T, n *Node) bool {
	t.Helper()
	return take(t, n, Request{Rule: "per_client", Identity: "probe", Peek: true}).Degraded
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// EnvoyForTests is envoy.Service, which imports this package: envoy_test.go, of another one, sets it.
var EnvoyForTests func(EnvoyLimiter, EnvoyOptions) EnvoyService

// quiet is a configuration without listeners and without gossip, that tests add to.
func quiet(rule string) Config {
	cfg := DefaultConfig()
	cfg.NodeID, cfg.Region = "a", "here"
	cfg.HTTP, cfg.Health, cfg.Admin = "", "", ""
	cfg.Envoy = EnvoyForTests
	cfg.Logger = slog.New(slog.DiscardHandler)
	if rule != "" {
		cfg.RuleSet = ruleSet(rule)
	}
	return cfg
}

func ruleSet(text string) *rules.Set {
	set, err := rulefile.Parse("test.yaml", []byte(text))
	if err != nil {
		panic(err)
	}
	return set
}

// running is a node that runs until the test ends or stop is called.
type running struct {
	*Node
	stop func() error // returns what Run returned
}

// launch makes a node and runs it.
func launch(t testing.TB, cfg Config) *running {
	t.Helper()
	n, err := New(cfg)
	testkit.Must(t, err)
	// Not the test's context: that ends for all nodes at once, and those that leave together wait for each other.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	r := &running{n, sync.OnceValue(func() error {
		cancel()
		return <-ended
	})}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("Run of %s: %v", cfg.NodeID, err)
		}
	})
	return r
}

// ready waits until the node serves.
func (r *running) ready(t testing.TB) *running {
	t.Helper()
	testkit.Eventually(t, "ready", func() bool { return r.Ready() == nil })
	return r
}

// web keeps no connection, so that none outlives its test.
var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testkit.Patience}

// get asks a listener and returns the status and the body.
func get(t *testing.T, addr, path string) (status int, body string) {
	t.Helper()
	resp, err := web.Get("http://" + addr + path)
	testkit.Must(t, err)
	return slurp(t, resp)
}

func post(t *testing.T, addr, path, body string) (status int, answer string) {
	t.Helper()
	resp, err := web.Post("http://"+addr+path, "application/json", strings.NewReader(body))
	testkit.Must(t, err)
	return slurp(t, resp)
}

func slurp(t *testing.T, resp *http.Response) (status int, body string) {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	testkit.Must(t, err)
	return resp.StatusCode, string(b)
}

// takeSome asks the node for so many requests of one identity and returns how many it allowed.
func takeSome(t *testing.T, n *Node, rule, identity string, count int) (allowed int) {
	t.Helper()
	for range count {
		d, err := n.Take(t.Context(), Request{Rule: rule, Identity: identity})
		testkit.Must(t, err)
		if d.Allowed {
			allowed++
		}
	}
	return allowed
}

// spent is how much of its limit an identity has used up, as far as the node knows.
func spent(t *testing.T, n *Node, rule, identity string) uint64 {
	t.Helper()
	d, err := n.Take(t.Context(), Request{Rule: rule, Identity: identity, Peek: true})
	testkit.Must(t, err)
	return d.Limit - d.Remaining
}

// keyFile writes a key file with new keys and returns its name.
func keyFile(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	testkit.Must(t, WriteKeyFile(&b))
	return write(t, "cluster.key", b.String())
}

func write(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	writeFile(t, path, text)
	return path
}

// scrape reads /metrics as Prometheus does: the value of each series of the node's own.
func scrape(t *testing.T, addr string) (text string, series map[string]float64) {
	t.Helper()
	status, text := get(t, addr, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d %s", status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("the exposition does not parse: %v", err)
	}
	series = make(map[string]float64)
	for name, family := range families {
		if !strings.HasPrefix(name, "edgelimit_") {
			continue
		}
		for _, m := range family.Metric {
			id := name
			for _, l := range m.Label {
				id += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			if _, twice := series[id]; twice {
				t.Errorf("series %q is there twice", id)
			}
			series[id] = valueOf(t, id, family.GetType(), m)
		}
	}
	return text, series
}

// valueOf also holds the name against the type: what ends in _total is a counter, and nothing else is. Of a histogram
// the value is how many observations it has.
func valueOf(t *testing.T, id string, kind dto.MetricType, m *dto.Metric) float64 {
	t.Helper()
	name, _, _ := strings.Cut(id, " ")
	switch counter := strings.HasSuffix(name, "_total"); {
	case counter && kind == dto.MetricType_COUNTER:
		return m.GetCounter().GetValue()
	case !counter && kind == dto.MetricType_GAUGE:
		return m.GetGauge().GetValue()
	case !counter && kind == dto.MetricType_HISTOGRAM:
		return float64(m.GetHistogram().GetSampleCount())
	}
	t.Errorf("%s is of type %v", id, kind)
	return 0
}

const perClient = `
domain: test
descriptors: [{key: client, rate_limit: {name: per_client, window: 1m, requests_per_unit: 1000}}]
`

func withListeners(cfg Config) Config {
	cfg.HTTP, cfg.Health = "127.0.0.1:0", "127.0.0.1:0"
	return cfg
}

// seriesOf gathers what a collector exports, by the value of one of the labels.
func seriesOf(t *testing.T, c prometheus.Collector, metric, by string) map[string][]*dto.Metric {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	testkit.Must(t, err)
	out := make(map[string][]*dto.Metric)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == metric && l.GetName() == by {
					out[l.GetValue()] = append(out[l.GetValue()], m)
				}
			}
		}
	}
	return out
}

const layered = `
domain: test
descriptors:
  - key: client
    rate_limit: {name: per_client, window: 1m, requests_per_unit: 10}
  - key: endpoint
    rate_limit: {name: per_endpoint, window: 10s, requests_per_unit: 3}
  - key: plan
    value: partner
    rate_limit: {name: partner, unlimited: true}
  - key: plan
    value: banned
    rate_limit: {name: banned, unit: minute, requests_per_unit: 0}
  - key: nameless
    rate_limit: {unit: minute, requests_per_unit: 2}
---
domain: other
descriptors: [{key: client, rate_limit: {name: per_other, window: 1m, requests_per_unit: 10}}]
`

// idle is a node that was made but does not run: it decides all the same.
func idle(t testing.TB, rule string) *Node {
	t.Helper()
	n, err := New(quiet(rule))
	testkit.Must(t, err)
	return n
}

func by(key, value string) []rules.Entry { return []rules.Entry{{Key: key, Value: value}} }

func ask(descriptors ...[]rules.Entry) Request {
	return Request{Domain: "test", Descriptors: descriptors}
}

func take(t *testing.T, n *Node, req Request) Decision {
	t.Helper()
	d, err := n.Take(t.Context(), req)
	testkit.Must(t, err)
	return d
}

func descriptorsRequest(domain string, keys ...string) *Request {
	req := &Request{Domain: domain}
	for _, k := range keys {
		req.Descriptors = append(req.Descriptors, []rules.Entry{{Key: k, Value: "secret"}})
	}
	return req
}
