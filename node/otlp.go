package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/telemetry"
	"github.com/edgelimit/edgelimit/node/text"
)

// OTLP says which OpenTelemetry collector gets the node's traces and metrics, by OTLP over HTTP (http/protobuf). It
// needs Config.OTLPExporter.
type OTLP struct {
	// Endpoint is the collector's base URL, http or https; /v1/traces and /v1/metrics are below it. Empty: nothing is
	// sent.
	Endpoint string `yaml:"endpoint"`
	// TraceRatio is the part of the decisions that are traced, 0 to 1.
	TraceRatio float64 `yaml:"trace_ratio"`
	// TrustParent follows the sampled flag of a request's traceparent in place of TraceRatio, which is left for
	// requests without one. Without it a request joins its parent's trace, but TraceRatio alone says whether it is
	// traced.
	TrustParent bool `yaml:"trust_parent"`
	// MetricsInterval is how often all metrics are sent, 1s to 1h; 0: never.
	MetricsInterval time.Duration `yaml:"metrics_interval"`
	// HeadersFile has a line "Name: value" for each header of the requests to the collector. It and the files below are
	// read again when they change.
	HeadersFile string `yaml:"headers_file"`
	// CAFile, CertFile and KeyFile are PEM files: the authorities to trust in place of the system's, and the node's
	// certificate.
	CAFile   string `yaml:"ca_file"`
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// DefaultOTLP returns a configuration of one decision in a hundred and of metrics once a minute, without an endpoint.
func DefaultOTLP() OTLP { return OTLP{TraceRatio: 0.01, MetricsInterval: time.Minute} }

func (o *OTLP) validate() error {
	var errs []error
	if !(o.TraceRatio >= 0 && o.TraceRatio <= 1) {
		errs = append(errs, fmt.Errorf("trace_ratio: %v, want 0 to 1", o.TraceRatio))
	}
	if o.MetricsInterval != 0 && (o.MetricsInterval < time.Second || o.MetricsInterval > time.Hour) {
		errs = append(errs, fmt.Errorf("metrics_interval: %v, want 1s to 1h, or 0s for none",
			text.Setting(o.MetricsInterval)))
	}
	files := certs.Client{CertFile: o.CertFile, KeyFile: o.KeyFile}
	if err := files.Validate(); err != nil {
		errs = append(errs, err)
	}
	if o.Endpoint == "" {
		return errors.Join(errs...)
	}
	u, err := url.Parse(o.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		errs = append(errs, fmt.Errorf("endpoint: %.80q, want the collector's URL for OTLP over HTTP, as "+
			"http://127.0.0.1:4318", masked("endpoint", o.Endpoint)))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		errs = append(errs, errors.New("endpoint: a URL with a user, a query or a fragment: put credentials into "+
			"headers_file"))
	case o.HeadersFile != "" && !o.HeadersMayPass():
		errs = append(errs,
			errors.New("headers_file: it would be sent in clear beyond loopback: use an https endpoint"))
	case u.Scheme == "http" && (o.CAFile != "" || o.CertFile != ""):
		errs = append(errs, errors.New("ca_file, cert_file: settings of TLS, but the endpoint is not https"))
	}
	return errors.Join(errs...)
}

// HeadersMayPass reports whether headers, which may hold a token, are encrypted on the way or stay on this machine.
func (o *OTLP) HeadersMayPass() bool {
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// OTLPOptions are what a node gives its OTLPExporter.
type OTLPOptions struct {
	OTLP
	Node, Region, Version string
	Metrics               prometheus.Gatherer // all that /metrics has
	Logger                *slog.Logger
}

// OTLPExporter sends traces and metrics. Its methods are safe for concurrent use, and those for requests never block.
type OTLPExporter interface {
	// WithParent returns a context of a request with that traceparent header: of ctx where it is malformed.
	WithParent(ctx context.Context, traceparent string) context.Context
	// Begin begins the span of a decision that an API asks for; nil if it is not traced.
	Begin(ctx context.Context, api string) DecisionSpan
	// Reload reads the files of the configuration again. With an error what they had before stays in use.
	Reload() error
	// Run sends until ctx ends. Flush sends what is left then, until its ctx ends.
	Run(ctx context.Context)
	Flush(ctx context.Context)
	// Stats returns the totals since the start.
	Stats() OTLPStats
}

// DecisionSpan is the span of a decision. End ends it, once.
type DecisionSpan interface{ End(a SpanAttributes) }

// SpanAttributes are what a span says of its decision.
type SpanAttributes struct {
	Outcome          string // allowed, denied or failed
	Rule             string // public name of the governing rule; empty: none
	Identity         string // keyed hash that it counts by, 16 hexadecimal digits; empty without a rule
	Limit, Remaining uint64 // of the governing decision
	Degraded         bool
}

// OTLPStats are totals of an OTLPExporter.
type OTLPStats struct {
	Spans, FailedSpans, DroppedSpans uint64 // sent; lost as they could not be sent; dropped as too many came
	Metrics, FailedMetrics           uint64 // exports of all metrics that were sent, and that failed
}

// openOTLP makes the exporter, if the configuration has an endpoint.
func (n *Node) openOTLP(metrics prometheus.Gatherer) (err error) {
	cfg := n.cfg.OTLP
	if cfg.Endpoint == "" {
		return nil
	}
	n.log.Info("metrics and a part of the decisions go to an OpenTelemetry collector", "endpoint", cfg.Endpoint,
		"trace_ratio", cfg.TraceRatio, "metrics_interval", cfg.MetricsInterval)
	n.otlp, err = n.cfg.OTLPExporter(OTLPOptions{OTLP: cfg, Node: n.cfg.NodeID, Region: n.cfg.Region,
		Version: BuildVersion().Version, Metrics: metrics, Logger: n.log})
	if err != nil {
		return fmt.Errorf("otlp.%w", err)
	}
	for setting, file := range map[string]string{"headers_file": cfg.HeadersFile, "ca_file": cfg.CAFile,
		"cert_file": cfg.CertFile, "key_file": cfg.KeyFile} {
		n.secrets.add("otlp."+setting, file, n.otlp.Reload)
	}
	return nil
}

func (n *Node) runOTLP(ctx context.Context) {
	if n.otlp != nil {
		n.otlp.Run(ctx)
	}
}

// The last spans and metrics may take minFlush where the drain has taken all of its time, and maxFlush at most: the
// last counts wait for them.
const (
	minFlush = 500 * time.Millisecond
	maxFlush = time.Second
)

// flushOTLP sends the last spans and metrics.
func (n *Node) flushOTLP(drainEnd time.Time) {
	if n.otlp != nil {
		ctx, cancel := context.WithTimeout(context.Background(), min(max(minFlush, time.Until(drainEnd)), maxFlush))
		defer cancel()
		n.otlp.Flush(ctx)
	}
}

// traced has a handler's requests carry the parent of their spans.
func (n *Node) traced(h http.Handler) http.Handler {
	if n.otlp == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if parent := r.Header["Traceparent"]; len(parent) == 1 {
			r = r.WithContext(n.otlp.WithParent(r.Context(), parent[0]))
		}
		h.ServeHTTP(w, r)
	})
}

