// Package middleware limits the requests of a Go program's own HTTP server by a node in the same program.
package middleware

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
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
		opt.Actions, _ = actions.New(actions.DefaultConfig()) // it is valid
	}
	opt.Logger = cmp.Or(opt.Logger, slog.Default())
	m := &limiter{FailOpen: answer.FailOpen{Limiter: l, Logger: opt.Logger}, headers: headers, actions: opt.Actions}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if m.admit(w, r) {
				next.ServeHTTP(w, r)
			}
		})
	}, nil
}

type limiter struct {
	answer.FailOpen
	headers *answer.Headers
	actions *actions.Actions
	hints   limits.OncePerMinute
}

// admit reports whether the request may pass now. If not it is answered, or its client has gone.
func (m *limiter) admit(w http.ResponseWriter, r *http.Request) bool {
	var (
		req  rules.Request
		room [4]counters.Decision
	)
	if out := m.actions.Describe(r, &req); out.Denied != "" {
		answer.WriteDenied(w, http.StatusBadRequest, out.Denied, out.Detail)
		return false
	}
	if len(req.Descriptors) == 0 {
		if m.hints.Due(time.Now()) {
			m.Logger.WarnContext(r.Context(), "a request passes without a descriptor: no rule limits it",
				"hint", m.actions.Hint(r))
		}
		return true
	}
	layers, err := m.Decide(r.Context(), &req, room[:0])
	if err != nil {
		answer.WriteDenied(w, http.StatusBadRequest, actions.DeniedTooManyValues, err.Error())
		return false
	}
	retryAfter := m.headers.Write(w.Header(), layers)
	v := counters.VerdictOf(layers)
	if !v.Allowed {
		answer.NewDenial(http.StatusTooManyRequests, layers, retryAfter).Write(w)
		return false
	}
	return answer.Wait(r.Context(), v.Delay) == nil
}
