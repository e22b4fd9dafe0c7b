package main

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// limiter is a contestant with its state.
type limiter interface {
	// take makes the requests from..to-1 of the stream, one after the other, and returns how many it admitted. It is
	// safe for concurrent use.
	take(s *stream, from, to int) (admitted int)
}

// filler is a limiter with another way than take to bring it to a state: a faster one, or one closer to production.
type filler interface {
	fill(s *stream) error
}

// closer is a limiter that holds more than memory.
type closer interface {
	close() error
}

// state is what a limiter has counted before a workload. Workloads with the same state share the limiter.
type state struct {
	name    string
	limited bool            // a limit of 1 that is used up; otherwise one that is never reached
	clients func() []uint32 // the clients that have made a request
}

var (
	stateHot     = &state{name: "hot", clients: func() []uint32 { return upTo(0, 3*1024) }}
	stateDenied  = &state{name: "denied", limited: true, clients: func() []uint32 { return upTo(0, 1) }}
	stateMillion = &state{name: "million", clients: func() []uint32 { return upTo(0, million) }}
)

// contestant is a rate limiter of the comparison.
type contestant struct {
	name         string
	open         func(s *state) (limiter, error) // with nothing counted
	hotOnly      bool                            // without the workloads of a million keys
	sharesTable  bool                            // another caller of another contestant's table: same memory
	outOfProcess bool                            // its memory is elsewhere
	mayDeny      bool                            // it has no limit that a million keys never reach
}

// The names in the goals and ratios.
const (
	nameEngine      = "edgelimit, 10 sub-windows"
	nameGiven       = nameEngine + ", key given"
	nameBatch       = nameEngine + ", batches of 16"
	nameBatchGiven  = nameBatch + ", key given"
	nameTwoBuckets  = "edgelimit, two buckets"
	nameTokenBucket = "edgelimit, token bucket"
	nameFixed       = "edgelimit, fixed window"
	nameLog         = "edgelimit, log of 100"
	nameOrigins     = nameEngine + ", %d origins"
	nameXTime       = "x/time/rate in a sync.Map"
	nameGoLimiter   = "sethvargo/go-limiter"
	nameThrottled   = "throttled (GCRA, memory)"
	nameUlule       = "ulule/limiter (memory)"
	nameRedisRate   = "redis_rate, Redis on loopback"
	nameBare        = "bare table, key given"
)

// contestants returns all of them, without redis_rate if redisAddr is empty.
func contestants(redisAddr string) []contestant {
	all := append(engines(), rivals()...)
	if redisAddr != "" {
		all = append(all, redisRate(redisAddr))
	}
	return append(all, contestant{name: nameBare, open: openBare})
}

// named returns the contestants whose name contains one of the parts, which commas separate.
func named(all []contestant, parts string) []contestant {
	return slices.DeleteFunc(all, func(c contestant) bool {
		contains := func(part string) bool { return strings.Contains(c.name, part) }
		return !slices.ContainsFunc(strings.Split(parts, ","), contains)
	})
}

// inState returns a limiter that has counted the requests seen.
func (c *contestant) inState(s *state, seen *stream) (limiter, error) {
	l, err := c.open(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	if f, ok := l.(filler); ok {
		if err := f.fill(seen); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		return l, nil
	}
	l.take(seen, 0, seen.len())
	return l, nil
}

func closeLimiter(l limiter) error {
	if c, ok := l.(closer); ok {
		return c.close()
	}
	return nil
}

// clock is the coarse clock of a limiter that takes the time as an argument. It runs only while its limiter is
// measured, so that sub-windows turn over as often per request as under a steady load.
type clock struct{ ns atomic.Int64 }

// clocked is a limiter that has a clock.
type clocked interface {
	coarse() *clock
}
