// Package middleware limits the requests of a Go program's own HTTP server by a node in the same program.
package middleware

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/felixge/httpsnoop"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Options are the settings of HTTP. The zero value is ready to use.
type Options struct {
	// Actions make the descriptors of a request. Nil: those of the node's configuration (node.Config.Requests), with
	// its trusted proxies; of another limiter, actions.DefaultConfig.
	Actions *actions.Actions
	// OnFailure is what happens to requests that the node cannot decide, whatever their rules say. Unset: what these
	// say, and where there is no decision at all a request passes.
	OnFailure rules.Failure
	// Headers names the families of response headers as in answer.NewHeaders.
	Headers []string
	// Logger receives the requests that the node could not decide. Nil means slog.Default().
	Logger *slog.Logger
}

// HTTP returns a wrapper of handlers that has l, a node, decide on each request first. Each response has rate-limit
// headers. A denial is 429 with Retry-After and a problem document, and the handler is not called. A request that a
// queue delays waits for its turn; it gets 503 if its context ends before. A request without descriptors passes at once
// and is logged, as is one that the node cannot decide, unless Options.OnFailure denies it. A request that the Actions
// deny gets 400. Rules that charge responses are charged by what the handler wrote, however it ended. The error is
// about Options.Headers.
func HTTP(l answer.Limiter, opt Options) (func(http.Handler) http.Handler, error) {
	headers, err := answer.NewHeaders(opt.Headers, nil, nil)
	if err != nil {
		return nil, err
	}
	opt.Logger = cmp.Or(opt.Logger, slog.Default())
	n, isNode := l.(configured)
	if opt.Actions == nil && isNode {
		opt.Actions = n.Actions()
	} else if opt.Actions == nil {
		opt.Actions, _ = actions.New(actions.DefaultConfig()) // it is valid
	}
	if isNode {
		opt.Actions.Observe(n.Senders())
	} else {
		opt.Actions.Observe(actions.NewSenders(func(s actions.Sender) { s.Log(opt.Logger) }))
	}
	m := &limiter{Fallback: answer.Fallback{Limiter: l, Logger: opt.Logger}, headers: headers, actions: opt.Actions,
		onFailure: opt.OnFailure}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pending, ok := m.admit(w, r)
			switch {
			case ok && pending == nil:
				next.ServeHTTP(w, r)
			case ok:
				serve(pending, next, w, r)
			}
		})
	}, nil
}

// configured is a node.
type configured interface {
	Actions() *actions.Actions
	Senders() *actions.Senders
}

type limiter struct {
	answer.Fallback
	onFailure rules.Failure
	headers   *answer.Headers
	actions   *actions.Actions
	hints     limits.OncePerMinute
}

// serve calls the handler, and charges its response.
func serve(pending answer.Pending, next http.Handler, w http.ResponseWriter, r *http.Request) {
	m := httpsnoop.Metrics{Code: http.StatusOK}
	start, done := time.Now(), false
	costs := costs{names: pending.CostHeaders(), header: w.Header(), taken: make(http.Header)}
	w = costs.wrap(w)
	defer func() {
		costs.take()
		if silent := m.Written == 0 && m.Code == http.StatusOK; silent && r.Context().Err() != nil {
			m.Code = 0 // nobody waits for the response any more
		} else if silent && !done { // a panic
			m.Code = http.StatusInternalServerError
		}
		pending.End(context.WithoutCancel(r.Context()), &rules.Response{
			Status: m.Code, Header: costs.taken, Bytes: uint64(m.Written), Duration: time.Since(start),
		}, nil)
	}()
	m.CaptureMetrics(w, func(w http.ResponseWriter) { next.ServeHTTP(w, r) })
	done = true
}

// costs takes the headers with the cost out of a response, which are not for the client.
type costs struct {
	names         []string
	header, taken http.Header
}

func (c *costs) take() {
	for _, name := range c.names {
		if values, ok := c.header[name]; ok {
			c.taken[name] = values
			delete(c.header, name)
		}
	}
}

// wrap returns w, with the headers taken before it sends them.
func (c *costs) wrap(w http.ResponseWriter) http.ResponseWriter {
	if len(c.names) == 0 {
		return w
	}
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) { c.take(); next(status) }
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) { c.take(); return next(b) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(from io.Reader) (int64, error) { c.take(); return next(from) }
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { c.take(); next() }
		},
	})
}

// admit reports whether the request may pass now. If not it is answered.
func (m *limiter) admit(w http.ResponseWriter, r *http.Request) (pending answer.Pending, ok bool) {
	var (
		req  rules.Request
		room [4]counters.Decision
	)
	if out := m.actions.Describe(r, &req); out.Denied != "" {
		answer.WriteDenied(w, http.StatusBadRequest, out.Denied, out.Detail)
		return nil, false
	}
	if len(req.Descriptors) == 0 {
		if m.hints.Due(time.Now()) {
			m.Logger.WarnContext(r.Context(), "a request passes without a descriptor: no rule limits it",
				"hint", m.actions.Hint(r))
		}
		return nil, true
	}
	req.Header, req.TargetBytes, req.OnFailure = r.Header, answer.TargetBytes(r), m.onFailure
	layers, pending, err := m.Begin(r.Context(), &req, room[:0])
	if err != nil && r.Context().Err() != nil { // the client left, or its time was up, while a store was asked
		w.WriteHeader(http.StatusServiceUnavailable)
		return nil, false
	}
	if err != nil {
		answer.WriteDenied(w, http.StatusBadRequest, actions.DeniedTooManyValues, err.Error())
		return nil, false
	}
	retryAfter := m.headers.Write(w.Header(), layers)
	if !counters.VerdictOf(layers).Allowed {
		answer.NewDenial(http.StatusTooManyRequests, layers, retryAfter).Write(w)
		return nil, false
	}
	if pending == nil {
		return nil, true
	}
	charges, err := pending.Wait(r.Context())
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if !charges {
		pending = nil
	}
	return pending, err == nil
}
