package gossip

import (
	"math"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Clocks of two nodes are compared as NTP does it (RFC 5905, section 8), by the quickest frames of the last seconds. A
// frame carries the time when it was sent, by the sender's clock, so its apparent transit time is the true one plus the
// difference of the clocks. Each node reports the least transit time of the other's frames in its acknowledgements:
//
//	there = true transit there - ahead    of the peer's frames, as seen here
//	back  = true transit back  + ahead    of the own frames, as the peer reports
//	ahead = (back - there) / 2            of the peer's clock, wrong by half of what the true transit times differ in

// transit is the least apparent transit time of an origin's frames of late. The zero value knows of none.
type transit struct {
	began        int64 // the period
	least, older int64 // of the period, and of the one before; unknown: no frame came in it
}

const (
	transitPeriod = 2 * time.Second
	unknown       = math.MaxInt64
	maxTransit    = int64(counters.MaxWindow) // beyond it, clocks are not compared
)

// note takes in the transit time of a frame. The period is the same every time, and longer than what lies between
// frames.
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

// transitPeriod is long enough for at least two frames of the origin.
func (h *inbound) transitPeriod() time.Duration { return max(transitPeriod, 3*h.interval) }

// skew returns by how much the origin's clock is ahead of this node's, if that is known. For some seconds after one of
// the two was set it is not: frames seem to arrive before they were sent.
func (h *inbound) skew(now int64) (ahead time.Duration, ok bool) {
	there, ok := h.there.of(now, h.transitPeriod())
	if !ok || !h.backKnown || there+h.back < -int64(2*time.Millisecond) { // they travel in milliseconds
		return 0, false
	}
	return time.Duration(h.back-there) / 2, true
}

// subtract returns a - b, or the largest number where that overflows: b comes from a peer.
func subtract(a, b int64) int64 {
	if d := a - b; (d < a) == (b > 0) {
		return d
	}
	return math.MaxInt64
}

// A frame with slots of the future, because its sender's clock is ahead by more than a sub-window, is merged as far as
// it can be and not acknowledged. So its sender sends it again, after as long as its clock is ahead.
const (
	// maxEarly is how far ahead the slots may be: two clocks that are each wrong by a second. A frame that is further
	// ahead is acknowledged like any other, and its slots of the future are lost until they are sent anew.
	maxEarly = 2 * time.Second
	// earlyTicks is how many ticks beyond the cumulative one may be early. The rest of ackWindow is for what was lost.
	earlyTicks = ackWindow / 4
)

// early returns how long it takes until the table accepts all slots of a group; more than maxEarly where that is too
// long.
func (g *group) early(sent, now int64) time.Duration {
	this := g.meter.Index(now)
	last, index := this, g.meter.Index(sent)
	var s counters.Slot
	for e := (entries{rest: g.entries}); e.next(&s, index); {
		last = max(last, s.Index)
	}
	ahead := last - 1 - this // in sub-windows
	if ahead <= 0 {
		return 0
	}
	sub := g.meter.Sub
	if ahead > int64(maxEarly/sub)+1 {
		return maxEarly + 1
	}
	return time.Duration(ahead)*sub - time.Duration(now%int64(sub))
}

// comesAgain reports whether the frame came early and is left unacknowledged.
func (h *inbound) comesAgain(f *frame, now int64) bool {
	if !f.kind.numbered() || f.tick > h.cumulative+earlyTicks {
		return false
	}
	var early time.Duration
	for i := range f.groups {
		early = max(early, f.groups[i].early(f.sent, now))
	}
	return early > 0 && early <= maxEarly
}

// lead returns by how much the own clock is ahead of the peer's, at most maxEarly.
func (h *inbound) lead(now int64) time.Duration {
	if h == nil {
		return 0
	}
	ahead, _ := h.skew(now)
	return min(max(0, -ahead), maxEarly)
}

// over reports whether wait has passed since then, or the clock was set back to before then. Durations are differences
// of wall times here, so nothing may wait for a time that has been already.
func over(now, then int64, wait time.Duration) bool {
	return now < then || now-then >= int64(wait)
}

// setBackBy is how much older than the newest frame another one may be. One that is older still shows that its sender's
// clock was set back.
const setBackBy = time.Minute

// follow shifts all times of the origin's clock when that was set back; otherwise all its frames would count as late
// until the clock came to where it had been. A frame that has nothing new may be a replay, and shifts nothing, unless
// the newest one came from the future. Nor does a snapshot, as a bridge may be of long ago.
func (h *inbound) follow(f *frame, now int64) {
	by := subtract(h.latestSent, f.sent)
	known := f.tick < h.cumulative || f.tick == h.cumulative && f.kind.numbered()
	if by <= int64(setBackBy) || f.kind == snapshot || known && subtract(h.latestSent, now) <= int64(setBackBy) {
		return
	}
	h.latestSent, h.newest = h.latestSent-by, h.newest-min(h.newest, by)
	h.watermark -= min(h.watermark, by)
	h.beacon.sent -= min(h.beacon.sent, by)
	for tick, a := range h.beyond {
		a.sent -= by
		h.beyond[tick] = a
	}
	for _, rules := range append(h.sums[:], h.demand) {
		for rule, r := range rules {
			r.sent -= by
			rules[rule] = r
		}
	}
}
