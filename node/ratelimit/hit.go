package ratelimit

import (
	"math"
	"sync/atomic"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Hit is what was decided on one descriptor of a request that has a limit.
type Hit struct {
	// Domain and Entries are the descriptor, as it came.
	Domain  string
	Entries []rules.Entry
	// Rule is the rule that it met; nil: it brought its own limit.
	Rule *rules.Rule
	// Limit is the number of requests per unit.
	Limit uint64
	// Before is what was used of it before this request, and may be more than the limit.
	Before uint64
	// Hits is what the descriptor asked for; 0 of a peek.
	Hits uint64
}

// counts are the statistics of one name.
type counts struct {
	total, over, near, within, shadow atomic.Uint64
}

// add counts a hit. nearRatio is the part of the limit from which on it is nearly used up.
//
// The hits of one request may be partly within the limit, partly near it and partly over it. Each of them is counted
// where it falls, except that a request which goes over the limit has none within it:
//
//	near = floor(limit * nearRatio)
//	over the limit: over += the part of (before, before+hits] above limit, near += the part from near to limit
//	within it:      near += the part above near, within += hits
func (c *counts) add(h *Hit, nearRatio float32) {
	c.total.Add(h.Hits)
	after := h.Before + h.Hits
	// in 32 bits, as envoyproxy/ratelimit does: 0.8 of 5 is 4
	near := uint64(math.Floor(float64(float32(h.Limit) * nearRatio)))
	if after > h.Limit {
		over := h.Hits
		if h.Before < h.Limit {
			over = after - h.Limit
			c.near.Add(h.Limit - max(near, h.Before))
		}
		c.over.Add(over)
		if h.Rule != nil && h.Rule.Mode == counters.Shadow {
			c.shadow.Add(over)
		}
		return
	}
	if after > near {
		c.near.Add(after - max(near, h.Before))
	}
	c.within.Add(h.Hits)
}

// each calls f with the counts by the last part of their names, in alphabetical order.
func (c *counts) each(f func(suffix string, value uint64)) {
	f(".near_limit", c.near.Load())
	f(".over_limit", c.over.Load())
	f(".over_limit_with_local_cache", 0) // there is no cache: counts are local
	f(".shadow_mode", c.shadow.Load())
	f(".total_hits", c.total.Load())
	f(".within_limit", c.within.Load())
}
