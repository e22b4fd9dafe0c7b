package otlp

import (
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const (
	traceID  = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentID = "00f067aa0ba902b7"
	sampled  = "00-" + traceID + "-" + parentID + "-01"
)

// web keeps no connection, so that a node need not wait for its end.
var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// check asks a node over HTTP about an address.
func check(t *testing.T, n *node.Node, identity string, header http.Header) {
	t.Helper()
	body := fmt.Sprintf(`{"rule":"per_ip","identity":%q}`, identity)
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+n.Addr("http")+"/v1/check",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
}

// Decisions over HTTP, over gRPC and by the reverse proxy have spans, in the trace of their traceparent, which say
// which rule decided what, and never for whom.
func TestSpans(t *testing.T) {
	c := newCollector(t)
	upstream := httptest.NewServer(http.NotFoundHandler())
	defer upstream.Close()
	cfg := config(t, c.URL)
	cfg.GRPC, cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", "127.0.0.1:0", []string{upstream.URL}
	cfg.Requests.Descriptors = []actions.Descriptor{{{Key: "remote_address", Source: "client"}}}
	n, stop := launch(t, cfg)
	parent := http.Header{"Traceparent": {sampled}, "Tracestate": {"k=secret-state"}, "Baggage": {"k=secret-baggage"}}
	check(t, n, "192.0.2.1", parent)
	check(t, n, "192.0.2.1", nil)

	conn, err := grpc.NewClient(n.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", sampled)
	if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "edge",
		Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{
			{Key: "remote_address", Value: "192.0.2.1"}}}}}); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+n.Addr("proxy")+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = parent.Clone()
	resp, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	_ = conn.Close()
	stop()

	identity := ""
	var got []string
	for _, s := range c.received() {
		a := attributes(s.GetAttributes())
		line := fmt.Sprintf("%s %s %s limit=%s degraded=%s", a["edgelimit.api"], a["edgelimit.outcome"],
			a["edgelimit.rule"], a["edgelimit.limit"], a["edgelimit.degraded"])
		if hex.EncodeToString(s.GetTraceId()) == traceID && hex.EncodeToString(s.GetParentSpanId()) == parentID {
			line += " child"
		}
		got = append(got, line)
		if !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(a["edgelimit.identity"]) {
			t.Errorf("identity %q", a["edgelimit.identity"])
		}
		if api := a["edgelimit.api"]; api != "proxy" { // whose client is 127.0.0.1
			if identity != "" && identity != a["edgelimit.identity"] {
				t.Errorf("one client is %s and %s", identity, a["edgelimit.identity"])
			}
			identity = a["edgelimit.identity"]
		}
		if text := s.String(); strings.Contains(text, "192.0.2.1") || strings.Contains(text, "secret-") ||
			s.GetName() != "edgelimit.decide" || s.GetKind() != tracepb.Span_SPAN_KIND_SERVER ||
			s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("span %s", text)
		}
	}
	want := []string{"http allowed per_ip limit=1 degraded=false child",
		"http denied per_ip limit=1 degraded=false",
		"grpc denied per_ip limit=1 degraded=false child",
		"proxy allowed per_ip limit=1 degraded=false child"}
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("spans\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if c.resource["service.name"] != "edgelimit" || c.resource["edgelimit.region"] != "here" ||
		c.resource["service.instance.id"] != "here/a" {
		t.Errorf("resource %v", c.resource)
	}
}

// Malformed headers have no effect but that the span has no parent.
func TestHostileParents(t *testing.T) {
	c := newCollector(t)
	n, stop := launch(t, config(t, c.URL))
	hostile := [][]string{{""}, {"00"}, {"ff-" + traceID + "-" + parentID + "-01"}, {strings.Repeat("0-", 500)},
		{"00-" + strings.Repeat("0", 32) + "-" + parentID + "-01"},
		{"00-" + traceID + "-" + strings.Repeat("0", 16) + "-01"},
		{"00-" + strings.ToUpper(traceID) + "-" + parentID + "-01"}, {sampled + "-more"}, {sampled, sampled},
		{"\xff\xfe"},
		{"01-" + traceID + "-" + parentID + "-01-" + strings.Repeat("a", 5000)}}
	for _, values := range hostile {
		check(t, n, "x", http.Header{"Traceparent": values, "Tracestate": {strings.Repeat("a=b,", 500)},
			"Baggage": {strings.Repeat("a=b,", 500)}})
	}
	stop()
	if got := c.received(); len(got) != len(hostile) {
		t.Fatalf("%d spans of %d requests", len(got), len(hostile))
	}
	for i, s := range c.received() {
		if len(s.GetParentSpanId()) != 0 || s.GetTraceState() != "" {
			t.Errorf("%.80q: parent %x, state %.80q", hostile[i], s.GetParentSpanId(), s.GetTraceState())
		}
	}
}

