package node

import (
	"context"
	"time"

	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/telemetry"
)

// timed is the node as one of its APIs asks it, or a program as a library: it times decisions by that.
type timed struct {
	*Node
	times telemetry.DecisionTimes
}

func (n *Node) timedBy(api string) *timed { return &timed{n, n.monitor.Latencies.Decisions(api)} }

// Decide implements answer.Limiter.
func (t *timed) Decide(ctx context.Context, req *Request, layers []Decision) ([]Decision, error) {
	t.setDomain(req)
	return t.DecideMet(ctx, req, layers, nil)
}

// DecideMet implements EnvoyLimiter.
func (t *timed) DecideMet(ctx context.Context, req *Request, layers []Decision, met []*rules.Rule) ([]Decision, error) {
	began, first := t.times.Begin(), len(layers)
	layers, err := t.decideMet(ctx, req, layers, met)
	t.times.End(began, layers[first:], err)
	return layers, err
}

// Begin implements answer.Beginner.
func (t *timed) Begin(ctx context.Context, req *Request, layers []Decision) ([]Decision, answer.Pending, error) {
	began, first := t.times.Begin(), len(layers)
	layers, later, err := t.beginPending(ctx, req, layers)
	t.times.End(began, layers[first:], err)
	return layers, later, err
}

// TakeDebt implements respapi.Limiter.
func (t *timed) TakeDebt(identity []byte, charge, capacity time.Duration) Decision {
	began := t.times.Begin()
	d := t.takeDebt(identity, charge, capacity)
	t.times.End(began, []Decision{d}, nil)
	return d
}
