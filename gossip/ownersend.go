package gossip

import (
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// What is sent to whom where owners add up.

// sendOwned returns the messages of an interval, or of an early flush, where owners add up.
func (r *Replica) sendOwned(d counters.Drained, complete, beat bool, before, now int64) (out []Message) {
	r.route(d.Slots)
	r.addDemands(now)
	known := r.ages(now)
	slices.Sort(r.busy)
	r.busy = slices.DeleteFunc(slices.Compact(r.busy), func(o counters.Origin) bool {
		p := r.peers[o]
		return p == nil || len(p.unsent) == 0 && len(p.log.frames) == 0 && !r.ackDue(o)
	})
	all := slices.Concat(r.links, r.busy)
	slices.Sort(all)
	for _, o := range slices.Compact(all) {
		p := r.peers[o]
		if p == nil {
			continue
		}
		if len(p.unsent) > 0 {
			p.usedAt = now
		}
		f := frame{ages: &known, to: toWhom(o)}
		active := !over(now, p.usedAt, linkLasts)
		if active {
			f.since = max(r.since(d, before, now), r.interval)
		}
		rests := complete && p.active && !active // it is sent at once, so that nobody waits for more
		p.active = active || p.active && !complete
		var news []logged
		switch {
		case len(p.unsent) > 0:
			news = r.newFrames(p.log, r.grouped(p, d.Demand), f, true, complete, now)
			p.unsent = p.unsent[:0]
		case complete && (r.isLink(o) && (active || rests || over(now, p.beatAt, idleBeacon)) || r.ackDue(o)):
			news = r.newFrames(p.log, nil, f, false, true, now)
		}
		switch {
		case len(news) > 0 && complete:
			p.beatAt = now
			fallthrough
		case complete && len(p.log.frames) > 0:
			out = r.bridge(out, p, now)
			out = r.messagesFor(out, p, news, len(news) > 0, now)
		case len(news) > 0:
			out = r.appendFrames(out, o, news...)
		}
	}
	if complete {
		out = r.answer(r.probe(out, &known, now), now)
	}
	return out
}

// firstRTO is the rto of a peer for which no time is measured yet: as long as it takes others of the same distance,
// twice that, as a link that rests does not measure, and twice as long again where it was too short or frames were lost
// repeatedly. It is at most the one that peers have otherwise.
func (r *Replica) firstRTO(p *peer, most time.Duration) time.Duration {
	ways, near := r.all, p.region == r.firstRegion()
	if near {
		ways = r.near
	}
	way := usual(ways)
	if !r.large || way == 0 && !near || len(p.resent) > maxFirstResent {
		return most
	}
	rto := max(2*r.interval, 4*way+r.interval)
	if len(p.resent) > 0 {
		rto *= 2
	}
	return min(most, rto)
}

// maxFirstResent is how many frames are sent again to a peer before the time that it takes is taken to be unknown.
const maxFirstResent = 2

func (r *Replica) ackDue(o counters.Origin) bool {
	h := r.inbound[o]
	return h != nil && h.ackDue
}

// beforeAll is when the frame of a bridge was sent, to a peer that knows nothing of this replica: it completes nothing.
const beforeAll = 1

// bridge has a peer that lacks frames which are not kept any more go on without them: it gets all again.
func (r *Replica) bridge(out []Message, p *peer, now int64) []Message {
	first := p.log.first()
	if p.acked.cumulative+1 >= first || !over(now, p.snapAt, snapshotRetry) {
		return out
	}
	p.snapAt, p.snapTick = now, first-1
	r.refreshFor(p)
	f := frame{kind: snapshot, origin: r.self, tick: first - 1, sent: max(beforeAll, p.askedAt),
		to: toWhom(p.origin)}
	return append(out, Message{To: p.origin, Data: f.encode(nil, emptyBody)})
}

// refreshFor has all that concerns a peer sent again.
func (r *Replica) refreshFor(p *peer) {
	var concerned counters.PartitionSet
	r.addConcerns(&concerned, p)
	r.counts.Refresh(concerned)
}

// addConcerns adds the partitions of which this replica sends to a peer.
func (r *Replica) addConcerns(concerned *counters.PartitionSet, p *peer) {
	for i, o := range r.regions[0].owners {
		sums := o == r.self && p.region != nil && (p.region == r.regions[0] || p.region.owners[i] == p.origin)
		if o == p.origin || sums {
			concerned.Add(i)
		}
	}
}

// route gives the slots to the peers that they are for.
func (r *Replica) route(slots []counters.Slot) {
	near := r.regions[0]
	give := func(o counters.Origin, s *counters.Slot) {
		if p := r.peers[o]; p != nil && o != s.Origin {
			if len(p.unsent) == 0 {
				r.busy = append(r.busy, o)
			}
			p.unsent = append(p.unsent, *s)
		}
	}
	for i := range slots {
		s := &slots[i]
		partition := s.Key.Partition()
		switch s.To {
		case 0:
			give(near.owners[partition], s)
		case counters.AllMembers:
			for _, m := range near.members {
				give(m.origin, s)
			}
		case counters.AllRegions:
			for _, g := range r.regions[1:] {
				give(g.owners[partition], s)
			}
		default:
			to := s.To
			if of, ok := r.sumOf(to); ok && of.region != nil {
				to = of.region.owners[partition]
			}
			give(to, s)
		}
	}
}

// grouped puts what a peer is to know into groups.
func (r *Replica) grouped(p *peer, demand []counters.Demand) []group {
	groups := r.arranger.arrange(p.unsent, nil, r.self)
	for i := range groups {
		g := &groups[i]
		if of, ok := r.sumOf(g.origin); ok {
			g.rise = ofSum
			if d := r.demands[g.meter.Rule]; d != nil {
				g.demand = d.rates[of.number()]
			}
			continue
		}
		if g.origin != r.self {
			continue
		}
		for _, d := range demand {
			if *d.Meter == *g.meter {
				g.demand, g.rise = max(g.demand, d.Rate), max(g.rise, d.Rise)
			}
		}
	}
	return groups
}
