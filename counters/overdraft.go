package counters

import "time"

// A denied request is not counted; otherwise a client that keeps asking would stay denied for ever. What a limit counts
// without room for it is an overdraft. There is one law for all of them: they count up to a ceiling,
//
//	counted = min(cost, ceiling - used)    ceiling = 2 * Max; MaxTally for a tallied limit
//
// so a client that stops asking is admitted again once the overdraft has left the window, one costly answer blocks its
// client for at most twice as long as the limit alone, peers take the count for plausible, and sums do not overflow.
// What is beyond the ceiling is forgotten. These are overdrafts:
//
//	what a limit with LimitConfig.CountRejected denies    countDenied
//	what a charge with Charge.Overdraw is denied          countDenied
//	what a tallied limit counts beyond Max                tally (tally.go)
//	what a full lender may not deny (elastic.go)          overcharge
//	what a report spends                                  report
//	what another store admitted, with Charge.Counts       report
//
// A limit with CountRejected counts every request: a client that keeps asking stays denied until its requests of the
// last window fit the limit.
//
// A charge with Overdraw is for a cost that has already arisen, such as the tokens of a response. A denial comes too
// late for it; if it did not count, the next peek would let the client spend again. It counts in each layer with
// Overdraw, whichever layer denies. Example: a limit of 1,000 per window has 100 left, and a charge of 5,000 comes. It
// is denied, 1,100 of it are counted, and nothing remains. Peeks are denied until the 900 from before and more than 100
// of the 1,100 have left the window. A fixed window forgets both at its end; a bucket first refills its debt.
//
// The cost of some requests is known only after they were answered: bytes, rows, tokens. Report charges it then. It is
// too late to deny the request. A report on an elastic layer and its lender charges what a request would:
//
//	layer has  lender has
//	room                   both are charged
//	no room    room        a loan: the lender alone is charged
//	no room    no room     both are charged, and overdrawn

// maxHeld is the most that a count without room may reach, as a multiple of its limit.
const maxHeld = 2

// overdraft is what a limit counts of a cost, when so much of it is used, with room or not.
func (l *Limit) overdraft(used, cost uint64) uint64 {
	ceiling := maxHeld * l.max
	if l.tallies {
		ceiling = MaxTally
	}
	return min(cost, ceiling-min(used, ceiling))
}

// CountsRejected reports whether the limit counts denied requests.
func (l *Limit) CountsRejected() bool { return l.countsRejected }

// owe counts a cost with room or not. The caller has recorded the demand for the cost, or for the limit if that is
// less. owe returns what it counted, and what is used after it.
func (t *Table) owe(y *layer, cost uint64) (counted, used uint64) {
	l := y.l
	used = t.used(y)
	if counted = l.overdraft(used, cost); counted > 0 {
		t.count(y, counted)
	}
	if asked := min(cost, l.max); counted > asked { // a table sends no more than it was asked for
		addTo(&y.c.offered, counted-asked)
	}
	if used += counted; used > l.max {
		y.c.raise(denied) // as the next request will be
	}
	return counted, used
}

// countRejected is countDenied of a denied request that the limit counts.
func (t *Table) countRejected(y *layer, cost, before uint64, d *Decision) {
	if !d.Allowed && y.l.countsRejected && cost > 0 && y.c != nil {
		t.countDenied(y, cost, before, d)
	}
}

// countDenied counts a denied request, and updates how long it has to wait.
func (t *Table) countDenied(y *layer, cost, before uint64, d *Decision) {
	wait := d.RetryAfter
	if counted, _ := t.owe(y, cost); counted == 0 {
		return
	}
	t.answer(y, cost, before, peek, d)
	y.note(cost, d)
	if d.Allowed { // there is room: the request was only held back
		d.deny(wait)
	}
}

// deny denies a request that there is room for, but not for all that will come. Remaining goes on saying what the
// counts leave: the judge of the testnet adds it up.
func (d *Decision) deny(wait time.Duration) { d.Allowed, d.Delay, d.RetryAfter = false, 0, wait }

// overcharge charges a lender that has no room but may not deny.
func (t *Table) overcharge(y *layer, cost uint64, d *Decision) {
	t.owe(y, cost)
	*d = Decision{}
	t.answer(y, 0, 0, peek, d)
	d.waive()
	d.Delay = 0
}

// Report charges an answered request to all of its layers, with room or not. A layer's count stops at twice its limit.
// Report denies nothing, bans no key but for limits with [Limit.BanSpent], and also charges banned keys. It ignores
// modes, except that an Elastic layer may borrow, and that a Shadow layer bans none. A cost of 0 charges nothing. A
// peek returns what is left. Report panics if there are more than MaxLayers charges, or if a Lender is none of them.
func (t *Table) Report(charges []Charge, now int64) {
	r := request{charges: charges, now: now}
	if len(charges) <= few {
		var room [few]layer
		r.layers = room[:]
		r.report(t)
	} else {
		var room [MaxLayers]layer
		r.layers = room[:]
		r.report(t)
	}
}

// report is Report.
func (r *request) report(t *Table) {
	locked := r.lock(t)
	defer t.unlockSet(locked)
	var loans uint64 // one bit per layer; all are decided before anything is charged
	for i := range r.charges {
		ch := &r.charges[i]
		if ch.borrows() && !r.hasRoom(t, i) && (ch.Lender == Idle || r.hasRoom(t, int(ch.Lender)-1)) {
			loans |= 1 << i
		}
	}
	for i := range r.charges {
		if loans&(1<<i) == 0 {
			t.report(&r.layers[i], &r.charges[i], r.now)
		}
	}
}

// hasRoom reports whether a layer has room for its cost.
func (r *request) hasRoom(t *Table, i int) bool {
	l, cost := r.charges[i].Limit, r.charges[i].Cost
	return l == nil || cost <= l.max && t.viewLayer(&r.layers[i], r.now) <= l.max-cost
}

// report charges one layer. Its shard is locked.
func (t *Table) report(y *layer, ch *Charge, now int64) {
	l := ch.Limit
	if l == nil || l.max == 0 || ch.Cost == 0 {
		return
	}
	demand := ch.Cost
	if !l.tallies {
		demand = min(demand, l.max)
	}
	switch t.open(y, l.demand(demand), true, now); {
	case y.c == nil: // there is no room for a cell
	case l.tallies:
		t.tally(y, ch.Cost, false, now, new(Decision))
	default:
		_, used := t.owe(y, ch.Cost)
		t.checkBurst(y, l.max-min(used, l.max))
		if l.bansSpent && used >= l.max && ch.Mode != Shadow { // last: a ban may evict cells
			t.banReported(ch, now)
		}
	}
}
