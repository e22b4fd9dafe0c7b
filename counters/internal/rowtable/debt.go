package rowtable

// A request that is denied is not counted; otherwise a client that keeps asking would stay denied for ever. What a
// limit counts without having room for it is a debt. There is one law for all debts: they count up to a ceiling,
//
//	counted = min(cost, ceiling - used)    ceiling = 2 * Max, MaxTally for a tallied limit
//
// so that a client which stops asking is admitted again once the debt has left the window, peers take the count for
// plausible, and sums do not overflow. These become debts:
//
//	what a limit with CountRejected denies     countDenied
//	what a charge with Overdraw is denied      countDenied
//	what a tallied limit counts beyond Max     tally
//	what a full lender may not deny            overcharge
//	what a report says that was spent          report
//	what another store admitted (Counts)       report

// maxHeld is the most that a count without room may reach, as a multiple of its limit.
const maxHeld = 2

// MaxTally is the most that a table counts of a key under a tallied limit, with the counts of others.
const MaxTally = maxCount

// debt is what a limit counts of a cost when so much of it is used.
func (l *Limit) debt(used, cost uint64) uint64 { return min(cost, l.ceiling-min(used, l.ceiling)) }

// owe counts a cost with room or not. The caller has recorded the demand for the cost, or for the limit if that is
// less. owe returns what it counted, and what is used after it.
func (t *Table) owe(y *layer, cost uint64) (counted, used uint64) {
	l := y.l
	used = t.used(y)
	if counted = l.debt(used, cost); counted > 0 {
		y.count(counted, l.span(counted))
		t.spend(y, counted, false)
	}
	if asked := min(cost, l.Max); counted > asked { // a table sends no more than it was asked for
		y.c.offer(y.s, counted-asked)
	}
	if used += counted; used > l.Max {
		y.c.raise(denied) // as the next request will be
	}
	return counted, used
}

// countRejected counts a denied request if the limit counts those, and returns the decision with how long it has to
// wait then.
func (t *Table) countRejected(y *layer, cost, before uint64, d Decision) Decision {
	if d.Allowed || !y.l.countsRejected || cost == 0 || y.c == nil {
		return d
	}
	return t.countDenied(y, cost, before, d)
}

// countDenied counts a denied request, and returns the decision with how long it has to wait then.
func (t *Table) countDenied(y *layer, cost, before uint64, d Decision) Decision {
	wait := d.Wait
	if counted, _ := t.owe(y, cost); counted == 0 {
		return d
	}
	d = t.answer(y, cost, before, peek)
	t.note(y, cost, d)
	if d.Allowed { // there is room without what the request charges before
		d.Allowed, d.Wait = false, wait
	}
	return d
}

// overcharge charges a lender that has no room but may not deny.
func (t *Table) overcharge(y *layer, cost uint64) Decision {
	t.owe(y, cost)
	d := t.answer(y, 0, 0, peek)
	d.waive()
	return d
}

// Report charges an answered request to all of its layers, with room or not. It denies nothing. It ignores modes,
// except that an Elastic layer without room charges its lender alone, if that has room. A cost of 0 charges nothing.
// Report panics if there are more than MaxLayers charges, or if a Lender is none of them.
func (t *Table) Report(charges []Charge, now int64) {
	locked := t.lock(charges)
	defer t.unlock(locked)
	hasRoom := func(i int) bool {
		l, cost := charges[i].Limit, charges[i].Cost
		if l == nil {
			return true
		}
		y := t.layerOf(l, charges[i].Key)
		return cost <= l.Max && t.view(&y, now) <= l.Max-cost
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
			t.report(&charges[i], now)
		}
	}
}

// report charges one layer. Its shard is locked.
func (t *Table) report(ch *Charge, now int64) {
	l := ch.Limit
	if l == nil || l.Max == 0 || ch.Cost == 0 {
		return
	}
	y := t.layerOf(l, ch.Key)
	demand := ch.Cost
	if !l.tallies {
		demand = min(demand, l.Max)
	}
	switch t.open(&y, demand, true, now); {
	case y.c == nil: // there is no room for a head
	case l.tallies:
		t.tally(&y, ch.Cost, false, now)
	default:
		_, used := t.owe(&y, ch.Cost)
		t.checkBurst(&y, l.Max-min(used, l.Max))
		if l.bansSpent && used >= l.Max && ch.Mode != Shadow && ch.Ban.Bans != nil {
			t.banSpent(ch.Ban, now) // last: a ban may evict heads
		}
	}
}
