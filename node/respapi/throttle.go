package respapi

import (
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
)

// MaxLimits caps the ad-hoc limits that are kept, each with its own max_burst, count and period. Package limits evicts.
const MaxLimits = 1024

// throttleLimit is the limit of CL.THROTTLE. The period is in seconds.
type throttleLimit struct{ maxBurst, count, period int64 }

// limit makes the limit. No rule can have its meter's name: in rules, a percent sign comes before two digits.
func (t throttleLimit) limit() (*counters.Limit, error) {
	const maxPeriod = int64(counters.MaxWindow / time.Second)
	switch {
	case t.maxBurst < 0 || t.maxBurst >= counters.MaxLimit:
		return nil, fmt.Errorf("max_burst is %d, want 0 to %d", t.maxBurst, int64(counters.MaxLimit-1))
	case t.count < 1 || t.count > counters.MaxLimit:
		return nil, fmt.Errorf("count is %d, want 1 to %d", t.count, int64(counters.MaxLimit))
	case t.period < 1 || t.period > maxPeriod:
		return nil, fmt.Errorf("period is %d, want 1 to %d seconds", t.period, maxPeriod)
	}
	name := fmt.Sprintf("%%cl.throttle/%d/%d/%d", t.maxBurst, t.count, t.period)
	meter := counters.NewMeter(name, counters.TokenBucket, time.Duration(t.period)*time.Second)
	return counters.NewBucket(meter, uint64(t.maxBurst)+1, uint64(t.count))
}

func newLimits(opt *Options) *limits.Keeper[throttleLimit] {
	return limits.NewKeeper(limits.Options[throttleLimit]{
		Max: MaxLimits, Limit: throttleLimit.limit, Learn: opt.Learn, API: "resp", Logger: opt.Logger})
}

// throttle is CL.THROTTLE key max_burst count period [quantity].
func (c *session) throttle(args [][]byte) outcome {
	numbers := [4]int64{3: 1}
	for i, arg := range args[2:] {
		var ok bool
		if numbers[i], ok = parseInt(arg); !ok {
			return c.fail("ERR value is not an integer or out of range")
		}
	}
	quantity := numbers[3]
	if quantity < 0 {
		return c.failf("ERR quantity is %d, want at least 0", quantity)
	}
	var l *counters.Limit
	var err error
	if t := (throttleLimit{numbers[0], numbers[1], numbers[2]}); quantity == 0 {
		l, err = c.server.limits.Peek(t)
	} else {
		l, err = c.server.limits.Charge(t, c.source, c.now)
	}
	if err != nil {
		return c.fail("ERR " + err.Error())
	}
	d := c.server.limiter.TakeLimit(l, args[1], min(uint64(quantity), counters.MaxLimit+1))
	result, limited, retryAfter := allowed, int64(0), int64(-1)
	switch {
	case quantity == 0: // a peek is never limited
		result = other
	case !d.Allowed:
		result, limited, retryAfter = denied, 1, seconds(d.RetryAfter)
	}
	c.array(5)
	for _, n := range [...]int64{limited, int64(d.Limit), int64(d.Remaining), retryAfter, seconds(d.ResetAfter)} {
		c.integer(n)
	}
	return result
}

// seconds rounds up, so that a client that waits as told is not too early; -1 is never.
func seconds(d time.Duration) int64 { return answer.RoundUp(d, time.Second) }
