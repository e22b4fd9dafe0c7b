// Package limits keeps the limits that clients make up in what they ask, where no rule says them: a bounded number of kinds for each door.
package limits

import (
	"errors"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// ErrFull says that as many limits are in use as there may be, and no more are kept.
var ErrFull = errors.New("too many different limits are in use")

// Keeper keeps limits by their kind: what clients say of them. A limit that nobody asked for so long that nothing counts under it any more
// makes room for another one; until then others are refused. So clients can use up no meters that rules need (counters.MaxMeters). Its methods
// may be called from anywhere, and those that find a limit take no lock.
type Keeper[Kind comparable] struct {
	most  int
	limit func(Kind) (*counters.Limit, error)
	learn func([]*counters.Limit)
	kept  atomic.Pointer[map[Kind]*kept]

	mu       sync.Mutex // of those that add
	fullTill time.Time  // while there is no room, none of those kept can go before
}

// kept is a limit with the time when it was last asked for.
type kept struct {
	*counters.Limit
	asked atomic.Int64 // nanoseconds
}

// coarse is how far behind kept.asked may be, so that not every request writes to it.
const coarse = time.Second

// NewKeeper returns a keeper of so many limits at most. limit makes that of a kind, or says what is wrong with it. learn is called with all
// limits that are kept, whenever they change and before they are asked for the first time; the slice is the callee's. It is never called
// twice at a time. Nil: nobody wants to know.
func NewKeeper[Kind comparable](most int, limit func(Kind) (*counters.Limit, error), learn func([]*counters.Limit)) *Keeper[Kind] {
	k := &Keeper[Kind]{most: most, limit: limit, learn: learn}
	k.kept.Store(&map[Kind]*kept{})
	return k
}

// Len returns how many limits are kept.
func (k *Keeper[Kind]) Len() int { return len(*k.kept.Load()) }

// Get returns the limit of a kind at the time now. The error says what is wrong with the kind, or is ErrFull.
func (k *Keeper[Kind]) Get(kind Kind, now time.Time) (*counters.Limit, error) {
	found := (*k.kept.Load())[kind]
	if found == nil {
		return k.add(kind, now)
	}
	if at := now.UnixNano(); at-found.asked.Load() > int64(coarse) {
		found.asked.Store(at)
	}
	return found.Limit, nil
}

func (k *Keeper[Kind]) add(kind Kind, now time.Time) (*counters.Limit, error) {
	made, err := k.limit(kind)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	old := *k.kept.Load()
	if found := old[kind]; found != nil {
		return found.Limit, nil
	}
	others := maps.Clone(old)
	if len(others) >= k.most && !k.forget(others, now) {
		return nil, ErrFull
	}
	added := &kept{Limit: made}
	added.asked.Store(now.UnixNano())
	others[kind] = added
	if k.learn != nil {
		all := make([]*counters.Limit, 0, len(others))
		for _, l := range others {
			all = append(all, l.Limit)
		}
		k.learn(all)
	}
	k.kept.Store(&others)
	return made, nil
}

// forget takes out the limits under which nothing counts any more, and reports whether there were any.
func (k *Keeper[Kind]) forget(all map[Kind]*kept, now time.Time) bool {
	if now.Before(k.fullTill) {
		return false
	}
	first := int64(math.MaxInt64)
	for kind, l := range all {
		if till := l.asked.Load() + int64(coarse) + int64(counts(l.Limit)); till <= now.UnixNano() {
			delete(all, kind)
		} else {
			first = min(first, till)
		}
	}
	if len(all) < k.most {
		return true
	}
	k.fullTill = time.Unix(0, first)
	return false
}

// counts is for how long an admission may count: until the sub-window that holds it has left a window, or until a bucket is full again.
func counts(l *counters.Limit) time.Duration {
	m := l.Meter()
	if l.Refill() == 0 {
		return m.Window + m.Sub
	}
	return max(l.Lasts(), m.Window)
}
