package gossip

import (
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// What an early flush may cost: none comes sooner than flushGap after other messages, and no more of them come than
// there are intervals, but for maxSaved that were saved up.
//
// Where owners add up, counts go over three links, so the gap is shorter, and more flushes may be saved: enough for a
// surprise of half a second. With a fifth of them, owners ran out as the limit did: at 20 times the limit, 500 nodes
// exceeded it by 27 % instead of 14. In a small cluster both would only cost messages.
const (
	flushGap       = 10 * time.Millisecond
	maxSaved       = 20
	ownersFlushGap = 5 * time.Millisecond
	ownersMaxSaved = 100
)

// flushLimits returns the gap and how many flushes may be saved.
func (r *Replica) flushLimits() (gap time.Duration, saved int) {
	if r.large {
		return ownersFlushGap, ownersMaxSaved
	}
	return flushGap, maxSaved
}

// FlushAt returns when an early flush may go.
func (r *Replica) FlushAt() int64 {
	if r.flushes == 0 {
		return r.tickedAt + int64(r.interval)
	}
	gap, _ := r.flushLimits()
	return r.sentAt + int64(gap)
}

// Flush returns the messages for an early flush: of some keys, before the interval ends.
func (r *Replica) Flush(d counters.Drained, now int64) []Message {
	if len(d.Slots) == 0 {
		return nil
	}
	r.sentAt = now
	r.flushes = max(0, r.flushes-1)
	if r.large {
		return r.detour(r.sendOwned(d, false, false, r.tickedAt, now), now)
	}
	news := r.newFrames(&r.log, r.arranger.arrange(d.Slots, d.Demand, r.self),
		frame{since: r.since(d, r.tickedAt, now)}, true, false, now)
	var out []Message
	for _, o := range r.order {
		out = r.appendFrames(out, o, news...)
	}
	return r.detour(out, now)
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
		way := r.usualWay(p)
		if r.isSlow(p) {
			way /= counters.SilentAfter / 2 // it is not to count as unreachable, either
		}
		all = append(all, way)
		if h == nil || !h.isFar() {
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
	lost, lostNear := r.dropped()
	r.counts.SetCluster(len(r.peers)+lost, r.horizon)
	r.counts.SetRegion(peers+lostNear, r.interval+min(toNear, maxRTO))
}

// dropped counts, in all and in the own region, the nodes that membership has dropped and that still have their part of
// each limit, as they may be on the other side of a partition.
func (r *Replica) dropped() (all, near int) {
	for _, h := range r.senders() {
		if r.peers[h.origin] != nil || !r.isAwaited(h) {
			continue
		}
		all++
		if !h.isFar() {
			near++
		}
	}
	return all, near
}

// usualWay is the usual transit time to a peer.
func (r *Replica) usualWay(p *peer) time.Duration { return (p.srtt - r.interval/2) / 2 }

// A way is slow if it is slowLeast long, and slowOnce times that of most others.
const (
	slowOnce  = 3
	slowLeast = 50 * time.Millisecond
)

// isSlow reports whether a peer of a small cluster is so much slower than most nodes of its region that it is not to
// slow the rest.
func (r *Replica) isSlow(p *peer) bool {
	way := r.usualWay(p)
	if r.large || p.region == nil || way < slowLeast {
		return false
	}
	all, faster := 0, 0
	for _, other := range r.peers {
		if other.region == p.region && other.srtt != 0 {
			all++
			if slowOnce*r.usualWay(other) < way {
				faster++
			}
		}
	}
	return 2*faster > all
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
