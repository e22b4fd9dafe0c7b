package rlsapi

import (
	"fmt"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"

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

// week has no name among the units of requests. Like envoyproxy/ratelimit, it takes the number that it has among those
// of responses.
const week = envoytype.RateLimitUnit(rls.RateLimitResponse_RateLimit_WEEK)

// windows are the lengths of the units of ad-hoc limits, as in rules.
var windows = map[envoytype.RateLimitUnit]time.Duration{
	envoytype.RateLimitUnit_SECOND: time.Second, envoytype.RateLimitUnit_MINUTE: time.Minute,
	envoytype.RateLimitUnit_HOUR: time.Hour, envoytype.RateLimitUnit_DAY: day, week: 7 * day,
	envoytype.RateLimitUnit_MONTH: 30 * day, envoytype.RateLimitUnit_YEAR: 365 * day,
}

// overrideOf reads the ad-hoc limit of descriptor n, counted from 1. Its errors wrap rules.ErrInvalidRequest.
func overrideOf(n int, l *common.RateLimitDescriptor_RateLimitOverride) (override, error) {
	window, known := windows[l.GetUnit()]
	if !known {
		return override{}, invalid("the limit of descriptor %d is per %s: use a unit from SECOND to YEAR", n,
			l.GetUnit())
	}
	times := uint32(1)
	if m := l.GetUnitMultiplier(); m != nil {
		times = m.GetValue()
	}
	if highest := int64(counters.MaxWindow / window); times == 0 || int64(times) > highest {
		return override{}, invalid("the limit of descriptor %d is per %d times %s: use 1 to %d", n, times, l.GetUnit(),
			highest)
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
