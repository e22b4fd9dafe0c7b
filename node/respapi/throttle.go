package respapi

import (
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// throttle is CL.THROTTLE key max_burst count period [quantity].
func (c *session) throttle(words [][]byte) outcome {
	numbers := [4]int64{3: 1}
	for i, w := range words[2:] {
		var ok bool
		if numbers[i], ok = integer(w); !ok {
			return c.fail("ERR value is not an integer or out of range")
		}
	}
	quantity := numbers[3]
	if quantity < 0 {
		return c.fails("ERR quantity is %d, want at least 0", quantity)
	}
	l, err := c.server.limits.Get(shape{numbers[0], numbers[1], numbers[2]}, c.now)
	if err != nil {
		return c.fail("ERR " + explained(err))
	}
	d := c.server.limiter.TakeLimit(l, words[1], min(uint64(quantity), counters.MaxLimit+1))
	result, limited, retryAfter := outcomeOf(&d, quantity), int64(0), int64(-1)
	if result == denied {
		limited, retryAfter = 1, seconds(d.RetryAfter)
	}
	c.array(5)
	for _, n := range [...]int64{limited, int64(d.Limit), int64(d.Remaining), retryAfter, seconds(d.ResetAfter)} {
		c.integer(n)
	}
	return result
}

// outcomeOf is denied where the reply says so: a quantity of 0 is never too much.
func outcomeOf(d *counters.Decision, quantity int64) outcome {
	switch {
	case quantity == 0:
		return other
	case d.Allowed:
		return allowed
	}
	return denied
}

// seconds are rounded up, so that who waits as told is not too early; -1 is never.
func seconds(d time.Duration) int64 {
	if d == counters.Never {
		return -1
	}
	return int64((d + time.Second - 1) / time.Second)
}
