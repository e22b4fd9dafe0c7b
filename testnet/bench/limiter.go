package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// limiter is a contestant at work.
type limiter interface {
	// ask asks for the requests from..to-1 of the stream, one after the other, and returns how many were admitted. It is safe for
	// concurrent use.
	ask(s *stream, from, to int) (admitted int)
}

// filler is a limiter that has a faster way than ask to have met all clients of a stream, or one that leaves it as a running server would
// find it.
type filler interface {
	fill(s *stream) error
}

// closer is a limiter that holds more than memory.
type closer interface {
	close() error
}

// setting is the state of a limiter that a workload needs. Workloads of the same setting share it.
type setting struct {
	name    string
	limited bool            // a limit of 1 that the fill uses up; otherwise one that is never reached
	clients func() []uint32 // who has asked before
}

var (
	settingHot     = &setting{name: "hot", clients: func() []uint32 { return upTo(0, 3*1024) }}
	settingDenied  = &setting{name: "denied", limited: true, clients: func() []uint32 { return upTo(0, 1) }}
	settingMillion = &setting{name: "million", clients: func() []uint32 { return upTo(0, million) }}
)

// contestant is one way to limit rates.
type contestant struct {
	name string
	// open returns a limiter that has met nobody.
	open func(ctx context.Context, s *setting) (limiter, error)
	// hotOnly leaves out the million keys.
	hotOnly bool
	// sharesTable is set for another way to ask the table of a contestant that is there already: its memory is not measured again.
	sharesTable bool
	// outOfProcess is set for those whose memory is elsewhere.
	outOfProcess bool
	// mayDeny is set for those that cannot have a limit which a million keys never reach.
	mayDeny bool
}

// The names that goals and ratios refer to.
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

// contestants returns all of them. redisAddr is where Redis is, "" if there is none.
func contestants(redisAddr string) []contestant {
	all := append(engines(), rivals()...)
	if redisAddr != "" {
		all = append(all, redisRate(redisAddr))
	}
	return append(all, contestant{name: nameBare, open: openBare})
}

// named returns those whose names contain one of the parts, which commas separate.
func named(all []contestant, parts string) []contestant {
	return slices.DeleteFunc(all, func(c contestant) bool {
		return !slices.ContainsFunc(strings.Split(parts, ","), func(part string) bool { return strings.Contains(c.name, part) })
	})
}

// opened returns a limiter that has met the setting's clients.
func (c *contestant) opened(ctx context.Context, s *setting, met *stream) (limiter, error) {
	l, err := c.open(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	if f, ok := l.(filler); ok {
		if err := f.fill(met); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		return l, nil
	}
	l.ask(met, 0, met.len())
	return l, nil
}

// clock is the coarse clock of a limiter that takes the time as an argument. It runs only while its limiter is measured, so that
// sub-windows turn over as often as they do for a limiter that is asked all the time.
type clock struct{ ns atomic.Int64 }

// clocked is a limiter that has a clock.
type clocked interface {
	coarse() *clock
}
