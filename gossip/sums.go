package gossip

import (
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// What a group is about, and since when it is known: sums, and slots of members.

// noteSender takes notice of the sender of a frame that is newer than all others.
func (r *Replica) noteSender(f *frame, h *inbound, now int64) {
	p := r.peers[f.origin]
	if p == nil || f.sent <= h.newest {
		return
	}
	if f.ages != nil {
		if !f.ages.few {
			r.largeAt = now
		}
		if len(f.groups) > 0 {
			p.usedAt = now
		}
	}
	if r.isSuspect(f.origin) || f.kind == goodbye && !h.left {
		delete(r.suspects, f.origin)
		r.changed = true
	}
}

// about returns what a group is about. known is false if this replica is not to know it, and again as well if it cannot
// know yet: the frame has to come again when the region has members here, for refusedFor. A region that is not known by
// then is gone, and others still count what it admitted; here it counts no more.
//
// A table that holds sums, or is about to, is not to know the slots of nodes that are no members here: nobody could
// know which of the sums count them, too. What such a node says of itself comes again, until it is a member. What
// others say of it in their snapshots is in sums, if it is gone. Nodes that have just started may send their first
// snapshots as a small cluster would, with what others counted that started with them; these send it themselves as
// well.
func (r *Replica) about(f *frame, g *group, h *inbound, now int64) (of sum, known, again bool) {
	near := h.region != nil && h.region == r.firstRegion()
	if g.rise == ofSum {
		of, ok := r.sumOf(g.origin)
		switch {
		case h.region == nil:
			return of, false, true
		case !ok && !near:
			return of, false, r.isExpected(g.origin, now)
		case near:
			return of, ok && (of.region == nil || of.region == h.region), false
		}
		return of, of.region != nil && of.region != r.firstRegion(), false
	}
	startsLater := h.since-r.startedAt > int64(snapshotRetry) && !over(now, h.since, newcomer)
	summed := r.summedAt != 0 && !over(now, r.summedAt, 2*(g.meter.Window+g.meter.Sub)) // some may count still
	switch p, counts := r.peers[g.origin], g.meter.Algorithm.Counts(); {
	case p != nil && p.region != nil:
		of.place = p.region.place
	case counts && (summed || f.ages != nil) && h.region == nil:
		return of, false, true
	case counts && (summed || r.large && startsLater) && f.kind == snapshot && g.origin != f.origin:
		return of, false, false
	case h.region == nil || f.kind == snapshot && g.origin != f.origin:
	case g.origin == f.origin || near || !g.meter.Algorithm.Counts():
		of.place = h.region.place
	}
	return of, true, false
}

// refusedFor is longer than a membership takes to spread, usually. maxRefused is more than there are regions.
const (
	refusedFor = 15 * time.Second
	maxRefused = 1024
)

// isExpected reports whether a region may still become known of which a sum has come: for refusedFor after the first.
func (r *Replica) isExpected(o counters.Origin, now int64) bool {
	name, _ := o.Sum()
	since, known := r.refused[name]
	if !known && len(r.refused) < maxRefused {
		r.refused[name], since = now, now
	}
	return !over(now, since, refusedFor)
}

func (r *Replica) firstRegion() *region {
	if len(r.regions) == 0 {
		return nil
	}
	return r.regions[0]
}

// completeThrough is the time through which what a group is about was complete before the frame; 0: unknown.
func (r *Replica) completeThrough(f *frame, g *group, h *inbound, of sum) int64 {
	switch {
	case of.isSum && of.place == counters.Elsewhere:
		return h.thereAt
	case of.isSum && (of.region == h.region || of.region == nil):
		return h.hereAt
	case g.origin == f.origin:
		return h.watermark
	}
	return 0
}

// demandAt is the time of the demand that a group reports. What an owner adds up waited for it, and for its members and
// other owners before; what is out of reach was asked for before that.
func (r *Replica) demandAt(f *frame, of sum) int64 {
	switch {
	case f.ages == nil || !of.isSum:
		return f.sent
	case of.place == counters.Lost:
		return max(1, f.sent-int64(f.ages.lost))
	case of.place == counters.Elsewhere:
		return max(1, f.sent-int64(r.interval+f.ages.way))
	}
	return max(1, f.sent-int64(r.interval/2))
}

// setSumWatermarks passes to the table how complete the sums of an owner are.
func (r *Replica) setSumWatermarks(o counters.Origin, h *inbound) {
	if !r.large || h.region == nil || h.region.empty || h.hereAt == 0 {
		return
	}
	near := h.region == r.regions[0]
	var of counters.PartitionSet
	for p, owner := range h.region.owners {
		if owner == o && (near || r.owned.Has(p)) {
			of.Add(p)
		}
	}
	if of == (counters.PartitionSet{}) {
		return
	}
	r.counts.SetSumWatermarks(h.region.sum, of, min(h.meanAt[ofRegion], h.watermarkAt))
	if near {
		r.counts.SetSumWatermarks(r.elsewhere, of, min(h.meanAt[ofElsewhere], h.watermarkAt))
		r.counts.SetSumWatermarks(r.lost, of, h.lostAt)
	}
}
