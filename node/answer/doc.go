// Package answer holds what all protocols say about a decision: response headers, problem documents, Retry-After. It
// serves no protocol itself.
//
// # Invariants
//
//   - Waits are rounded up, never down: a client that waits as told is not too early.
//   - Nothing from a rule's name ever splits a header or breaks out of a JSON string.
package answer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
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

// Beginner is a Limiter with queues, and that can charge responses; a node is one. It is called concurrently.
type Beginner interface {
	// Begin is Limiter.Decide for a request that the caller holds back until its turn, and whose response it will see.
	// It returns nil if no rule delays the request or charges the response, or the request is denied; else the Wait of
	// the result must be called, or its End.
	Begin(ctx context.Context, req *rules.Request, layers []counters.Decision) ([]counters.Decision, Pending, error)
}

// Pending is a request that waits for its turn, or whose response has still to be charged. It is not safe for
// concurrent use.
type Pending interface {
	// Wait waits for the request's turn, or until its context ends: then it leaves its queues, as if it had not come,
	// and the error is the context's. charges reports whether the response has still to be charged: End must be called
	// then, and need not be otherwise. Without a call of Wait, End without a response leaves the queues.
	Wait(ctx context.Context) (charges bool, err error)
	// CostHeaders are the names of headers of the response that are for End alone, not for the client.
	CostHeaders() []string
	// NeedsBody reports whether the charge depends on the length of the response's body, or on when it ends.
	NeedsBody() bool
	// End charges the response, nil for none, and appends to layers the decisions of a peek right after. Another call
	// does nothing.
	End(ctx context.Context, resp *rules.Response, layers []counters.Decision) []counters.Decision
}

// Fallback asks a Limiter, and has an answer where that has none.
type Fallback struct {
	Limiter Limiter
	// OnFailure is what happens to requests without a word of their own that the limiter cannot decide. They pass
	// unless it is rules.FailClosed.
	OnFailure rules.Failure
	Logger    *slog.Logger
}

// Decide is Limiter.Decide. Where the limiter fails, the request passes or is denied as its OnFailure wants, and the
// log says so. The only error left is the client's fault: see TooManyValues.
func (f *Fallback) Decide(
	ctx context.Context, req *rules.Request, layers []counters.Decision,
) ([]counters.Decision, error) {
	decided, err := f.Limiter.Decide(ctx, req, layers)
	if err != nil {
		return f.undecided(ctx, req, layers, err)
	}
	return decided, nil
}

// Begin is Decide, and Beginner.Begin if the limiter has that. Otherwise a request waits for the Delay of its
// decisions.
func (f *Fallback) Begin(
	ctx context.Context, req *rules.Request, layers []counters.Decision,
) ([]counters.Decision, Pending, error) {
	b, ok := f.Limiter.(Beginner)
	if !ok {
		layers, err := f.Decide(ctx, req, layers)
		if v := counters.VerdictOf(layers); v.Allowed && v.Delay > 0 {
			return layers, delayed(v.Delay), err
		}
		return layers, nil, err
	}
	decided, pending, err := b.Begin(ctx, req, layers)
	if err != nil {
		layers, err = f.undecided(ctx, req, layers, err)
		return layers, nil, err
	}
	return decided, pending, nil
}

// delayed is the Pending of a request that stands in no queue.
type delayed time.Duration

func (d delayed) Wait(ctx context.Context) (bool, error) { return false, Wait(ctx, time.Duration(d)) }
func (delayed) CostHeaders() []string                    { return nil }
func (delayed) NeedsBody() bool                          { return false }
func (delayed) End(_ context.Context, _ *rules.Response, layers []counters.Decision) []counters.Decision {
	return layers
}

// undecided returns an error that is the client's fault. It logs others, and appends the decision in their place.
func (f *Fallback) undecided(
	ctx context.Context, req *rules.Request, layers []counters.Decision, err error,
) ([]counters.Decision, error) {
	if TooManyValues(req, err) {
		return layers, err
	}
	d, ok := cmp.Or(req.OnFailure, f.OnFailure).Undecided()
	d.Allowed = d.Allowed || !ok
	f.Logger.ErrorContext(ctx, "a request could not be decided", "admitted", d.Allowed, "error", err)
	return append(layers, d), nil
}

// TooManyValues reports whether err means that the client sent a source in too many forms.
func TooManyValues(req *rules.Request, err error) bool {
	return req.Alternatives != 0 && errors.Is(err, rules.ErrInvalidRequest)
}

// Wait waits for a time, or until its context ends.
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

// TargetBytes is rules.Request.TargetBytes of a request: net/http holds its target as it came, and decoded.
func TargetBytes(r *http.Request) int { return 2*len(r.RequestURI) + len(r.Host) }
