package gossip

import (
	"math"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Clocks of two nodes are compared as NTP does it (RFC 5905, section 8), by the quickest frames of the last seconds,
// which waited for nothing. Each frame says when it was sent, by the sender's clock; what it seems to take is its way,
// plus by how much the receiver's clock is ahead. Each node tells the other, with its acknowledgements, what its frames
// seem to take at least:
//
//	there = way there - ahead        of the peer's frames, as seen here
//	back  = way back  + ahead        of the own frames, as the peer reports
//	ahead = (back - there) / 2       of the peer's clock, wrong by half of what the two ways differ in
//
// What a frame waits for before it is acknowledged does not matter, as it would in a time for both ways.

// transit is the least time that frames of an origin seemed to take of late. The zero value knows of none.
type transit struct {
	began        int64 // the period
	least, older int64 // of the period, and of the one before; unknown: no frame came in it
}

const (
	transitPeriod = 2 * time.Second
	unknown       = math.MaxInt64
	maxTransit    = int64(counters.MaxWindow) // beyond it, clocks are not compared
)

// note takes in a frame that seemed to take so long. The period is the same every time, and longer than what lies
// between frames.
func (t *transit) note(took, now int64, period time.Duration) {
	switch passed := now - t.began; {
	case t.began == 0 || passed < 0 || passed >= 2*int64(period): // also where the own clock was set
		*t = transit{now, unknown, unknown}
	case passed >= int64(period):
		*t = transit{now, unknown, t.least}
	}
	t.least = min(t.least, max(-maxTransit, min(took, maxTransit)))
}

// of is the least time of the last two periods, if frames came.
func (t *transit) of(now int64, period time.Duration) (least int64, ok bool) {
	if passed := now - t.began; t.began == 0 || passed < 0 || passed >= 2*int64(period) {
		return 0, false
	}
	least = min(t.least, t.older)
	return least, least != unknown
}

// transitPeriod of the hearing: at least two frames are to come in it.
func (h *inbound) transitPeriod() time.Duration { return max(transitPeriod, 3*h.interval) }

// timed notes when a frame came.
func (h *inbound) timed(f *frame, now int64) {
	h.there.note(subtract(now, f.sent), now, h.transitPeriod())
}

// stamp adds to an acknowledgement what the origin's frames seem to take.
func (h *inbound) stamp(a *ack, now int64) {
	least, ok := h.there.of(now, h.transitPeriod())
	a.transit, a.timed = time.Duration(least), ok
}

// noteTransit notes what the own frames seem to take there.
func (h *inbound) noteTransit(a ack) {
	if a.timed {
		h.back, h.backKnown = int64(a.transit), true
	}
}

// skew is by how much the origin's clock is ahead of this node's, if it is known. It is not for some seconds after one
// of the two was set: no frame comes before it was sent.
func (h *inbound) skew(now int64) (ahead time.Duration, ok bool) {
	there, ok := h.there.of(now, h.transitPeriod())
	if !ok || !h.backKnown || there+h.back < -int64(2*time.Millisecond) { // they travel in milliseconds
		return 0, false
	}
	return time.Duration(h.back-there) / 2, true
}

// subtract is a - b, at the end of the numbers where it does not fit: b is anybody's word.
func subtract(a, b int64) int64 {
	if d := a - b; (d < a) == (b > 0) {
		return d
	}
	return math.MaxInt64
}

// A frame whose slots are of a time to come, because its sender's clock is ahead by more than a sub-window, is merged
// as far as it can be, and not acknowledged: so it comes again, and time has come to it then. Nothing is kept for it
// here. Its sender waits for as long as it is ahead before it sends again.
const (
	// maxEarly is how far ahead the slots may be: further, the frame is acknowledged like any other, and what it tells
	// of a time to come is lost until it is sent anew. It is as far apart as clocks are that are each a second wrong.
	maxEarly = 2 * time.Second
	// earlyTicks is how many ticks beyond the last one without a gap may wait to come again. It leaves the better part
	// of what a replica keeps for what was lost.
	earlyTicks = ackWindow / 4
)

// early is how long it takes until the table takes all slots of the group of a frame sent at a time; more than
// maxEarly where that is too long.
func (g *group) early(sent, now int64) time.Duration {
	this := g.meter.Index(now)
	last, index := this, g.meter.Index(sent)
	var s counters.Slot
	for e := (entries{rest: g.entries}); e.next(&s, index); {
		last = max(last, s.Index)
	}
	ahead := last - 1 - this // by as many sub-windows
	if ahead <= 0 {
		return 0
	}
	sub := g.meter.Sub
	if ahead > int64(maxEarly/sub)+1 {
		return maxEarly + 1
	}
	return time.Duration(ahead)*sub - time.Duration(now%int64(sub))
}

// comesAgain reports whether the frame is to come again, because it came early.
func (h *inbound) comesAgain(f *frame, now int64) bool {
	if f.kind != data && f.kind != dataMore || f.tick > h.cumulative+earlyTicks {
		return false
	}
	var early time.Duration
	for i := range f.groups {
		early = max(early, f.groups[i].early(f.sent, now))
	}
	return early > 0 && early <= maxEarly
}

// lead is by how much the own clock is ahead of the peer's, as far as it matters for when to send again.
func (h *inbound) lead(now int64) time.Duration {
	if h == nil {
		return 0
	}
	ahead, _ := h.skew(now)
	return min(max(0, -ahead), maxEarly)
}
