package ratelimit

import (
	"log/slog"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/limits"
)

// ServiceOptions are the settings of Envoy's rate limit service. The zero value is ready to use.
type ServiceOptions struct {
	// Headers names the families of response_headers_to_add as in answer.NewHeaders. Invalid names are a caller's bug.
	Headers []string
	// Algorithm is that of ad-hoc limits. The zero value means SlidingWindow.
	Algorithm counters.Algorithm
	// Learn, unless nil, is called with all ad-hoc limits that are kept, as by limits.NewKeeper.
	Learn func([]*counters.Limit)
	// Ratelimit are the settings of domains that are compatible with envoyproxy/ratelimit.
	Ratelimit Config
	// Shadow reports whether nothing is denied. Nil: it never is so.
	Shadow func() bool
	// Stats, unless nil, counts the decisions in such domains.
	Stats *Stats
	// HealthName is one more service that the health is asked for; empty: none.
	HealthName string
	// Budgets has the budgets of its gRPC server. Nil: they are neither exported nor logged.
	Budgets *limits.Budgets
	// Logger receives the errors that clients are not shown. Nil means slog.Default().
	Logger *slog.Logger
}

// ServiceStats are totals since the service was made, except Overrides.
type ServiceStats struct {
	OK, OverLimit uint64 // requests by their overall code
	Invalid       uint64 // requests that were refused
	Failed        uint64 // requests without a decision: too late, or the node's own error
	Overrides     int    // ad-hoc limits that are kept now
	Evicted       uint64 // ad-hoc limits that made room for others while they may still have counted
}