// Neither the sampled flag nor a trace ID that is low has a client traced, unless its word is trusted. Then the flag is
// obeyed either way.
func TestSampling(t *testing.T) {
	const requests = 10_000
	lowest := strings.Repeat("0", 31) + "1"
	count := func(cfg node.OTLP, headers ...string) (begun int) {
		opt := node.OTLPOptions{OTLP: cfg, Metrics: prometheus.NewRegistry()}
		opt.Endpoint = "http://127.0.0.1:1"
		e, err := New(opt)
		if err != nil {
			t.Fatal(err)
		}
		for i := range requests {
			if e.Begin(e.WithParent(t.Context(), headers[i%len(headers)]), "http") != nil {
				begun++
			}
		}
		return begun
	}
	flagged := []string{sampled, "00-" + lowest + "-" + parentID + "-01"}
	unflagged := []string{"00-" + traceID + "-" + parentID + "-00"}
	for name, test := range map[string]struct {
		cfg      node.OTLP
		headers  []string
		min, max int
	}{
		"off":                 {node.OTLP{}, flagged, 0, 0},
		"all":                 {node.OTLP{TraceRatio: 1}, unflagged, requests, requests},
		"not trusted":         {node.OTLP{TraceRatio: 0.01}, flagged, 20, 300}, // 100, give or take ten
		"trusted":             {node.OTLP{TraceRatio: 0.01, TrustParent: true}, flagged, requests, requests},
		"trusted, of nothing": {node.OTLP{TrustParent: true}, flagged, requests, requests},
		"trusted, not chosen": {node.OTLP{TraceRatio: 1, TrustParent: true}, unflagged, 0, 0},
		"trusted, no parent":  {node.OTLP{TraceRatio: 0.01, TrustParent: true}, []string{"", "no"}, 20, 300},
	} {
		if got := count(test.cfg, test.headers...); got < test.min || got > test.max {
			t.Errorf("%s: %d of %d traced, want %d to %d", name, got, requests, test.min, test.max)
		}
	}
}

