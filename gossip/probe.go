package gossip

import (
	"time"
)

// Where owners add up, a node may have no links with a region, or only such as rest and have crashed. So that it sees
// all the same whether the region is out of reach, or its own is cut off, it asks some of the nodes there when nothing
// came from any for a while: by a beacon without an acknowledgement, which they answer.

const (
	// probeAfter is how long nothing has to come from a region that links send a beacon a second from.
	probeAfter = idleBeacon * 3 / 2
	probeEvery = idleBeacon / 2
	// probes is how many members are asked at a time: others each time.
	probes = 2
)

// probe appends the messages that ask whether regions can be reached.
func (r *Replica) probe(out []Message, known *ages, now int64) []Message {
	for _, g := range r.regions[1:] {
		if len(g.members) == 0 || !over(now, g.seenAt, probeAfter) || !over(now, g.probedAt, probeEvery) {
			continue
		}
		g.probedAt = now
		for range min(probes, len(g.members)) {
			m := g.members[(uint64(r.self)+g.probed)%uint64(len(g.members))]
			g.probed++
			if p := r.peers[m.origin]; p != nil {
				f := frame{kind: beacon, origin: r.self, tick: p.log.last(), sent: now, ages: known}
				out = append(out, Message{To: m.origin, Data: f.encode(nil, emptyBody)})
				r.stats.FramesSent++
				r.stats.BytesSent += uint64(len(out[len(out)-1].Data))
			}
		}
	}
	return out
}

// wantsAnswer reports whether the sender of a beacon waits for an answer: it has heard nothing from this node of late,
// or frames of it were lost.
func (r *Replica) wantsAnswer(f *frame, h *inbound) bool {
	return f.ack.origin != r.self || !f.ack.timed || f.tick > h.cumulative && r.isLink(f.origin)
}

// silenceOf is how long nothing came from any node of a region.
func (r *Replica) silenceOf(name string, now int64) time.Duration {
	g := r.byName[name]
	if g == nil || g.seenAt == 0 {
		return 0
	}
	return time.Duration(max(0, now-g.seenAt))
}
