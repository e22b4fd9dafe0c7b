package rowtable

import "time"

// demands are what all tables are asked for one key: costs per second, but due and lost are costs.
type demands struct {
	own         float64 // this table
	reachable   float64 // reachable peers
	unreachable float64 // unreachable peers
	due         float64 // reachable peers since their last reports
	lost        float64 // peers that became unreachable since the last sum, since their last reports
	back        float64 // peers that were unreachable at the last sum and are not now
}

const (
	// unsupported is how many limits per window peers together may claim to be asked for whatever they admitted.
	unsupported = 4
	// likeOwn is how many times this table's demand they may claim in the same way: two more sides of a partition, of
	// which nothing arrives.
	likeOwn = 2
	// support is by which factor the peers' part of the demand may exceed their part of the admitted cost.
	support = 8
	// leastOwnRate, in limits per window, and leastOwnShare, in even shares of the limit, are minimums of this table's
	// demand and admitted cost in that comparison.
	leastOwnRate  = 0.25
	leastOwnShare = 0.25
)

// sum adds up the demands. A peek changes nothing but the share, which is a copy.
func (t *Table) sum(y *layer, w hotKey, cl *cluster, how step) {
	now := y.now()
	d := t.peerDemands(y, w.share, how)
	d.own = w.ownNow(y.c, t.shardOf(y.h).drainedAt, cl.horizon, now)
	t.clamp(y, &d, cl.peers)
	if how != peek {
		y.updateEstimate(w.share, &d, now)
	}
	w.reachable, w.unreachable = float32(d.own+d.reachable), float32(d.unreachable)
	w.due, w.summed = float32(d.due), now
	w.stale = false
}

// peerDemands adds up what peers are asked for, and drops expired rates. Where owners add up, a table may have both the
// sums of an owner and the rates that they are over: an owner was a member before, and the other way round. It takes
// the larger of the two, and drops the rates that it is not sent any more.
func (t *Table) peerDemands(y *layer, w *share, how step) demands {
	var parts, downs demands
	now, o := y.now(), t.owners.Load()
	direct := o == nil || o.owns(y.c.key)
	y.eachRate(w, func(v *peerRate) bool {
		watermark, place := t.origins.watermarkOf(v.origin, y.c.key).Load(), t.origins.placeOf(v.origin)
		d := &parts
		if place.isDown() {
			d = &downs
		}
		left := (place.isDown() == direct || o == nil && place.isSum()) && v.outdated(now)
		switch {
		case !left && !v.over(watermark, now):
			t.addRate(y, d, v, v.age(watermark, now), how)
			return true
		case how == peek:
			return true
		case v.unreachable:
			d.back += float64(v.rate)
		}
		return false
	})
	if downs.reachable+downs.unreachable > parts.reachable+parts.unreachable {
		return downs
	}
	return parts
}

// addRate adds the rate of a peer that last reported the key so long ago.
func (t *Table) addRate(y *layer, d *demands, v *peerRate, age int64, how step) {
	rate, unreachable := float64(v.rate), false
	switch unseen := rate * time.Duration(min(age, y.l.Lasts)).Seconds(); {
	case age <= silentAfter*t.keepers(&y.l.Meter).horizon:
		d.reachable += rate
		d.due += unseen
	case !y.l.local:
		unreachable = true
		d.unreachable += rate
		if !v.unreachable {
			d.lost += unseen
		}
	}
	if v.unreachable && !unreachable {
		d.back += rate
	}
	if how != peek {
		v.unreachable = unreachable
	}
}

// clamp reduces the demand that peers claim to what is plausible. All tables admit the same part of what they are asked
// for, so demands are proportional to admitted costs:
//
//	peers' demand / own demand  ~  cost that peers admitted / own cost admitted, in the window
//
// Peers may claim `unsupported` limits per window, `likeOwn` times the own demand, or `support` times what this formula
// gives, whichever is most. So a peer that claims any demand takes a part of the limit from clients over their limit,
// but not all of it.
func (t *Table) clamp(y *layer, d *demands, peers int) {
	l := y.l
	rate := float64(l.Max) / time.Duration(l.Lasts).Seconds()
	claimed, maximum := d.reachable+d.unreachable, max(unsupported*rate, likeOwn*d.own)
	if claimed <= maximum {
		return
	}
	own, all := float64(t.ownSum(y)), 0.0
	var r ring
	t.load(y.s, y.h, y.c, &l.Meter, &r)
	for _, count := range r.counts[1 : l.N+1] {
		all += float64(count)
	}
	least := leastOwnShare * float64(l.Max) / float64(peers+1)
	maximum = max(maximum, support*max(d.own, leastOwnRate*rate)*(all-own)/max(own, least))
	if claimed <= maximum {
		return
	}
	for _, claim := range [...]*float64{&d.reachable, &d.unreachable, &d.due, &d.lost, &d.back} {
		*claim *= maximum / claimed
	}
}
