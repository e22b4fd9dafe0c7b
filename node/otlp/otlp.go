// Package otlp sends a node's traces and metrics to an OpenTelemetry collector, by OTLP over HTTP. It is a package of
// its own because OpenTelemetry and the messages of OTLP, which bring gRPC along, are a megabyte and a half: only who
// imports this one links them.
//
//	cfg := node.DefaultConfig()
//	cfg.OTLP.Endpoint, cfg.OTLPExporter = "http://127.0.0.1:4318", otlp.New
//
// # Invariants
//
//   - No decision waits for the collector: a span that finds the queue full is dropped and counted.
//   - A client cannot have itself traced: unless TrustParent is set, chance alone says who is, never the sampled flag
//     or the trace ID that the client chose. Its tracestate and baggage are not read.
//   - Nothing holds an identity in clear: spans have the keyed hash that nodes exchange.
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/edgelimit/edgelimit/node"
)

const (
	maxQueue = 2048             // spans that wait: those beyond are dropped
	maxBatch = 512              // spans of a request to the collector
	period   = time.Second      // between two of them, unless there are more
	timeout  = 10 * time.Second // of a request, with its retries
)

// headerVariables are those by which OpenTelemetry adds headers to the requests.
var headerVariables = []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
	"OTEL_EXPORTER_OTLP_METRICS_HEADERS"}

// Exporter is a node.OTLPExporter.
type Exporter struct {
	cfg      node.OTLP
	client   client
	tracer   trace.Tracer
	queue    chan sdktrace.ReadOnlySpan
	batch    []sdktrace.ReadOnlySpan // taken from the queue, not yet sent; of Run, then of Flush
	resource *resource.Resource
	producer metric.Producer
	spans    sdktrace.SpanExporter
	metrics  metric.Exporter

	sent, failed, dropped atomic.Uint64 // spans
	traceOutage           outage
	exports               atomic.Uint64 // of metrics
	metricOutage          outage
}

// New returns the exporter of a node. It reads the files of the configuration, which is valid, and connects to nobody.
func New(opt node.OTLPOptions) (node.OTLPExporter, error) {
	e := &Exporter{cfg: opt.OTLP, queue: make(chan sdktrace.ReadOnlySpan, maxQueue),
		traceOutage:  outage{log: opt.Logger, signal: "traces"},
		metricOutage: outage{log: opt.Logger, signal: "metrics"},
		producer:     bridge.NewMetricProducer(bridge.WithGatherer(opt.Metrics)),
		client:       client{cfg: opt.OTLP},
	}
	if err := e.client.load(); err != nil {
		return nil, err
	}
	ctx := context.Background() // neither of these connects
	var err error
	e.resource, err = resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "edgelimit"),
		attribute.String("service.version", opt.Version),
		attribute.String("service.instance.id", opt.Region+"/"+opt.Node),
		attribute.String("edgelimit.region", opt.Region), attribute.String("edgelimit.node", opt.Node)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	for _, name := range headerVariables {
		if os.Getenv(name) != "" && !opt.HeadersMayPass() {
			return nil, fmt.Errorf("endpoint: the headers of %s would be sent in clear beyond loopback: "+
				"use an https endpoint", name)
		}
	}
	base := strings.TrimSuffix(opt.Endpoint, "/")
	http := &http.Client{Transport: &e.client, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	e.spans, err = otlptrace.New(ctx, otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(base+"/v1/traces"),
		otlptracehttp.WithHTTPClient(http), otlptracehttp.WithTimeout(timeout),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression)))
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	e.metrics, err = otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(base+"/v1/metrics"),
		otlpmetrichttp.WithHTTPClient(http), otlpmetrichttp.WithTimeout(timeout),
		otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression))
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	e.tracer = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), // Begin samples
		sdktrace.WithResource(e.resource), sdktrace.WithSpanProcessor(processor{e})).Tracer("edgelimit")
	return e, nil
}

