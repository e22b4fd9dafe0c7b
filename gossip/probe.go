package gossip

import (
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Where owners add up, a node may have no links with a region, or only such as rest, with nodes that have crashed. So
// that it sees all the same whether the region is out of reach, or its own is cut off, it asks some of the nodes there
// when nothing came from any for a while. To ask is to send a beacon to whom one has no link with; the answer is a
// beacon without ages. Neither side keeps anything of it.

const (
	// probeAfter is how long nothing has to come from a region that links send a beacon a second from.
	probeAfter = idleBeacon * 3 / 2
	probeEvery = idleBeacon / 2
	// probes is how many members are asked at a time: others each time.
	probes = 3
	// introduced is how long nodes of another region may take until they know a new one, and answer it.
	introduced = 5 * time.Second
)

// probe appends the messages that ask whether regions can be reached.
func (r *Replica) probe(out []Message, known *ages, now int64) []Message {
	for _, g := range r.regions[1:] {
		g.seenAt = min(g.seenAt, now+int64(introduced)) // the clock may have been set back
		if len(g.members) == 0 || !over(now, g.seenAt, probeAfter) || !over(now, g.probedAt, probeEvery) {
			continue
		}
		g.probedAt = now
		for range min(probes, len(g.members)) {
			m := g.members[(uint64(r.self)+g.probed)%uint64(len(g.members))]
			g.probed++
			out = r.appendBeacon(out, m.origin, known, now)
		}
	}
	return out
}

// answer appends the answers to those who asked.
func (r *Replica) answer(out []Message, now int64) []Message {
	slices.Sort(r.asking)
	for _, o := range slices.Compact(r.asking) {
		out = r.appendBeacon(out, o, nil, now)
	}
	r.asking = r.asking[:0]
	return out
}

// appendBeacon appends a beacon for a member; nothing if the origin is none any more.
func (r *Replica) appendBeacon(out []Message, to counters.Origin, known *ages, now int64) []Message {
	p := r.peers[to]
	if p == nil {
		return out
	}
	f := frame{kind: beacon, origin: r.self, tick: p.log.last(), sent: now, ages: known, to: toWhom(to)}
	m := Message{To: to, Data: f.encode(nil, emptyBody)}
	r.stats.FramesSent++
	r.stats.BytesSent += uint64(len(m.Data))
	return append(out, m)
}

// isProbe reports whether a frame asks, or answers, and says nothing else.
func (r *Replica) isProbe(f *frame) bool {
	return r.large && f.kind == beacon && r.inbound[f.origin] == nil && !r.isLink(f.origin)
}

// silenceOf is how long nothing came from any node of a region.
func (r *Replica) silenceOf(name string, now int64) time.Duration {
	g := r.byName[name]
	if g == nil || g.seenAt == 0 {
		return 0
	}
	return time.Duration(max(0, now-g.seenAt))
}
