// Package answer holds what all protocols say about a decision: response headers, problem documents, Retry-After. It
// serves no protocol itself.
//
// # Invariants
//
//   - Waits are rounded up, never down: a client that waits as told is not too early.
//   - Nothing from a rule's name ever splits a header or breaks out of a JSON string.
package answer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Limiter decides; a node is one. It is called concurrently.
type Limiter interface {
	// Decide appends one Decision per layer of the request to layers, in order, and after them those of parents that
	// elastic rules bring along. The request is allowed if and only if all of them are; a layer without a matching rule
	// is {Allowed: true} with an empty Rule. req is only valid during the call.
	//
	// An error means that there is no decision: rules.ErrUnknownRule, rules.ErrInvalidRequest, a context's error, or
	// one of the node's own, which no client is shown.
	Decide(ctx context.Context, req *rules.Request, layers []counters.Decision) ([]counters.Decision, error)
}

// Beginner is a Limiter that can charge responses; a node is one. It is called concurrently.
type Beginner interface {
	// Begin is Limiter.Decide for a request whose response the caller will see. It returns nil if no rule charges the
	// response, or the request is denied; else the End of the result must be called.
	Begin(ctx context.Context, req *rules.Request, layers []counters.Decision) ([]counters.Decision, Pending, error)
}

// Pending is a request whose response has still to be charged. It is not safe for concurrent use.
type Pending interface {
	// CostHeaders are the names of headers of the response that are for End alone, not for the client.
	CostHeaders() []string
	// NeedsBody reports whether the charge depends on the length of the response's body, or on when it ends.
	NeedsBody() bool
	// End charges the response, nil for none, and appends to layers the decisions of a peek right after. Another call
	// does nothing.
	End(ctx context.Context, resp *rules.Response, layers []counters.Decision) []counters.Decision
}

// FailOpen asks a Limiter, and lets requests pass that it cannot decide.
type FailOpen struct {
	Limiter Limiter
	Logger  *slog.Logger
}

// Decide is Limiter.Decide. Where the limiter fails, the request passes without layers, and the log says so. The only
// error left is the client's fault: see TooManyValues.
func (f *FailOpen) Decide(
	ctx context.Context, req *rules.Request, layers []counters.Decision,
) ([]counters.Decision, error) {
	layers, err := f.Limiter.Decide(ctx, req, layers)
	if err != nil {
		return nil, f.pass(ctx, req, err)
	}
	return layers, nil
}

// Begin is Decide, and Beginner.Begin if the limiter has that.
func (f *FailOpen) Begin(
	ctx context.Context, req *rules.Request, layers []counters.Decision,
) ([]counters.Decision, Pending, error) {
	b, ok := f.Limiter.(Beginner)
	if !ok {
		layers, err := f.Decide(ctx, req, layers)
		return layers, nil, err
	}
	layers, pending, err := b.Begin(ctx, req, layers)
	if err != nil {
		return nil, nil, f.pass(ctx, req, err)
	}
	return layers, pending, nil
}

// pass returns an error that is the client's fault, and logs others.
func (f *FailOpen) pass(ctx context.Context, req *rules.Request, err error) error {
	if TooManyValues(req, err) {
		return err
	}
	f.Logger.ErrorContext(ctx, "a request passes without a decision", "error", err)
	return nil
}

// TooManyValues reports whether err means that the client sent a source in too many forms.
func TooManyValues(req *rules.Request, err error) bool {
	return req.Alternatives != 0 && errors.Is(err, rules.ErrInvalidRequest)
}

// Wait waits for a queued request's turn, or until its context ends.
func Wait(ctx context.Context, delay time.Duration) error {
	if delay == 0 {
		return nil
	}
	turn := time.NewTimer(delay)
	defer turn.Stop()
	select {
	case <-turn.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Within runs f, and waits until it returns or ctx ends: then f goes on by itself, and the error is the context's.
func Within(ctx context.Context, f func()) error {
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RoundUp returns d in whole units, rounded up; -1 if d is counters.Never.
func RoundUp(d, unit time.Duration) int64 {
	if d == counters.Never {
		return -1
	}
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// UnixUp returns t in Unix seconds, rounded up.
func UnixUp(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }
