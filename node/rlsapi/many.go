package rlsapi

import (
	"context"
	"math"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// interplay is what the descriptors of a request do to one another in a compatible domain. Within one decision the
// rules and the table see to that. It is found beforehand where a request takes several, and where an addend is more
// than Redis can count: such a request is refused only if a limit counts that descriptor. The zero value does nothing.
type interplay struct {
	replaced []bool // the rule of another descriptor replaces its rule
	stopped  []bool // it is not charged, as another one is over its limit (ratelimit.Config.StopIncrements)
}

// interplayOf returns the interplay of a checked request, by peeks at each descriptor by itself.
func (s *Service) interplayOf(
	ctx context.Context, in *rls.RateLimitRequest, t *scratch, known bool,
) (x interplay, err error) {
	n := len(in.Descriptors)
	if n <= rules.MaxDescriptors && !overflows(in) {
		return x, nil
	}
	x.replaced, x.stopped = make([]bool, n), make([]bool, n)
	names, limited, over := make([]string, n), make([]bool, n), make([]bool, n)
	replacing := make(map[string]bool)
	for i := range n {
		if err = t.translateCompatibly(ctx, in, in.Descriptors[i:i+1], s, known, true); err != nil {
			return x, err
		}
		if t.layers, err = s.limiter.DecideMet(ctx, &t.req, t.layers[:0], t.met); err != nil {
			return x, err
		}
		d, met := &t.layers[0], t.met[0]
		limited[i] = d.Rule != ""
		over[i] = limited[i] && d.Excess+hitsOf(in, in.Descriptors[i]) > d.Remaining
		if met == nil || t.asks[0].Limit != nil {
			continue
		}
		for _, name := range met.Replaces {
			replacing[name] = true
		}
		if limited[i] {
			names[i] = met.Given
		}
	}
	stops := false
	for i, d := range in.Descriptors {
		x.replaced[i] = names[i] != "" && replacing[names[i]]
		over[i], limited[i] = over[i] && !x.replaced[i], limited[i] && !x.replaced[i]
		if limited[i] && d.GetHitsAddend().GetValue() > math.MaxInt64 {
			return x, overflow
		}
		stops = stops || over[i] && s.ratelimit.StopIncrements
	}
	for i := range x.stopped {
		x.stopped[i] = stops && !over[i]
	}
	return x, nil
}

// apply changes t, which has the descriptors from first on: those that are replaced meet no rule, and those that are
// stopped are peeks.
func (x *interplay) apply(t *scratch, first int) {
	for i := range t.asks {
		if x.replaced != nil && x.replaced[first+i] {
			t.req.Descriptors[i] = nil
		}
		if x.stopped != nil && x.stopped[first+i] {
			t.asks[i].Cost = 0
		}
	}
}

// overflows reports whether an addend is more than Redis can count.
func overflows(in *rls.RateLimitRequest) bool {
	for _, d := range in.Descriptors {
		if d.GetHitsAddend().GetValue() > math.MaxInt64 {
			return true
		}
	}
	return false
}

// hitsOf returns what a descriptor asks for: its own addend, or that of the request, which is at least 1.
func hitsOf(in *rls.RateLimitRequest, d *common.RateLimitDescriptor) uint64 {
	if own := d.GetHitsAddend(); own != nil {
		return min(own.GetValue(), counters.MaxTally)
	}
	return max(uint64(in.GetHitsAddend()), 1)
}