// decisionSpan is the span of a decision, and the policy in force when it began. The zero value is that of a decision
// that is not traced.
type decisionSpan struct {
	DecisionSpan
	policy *policy
}

// end ends the span of a decision with these layers, or with an error instead. It matches the request once more, rather
// than that each decision keep what its matches were.
func (n *Node) end(span decisionSpan, req *Request, layers []Decision, err error) {
	if err != nil {
		span.End(SpanAttributes{Outcome: "failed"})
		return
	}
	v := counters.VerdictOf(layers)
	a := SpanAttributes{Outcome: "denied", Limit: v.Governing.Limit, Remaining: v.Governing.Remaining,
		Degraded: v.Degraded}
	if v.Allowed {
		a.Outcome = "allowed"
	}
	var room [rules.MaxDescriptors]rules.Match
	if i, p := counters.Governing(layers), n.policy.Load(); i >= 0 && p == span.policy {
		matches, err := p.set.Match(req, n.secret, room[:0])
		if err == nil && i < len(matches) && matches[i].Limited() {
			a.Rule, a.Identity = adHocRule, fmt.Sprintf("%016x", uint64(matches[i].Key))
			if r := matches[i].Rule; r != nil {
				a.Rule = r.Name
			}
		}
	}
	span.End(a)
}

// writeOTLP writes what is sent to the collector: zeros without one.
func (n *Node) writeOTLP(w telemetry.Writer) {
	var s OTLPStats
	if n.otlp != nil {
		s = n.otlp.Stats()
	}
	w.Counters("otlp_spans_total", "Spans for the OpenTelemetry collector, by outcome: sent, failed (lost: the "+
		"collector did not take them), dropped (more than 2048 waited).", "outcome",
		map[string]uint64{"sent": s.Spans, "failed": s.FailedSpans, "dropped": s.DroppedSpans})
	w.Counters("otlp_metric_exports_total", "Exports of all metrics to the OpenTelemetry collector, by outcome (sent, "+
		"failed).", "outcome", map[string]uint64{"sent": s.Metrics, "failed": s.FailedMetrics})
}
