package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Reporter charges what a request cost once it is answered; /v1/report needs no more of a node. It is called
// concurrently.
type Reporter interface {
	// Report charges the request in its layers, whether or not they have room, and appends the decisions of a peek
	// right after. Everything else is as with answer.Limiter.
	Report(ctx context.Context, req *rules.Request, layers []counters.Decision) ([]counters.Decision, error)
}

// Envoy answers requests of Envoy's rate limit service that come as JSON: a body of at most MaxBody bytes that is valid
// JSON and only valid during the call. It returns the JSON of the response, and whether the request is allowed: 200 or
// 429. Errors are those of an answer.Limiter.
type Envoy func(ctx context.Context, body []byte) (resp []byte, allowed bool, err error)

// The defaults of Options, in bytes.
const (
	DefaultMaxBody      = 64 << 10
	DefaultMaxBatchBody = 1 << 20
	DefaultMaxBodies    = 64 << 20
)

// Options are the API's settings. The zero value is ready to use.
type Options struct {
	// Headers names the families of response headers as in answer.NewHeaders.
	Headers []string
	// MaxBody is the longest body of a single check, in bytes; longer ones are refused with 413. 0 means
	// DefaultMaxBody.
	MaxBody int64
	// MaxBatchBody is the same for a batch. 0 means DefaultMaxBatchBody.
	MaxBatchBody int64
	// MaxBodies caps the memory of all bodies in flight, in bytes: a body longer than 4 KiB counts up to four times its
	// length, and so does a long response until it is sent. Requests beyond that are refused with 503. 0 means
	// DefaultMaxBodies.
	MaxBodies int64
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

// Validate returns all problems of the options at once.
func (o Options) Validate() error {
	_, err := answer.NewHeaders(o.Headers, nil, nil)
	errs := []error{err}
	for _, limit := range []struct {
		of           string
		bytes, unset int64
	}{
		{"a body", o.MaxBody, DefaultMaxBody},
		{"a batch", o.MaxBatchBody, DefaultMaxBatchBody},
		{"all bodies", o.MaxBodies, DefaultMaxBodies},
	} {
		if limit.bytes < 0 {
			errs = append(errs, fmt.Errorf("http: the cap on %s is %d bytes: give a positive number, or 0 for %d",
				limit.of, limit.bytes, limit.unset))
		}
	}
	return errors.Join(errs...)
}

func (o Options) withDefaults() Options {
	o.MaxBody = cmp.Or(o.MaxBody, DefaultMaxBody)
	o.MaxBatchBody = cmp.Or(o.MaxBatchBody, DefaultMaxBatchBody)
	o.MaxBodies = cmp.Or(o.MaxBodies, DefaultMaxBodies)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	return o
}
