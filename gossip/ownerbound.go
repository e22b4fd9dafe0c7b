package gossip

import (
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// The demand that owners add up, the age of what they know, and the bound that follows.

// Which sums a demand is of.
const (
	ofRegion = iota
	ofElsewhere
	ofLost
)

func (of sum) number() int {
	switch of.place {
	case counters.Elsewhere:
		return ofElsewhere
	case counters.Lost:
		return ofLost
	}
	return ofRegion
}

// demandOf is the most that all nodes which a sum of this replica is over are asked for a key of a rule, in cost per
// second.
func (r *Replica) demandOf(of sum, rule string) float64 {
	if r.demands[0] == nil {
		r.addDemands()
	}
	return r.demands[of.number()][rule]
}

func (r *Replica) addDemands() {
	for i := range r.demands {
		r.demands[i] = make(map[string]float64)
	}
	for _, d := range r.asked {
		r.demands[ofRegion][d.Meter.Rule] += d.Rate
	}
	regions := make(map[*region]*[2]map[string]float64) // what their owners report: those in reach, and the others
	for _, h := range r.senders() {
		o := h.origin
		if !r.reports(o, h) {
			continue
		}
		n := 0
		if r.isLost(o, h, r.tickedAt) {
			n = 1
		}
		if h.region == r.regions[0] {
			for rule, d := range h.demand {
				r.demands[[...]int{ofRegion, ofLost}[n]][rule] += d.average
			}
			continue
		}
		reported := orNew(regions, h.region)
		if reported[n] == nil {
			reported[n] = make(map[string]float64)
		}
		for rule, d := range h.sums[ofRegion] { // a key has one owner there
			reported[n][rule] = max(reported[n][rule], d.average)
		}
	}
	for _, g := range r.regions {
		reported := regions[g]
		if reported == nil {
			continue
		}
		at, rates := ofElsewhere, reported[0]
		if rates == nil {
			at, rates = ofLost, reported[1]
		}
		for rule, rate := range rates {
			r.demands[at][rule] += rate
		}
	}
}

// reports reports whether a peer is to report to this replica: it does, or it did when it got out of reach.
func (r *Replica) reports(o counters.Origin, h *inbound) bool {
	return !h.left && h.region != nil && (r.peers[o] == nil || r.isLink(o))
}

// isLost reports whether a peer is out of reach: for as long as the table takes it to be.
func (r *Replica) isLost(o counters.Origin, h *inbound, now int64) bool {
	return h.age(now) > counters.SilentAfter*r.horizon || r.peers[o] == nil
}

// ages returns how old what this replica knows is.
func (r *Replica) ages(now int64) (a ages) {
	a.way = r.toFar
	for _, h := range r.senders() {
		o := h.origin
		if !r.reports(o, h) || h.watermark == 0 && !over(now, h.since, neverSeen) {
			continue
		}
		age, near := h.age(now), h.region == r.regions[0]
		switch {
		case r.isLost(o, h, now):
			a.lost = max(a.lost, age)
		case h.idle:
		case near:
			a.here = max(a.here, age)
		case !r.suspects[o] || h.region.silent:
			a.there = max(a.there, age, time.Duration(now-h.hereAt))
		}
	}
	return a
}

// isLink reports whether a peer is sent what this replica counts or adds up, and sends the same.
func (r *Replica) isLink(o counters.Origin) bool {
	_, ok := slices.BinarySearch(r.links, o)
	return ok
}

// reckonRises records as unseen by how much a group raised keys, and the demand that a sum reports. It runs before the
// watermarks of its sender are updated.
func (r *Replica) reckonRises(f *frame, g *group, h *inbound, of sum, rises *counters.Rises, now int64) {
	if !g.meter.Algorithm.Counts() {
		return
	}
	r.notSeenRises(g.meter.Rule, rises, r.seenThrough(f, h, of), now)
	if !of.isSum || of.region != nil && of.region != h.region {
		return
	}
	n := of.number()
	if h.sums[n] == nil {
		h.sums[n] = make(map[string]reported)
	}
	if d, named := h.sums[n][g.meter.Rule]; f.sent >= d.sent && (named || len(h.sums[n]) < maxUnknownDemands) {
		rate := g.demand
		if d.sent == f.sent { // of several partitions
			rate = max(rate, d.rate)
		}
		h.sums[n][g.meter.Rule] = reported{rate: rate, average: rate, sent: f.sent, came: now}
	}
}

// seenThrough is the time until which all that a group is about was seen here before it came: its sender knew all of
// it, and that this node was asked for the key; 0: unknown.
func (r *Replica) seenThrough(f *frame, h *inbound, of sum) int64 {
	p := r.peers[f.origin]
	switch {
	case p == nil || of.region != nil && of.region != h.region:
		return 0
	case !of.isSum:
		return h.watermark
	case of.place == counters.Elsewhere:
		return min(h.thereAt, p.askedThrough(r.tickedAt))
	}
	return min(h.hereAt, p.askedThrough(r.tickedAt))
}

// askedThrough is the time until which the peer knows all that this node was asked for.
func (p *peer) askedThrough(tickedAt int64) int64 {
	if p.acked.cumulative >= p.log.last() {
		return tickedAt
	}
	return p.askedAt
}

// assumedSum is the most that an origin added up of a key of a rule and did not report. A peer that rests reports
// within idleBeacon, or within two intervals after it was asked.
func (r *Replica) assumedSum(o counters.Origin, h *inbound, rule string, l *counters.Limit, now int64) uint64 {
	patience := BoundAfter(r.interval) * 3 / 4 // over two hops, and what was lost on either
	if p := r.peers[o]; p != nil && !p.active && !r.suspects[o] {
		patience = 2 * idleBeacon
	}
	var cost float64
	for n, at := range [...]int64{h.hereAt, h.thereAt, h.lostAt} {
		age := max(h.age(now), time.Duration(now-at))
		if n != ofLost && age < patience {
			continue
		}
		cost += h.sums[n][rule].rate * min(age, l.Lasts()).Seconds()
	}
	return uint64(math.Ceil(min(cost, float64(l.Largest())*float64(len(r.peers)))))
}
