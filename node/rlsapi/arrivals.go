package rlsapi

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
)

// Limits of requests that have not arrived completely. Each holds at most maxMessage bytes, the flow-control window of
// a stream, so all together hold at most maxArriving * maxMessage = 64 MiB, as bodies do over HTTP and long commands in
// the Redis protocol.
const (
	maxArriving = 1 << 8
	arriveIn    = 2 * time.Second // from a request's headers to the end of its message
)

// arrivals lists the requests of all connections that have not arrived completely, the oldest first. Where the budget
// has no room it forgets those that their clients have reset, and only if that does not help cancels one for the new
// one: the oldest of the same source if that has its share, else of the source that has the most. So requests that hang
// or are reset keep nobody out.
type arrivals struct {
	budget *limits.Budget

	mu       sync.Mutex
	list     arrival // a ring: list.next is the oldest, list.prev the newest
	timerSet bool
	stats    ArrivalStats
}

func newArrivals(budget *limits.Budget) *arrivals {
	as := &arrivals{budget: budget.Lacking("requests that have not arrived are cancelled, the oldest first")}
	as.list.next, as.list.prev = &as.list, &as.list
	return as
}

// ArrivalStats count requests that did not arrive completely.
type ArrivalStats struct {
	Waiting int    // now
	Dropped uint64 // cancelled, as there were too many
	Late    uint64 // cancelled, as they took longer than 2 s
}

// arrival is the context of a request, from its headers on.
type arrival struct {
	context.Context
	cancel     context.CancelFunc
	of         *arrivals
	source     netip.Addr
	began      time.Time
	prev, next *arrival // nil if it is not in the list; guarded by the list's lock
	late       bool     // cancelled for being late; written before that
}

// arrivalKey is the key of a context's arrival.
type arrivalKey struct{}

// Value implements context.Context.
func (a *arrival) Value(key any) any {
	if key == (arrivalKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// Err implements context.Context.
func (a *arrival) Err() error {
	err := a.Context.Err()
	if err != nil && a.late {
		return context.DeadlineExceeded
	}
	return err
}

// begin returns the context of a request of a source whose headers have come.
func (as *arrivals) begin(ctx context.Context, source netip.Addr) *arrival {
	a := &arrival{of: as, source: source, began: time.Now()}
	a.Context, a.cancel = context.WithCancel(ctx)
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.budget.Room(source, 1) != "" {
		as.removeReset()
		if why := as.budget.Room(source, 1); why != "" {
			as.budget.Refuse(source, why)
			victim := as.yielding(source, why)
			as.remove(victim)
			as.stats.Dropped++
			victim.cancel()
		}
	}
	as.budget.Overdraw(source, 1)
	a.prev, a.next = as.list.prev, &as.list
	a.prev.next, a.next.prev = a, a
	as.stats.Waiting++
	as.setTimer()
	return a
}

// yielding returns the request that makes room for one of a source. The lock is held.
func (as *arrivals) yielding(source netip.Addr, why limits.Refusal) (found *arrival) {
	most := int64(0)
	for a := as.list.next; a != &as.list; a = a.next {
		if why == limits.AtShare {
			if a.source == source {
				return a
			}
		} else if n := as.budget.Held(a.source); n > most {
			found, most = a, n
		}
	}
	return found
}

// complete takes the request of a context out of the list, as it has arrived.
func complete(ctx context.Context) (a *arrival, ok bool) {
	if a, ok = ctx.Value(arrivalKey{}).(*arrival); ok {
		a.of.mu.Lock()
		defer a.of.mu.Unlock()
		if a.next != nil {
			a.of.remove(a)
		}
	}
	return a, ok
}

// remove unlinks a request. The lock is held.
func (as *arrivals) remove(a *arrival) {
	a.prev.next, a.next.prev = a.next, a.prev
	a.prev, a.next = nil, nil
	as.stats.Waiting--
	as.budget.Give(a.source, 1)
}

// removeReset removes the requests whose clients reset them or are gone. The lock is held.
func (as *arrivals) removeReset() {
	for a := as.list.next; a != &as.list; {
		next := a.next
		if a.Context.Err() != nil {
			as.remove(a)
		}
		a = next
	}
}

// setTimer sets the timer for when the oldest is late, unless it is set. The lock is held.
func (as *arrivals) setTimer() {
	if !as.timerSet && as.stats.Waiting > 0 {
		as.timerSet = true
		time.AfterFunc(time.Until(as.list.next.began.Add(arriveIn)), as.expire)
	}
}

// expire cancels the requests that are late.
func (as *arrivals) expire() {
	as.mu.Lock()
	defer as.mu.Unlock()
	now := time.Now()
	for as.stats.Waiting > 0 && now.Sub(as.list.next.began) >= arriveIn {
		a := as.list.next
		as.remove(a)
		if a.Context.Err() == nil { // not cancelled by its client
			a.late = true
			as.stats.Late++
		}
		a.cancel()
	}
	as.timerSet = false
	as.setTimer()
}
