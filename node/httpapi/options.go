package httpapi

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
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
	// Actions make the descriptors of requests to /v1/auth. Nil means no /v1/auth.
	Actions *actions.Actions
	// Reporter takes the charges of /v1/report. Nil means no /v1/report.
	Reporter Reporter
	// Forgotten, unless nil, counts the request_ids that were evicted within their minute, because too many came.
	Forgotten *atomic.Uint64
	// Logger receives the errors that clients are not shown. Nil means slog.Default().
	Logger *slog.Logger
	// Now is the wall clock of reset times in Unix seconds. Nil means time.Now.
	Now func() time.Time
	// Jitter returns numbers in [0, 1) that spread the clients' retries. It is called concurrently. Nil means
	// math/rand/v2.
	Jitter func() float64
}
