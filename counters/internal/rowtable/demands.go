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

// peerDemands adds up what peers are asked for, and drops expired rates.
func (t *Table) peerDemands(y *layer, w *share, how step) (d demands) {
	now, horizon := y.now(), t.keepers(&y.l.Meter).horizon
	y.eachRate(w, func(v *peerRate) bool {
		watermark, unreachable := t.origins.of(v.origin).watermark.Load(), false
		rate := float64(v.rate)
		if v.over(watermark, now) {
			if v.unreachable && how != peek {
				d.back += rate
			}
			return how == peek
		}
		age := v.age(watermark, now)
		switch unseen := rate * time.Duration(min(age, y.l.Lasts)).Seconds(); {
		case age <= silentAfter*horizon:
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
		return true
	})
	return d
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
