package respapi

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
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

// limits are those that clients have made. They are read without a lock.
type limits struct {
	learn func([]*counters.Limit)
	kept  atomic.Pointer[map[shape]*kept]

	mu       sync.Mutex // of those that add
	fullTill time.Time  // while there is no room, none of those kept can go before
}

// kept is a limit with the time when it was last asked for.
type kept struct {
	*counters.Limit
	asked atomic.Int64 // nanoseconds
}

// coarse is how far behind kept.asked may be, so that not every command writes to it.
const coarse = time.Second

func newLimits(learn func([]*counters.Limit)) *limits {
	l := &limits{learn: learn}
	l.kept.Store(&map[shape]*kept{})
	return l
}

func (l *limits) len() int { return len(*l.kept.Load()) }

// get returns the limit of a shape at the time now. The error says what is wrong with the shape, or that there are too many.
func (l *limits) get(s shape, now time.Time) (*counters.Limit, error) {
	k := (*l.kept.Load())[s]
	if k == nil {
		return l.add(s, now)
	}
	if at := now.UnixNano(); at-k.asked.Load() > int64(coarse) {
		k.asked.Store(at)
	}
	return k.Limit, nil
}

func (l *limits) add(s shape, now time.Time) (*counters.Limit, error) {
	made, err := s.limit()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := *l.kept.Load()
	if k := old[s]; k != nil {
		return k.Limit, nil
	}
	others := maps.Clone(old)
	if len(others) >= MaxLimits && !l.forget(others, now) {
		return nil, fmt.Errorf("%d different limits are in use, and this node keeps no more: use fewer different max_burst, count and period", MaxLimits)
	}
	k := &kept{Limit: made}
	k.asked.Store(now.UnixNano())
	others[s] = k
	if l.learn != nil {
		all := make([]*counters.Limit, 0, len(others))
		for _, k := range others {
			all = append(all, k.Limit)
		}
		l.learn(all)
	}
	l.kept.Store(&others)
	return made, nil
}

// forget takes out the limits whose buckets are all full, and reports whether there were any.
func (l *limits) forget(all map[shape]*kept, now time.Time) bool {
	if now.Before(l.fullTill) {
		return false
	}
	first := int64(math.MaxInt64)
	for s, k := range all {
		if till := k.asked.Load() + int64(coarse) + int64(max(k.Lasts(), k.Meter().Window)); till <= now.UnixNano() {
			delete(all, s)
		} else {
			first = min(first, till)
		}
	}
	if len(all) < MaxLimits {
		return true
	}
	l.fullTill = time.Unix(0, first)
	return false
}
