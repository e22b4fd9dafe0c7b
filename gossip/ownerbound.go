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

// demands are what nodes are asked for of a rule's hottest key, in cost per second, by which sums they are of; and what
// that comes to since what is known of it: the sum of rate * age, for those in reach.
type demands struct{ rates, costs [3]float64 }

// regionDemand is what owners of a region report of a rule: the most, as a key has one owner there, and how old it is.
type regionDemand struct {
	rate float64
	age  time.Duration
}

// addDemands adds up, by rule, the demand that is reported to this replica.
func (r *Replica) addDemands(now int64) {
	clear(r.demands)
	add := func(of int, rule string, rate float64, age time.Duration) {
		d := orNew(r.demands, rule)
		d.rates[of] += rate
		d.costs[of] += rate * age.Seconds()
	}
	for _, d := range r.asked {
		add(ofRegion, d.Meter.Rule, d.Rate, 0)
	}
	for _, g := range r.regions {
		g.reported = [2]map[string]regionDemand{}
	}
	for _, h := range r.senders() {
		if !r.reports(h) {
			continue
		}
		lost, age := r.isLost(h.origin, h, now), h.unreported(now)
		if h.idle {
			age = 0
		}
		if h.region != r.regions[0] {
			h.region.report(h, lost, age+time.Duration(h.watermark-h.meanAt[ofRegion]))
			continue
		}
		of := ofRegion
		if lost {
			of = ofLost
		}
		for rule := range h.demand {
			add(of, rule, h.rate(rule), age)
		}
	}
	for _, g := range r.regions {
		of, reported := ofElsewhere, g.reported[0]
		if reported == nil {
			of, reported = ofLost, g.reported[1]
		}
		for rule, d := range reported {
			add(of, rule, d.rate, d.age)
		}
	}
}

// report takes in what an owner of the region reports.
func (g *region) report(h *inbound, lost bool, age time.Duration) {
	if len(h.sums[ofRegion]) == 0 {
		return // another one may, or did
	}
	n := 0
	if lost {
		n = 1
	}
	if g.reported[n] == nil {
		g.reported[n] = make(map[string]regionDemand)
	}
	for rule, d := range h.sums[ofRegion] {
		if most := g.reported[n][rule]; d.rate > most.rate || d.rate == most.rate && age < most.age {
			g.reported[n][rule] = regionDemand{d.rate, age}
		}
	}
}

// meanAge is how old what is known of a demand is on average, for the rule where it is oldest.
func (r *Replica) meanAge(of int) (age time.Duration) {
	for _, d := range r.demands {
		if d.rates[of] > 0 {
			age = max(age, time.Duration(d.costs[of]/d.rates[of]*float64(time.Second)))
		}
	}
	return age
}

// reports reports whether a peer whose region is known is to report to this replica, see isAwaited.
func (r *Replica) reports(h *inbound) bool { return h.region != nil && r.isAwaited(h) }

// isAwaited reports whether an origin itself is to tell this replica what it admits: it does, or it did when it got out
// of reach.
func (r *Replica) isAwaited(h *inbound) bool {
	return !h.isGone() && !h.ended && (!r.large || r.peers[h.origin] == nil || r.isLink(h.origin))
}

// isLost reports whether a peer is out of reach: for as long as the table takes it to be.
func (r *Replica) isLost(o counters.Origin, h *inbound, now int64) bool {
	return h.age(now) > counters.SilentAfter*r.horizon || r.peers[o] == nil
}

// ages returns how old what this replica knows is. The demands have been added up.
func (r *Replica) ages(now int64) (a ages) {
	a.way, a.few = r.toFar, r.few
	for _, h := range r.senders() {
		o := h.origin
		if !r.reports(h) || h.watermark == 0 && !over(now, h.since, neverSeen) {
			continue
		}
		age, near := h.age(now), h.region == r.regions[0]
		switch {
		case r.isLost(o, h, now):
			a.lost = max(a.lost, age)
		case h.idle:
		case near:
			a.here = max(a.here, age)
		case !r.isSuspect(o) || h.region.silent:
			a.there = max(a.there, age, time.Duration(now-h.hereAt))
		}
	}
	a.meanHere, a.meanThere = min(a.here, r.meanAge(ofRegion)), min(a.there, r.meanAge(ofElsewhere))
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
	r.show(g.meter.Rule, rises, now)
	if !of.isSum || of.region != nil && of.region != h.region {
		return
	}
	n := of.number()
	if h.sums[n] == nil {
		h.sums[n] = make(map[string]reported)
	}
	d, named := h.sums[n][g.meter.Rule]
	isHeld := named || r.limits[g.meter.Rule] != nil || len(h.sums[n]) < maxUnknownDemands
	if f.sent >= d.sent && isHeld {
		rate := g.demand
		if d.sent == f.sent { // of several partitions
			rate = max(rate, d.rate)
		}
		h.sums[n][g.meter.Rule] = d.then(rate, f.sent, now)
	}
}

// seenThrough is the time until which all that a group is about was seen here before it came: its sender knew all of
// it, and that this node was asked for the key; 0: unknown.
func (r *Replica) seenThrough(f *frame, h *inbound, of sum) int64 {
	p := r.peers[f.origin]
	switch {
	case p == nil || of.region != nil && of.region != h.region:
		return 0
	case !of.isSum && f.kind.numbered() && f.tick == h.cumulative+1: // what was admitted before its interval has come
		return max(h.watermark, f.sent-int64(f.since))
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
	if p := r.peers[o]; p != nil && !p.active && !r.isSuspect(o) {
		patience = 2 * idleBeacon
	}
	var cost float64
	for n, at := range [...]int64{h.meanAt[ofRegion], h.meanAt[ofElsewhere], h.lostAt} {
		age := time.Duration(now - at)
		if n != ofLost { // counts that came out of order are known
			age = h.unreported(now) + time.Duration(h.watermark-at)
		}
		if n != ofLost && (age < patience || h.left) {
			continue
		}
		cost += h.sums[n][rule].most * min(age, l.Lasts()).Seconds()
	}
	return uint64(math.Ceil(min(cost, float64(l.Largest())*float64(len(r.peers)))))
}
