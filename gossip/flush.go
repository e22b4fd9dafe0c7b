package gossip

import (
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// What an early flush may cost: none comes sooner than flushGap after other messages, and no more of them come than
// there are intervals, but for a few that were saved up.
const (
	flushGap = 10 * time.Millisecond
	maxSaved = 20
)

// FlushAt returns when an early flush may go.
func (r *Replica) FlushAt() int64 {
	if r.flushes == 0 {
		return r.tickedAt + int64(r.interval)
	}
	return r.sentAt + int64(flushGap)
}

// Flush returns the messages for an early flush: of some keys, before the interval ends.
func (r *Replica) Flush(d counters.Drained, now int64) []Message {
	if len(d.Slots) == 0 {
		return nil
	}
	r.sentAt = now
	r.flushes = max(0, r.flushes-1)
	news := r.newFrames(d, false, now)
	var out []Message
	for _, o := range r.order {
		out = r.appendFrames(out, o, news...)
	}
	return out
}

// setCluster passes to the table the number of peers and the horizon: the gossip interval plus the largest transit
// time, (srtt - interval/2) / 2, as an acknowledgement waits for half an interval on average.
func (r *Replica) setCluster() {
	var near int
	var toNear, toAll time.Duration
	for o, p := range r.peers {
		way := (p.srtt - r.interval/2) / 2
		toAll = max(toAll, way)
		if h := r.inbound[o]; h == nil || !h.otherRegion {
			near++
			toNear = max(toNear, way)
		}
	}
	r.counts.SetCluster(len(r.peers), r.interval+min(toAll, maxRTO))
	r.counts.SetRegion(near, r.interval+min(toNear, maxRTO))
}
