package counters

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

// clamp reduces the demand that peers claim to what is plausible. All tables admit the same part of what they are asked
// for, so demands are proportional to admitted costs:
//
//	peers' demand / own demand  ~  cost that peers admitted / own cost admitted, in the window
//
// Peers may claim `unsupported` limits per window, `likeOwn` times the own demand, or `support` times what this formula
// gives, whichever is most. So a peer that claims any demand takes a part of the limit from clients over their limit,
// but not all of it.
func (d *demands) clamp(s *shard, l *Limit, c *cell, peers int) {
	rate := float64(l.max) / l.Lasts().Seconds()
	claimed, maximum := d.reachable+d.unreachable, max(unsupported*rate, likeOwn*d.own)
	if claimed <= maximum {
		return
	}
	own, all := float64(s.ownSum(c, &l.shape)), 0.0
	for _, count := range c.counts(&l.shape)[1:] {
		all += float64(count)
	}
	least := leastOwnShare * float64(l.max) / float64(peers+1)
	maximum = max(maximum, support*max(d.own, leastOwnRate*rate)*(all-own)/max(own, least))
	if claimed <= maximum {
		return
	}
	for _, claim := range [...]*float64{&d.reachable, &d.unreachable, &d.due, &d.lost, &d.back} {
		*claim *= maximum / claimed
	}
}
