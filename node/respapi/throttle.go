package respapi

import (
	"math"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
)

// quota is what a request allows its key, in the arithmetic of redis-cell: whole nanoseconds.
//
//	interval  period / count, which a token costs
//	capacity  interval * limit, which a key may owe
//
// A key that owes d may be charged for k tokens if d + k*interval <= capacity.
type quota struct {
	interval, capacity time.Duration
	limit              int64 // tokens
}

// Errors, most of them redis-cell's. Redis accepts no negative time to live where a key gets back more than it owes.
const (
	cellError    = "Cell error: Store error: "
	usage        = cellError + "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
	notInteger   = cellError + "Couldn't parse as integer: %s"
	expireFailed = cellError + "Error while setting key expire"
	zeroRate     = cellError + "Zero rates are not supported"
	outOfRange   = "ERR count and period are negative or too large here: want 1 or more, and a bucket that is full " +
		"again within 68 years"
)

// newQuota returns the quota of so many tokens, refilled by count in a period of seconds, or an error. A limit of 0 or
// less allows nothing.
func newQuota(limit, count, period int64) (q quota, refusal string) {
	if count == 0 || period == 0 {
		return q, zeroRate
	}
	interval := float64(period) * float64(time.Second) / float64(count)
	switch {
	case count < 0 || period < 0 || interval > float64(counters.MaxDebt):
		return q, outOfRange
	case interval < 1:
		return q, zeroRate
	}
	q = quota{interval: time.Duration(interval), limit: limit}
	if limit > int64(counters.MaxDebt/q.interval) {
		return q, outOfRange
	}
	q.capacity = q.interval * time.Duration(max(limit, 0))
	return q, ""
}

// cost is the time that tokens cost; of too many it is more than any capacity.
func (q quota) cost(tokens int64) time.Duration {
	if tokens > int64(counters.MaxDebt/q.interval) {
		return counters.MaxDebt + 1
	}
	return q.interval * time.Duration(tokens)
}

// remaining is how many tokens a key that owes so much is admitted at once. redis-cell divides whole microseconds, so
// its result may be more.
func (q quota) remaining(owed time.Duration) int64 {
	return max(0, int64((q.capacity-owed)/q.interval))
}

// decision is the decision on a request: what the key owes after it, and for how long to wait; counters.Never if not
// at all, or if waiting is in vain.
type decision struct {
	limited    bool
	owed, wait time.Duration
}

// charge charges a key for tokens, 0 or more.
func (c *session) charge(key []byte, q quota, tokens int64) decision {
	cost := q.cost(tokens)
	if q.limit <= 0 && tokens > 0 {
		cost = counters.MaxDebt + 1
	}
	d := c.server.limiter.TakeDebt(c.identity(key), cost, max(q.capacity, 1))
	switch {
	case !d.Allowed:
		return decision{true, d.ResetAfter, d.RetryAfter}
	case q.limit < 0:
		return decision{true, d.ResetAfter, counters.Never}
	}
	return decision{false, d.ResetAfter, counters.Never}
}

// owed is what a key owes.
func (c *session) owed(key []byte) time.Duration {
	return c.server.limiter.TakeDebt(c.identity(key), 0, counters.MaxDebt).ResetAfter
}

// throttle is CL.THROTTLE key max_burst count period [quantity].
func (c *session) throttle(args [][]byte) outcome {
	if len(args) < 5 || len(args) > 6 {
		return c.fail(usage)
	}
	numbers := [4]int64{3: 1}
	for i, arg := range args[2:] {
		var err error
		if numbers[i], err = strconv.ParseInt(string(arg), 10, 64); err != nil {
			return c.failf(notInteger, arg)
		}
	}
	if numbers[0] == math.MaxInt64 {
		return c.fail(outOfRange)
	}
	q, refusal := newQuota(numbers[0]+1, numbers[1], numbers[2])
	if refusal != "" {
		return c.fail(refusal)
	}
	quantity := numbers[3]
	var d decision
	if quantity >= 0 {
		d = c.charge(args[1], q, quantity)
	} else {
		back := q.cost(-max(quantity, -math.MaxInt64))
		owed, ok := c.server.limiter.GiveBack(c.identity(args[1]), back, q.capacity)
		switch {
		case !ok:
			d = decision{true, owed, owed - back - q.capacity}
		case back-owed >= 2*time.Millisecond: // Redis drops what is less than one, and takes -1 for no time to live
			return c.fail(expireFailed)
		default:
			d = decision{false, max(0, owed-back), counters.Never}
		}
	}
	c.array(5)
	c.integer(flag(d.limited))
	c.integer(q.limit)
	c.integer(q.remaining(d.owed))
	c.integer(seconds(d.wait))
	c.integer(wholeSeconds(d.owed))
	return d.outcome(quantity)
}

// outcome classifies the reply. What charges nothing is no decision.
func (d decision) outcome(quantity int64) outcome {
	switch {
	case quantity <= 0:
		return other
	case d.limited:
		return denied
	}
	return allowed
}

// crabThrottle is THROTTLE key max_burst count period [quantity], as throttlecrab answers it: its limit is max_burst,
// its errors and seconds, rounded down, are its own. Its time of the reset is that at which it forgets the key.
func (c *session) crabThrottle(args [][]byte) outcome {
	numbers := [4]int64{3: 1}
	for i, arg := range args[2:] {
		var err error
		if numbers[i], err = strconv.ParseInt(string(arg), 10, 64); err != nil {
			return c.fail("ERR invalid " + [...]string{"max_burst", "count_per_period", "period", "quantity"}[i])
		}
	}
	maxBurst, quantity := numbers[0], numbers[3]
	if quantity < 0 {
		return c.fail("ERR negative quantity: " + strconv.FormatInt(quantity, 10))
	}
	q, refusal := newQuota(maxBurst, numbers[1], numbers[2])
	if refusal != "" || maxBurst <= 0 {
		return c.fail("ERR invalid rate limit parameters")
	}
	d := c.charge(args[1], q, quantity)
	wait := time.Duration(0)
	if d.limited {
		wait = max(0, d.wait, d.owed+q.cost(quantity)-q.capacity)
	}
	reset := max(0, d.owed+q.capacity-2*q.interval)
	c.array(5)
	for _, n := range [...]int64{flag(!d.limited), maxBurst, q.remaining(d.owed), int64(reset / time.Second),
		int64(wait / time.Second)} {
		c.integer(n)
	}
	return d.outcome(quantity)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// seconds rounds up, so that a client that waits as told is not too early; -1 is never.
func seconds(d time.Duration) int64 { return answer.RoundUp(d, time.Second) }

// wholeSeconds rounds up whole milliseconds, as redis-cell does.
func wholeSeconds(d time.Duration) int64 { return seconds(d.Truncate(time.Millisecond)) }
