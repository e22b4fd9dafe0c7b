package telemetry

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Unpriced counts the responses that lacked the header with their cost. Count and Total are safe for concurrent use.
type Unpriced struct {
	log   *slog.Logger
	count atomic.Uint64
	line  limits.OncePerMinute
}

// Count counts a response under a rule at the time now, and logs one a minute.
func (u *Unpriced) Count(r *rules.Rule, now int64) {
	u.count.Add(1)
	if u.line.Due(time.Unix(0, now)) {
		u.log.Warn("a response costs 1, as it lacks the header with a whole number that its rule charges",
			"rule", r.Name, "header", r.After.Header, "responses", u.count.Load())
	}
}

// Total returns how many there were.
func (u *Unpriced) Total() uint64 { return u.count.Load() }
