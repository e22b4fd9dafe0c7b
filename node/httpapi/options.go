package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Limiter decides; it is all that the door needs of a node. It is called concurrently.
type Limiter interface {
	// Decide appends one Decision per layer of the request to layers, in order, and after them those of parents that elastic rules bring
	// along. The request is allowed if and only if all of them are; a layer that met no rule is {Allowed: true} with an empty Rule. req is only valid during the call.
	//
	// An error means that there is no decision: rules.ErrUnknownRule becomes 404, rules.ErrInvalidRequest 400, a context's
	// error 503, and anything else 500, which is logged and not shown to the client.
	Decide(ctx context.Context, req *rules.Request, layers []counters.Decision) ([]counters.Decision, error)
}

// Reporter charges what a request cost once it is answered; it is all that /v1/report needs of a node. It is called concurrently.
type Reporter interface {
	// Report charges the request in its layers, whether or not they have room, and appends what a peek tells right after. Everything else is
	// as with Limiter.Decide.
	Report(ctx context.Context, req *rules.Request, layers []counters.Decision) ([]counters.Decision, error)
}

// Envoy answers requests of Envoy's rate limit service that come as JSON: a body of at most MaxBody bytes that is valid JSON and only valid
// during the call. It returns the JSON of the answer, and whether the request is allowed: 200 or 429. Errors are those of a Limiter.
type Envoy func(ctx context.Context, body []byte) (answer []byte, allowed bool, err error)

// What a body may hold unless Options say otherwise, in bytes.
const (
	DefaultMaxBody      = 64 << 10
	DefaultMaxBatchBody = 1 << 20
)

// DefaultMaxBodies is what the bodies of all requests under way may take together unless Options say otherwise, in bytes.
const DefaultMaxBodies = 64 << 20

// Options are the door's settings. The zero value is ready to use.
type Options struct {
	// Headers names the families of response headers: Draft11, and one of LegacyDelta and LegacyEpoch; or HeadersOff
	// alone. Empty means DefaultHeaders.
	Headers []string
	// MaxBody is the longest body of a single check, in bytes; longer ones are refused with 413. 0 means DefaultMaxBody.
	MaxBody int64
	// MaxBatchBody is the same for a batch. 0 means DefaultMaxBatchBody.
	MaxBatchBody int64
	// Envoy answers POST /json. Nil means that the door has no /json.
	Envoy Envoy
	// MaxBodies is what the bodies of all requests under way may take together, in bytes: each that is longer than 4 KiB counts up to four
	// times, and so does a long answer until it is sent. Requests beyond that are refused with 503. 0 means DefaultMaxBodies.
	MaxBodies int64
	// Actions make the descriptors of what /v1/auth is asked about. Nil means that the door has no /v1/auth.
	Actions *actions.Actions
	// Reporter charges what /v1/report is told. Nil means that the door has no /v1/report.
	Reporter Reporter
	// Logger receives the errors that clients are not shown. Nil means slog.Default().
	Logger *slog.Logger
	// Now is the wall clock from which reset times are told as Unix time. Nil means time.Now.
	Now func() time.Time
	// Jitter returns numbers in [0, 1) that spread the clients' retries. It is called concurrently. Nil means math/rand/v2.
	Jitter func() float64
}

// Validate says everything that is wrong with the options at once.
func (o Options) Validate() error {
	_, err := NewHeaders(o.Headers, nil, nil)
	errs := []error{err}
	if o.MaxBody < 0 {
		errs = append(errs, fmt.Errorf("http: the cap on a body is %d bytes: give a positive number, or 0 for %d", o.MaxBody, DefaultMaxBody))
	}
	if o.MaxBatchBody < 0 {
		errs = append(errs, fmt.Errorf("http: the cap on a batch is %d bytes: give a positive number, or 0 for %d", o.MaxBatchBody, DefaultMaxBatchBody))
	}
	if o.MaxBodies < 0 {
		errs = append(errs, fmt.Errorf("http: the cap on all bodies is %d bytes: give a positive number, or 0 for %d", o.MaxBodies, DefaultMaxBodies))
	}
	return errors.Join(errs...)
}

func (o Options) withDefaults() Options {
	if o.MaxBody == 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.MaxBatchBody == 0 {
		o.MaxBatchBody = DefaultMaxBatchBody
	}
	if o.MaxBodies == 0 {
		o.MaxBodies = DefaultMaxBodies
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	return o
}
