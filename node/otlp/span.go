package otlp

import (
	"context"
	"math/rand/v2"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/edgelimit/edgelimit/node"
)

// maxTraceparent is the longest traceparent that is read. That of version 00 has 55 bytes.
const maxTraceparent = 128

// traceparent is a carrier of that header alone: tracestate and baggage are the client's to fill, and nobody's to keep.
type traceparent string

// Get implements propagation.TextMapCarrier.
func (p traceparent) Get(key string) string {
	if key == "traceparent" && len(p) <= maxTraceparent {
		return string(p)
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (traceparent) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (traceparent) Keys() []string { return []string{"traceparent"} }

// WithParent implements node.OTLPExporter.
func (e *Exporter) WithParent(ctx context.Context, header string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, traceparent(header))
}

// Begin implements node.OTLPExporter. The parent of a span is that of WithParent, or of the gRPC request of ctx.
func (e *Exporter) Begin(ctx context.Context, api string) node.DecisionSpan {
	chosen := e.cfg.TraceRatio > 0 && rand.Float64() < e.cfg.TraceRatio
	if !chosen && !e.cfg.TrustParent {
		return nil
	}
	parent := trace.SpanContextFromContext(ctx)
	if !parent.IsValid() {
		if headers := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(headers) == 1 {
			parent = trace.SpanContextFromContext(e.WithParent(context.Background(), headers[0]))
		}
	}
	if e.cfg.TrustParent && parent.IsValid() {
		chosen = parent.IsSampled()
	}
	if !chosen {
		return nil
	}
	_, s := e.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), parent), "edgelimit.decide",
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("edgelimit.api", api)))
	return span{s}
}

type span struct{ trace.Span }

// End implements node.DecisionSpan.
func (s span) End(a node.SpanAttributes) {
	s.SetAttributes(attribute.String("edgelimit.outcome", a.Outcome), attribute.Bool("edgelimit.degraded", a.Degraded))
	if a.Rule != "" {
		s.SetAttributes(attribute.String("edgelimit.rule", a.Rule), attribute.String("edgelimit.identity", a.Identity),
			attribute.Int64("edgelimit.limit", int64(a.Limit)),
			attribute.Int64("edgelimit.remaining", int64(a.Remaining)))
	}
	if a.Outcome == "failed" {
		s.SetStatus(codes.Error, "not decided")
	}
	s.Span.End()
}

// processor queues the spans that end.
type processor struct{ *Exporter }

// OnStart implements sdktrace.SpanProcessor.
func (processor) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor.
func (p processor) OnEnd(s sdktrace.ReadOnlySpan) {
	select {
	case p.queue <- s:
	default:
		p.dropped.Add(1)
	}
}

// Shutdown implements sdktrace.SpanProcessor. Nobody calls it: Flush ends the exporter.
func (processor) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor. Nobody calls it.
func (processor) ForceFlush(context.Context) error { return nil }
