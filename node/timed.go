package node

import (
	"context"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/telemetry"
)

// timed is the node as one of its APIs asks it, or a program as a library: it times and traces decisions by that.
type timed struct {
	*Node
	api   string
	times telemetry.DecisionTimes
}

func (n *Node) timedBy(api string) *timed { return &timed{n, api, n.monitor.Latencies.Decisions(api)} }

// span begins the span of a decision.
func (t *timed) span(ctx context.Context) (s decisionSpan) {
	if s.DecisionSpan = t.otlp.Begin(ctx, t.api); s.DecisionSpan != nil {
		s.policy = t.policy.Load()
	}
	return s
}

// Decide implements answer.Limiter.
func (t *timed) Decide(ctx context.Context, req *Request, layers []Decision) ([]Decision, error) {
	t.setDomain(req)
	return t.DecideMet(ctx, req, layers, nil)
}

// DecideMet implements EnvoyLimiter.
func (t *timed) DecideMet(ctx context.Context, req *Request, layers []Decision, met []*rules.Rule) ([]Decision, error) {
	began, first := t.times.Begin(), len(layers)
	var span decisionSpan
	if t.otlp != nil {
		span = t.span(ctx)
	}
	layers, err := t.decideMet(ctx, req, layers, met)
	t.times.End(began, layers[first:], err)
	if span.DecisionSpan != nil {
		t.end(span, req, layers[first:], err)
	}
	return layers, err
}

// Begin implements answer.Beginner.
func (t *timed) Begin(ctx context.Context, req *Request, layers []Decision) ([]Decision, answer.Pending, error) {
	began, first := t.times.Begin(), len(layers)
	var span decisionSpan
	if t.otlp != nil {
		span = t.span(ctx)
	}
	layers, later, err := t.beginPending(ctx, req, layers)
	t.times.End(began, layers[first:], err)
	if span.DecisionSpan != nil {
		t.end(span, req, layers[first:], err)
	}
	return layers, later, err
}

// TakeDebt implements respapi.Limiter.
func (t *timed) TakeDebt(identity []byte, charge, capacity time.Duration) Decision {
	began := t.times.Begin()
	key := rules.KeyOf(t.secret, identity)
	d := t.debts.Take(key, charge, capacity, t.clock.Now())
	if t.shadow.Load() {
		d.Mode = counters.Shadow
		if !d.Allowed {
			d.Allowed, d.Waived, d.RetryAfter = true, true, 0
		}
	}
	d.Degraded = t.monitor.DegradedIn(counters.Global)
	if charge > 0 {
		t.logDecision(adHocRule, key, 0, &d, t.adHocDecisions.count(&d, d.Allowed))
	}
	t.times.End(began, []Decision{d}, nil)
	return d
}
