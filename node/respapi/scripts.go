package respapi

import (
	"crypto/sha1"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// No script is run. Those of the Go library redis_rate (github.com/go-redis/redis_rate, v10) are recognized by their
// digests, and answered as they would: their tokens cost period/rate seconds, and a key may owe burst of them.
//
//	EVALSHA digest 1 key burst rate period cost   ->   allowed, remaining, "retry_after", "reset_after"
//
// retry_after is -1 for what is allowed; both are in seconds, as text. Costs of 0 and less are never charged: 0 peeks,
// less gives back unless that is all that the key owes, or more.
const (
	allowN      = "f52a5b566060d79fd321d695df55bc918339c4aa" // all of the cost, or nothing
	allowAtMost = "054143318f521948424aa25df61d7f7ba835a9d7" // all that is left of the cost
)

const (
	noScripts = "ERR scripts are refused: the setting resp_redis_rate (--resp-redis-rate) has those of the library " +
		"redis_rate answered"
	otherScript = "ERR only the scripts of the library redis_rate are answered"
	noScript    = "NOSCRIPT No matching script. Please use EVAL."
	badScript   = "ERR the script of redis_rate takes one key and burst, rate, period and cost, where a burst takes " +
		"at most 68 years"
)

// digestOf returns the digest of a script.
func digestOf(script []byte) string {
	sum := sha1.Sum(script)
	return hex.EncodeToString(sum[:])
}

func isRedisRate(digest string) bool { return digest == allowN || digest == allowAtMost }

// script is SCRIPT LOAD text or SCRIPT EXISTS digest [digest ...].
func (c *session) script(args [][]byte) outcome {
	if !c.server.opt.RedisRate {
		return c.fail(noScripts)
	}
	switch sub := strings.ToLower(string(args[1])); {
	case sub == "load" && len(args) == 3:
		digest := digestOf(args[2])
		if !isRedisRate(digest) {
			return c.fail(otherScript)
		}
		c.bulks(digest)
	case sub == "exists" && len(args) > 2:
		c.array(len(args) - 2)
		for _, digest := range args[2:] {
			c.integer(flag(isRedisRate(strings.ToLower(string(digest)))))
		}
	default:
		return c.failf("ERR unknown subcommand '%s'. Try SCRIPT HELP.", args[1])
	}
	return other
}

// eval is EVALSHA digest keys key [key ...] [arg ...], or EVAL with the script's text.
func (c *session) eval(args [][]byte) outcome {
	if !c.server.opt.RedisRate {
		return c.fail(noScripts)
	}
	digest, unknown := strings.ToLower(string(args[1])), noScript
	if len(args[0]) == len("eval") {
		digest, unknown = digestOf(args[1]), otherScript
	}
	if !isRedisRate(digest) {
		return c.fail(unknown)
	}
	switch keys, ok := parseInt(args[2]); {
	case !ok:
		return c.fail("ERR value is not an integer or out of range")
	case keys < 0:
		return c.fail("ERR Number of keys can't be negative")
	case keys > int64(len(args)-3):
		return c.fail("ERR Number of keys can't be greater than number of args")
	case keys != 1 || len(args) != 8:
		return c.fail(badScript)
	}
	var numbers [4]float64
	for i, arg := range args[4:] {
		var err error
		if numbers[i], err = strconv.ParseFloat(string(arg), 64); err != nil {
			return c.fail(badScript)
		}
	}
	r := newRate(numbers[0], numbers[1], numbers[2])
	if cost := numbers[3]; r != (rate{}) && math.Abs(cost) <= math.MaxInt32 {
		return c.redisRate(args[3], r, cost, digest == allowAtMost)
	}
	return c.fail(badScript)
}

// rate is a quota of redis_rate.
type rate struct{ interval, capacity float64 } // in seconds

// newRate returns the rate of tokens in a period of seconds, zero if it cannot be kept.
func newRate(burst, tokens, period float64) rate {
	r := rate{interval: period / tokens}
	r.capacity = r.interval * burst
	if !(burst >= 0 && r.interval >= 1e-9 && max(r.interval, r.capacity) < counters.MaxDebt.Seconds()) {
		return rate{}
	}
	return r
}

// most is the capacity as a time. Charges are rounded down, so that a burst fits.
func (r rate) most() time.Duration {
	return max(time.Duration(math.Round(r.capacity*float64(time.Second))), 1)
}

// remaining is how many tokens a key that owes so many seconds is admitted at once.
func (r rate) remaining(owed float64) int64 {
	room := r.most() - time.Duration(math.Round(max(owed, 0)*float64(time.Second)))
	n := int64(room.Seconds() / r.interval) // may be one off, as the charge of tokens is rounded down
	for _, n := range [...]int64{n + 1, n} {
		if span(r.interval*float64(n)) <= room {
			return n
		}
	}
	return max(0, n-1)
}

// redisRate charges a key, and replies as the scripts do.
func (c *session) redisRate(key []byte, r rate, cost float64, atMost bool) outcome {
	owed, ok, given := 0.0, false, cost
	switch {
	case cost > 0 && atMost:
		given, owed, ok = c.takeAtMost(key, r, cost)
	case cost > 0:
		d := c.server.limiter.TakeDebt(c.identity(key), max(span(r.interval*cost), 1), r.most())
		owed, ok = d.ResetAfter.Seconds(), d.Allowed
	default:
		owed = c.owed(key).Seconds()
		rest := owed + r.interval*cost
		if ok = rest <= r.capacity && (!atMost || owed+r.interval <= r.capacity); !ok {
			break
		}
		if owed = rest; cost < 0 && rest > 0 {
			c.server.limiter.GiveBack(c.identity(key), span(-r.interval*cost), counters.MaxDebt)
		}
	}
	result, retry, remaining := allowed, -1.0, r.remaining(owed)
	switch {
	case !ok && atMost:
		result, given, remaining, retry = denied, 0, 0, owed+r.interval-r.capacity
	case !ok:
		result, given, remaining, retry = denied, 0, 0, owed+r.interval*cost-r.capacity
	case cost <= 0:
		result = other
	}
	c.array(4)
	c.integer(int64(given))
	c.integer(remaining)
	for _, seconds := range [...]float64{retry, owed} {
		c.bulk(strconv.AppendFloat(nil, seconds, 'g', 14, 64))
	}
	return result
}

// takeAtMost charges a key for as much of a cost as there is room for, a token at least. It returns what it charged.
func (c *session) takeAtMost(key []byte, r rate, cost float64) (given, owed float64, ok bool) {
	capacity := r.most()
	for range 8 { // the next key may be charged in between
		before := c.owed(key)
		room := capacity - before
		if room < max(span(r.interval), 1) {
			return 0, before.Seconds(), false
		}
		charge, given := span(r.interval*cost), cost
		if room < charge {
			charge, given = room, room.Seconds()/r.interval
		}
		d := c.server.limiter.TakeDebt(c.identity(key), charge, capacity)
		if owed = d.ResetAfter.Seconds(); d.Allowed {
			return given + 1e-6, owed, true
		}
	}
	return 0, owed, false
}

// span converts seconds to whole nanoseconds, rounded down.
func span(seconds float64) time.Duration {
	return time.Duration(min(seconds, counters.MaxDebt.Seconds()) * float64(time.Second))
}
