package gossip

import "time"

// Durations are differences of wall times here, because a frame has one time for both, and clocks may be set: nothing
// may wait for a time that has been already. Forwards no care is needed: what is too old at once is done again.

// over reports whether so much time has passed since then. It has where the clock was set back to before.
func over(now, then int64, wait time.Duration) bool {
	return now < then || now-then >= int64(wait)
}

// setBackBy is how much older than another one a frame cannot be, whatever it went through: its sender's clock was set
// back in between.
const setBackBy = time.Minute

// follow moves what is known by the origin's clock along where that was set back. Otherwise all that it says would
// count as late, until its clock came to where it had been. A frame that tells no more than what has come is replayed,
// and moves nothing.
func (h *inbound) follow(f *frame) {
	by := subtract(h.latestSent, f.sent)
	numbered := f.kind == data || f.kind == dataMore
	if by <= int64(setBackBy) || f.tick < h.cumulative || f.tick == h.cumulative && numbered {
		return
	}
	h.latestSent -= by
	h.watermark -= min(h.watermark, by)
	h.beacon.sent -= min(h.beacon.sent, by)
	for tick, a := range h.beyond {
		a.sent -= by
		h.beyond[tick] = a
	}
	for rule, r := range h.demand {
		r.sent -= by
		h.demand[rule] = r
	}
}
