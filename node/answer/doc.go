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
	if err != nil && !TooManyValues(req, err) {
		f.Logger.ErrorContext(ctx, "a request passes without a decision", "error", err)
		return nil, nil
	}
	return layers, err
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
