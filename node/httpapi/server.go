package httpapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Reporter charges what a request cost once it is answered; /v1/report needs no more of a node. It is called
// concurrently.
type Reporter interface {
	// Report charges the request in its layers, whether or not they have room, and appends the decisions of a peek
	// right after. Everything else is as with answer.Limiter.
	Report(ctx context.Context, req *rules.Request, layers []counters.Decision) ([]counters.Decision, error)
}

// Envoy answers requests of Envoy's rate limit service that come as JSON: a body of at most 64 KiB that is valid
// JSON and only valid during the call. It returns the JSON of the response, and whether the request is allowed: 200 or
// 429. Errors are those of an answer.Limiter.
type Envoy func(ctx context.Context, body []byte) (resp []byte, allowed bool, err error)

// Options are the API's settings. The zero value is ready to use.
type Options struct {
	// Headers names the families of response headers as in answer.NewHeaders. Invalid names are a caller's bug.
	Headers []string
	// Envoy answers POST /json. Nil means no /json.
	Envoy Envoy
	// Ready makes the API that of envoyproxy/ratelimit where they differ: /healthcheck reports whether it returns nil,
	// and /json takes any method and refuses in plain text. Nil: /json refuses as all paths do.
	Ready func() error
	// Actions make the descriptors of requests to /v1/auth. Nil means no /v1/auth.
	Actions *actions.Actions
	// OnFailure is what happens to requests to /v1/auth that the limiter cannot decide, unless their path has a word.
	// Unset: they are refused.
	OnFailure rules.Failure
	// Reporter takes the charges of /v1/report. Nil means no /v1/report.
	Reporter Reporter
	// Forgotten, unless nil, counts the request_ids that were evicted within their minute, because too many came.
	Forgotten *atomic.Uint64
	// Budgets has the budget for bodies. Nil: it is neither exported nor logged.
	Budgets *limits.Budgets
	// Logger receives the errors that clients are not shown. Nil means slog.Default().
	Logger *slog.Logger
	// Now is the wall clock of reset times in Unix seconds. Nil means time.Now.
	Now func() time.Time
	// Jitter returns numbers in [0, 1) that spread the clients' retries. It is called concurrently. Nil means
	// math/rand/v2.
	Jitter func() float64
}

// api is the handler behind New. Only its idempotency cache, body budget and reminders change.
type api struct {
	limiter answer.Limiter
	headers *answer.Headers
	seen    *idempotencyCache
	bodies  *limits.Budget // of maxBodies, see scratch.hold
	opt     Options

	hints, queries, early limits.OncePerMinute // limit log lines to one a minute
}

// New returns the API over l, safe for concurrent use. It panics if opt.Headers is invalid.
func New(l answer.Limiter, opt Options) http.Handler {
	headers, err := answer.NewHeaders(opt.Headers, opt.Now, opt.Jitter)
	if err != nil {
		panic(err)
	}
	opt.Logger = cmp.Or(opt.Logger, slog.Default())
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &api{limiter: l, headers: headers, seen: newIdempotencyCache(), opt: opt,
		bodies: opt.Budgets.New("http", "bodies", maxBodies)}
}

// Server returns a server for h whose limits keep slow and greedy clients from holding its connections: headers within
// 2 s and 16 KiB, the whole request within 5 s, the response within 10 s; 100 requests at a time on a connection with
// HTTP/2. Idle connections end after 2 minutes, behind package listen also those without a request yet: clients and
// proxies mostly keep theirs for 60 to 90 s, and whoever keeps them longer than the server fails with requests that it
// sends as the server ends them. net/http logs to logger; nil means slog.Default(). The caller listens, serves and
// shuts down.
func Server(h http.Handler, logger *slog.Logger) *http.Server {
	logger = cmp.Or(logger, slog.Default())
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 2 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReceiveBufferPerConnection: 256 << 10,
			MaxReceiveBufferPerStream: 64 << 10},
		ErrorLog: limits.ServerLog(logger),
	}
}

// These are values of headers, which nobody writes to.
var (
	closing  = []string{"close"}
	jsonType = []string{"application/json"}
)

// ServeHTTP implements http.Handler. It routes by itself because a ServeMux refuses in plain text.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.opt.Ready != nil {
		switch r.URL.Path {
		case healthcheckPath:
			a.healthcheck(w)
			return
		case jsonPath:
			a.ratelimitJSON(w, r)
			return
		}
	}
	serve := a.post
	if rest, ok := strings.CutPrefix(r.URL.Path, authPath); ok && (rest == "" || rest[0] == '/') {
		serve = a.auth
	}
	if err := serve(w, r); err != nil {
		a.refuse(w, r, err)
	}
}

// endpoints are all paths but /v1/auth, with the longest body of each.
var endpoints = map[string]struct {
	serve   func(*api, http.ResponseWriter, *http.Request, *scratch) error
	maxBody int64
}{
	"/v1/check":       {(*api).check, maxBody},
	"/v1/check/batch": {(*api).batch, maxBatchBody},
	"/v1/report":      {(*api).report, maxBody},
	"/limiter/check":  {(*api).limiterCheck, maxBody},
	jsonPath:          {(*api).envoy, maxBody},
}

func (a *api) post(w http.ResponseWriter, r *http.Request) error {
	endpoint, ok := endpoints[r.URL.Path]
	if !ok {
		return refusef(http.StatusNotFound, "nothing is served at this path: "+
			"use /v1/check, /v1/check/batch, /v1/report, /v1/auth, /limiter/check or /json")
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return refusef(http.StatusMethodNotAllowed, "send checks with POST and a JSON body")
	}
	if err := refusePage(r); err != nil {
		return err
	}
	s := a.takeScratch(r)
	defer s.release()
	if err := s.read(w, r, endpoint.maxBody); err != nil {
		return err
	}
	return endpoint.serve(a, w, r, s)
}

// Recover answers a panic of h with 500 and a problem document, logs it with its stack, and calls panicked. A panic
// with http.ErrAbortHandler passes. It relies on h writing its whole response at its end.
func Recover(h http.Handler, logger *slog.Logger, panicked func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			switch p {
			case nil:
				return
			case http.ErrAbortHandler:
				panic(p)
			}
			panicked()
			logger.Error("panic in an HTTP request; its client gets 500", "path", r.URL.Path, "panic", p,
				"stack", string(debug.Stack()))
			clear(w.Header())
			w.Header()["Connection"] = closing // a part of the request's body may be unread
			answer.NewProblem(http.StatusInternalServerError,
				"the node failed to answer: try again, and see its log").Write(w)
		}()
		h.ServeHTTP(w, r)
	})
}
