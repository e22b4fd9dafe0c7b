package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// limiter is a contestant with its state.
type limiter struct {
	// take makes the requests from..to-1 of the stream, one after the other, and returns how many it admitted. It is
	// safe for concurrent use.
	take func(s *stream, from, to int) (admitted int)
	// fill brings it to a state in another way, faster or closer to production; nil: by take.
	fill  func(s *stream) error
	close func() error // nil: it holds nothing but memory
	drain func()       // what a node does between requests; nil: nothing
	clock *clock       // nil: it has its own
}

// each is the take of a limiter that is asked for one request at a time. All contestants pay for its call.
func each(admit func(s *stream, i int) bool) func(s *stream, from, to int) int {
	return func(s *stream, from, to int) (admitted int) {
		if s.dependent {
			return inTurn(admit, s, from, to)
		}
		for i := from; i < to; i++ {
			if admit(s, i) {
				admitted++
			}
		}
		return admitted
	}
}

// inTurn is each of a dependent stream: where the next request lies is read from steps, by what the decision was.
func inTurn(admit func(s *stream, i int) bool, s *stream, from, to int) (admitted int) {
	for i := from; i < to; {
		one := 0
		if admit(s, i) { // no branch: the compiler makes a number of it
			one = 1
		}
		admitted += one
		i += steps[one]
	}
	return admitted
}

// steps are from a request to the next one, by whether it was admitted. The compiler does not know that both are 1.
var steps = [2]int{1, 1}

// state is what a limiter has counted before a workload. Workloads with the same state share the limiter.
type state struct {
	name    string
	limited bool            // a limit of 1 that is used up; otherwise one that is never reached
	clients func() []uint32 // the clients that have made a request
	moving  bool            // a sub-window begins before each slice. It is for those that have any
}

var (
	stateHot     = &state{name: "hot", clients: func() []uint32 { return upTo(0, 3*1024) }}
	stateDenied  = &state{name: "denied", limited: true, clients: func() []uint32 { return upTo(0, 1) }}
	stateMillion = &state{name: "million", clients: func() []uint32 { return upTo(0, million) }}
	stateMoving  = &state{name: "moving", clients: stateMillion.clients, moving: true}
)

// contestant is a rate limiter of the comparison.
type contestant struct {
	name         string
	open         func(s *state) (*limiter, error) // with nothing counted
	hotOnly      bool                             // without the workloads of a million keys
	sharesTable  bool                             // another caller of another contestant's table: same memory
	outOfProcess bool                             // its memory is elsewhere
	mayDeny      bool                             // it has no limit that a million keys never reach
	moves        bool                             // it has sub-windows: see state.moving
}

// The names in the goals and ratios.
const (
	nameEngine      = "edgelimit, 10 sub-windows"
	nameGiven       = nameEngine + ", key given"
	nameQuarter     = nameGiven + ", a quarter full"
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
func (c *contestant) inState(s *state, seen *stream) (*limiter, error) {
	l, err := c.open(s)
	switch {
	case err != nil:
	case l.fill != nil:
		err = l.fill(seen)
	default:
		l.take(seen, 0, seen.len())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return l, nil
}

func closeLimiter(l *limiter) error {
	if l.close == nil {
		return nil
	}
	return l.close()
}

// clock is the coarse clock, in Unix ns, of a limiter that takes the time as an argument. It runs only while that is
// measured, so that sub-windows turn over as often per request as under a steady load.
type clock struct{ atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.Store(benchStart)
	return c
}

// run lets the clock go until stop.
func (c *clock) run() (stop func()) {
	ended := make(chan struct{})
	ticks := time.NewTicker(time.Millisecond)
	var running sync.WaitGroup
	running.Go(func() {
		defer ticks.Stop()
		for last := time.Now(); ; {
			select {
			case <-ended:
				return
			case now := <-ticks.C:
				c.Add(int64(now.Sub(last)))
				last = now
			}
		}
	})
	return func() {
		close(ended)
		running.Wait()
	}
}
