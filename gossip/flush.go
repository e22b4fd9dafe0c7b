package gossip

import (
	"slices"
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
	if r.large {
		return r.sendOwned(d, false, false, r.tickedAt, now)
	}
	news := r.newFrames(&r.log, r.arranger.arrange(d.Slots, d.Demand, r.self),
		frame{since: r.since(d, r.tickedAt, now)}, true, false, now)
	var out []Message
	for _, o := range r.order {
		out = r.appendFrames(out, o, news...)
	}
	return out
}

// setCluster passes to the table the number of peers and the horizon: the gossip interval plus the usual transit time,
// (srtt - interval/2) / 2, as an acknowledgement waits for half an interval on average. Where owners add up, counts go
// up, across and down: over three links, and two intervals of owners.
func (r *Replica) setCluster() {
	near, all := r.near[:0], r.all[:0]
	for _, o := range r.linked() {
		p, h := r.peers[o], r.inbound[o]
		if r.large && h != nil && h.lastSeen != 0 && r.horizon != 0 && r.isLost(o, h, r.tickedAt) {
			continue // its acknowledgements are old
		}
		way := (p.srtt - r.interval/2) / 2
		all = append(all, way)
		if h == nil || !h.otherRegion {
			near = append(near, way)
		}
		if r.large && h != nil { // it may be the only one of the two to speak with other regions
			all = append(all, h.ages.way)
		}
	}
	r.near, r.all = near, all
	toNear, toAll, peers := usual(near), usual(all), len(near)
	r.toFar = toAll
	if r.large {
		peers = len(r.regions[0].members) - 1
		toAll += 2*toNear + r.interval
		toNear += toNear + r.interval/2
	}
	r.horizon = r.interval + min(toAll, maxRTO)
	r.counts.SetCluster(len(r.peers), r.horizon)
	r.counts.SetRegion(peers, r.interval+min(toNear, maxRTO))
}

// usual is the largest of some times; of many, the slowest tenth does not count, so that one slow peer slows nobody. It
// sorts them.
func usual(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	last := len(times) - 1
	if len(times) > meshMost {
		last = (9*len(times) - 1) / 10
	}
	return max(0, times[last])
}
