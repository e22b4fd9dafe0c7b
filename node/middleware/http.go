// Package middleware limits the requests of a Go program's own HTTP server by a node in the same program.
package middleware

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Options are the settings of HTTP. The zero value is ready to use.
type Options struct {
	// Actions make the descriptors of a request. Nil: the client's address, as remote_address in the domain edge.
	Actions *actions.Actions
	// Headers names the families of response headers as in answer.NewHeaders.
	Headers []string
	// Logger receives the requests that the node could not decide. Nil means slog.Default().
	Logger *slog.Logger
}

// HTTP returns a wrapper of handlers that has l, a node, decide on each request first. Each response has rate-limit
// headers. A denial is 429 with Retry-After and a problem document, and the handler is not called. A request that a
// queue delays waits for its turn. A request without descriptors, or that the node cannot decide, passes at once and is
// logged. A request that the Actions deny gets 400. The error is about Options.Headers.
func HTTP(l answer.Limiter, opt Options) (func(http.Handler) http.Handler, error) {
	headers, err := answer.NewHeaders(opt.Headers, nil, nil)
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
	hints := new(limits.OncePerMinute)
	return func(next http.Handler) http.Handler {
		return &limited{answer.FailOpen{Limiter: l, Logger: opt.Logger}, headers, opt, hints, next}
	}, nil
}

// limited is a handler behind a limiter.
type limited struct {
	limiter answer.FailOpen
	headers *answer.Headers
	opt     Options
	hints   *limits.OncePerMinute
	next    http.Handler
}

// ServeHTTP implements http.Handler.
func (h *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var (
		req  rules.Request
		room [4]counters.Decision
	)
	if out := h.opt.Actions.Describe(r, &req); out.Denied != "" {
		answer.WriteDenied(w, http.StatusBadRequest, out.Denied, out.Detail)
		return
	}
	if len(req.Descriptors) == 0 {
		if h.hints.Due(time.Now()) {
			h.opt.Logger.WarnContext(r.Context(), "a request passes without a descriptor: no rule limits it",
				"hint", h.opt.Actions.Hint(r))
		}
		h.next.ServeHTTP(w, r)
		return
	}
	layers, err := h.limiter.Decide(r.Context(), &req, room[:0])
	if err != nil {
		answer.WriteDenied(w, http.StatusBadRequest, actions.DeniedTooManyValues, err.Error())
		return
	}
	retryAfter := h.headers.Write(w.Header(), layers)
	v := counters.VerdictOf(layers)
	if !v.Allowed {
		answer.NewDenial(http.StatusTooManyRequests, layers, retryAfter).Write(w)
		return
	}
	if answer.Wait(r.Context(), v.Delay) == nil { // else the client has gone
		h.next.ServeHTTP(w, r)
	}
}
