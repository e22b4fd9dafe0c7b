package rlsapi

import (
	"fmt"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/edgelimit/edgelimit/counters"
)

// MaxOverrides is how many kinds of limits the service keeps that requests bring: each of another number or window. One that no request
// brought for so long that nothing counts under it any more makes room for another one; until then others are refused.
const MaxOverrides = 512

// override is what a request says of a limit that it brings.
type override struct {
	most   uint32
	window time.Duration
}

const day = 24 * time.Hour

// week has no name among the units of requests, but its number among those of answers, which envoyproxy/ratelimit takes it for.
const week = envoytype.RateLimitUnit(rls.RateLimitResponse_RateLimit_WEEK)

// windows are the lengths of the units that a request may bring, which are those of rules.
var windows = map[envoytype.RateLimitUnit]time.Duration{
	envoytype.RateLimitUnit_SECOND: time.Second, envoytype.RateLimitUnit_MINUTE: time.Minute, envoytype.RateLimitUnit_HOUR: time.Hour,
	envoytype.RateLimitUnit_DAY: day, week: 7 * day, envoytype.RateLimitUnit_MONTH: 30 * day,
	envoytype.RateLimitUnit_YEAR: 365 * day,
}

// overrideOf reads the limit that the descriptor with the number n, counted from 1, brings. Its errors wrap rules.ErrInvalidRequest.
func overrideOf(n int, l *common.RateLimitDescriptor_RateLimitOverride) (override, error) {
	window, known := windows[l.GetUnit()]
	if !known {
		return override{}, invalid("the limit of descriptor %d is per %s: use a unit from SECOND to YEAR", n, l.GetUnit())
	}
	times := uint32(1)
	if m := l.GetUnitMultiplier(); m != nil {
		times = m.GetValue()
	}
	if most := int64(counters.MaxWindow / window); times == 0 || int64(times) > most {
		return override{}, invalid("the limit of descriptor %d is per %d times %s: use 1 to %d", n, times, l.GetUnit(), most)
	}
	return override{l.GetRequestsPerUnit(), time.Duration(times) * window}, nil
}

// limit makes the limit, of an algorithm. Its meter has a name that no rule can have: there, a percent sign comes before two digits.
func (o override) limit(a counters.Algorithm) (*counters.Limit, error) {
	name := fmt.Sprintf("%%override/%d/%v", o.most, o.window)
	l, err := counters.NewLimit(counters.NewMeter(name, a, o.window), uint64(o.most))
	if err != nil {
		return nil, invalid("%v", err)
	}
	return l, nil
}