// Reload implements node.OTLPExporter.
func (e *Exporter) Reload() error { return e.client.load() }

// Stats implements node.OTLPExporter.
func (e *Exporter) Stats() node.OTLPStats {
	return node.OTLPStats{Spans: e.sent.Load(), FailedSpans: e.failed.Load(), DroppedSpans: e.dropped.Load(),
		Metrics: e.exports.Load(), FailedMetrics: e.metricOutage.failures.Load()}
}

// Run implements node.OTLPExporter.
func (e *Exporter) Run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { every(ctx, period, e.sendSpans) })
	if e.cfg.MetricsInterval > 0 {
		parts.Go(func() { every(ctx, e.cfg.MetricsInterval, e.sendMetrics) })
	}
	parts.Wait()
}

// every calls f once a period until ctx ends.
func every(ctx context.Context, period time.Duration, f func(context.Context)) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f(ctx)
		}
	}
}

// Flush implements node.OTLPExporter. It is called after Run, or in its place, and ends the exporter. It sends nothing
// to a collector that did not take what came last: a node stops as fast without it.
func (e *Exporter) Flush(ctx context.Context) {
	var parts sync.WaitGroup
	if !e.traceOutage.lasts {
		parts.Go(func() { e.sendSpans(ctx) })
	}
	if e.cfg.MetricsInterval > 0 && !e.metricOutage.lasts {
		parts.Go(func() { e.sendMetrics(ctx) })
	}
	parts.Wait()
	e.failed.Add(uint64(len(e.batch) + len(e.queue))) // there was no time for them
	e.batch = nil
	e.client.close()
}

// sendSpans sends what has been queued before it. A batch that ctx cuts off stays, for Flush.
func (e *Exporter) sendSpans(ctx context.Context) {
	for left := len(e.queue); left > 0 || len(e.batch) > 0; {
		for ; left > 0 && len(e.batch) < maxBatch; left-- {
			e.batch = append(e.batch, <-e.queue)
		}
		err := e.spans.ExportSpans(ctx, e.batch)
		if ctx.Err() != nil && err != nil {
			return
		}
		if e.traceOutage.observe(err); err != nil {
			e.failed.Add(uint64(len(e.batch)))
		} else {
			e.sent.Add(uint64(len(e.batch)))
		}
		clear(e.batch)
		e.batch = e.batch[:0]
	}
}

// sendMetrics sends all metrics, as they are now.
func (e *Exporter) sendMetrics(ctx context.Context) {
	scopes, err := e.producer.Produce(ctx)
	if err == nil {
		err = e.metrics.Export(ctx, &metricdata.ResourceMetrics{Resource: e.resource, ScopeMetrics: scopes})
	}
	if ctx.Err() != nil && err != nil {
		return
	}
	if e.metricOutage.observe(err); err == nil {
		e.exports.Add(1)
	}
}

// outage logs when the collector begins not to take a signal, and when it takes it again. observe is not safe for
// concurrent use.
type outage struct {
	log      *slog.Logger
	signal   string
	lasts    bool
	failures atomic.Uint64
}

// maxErrorText is how much of an error is logged, in bytes: it holds what the collector answered.
const maxErrorText = 256

func shortened(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxErrorText)], "?")
}

func (o *outage) observe(err error) {
	if err != nil {
		o.failures.Add(1)
	}
	if o.lasts == (err != nil) {
		return
	}
	if o.lasts = err != nil; o.lasts {
		o.log.Warn("the OpenTelemetry collector does not take what is sent, which is lost until it does: see whether "+
			"it runs, and whether otlp.endpoint is that of OTLP over HTTP (port 4318, not gRPC's 4317); decisions do "+
			"not depend on it", "signal", o.signal, "error", shortened(err))
		return
	}
	o.log.Info("the OpenTelemetry collector takes what is sent again", "signal", o.signal)
}
