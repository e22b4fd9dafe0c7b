package respapi

import (
	"errors"
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/limits"
)

// MaxLimits is how many limits a door keeps that clients have made, each of another max_burst, count and period. A limit that nobody asked
// for so long that all of its buckets are full again makes room for another one; until then others are refused. So clients can use up
// no meters that rules need (counters.MaxMeters).
const MaxLimits = 1024

// shape is what CL.THROTTLE says of a limit. The period is in seconds.
type shape struct{ maxBurst, count, period int64 }

// limit makes the limit. Its meter has a name that no rule can have: there, a percent sign comes before two digits.
func (s shape) limit() (*counters.Limit, error) {
	const maxPeriod = int64(counters.MaxWindow / time.Second)
	switch {
	case s.maxBurst < 0 || s.maxBurst >= counters.MaxLimit:
		return nil, fmt.Errorf("max_burst is %d, want 0 to %d", s.maxBurst, int64(counters.MaxLimit-1))
	case s.count < 1 || s.count > counters.MaxLimit:
		return nil, fmt.Errorf("count is %d, want 1 to %d", s.count, int64(counters.MaxLimit))
	case s.period < 1 || s.period > maxPeriod:
		return nil, fmt.Errorf("period is %d, want 1 to %d seconds", s.period, maxPeriod)
	}
	name := fmt.Sprintf("%%cl.throttle/%d/%d/%d", s.maxBurst, s.count, s.period)
	meter := counters.NewMeter(name, counters.TokenBucket, time.Duration(s.period)*time.Second)
	return counters.NewBucket(meter, uint64(s.maxBurst)+1, uint64(s.count))
}

// newLimits returns the keeper of the limits that clients have made.
func newLimits(learn func([]*counters.Limit)) *limits.Keeper[shape] {
	return limits.NewKeeper(MaxLimits, shape.limit, learn)
}

// explained is what a client is told of an error of the keeper.
func explained(err error) string {
	if errors.Is(err, limits.ErrFull) {
		return fmt.Sprintf("%d different limits are in use, and this node keeps no more: use fewer different max_burst, count and period", MaxLimits)
	}
	return err.Error()
}
