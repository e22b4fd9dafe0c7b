package counters

// The cost of some requests is known only after they were answered: bytes, rows, tokens. Report charges it then. It is
// too late to deny the request, so a full limit is overdrawn, and denies until the overdraft has left the window.
//
// An overdraft ends at twice the limit, as do denied requests that count (rejected.go) and the count of a lender
// (elastic.go). So one costly answer blocks its client for at most twice as long as the limit alone, peers take the
// count for plausible, and sums cannot overflow. A report forgets what is beyond that.
//
// A report on an elastic layer and its lender charges what a request would:
//
//	layer has  lender has
//	room                   both are charged
//	no room    room        a loan: the lender alone is charged
//	no room    no room     both are charged, and overdrawn

// maxHeld is the most that a count without room may reach, as a multiple of its limit.
const maxHeld = 2

// Report charges an answered request to all of its layers, with room or not. A layer's count stops at twice its limit.
// Report denies nothing, bans nobody but for limits with [Limit.BanSpent], and also charges banned keys. It ignores
// modes, except that an Elastic layer may borrow, and that a Shadow layer bans nobody. A cost of 0 charges nothing. A
// peek returns what is left. Report panics if there are more than MaxLayers charges, or if a Lender is none of them.
func (t *Table) Report(charges []Charge, now int64) {
	var hashes [MaxLayers]uint64
	locked := t.lockAll(charges, hashes[:])
	defer t.unlockSet(locked)
	hasRoom := func(i int) bool {
		ch := &charges[i]
		l := ch.Limit
		return l == nil || ch.Cost <= l.max && t.used(t.shardOf(hashes[i]), l, ch.Key, hashes[i], now) <= l.max-ch.Cost
	}
	var loans uint64 // one bit per layer; all are decided before anything is charged
	for i := range charges {
		ch := &charges[i]
		if ch.Mode == Elastic && ch.Lender != 0 && ch.Limit != nil && !hasRoom(i) &&
			(ch.Lender == Idle || hasRoom(int(ch.Lender)-1)) {
			loans |= 1 << i
		}
	}
	for i := range charges {
		if loans&(1<<i) == 0 {
			t.report(&charges[i], hashes[i], now)
		}
	}
}

// report charges one layer. Its shard is locked.
func (t *Table) report(ch *Charge, h uint64, now int64) {
	l := ch.Limit
	if l == nil || l.max == 0 || ch.Cost == 0 {
		return
	}
	if l.tallies {
		t.tally(t.settled(t.shardOf(h), l, ch.Key, h, ch.Cost, true, now), l, ch.Cost, false, now, new(Decision))
		return
	}
	y := t.settled(t.shardOf(h), l, ch.Key, h, min(ch.Cost, l.max), true, now)
	if y.cell == nil { // there is no room for a cell
		return
	}
	_, used := t.overdraw(y, l, ch.Cost)
	if y.cell.mayBurst(l) {
		t.checkBurst(y, l, l.max-min(used, l.max))
	}
	if l.bansSpent && used >= l.max && ch.Mode != Shadow { // last: a ban may evict cells
		t.banReported(l, ch.Key, ch.Address, now)
	}
}

// overdraw charges a cost with room or not, up to twice the limit. The caller has recorded the demand for the cost, or
// for the limit if that is less. It returns the part of the cost that was charged, and what is used after it.
func (t *Table) overdraw(y layer, l *Limit, cost uint64) (counted, used uint64) {
	t.debitPending(y.shard, l, y.cell, y.at)
	used = y.shard.viewUnder(l, y.cell, t.meters.states[y.cell.meter], y.at)
	if counted = min(cost, maxHeld*l.max-min(used, maxHeld*l.max)); counted > 0 {
		t.countAnyway(y, l, counted)
	}
	if asked := min(cost, l.max); counted > asked { // a table sends no more than it was asked for
		addTo(&y.cell.offered, counted-asked)
	}
	if used += counted; used > l.max {
		y.cell.raise(denied) // as the next request will be
	}
	return counted, used
}

// countAnyway charges a cost without asking whether there is room.
func (t *Table) countAnyway(y layer, l *Limit, cost uint64) {
	c := y.cell
	c.count(c.counts(&l.shape), cost)
	if c.hotKey != 0 {
		t.spend(y.shard, l, c, y.shard.memory.hotKey(c.hotKey), cost)
	}
	switch {
	case l.algorithm == SlidingLog:
		t.log(y.shard, l, c, cost, y.at)
	case l.algorithm.bucket():
		v := c.level()
		at := l.notBefore(v, y.at)
		l.trimFreed(c, at)
		now := l.point(at)
		v.Debit(l.rate.Span(cost), now, now, l.backdate)
	}
}
