package otlp

import (
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/envoy"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// collector is a receiver of OTLP over HTTP that keeps what it gets.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	status   int // of its responses; 0: 200
	spans    []*tracepb.Span
	resource map[string]string // of the last spans
	metrics  map[string]*metricspb.Metric
	headers  http.Header // of the last request
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) serve(w http.ResponseWriter, r *http.Request) {
	unzipped, err := gzip.NewReader(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(unzipped)
	if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "not OTLP in protobuf", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = r.Header
	if c.status != 0 {
		w.WriteHeader(c.status)
		return
	}
	switch r.URL.Path {
	case "/v1/traces":
		var in collectortraces.ExportTraceServiceRequest
		if err = proto.Unmarshal(body, &in); err == nil {
			c.takeSpans(&in)
		}
	case "/v1/metrics":
		var in collectormetrics.ExportMetricsServiceRequest
		if err = proto.Unmarshal(body, &in); err == nil {
			c.takeMetrics(&in)
		}
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (c *collector) takeSpans(in *collectortraces.ExportTraceServiceRequest) {
	for _, r := range in.GetResourceSpans() {
		c.resource = attributes(r.GetResource().GetAttributes())
		for _, s := range r.GetScopeSpans() {
			c.spans = append(c.spans, s.GetSpans()...)
		}
	}
}

func (c *collector) takeMetrics(in *collectormetrics.ExportMetricsServiceRequest) {
	c.metrics = make(map[string]*metricspb.Metric)
	for _, r := range in.GetResourceMetrics() {
		for _, s := range r.GetScopeMetrics() {
			for _, m := range s.GetMetrics() {
				c.metrics[m.GetName()] = m
			}
		}
	}
}

// answer has the collector answer with a status from now on; 0: 200.
func (c *collector) answer(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// received returns the spans that it has.
func (c *collector) received() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans
}

func attributes(all []*commonpb.KeyValue) map[string]string {
	out := make(map[string]string)
	for _, a := range all {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			out[a.GetKey()] = v.StringValue
		case *commonpb.AnyValue_BoolValue:
			out[a.GetKey()] = map[bool]string{true: "true", false: "false"}[v.BoolValue]
		case *commonpb.AnyValue_IntValue:
			out[a.GetKey()] = string(rune('0' + v.IntValue))
		}
	}
	return out
}

const oneAMinute = `
domain: edge
descriptors: [{key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 1}}]
`

// config is that of a node that traces each decision, and sends to a URL.
func config(t testing.TB, endpoint string) node.Config {
	t.Helper()
	set, err := rulefile.Parse("test.yaml", []byte(oneAMinute))
	if err != nil {
		t.Fatal(err)
	}
	cfg := node.DefaultConfig()
	cfg.NodeID, cfg.Region, cfg.RuleSet, cfg.Logger = "a", "here", set, slog.New(slog.DiscardHandler)
	cfg.HTTP, cfg.Health, cfg.Admin = "127.0.0.1:0", "127.0.0.1:0", ""
	cfg.Envoy, cfg.OTLPExporter = envoy.Service, New
	cfg.OTLP.Endpoint, cfg.OTLP.TraceRatio = endpoint, 1
	return cfg
}

// launch runs a node. stop ends it, which sends what is left; the end of the test does so at the latest.
func launch(t *testing.T, cfg node.Config) (n *node.Node, stop func()) {
	t.Helper()
	n, err := node.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop = testkit.Background(t, n.Run)
	select {
	case <-n.Serving():
	case <-time.After(time.Minute):
		t.Fatal("the node does not start")
	}
	return n, stop
}

// scrape returns the metrics of a node, in the text format of Prometheus.
func scrape(t *testing.T, n *node.Node) string {
	t.Helper()
	status, _, text, err := testkit.Fetch(web, "GET", "http://"+n.Addr("health")+"/metrics", "")
	if err != nil || status != http.StatusOK {
		t.Fatalf("/metrics: %d %v", status, err)
	}
	return text
}

// valueOf returns the value of a series.
func valueOf(t *testing.T, n *node.Node, series string) float64 {
	t.Helper()
	for line := range strings.Lines(scrape(t, n)) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("there is no series %s", series)
	return 0
}
