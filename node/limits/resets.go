package limits

import (
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	// maxResets caps the requests of HTTP/2 that clients of a listener reset within resetsWithin, beyond as many as
	// they let it answer.
	maxResets    = 1 << 12
	resetsWithin = 10 * time.Second
	// maxAnswered is how many answers of a connection count at most: four times what Envoy has under way on one.
	maxAnswered = 1 << 10
)

// Resets bound what clients make a listener do for nothing: a request of HTTP/2 that is reset at once makes room for
// another one on its connection, so that the cap of requests under way bounds nothing. A connection may reset as many
// requests as it lets the node answer. Each one beyond is held by its source in the budget "resets" for 10 s; where
// that has no room, the connection is closed.
//
// Whoever stands still for a while and gives up what it asked, as a proxy with timeouts, has its answers and its share;
// what is left unread on a connection that is closed need not be read. Resets are safe for concurrent use.
type Resets struct{ budget *Budget }

// NewResets returns the resets of a listener (door), with their budget in the set.
func NewResets(set *Budgets, door string) Resets {
	return Resets{set.New(door, "resets", maxResets).Lacking("connections that reset requests are closed")}
}

// ResetsOf are those of one connection. The zero value has neither resets nor answers. They are safe for concurrent
// use.
type ResetsOf struct{ ahead atomic.Int64 } // resets without answers; below 0: answers without resets

// Answered counts a request that the node has answered.
func (c *ResetsOf) Answered() {
	if c.ahead.Load() > -maxAnswered {
		c.ahead.Add(-1)
	}
}

// Reset counts a request that the client of a source reset. It returns whether the connection may go on.
func (r Resets) Reset(c *ResetsOf, source netip.Addr) (ok bool) {
	if c.ahead.Add(1) <= 0 {
		return true
	}
	if r.budget.Take(source, 1) != "" {
		return false
	}
	time.AfterFunc(resetsWithin, func() { r.budget.Give(source, 1) })
	return true
}
