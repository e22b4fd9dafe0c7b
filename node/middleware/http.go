// Package middleware holds the requests of a Go program's own server against the limits of a node that runs in the same program.
package middleware

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Options are the settings of HTTP. The zero value is ready to use.
type Options struct {
	// Actions make the descriptors of a request; nil: its sender's address, as remote_address in the domain edge.
	Actions *actions.Actions
	// Headers are the families of response headers, as in httpapi.NewHeaders; nil: the default ones.
	Headers []string
	// Logger is told of requests on which the node could not decide; nil: slog.Default.
	Logger *slog.Logger
}

// HTTP returns what wraps a handler so that l, a node, decides on each request first. Each response says where its client stands; one that
// is denied is 429 with Retry-After and a problem document, and the handler is not called. A request that a queue delays is handed on when
// its turn comes. One that no rule can be meant for, or on which the node cannot decide, is handed on at once. The error is that of the names in
// Options.Headers.
func HTTP(l httpapi.Limiter, opt Options) (func(http.Handler) http.Handler, error) {
	headers, err := httpapi.NewHeaders(opt.Headers, nil, nil)
	if err != nil {
		return nil, err
	}
	if opt.Actions == nil {
		if opt.Actions, err = actions.New(actions.DefaultConfig()); err != nil {
			return nil, err
		}
	}
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	return func(next http.Handler) http.Handler {
		return &guarded{l, headers, opt, next}
	}, nil
}

// guarded is a handler with a limiter before it.
type guarded struct {
	limiter httpapi.Limiter
	headers *httpapi.Headers
	opt     Options
	next    http.Handler
}

// ServeHTTP implements http.Handler.
func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var (
		req  rules.Request
		room [4]counters.Decision
	)
	g.opt.Actions.Describe(r, &req)
	if len(req.Descriptors) == 0 {
		g.next.ServeHTTP(w, r)
		return
	}
	layers, err := g.limiter.Decide(r.Context(), &req, room[:0])
	if err != nil {
		g.opt.Logger.ErrorContext(r.Context(), "a request passes without a decision", "error", err)
		g.next.ServeHTTP(w, r)
		return
	}
	retryAfter := g.headers.Write(w.Header(), layers)
	v := counters.VerdictOf(layers)
	if !v.Allowed {
		httpapi.WriteDenial(w, layers, retryAfter)
		return
	}
	if v.Delay > 0 {
		turn := time.NewTimer(v.Delay)
		defer turn.Stop()
		select {
		case <-turn.C:
		case <-r.Context().Done(): // nobody waits for the answer any more
			return
		}
	}
	g.next.ServeHTTP(w, r)
}