// The collector gets the metrics of /metrics, under the same names: no more and no fewer. A million identities (with
// the race detector ten thousand) leave no more than 2000 series, and none is named.
func TestMetrics(t *testing.T) {
	c := newCollector(t)
	cfg := config(t, c.URL)
	cfg.OTLP.TraceRatio = 0
	n, stop := launch(t, cfg)
	check(t, n, "192.0.2.1", nil)
	identities := testkit.Tenth(testkit.Tenth(1_000_000))
	for i := range identities {
		if _, err := n.Take(t.Context(), node.Request{Rule: "per_ip", Identity: fmt.Sprint("victim-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	text := scrape(t, n)
	stop()
	names := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[1], "promhttp_") {
			names[m[1]] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(names) < 100 {
		t.Fatalf("only %d metrics", len(names))
	}
	for name := range names {
		if c.metrics[name] == nil {
			t.Errorf("%s is on /metrics only", name)
		}
	}
	for name := range c.metrics {
		if !names[name] {
			t.Errorf("%s is not on /metrics", name)
		}
	}
	for _, p := range c.metrics["edgelimit_decisions_total"].GetSum().GetDataPoints() {
		if a := attributes(p.GetAttributes()); a["outcome"] == "allowed" && a["rule"] == "per_ip" &&
			p.GetAsDouble() != float64(1+identities) {
			t.Errorf("%v decisions", p.GetAsDouble())
		}
	}
	series := 0
	for _, m := range c.metrics {
		series += len(m.GetGauge().GetDataPoints()) + len(m.GetSum().GetDataPoints()) +
			len(m.GetHistogram().GetDataPoints()) + len(m.GetExponentialHistogram().GetDataPoints()) +
			len(m.GetSummary().GetDataPoints())
		if strings.Contains(m.String(), "victim") {
			t.Errorf("%s names an identity", m.GetName())
		}
	}
	if series < 100 || series > 2000 {
		t.Errorf("%d series", series)
	}
	if p := c.metrics["edgelimit_decision_seconds"].GetExponentialHistogram(); p == nil {
		t.Error("the histogram of decisions is not exponential, as it is with native buckets")
	}
}

// While the collector refuses, or is silent, decisions go on, what waits is bounded, and the log has one line; another
// once it takes spans again.
func TestOutage(t *testing.T) {
	log := &testkit.Log{}
	c := newCollector(t)
	c.answer(http.StatusBadRequest)
	cfg := config(t, c.URL)
	cfg.Logger = log.Logger()
	cfg.OTLP.MetricsInterval = 0
	n, stop := launch(t, cfg)
	request := node.Request{Rule: "per_ip", Identity: "192.0.2.1"}
	const line = "the OpenTelemetry collector does not take"
	failed := func(least int) {
		testkit.Eventually(t, "failed exports", func() bool {
			if _, err := n.Take(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			return valueOf(t, n, `edgelimit_otlp_spans_total{outcome="failed"}`) >= float64(least)
		})
	}
	failed(1)
	failed(2 + int(valueOf(t, n, `edgelimit_otlp_spans_total{outcome="failed"}`))) // a second export
	if strings.Count(log.String(), line) != 1 {
		t.Errorf("the log has it %d times", strings.Count(log.String(), line))
	}
	for range 4 * maxQueue {
		if _, err := n.Take(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	if dropped := valueOf(t, n, `edgelimit_otlp_spans_total{outcome="dropped"}`); dropped == 0 {
		t.Error("nothing was dropped of four times what may wait")
	}
	c.answer(0)
	testkit.Eventually(t, "spans again", func() bool {
		_, err := n.Take(t.Context(), request)
		return err == nil && len(c.received()) > 0
	})
	testkit.Eventually(t, "the line that it is over", func() bool {
		return strings.Contains(log.String(), "takes what is sent again")
	})
	stop()
	if strings.Count(log.String(), line) != 1 {
		t.Errorf("the log has it %d times", strings.Count(log.String(), line))
	}
}

// A node stops in time though its collector accepts connections and never answers.
func TestStopWithASilentCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := config(t, "http://"+l.Addr().String())
	n, stop := launch(t, cfg)
	check(t, n, "x", nil)
	began := time.Now()
	stop()
	if took := time.Since(began); took > 5*time.Second { // a second each of drain and flush; an export takes ten
		t.Errorf("the stop took %v", took)
	}
}

// The headers file is read again when it changes; one that is not good leaves the last in use. Errors show no value.
func TestHeaders(t *testing.T) {
	c := newCollector(t)
	file := filepath.Join(t.TempDir(), "headers")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# for the collector\nAuthorization: Bearer one\nX-Scope: a\n")
	cfg := config(t, c.URL)
	cfg.OTLP.HeadersFile = file
	n, _ := launch(t, cfg)
	has := func(token string) {
		t.Helper()
		testkit.Eventually(t, token, func() bool {
			check(t, n, "x", nil)
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.headers.Get("Authorization") == token && c.headers.Get("X-Scope") == "a"
		})
	}
	has("Bearer one")
	write("Authorization: Bearer two\nX-Scope: a\n")
	n.Reload()
	has("Bearer two")
	write("s3cret without a name\n")
	e := client{cfg: cfg.OTLP}
	if err := e.load(); err == nil || strings.Contains(err.Error(), "s3cret") ||
		!strings.Contains(err.Error(), "headers_file: "+file+", line 1: want a header") {
		t.Errorf("error %v", err)
	}
	n.Reload()
	testkit.Eventually(t, "the metric of a bad file", func() bool {
		return valueOf(t, n, `edgelimit_secret_file_current{setting="otlp.headers_file"}`) == 0
	})
	has("Bearer two")
}

// The headers of OpenTelemetry's own variables obey the rule of headers_file: none goes over the network in clear. Nor
// does the log have all that a collector answers.
func TestNothingLeaks(t *testing.T) {
	for _, name := range headerVariables {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "authorization=s3cret")
			opt := node.OTLPOptions{OTLP: node.OTLP{Endpoint: "http://192.0.2.1:4318"},
				Logger: slog.New(slog.DiscardHandler)}
			if _, err := New(opt); err == nil || !strings.Contains(err.Error(), name) ||
				strings.Contains(err.Error(), "s3cret") {
				t.Errorf("beyond loopback in clear: %v", err)
			}
			for _, endpoint := range []string{"http://127.0.0.1:4318", "https://192.0.2.1:4318"} {
				opt.Endpoint = endpoint
				if _, err := New(opt); err != nil {
					t.Errorf("%s: %v", endpoint, err)
				}
			}
		})
	}
	if text := shortened(errors.New(strings.Repeat("\xff", 1<<20))); len(text) > 3*maxErrorText {
		t.Errorf("an error of %d bytes is logged", len(text))
	}
}

// The node and its collector show each other certificates; one of another authority is refused.
func TestTLS(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	server, mine := ca.Issue(t, "server"), ca.Issue(t, "node")
	c := &collector{}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	c.TLS = &tls.Config{Certificates: []tls.Certificate{server.Pair()}, ClientCAs: ca.Client().RootCAs,
		ClientAuth: tls.RequireAndVerifyClientCert}
	c.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	c.StartTLS()
	t.Cleanup(c.Close)
	cfg := config(t, c.URL)
	cfg.OTLP.CAFile, cfg.OTLP.CertFile, cfg.OTLP.KeyFile = ca.CertFile, mine.CertFile, mine.KeyFile
	n, stop := launch(t, cfg)
	check(t, n, "x", nil)
	stop()
	if len(c.received()) != 1 {
		t.Errorf("%d spans", len(c.received()))
	}
	cfg.OTLP.CAFile = testkit.NewAuthority(t, "another").CertFile
	n, stop = launch(t, cfg)
	check(t, n, "x", nil)
	stop()
	if len(c.received()) != 1 {
		t.Error("spans went to a collector of another authority")
	}
}
