package rlsapi

import (
	"fmt"
	"slices"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/edgelimit/edgelimit/counters"
)

// MaxOverrides caps the ad-hoc limits that are kept, each with its own number or window. Package limits evicts.
const MaxOverrides = 512

// override is an ad-hoc limit: one that a request brings along.
type override struct {
	max    uint32
	window time.Duration
}

const day = 24 * time.Hour

// windows are the lengths of units, as in rules. Requests and responses number units in the same way, but for the week,
// which has no name in requests; like envoyproxy/ratelimit, the service takes its number there as well.
var windows = [...]time.Duration{
	rls.RateLimitResponse_RateLimit_SECOND: time.Second,
	rls.RateLimitResponse_RateLimit_MINUTE: time.Minute,
	rls.RateLimitResponse_RateLimit_HOUR:   time.Hour,
	rls.RateLimitResponse_RateLimit_DAY:    day,
	rls.RateLimitResponse_RateLimit_WEEK:   7 * day,
	rls.RateLimitResponse_RateLimit_MONTH:  30 * day,
	rls.RateLimitResponse_RateLimit_YEAR:   365 * day,
}

// unitOf returns the unit of a window. All but whole units are UNKNOWN, which is 0: a client older than unit_multiplier
// would take "10 seconds" for one.
func unitOf(window time.Duration) rls.RateLimitResponse_RateLimit_Unit {
	return rls.RateLimitResponse_RateLimit_Unit(max(0, slices.Index(windows[:], window)))
}

// overrideOf reads the ad-hoc limit of descriptor n, counted from 1. Its errors wrap rules.ErrInvalidRequest.
func overrideOf(n int, l *common.RateLimitDescriptor_RateLimitOverride) (override, error) {
	unit := l.GetUnit()
	if unit <= 0 || int(unit) >= len(windows) {
		return override{}, invalid("the limit of descriptor %d is per %s: use a unit from SECOND to YEAR", n, unit)
	}
	times, window := uint32(1), windows[unit]
	if m := l.GetUnitMultiplier(); m != nil {
		times = m.GetValue()
	}
	if highest := int64(counters.MaxWindow / window); times == 0 || int64(times) > highest {
		return override{}, invalid("the limit of descriptor %d is per %d times %s: use 1 to %d", n, times, unit, highest)
	}
	return override{l.GetRequestsPerUnit(), time.Duration(times) * window}, nil
}

// limit makes the limit. No rule can have its meter's name: in rules, a percent sign comes before two digits.
func (o override) limit(a counters.Algorithm) (*counters.Limit, error) {
	name := fmt.Sprintf("%%override/%d/%v", o.max, o.window)
	l, err := counters.NewLimit(counters.NewMeter(name, a, o.window), uint64(o.max))
	if err != nil {
		return nil, invalid("%v", err)
	}
	return l, nil
}
