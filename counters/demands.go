package counters

// demands are sums of what is asked for of one key, in cost per second, but due and lost, which are costs.
type demands struct {
	own         float64 // of this table
	reachable   float64 // of peers that are reachable
	unreachable float64 // of peers that are not
	due         float64 // what live peers were asked for and have not reported yet
	lost        float64 // what peers that became unreachable since the last sum were
}

const (
	// unsupported is how many limits per window peers together may report to be asked for without having admitted much.
	unsupported = 4
	// support is by how much their part of the demand may exceed their part of what was admitted, where this table's
	// parts are taken to be a quarter of a limit per window, and a quarter of an even share of the limit, at least.
	support       = 8
	leastOwnRate  = 0.25
	leastOwnShare = 0.25
)

// clamp cuts what peers report to be asked for down to what is plausible. All admit the same part of what they are
// asked for, so that the demands are as the admitted costs are:
//
//	peers' demand / own demand  ~  cost that peers admitted / own cost admitted in the window
//
// Peers that report more than support times as much, and more than unsupported limits per window, count for the larger
// of the two. So who claims any demand takes from the clients that are over their limit a part of it, and not all.
func (d *demands) clamp(s *shard, l *Limit, c *cell, peers int) {
	rate := float64(l.max) / l.Lasts().Seconds()
	claimed, largest := d.reachable+d.unreachable, unsupported*rate
	if claimed <= largest {
		return
	}
	own, all := float64(s.ownSum(c, &l.shape)), 0.0
	for _, count := range c.counts(&l.shape)[1:] {
		all += float64(count)
	}
	least := leastOwnShare * float64(l.max) / float64(peers+1)
	largest = max(largest, support*max(d.own, leastOwnRate*rate)*(all-own)/max(own, least))
	if claimed <= largest {
		return
	}
	part := largest / claimed
	d.reachable *= part
	d.unreachable *= part
	d.due *= part
	d.lost *= part
}
