package counters

import "time"

// Some servers count first and compare afterwards: every request is counted, admitted or not, in each of its layers by
// itself, and is over the limit if the count with it exceeds the maximum. A limit with LimitConfig.Tally counts so. Of
// a maximum M, with u counted before, a request of cost c is
//
//	admitted  if u + c <= M; a peek, of cost 0, if u <= M
//	counted   in any case: the count becomes u + c
//
// except that a request within M that a table denies to leave room for its peers (thin.go) is not counted: a server
// that counts alone has no such denials, and the window would be full before M is admitted.
//
// There is no bound of twice the limit, as limits of different maxima may share a meter ([Limit.WithMax]): what is far
// above one of them may be within another. So a peer's count is not held against the limit (plausibility.go).

// MaxTally is the most that a table counts of a key under a tallied limit. The sum over all origins does not overflow.
const MaxTally = 1 << 48

// Tallies reports whether the limit counts every request.
func (l *Limit) Tallies() bool { return l.tallies }

// tallyAll counts the tallied layers of a request, whatever the others decide. Without Charge.Each a layer that admits
// is not charged if another tallied one denies.
func (t *Table) tallyAll(charges []Charge, layers []layer, now int64, decisions []Decision) {
	var held, denies uint32 // one bit per layer; denies: per layer without Each
	for i := range charges {
		ch, c := &charges[i], layers[i].cell
		l := ch.Limit
		if l == nil || !l.tallies || c == nil {
			continue
		}
		holds := t.tallyHeld(layers[i], l, ch.Cost)
		if holds {
			held |= 1 << i
		}
		if !ch.Each && (holds || ch.Cost > l.max || c.inner > l.max-ch.Cost) {
			denies |= 1 << i
		}
	}
	for i := range charges {
		ch := &charges[i]
		if ch.Limit == nil || !ch.Limit.tallies || decisions[i].Banned {
			continue
		}
		cost := ch.Cost
		if denies != 0 && !ch.Each && denies&(1<<i) == 0 {
			cost = 0
		}
		t.tally(layers[i], ch.Limit, cost, held&(1<<i) != 0, now, &decisions[i])
	}
}

// tallyHeld reports whether a request that there is room for is denied to leave room for peers.
func (t *Table) tallyHeld(y layer, l *Limit, cost uint64) bool {
	return cost > 0 && y.cell != nil && y.cell.hotKey != 0 && t.holdsBack(y, l, cost, 0, ask)
}

// tally counts a request that is not held, and writes the decision to d, which is zero. Without a cell, there is no
// room for one, or the request is a peek of a key that was never charged. ResetAfter is until the window ends, also of
// an unused key.
func (t *Table) tally(y layer, l *Limit, cost uint64, held bool, now int64, d *Decision) {
	c := y.cell
	if c == nil && cost > 0 {
		l.refuse(d)
		return
	}
	d.Rule, d.Window, d.Limit, d.ResetAfter = l.meter.Rule, l.meter.Window, l.max, time.Duration(l.sub-now%l.sub)
	if c == nil {
		d.Allowed, d.Remaining = true, l.max
		return
	}
	used := c.inner
	if counted := min(cost, MaxTally-min(used, MaxTally)); counted > 0 && !held {
		c.count(c.counts(&l.shape), counted)
		used += counted
	}
	if d.Allowed = used <= l.max && !held; d.Allowed {
		d.Remaining = l.max - used
	} else if d.RetryAfter = d.ResetAfter; cost > l.max {
		d.RetryAfter = Never
	}
	d.Excess = used - min(used, l.max)
	if cost == 0 {
		return
	}
	if d.Allowed {
		if c.hotKey != 0 {
			t.holdsBack(y, l, cost, 0, charge)
		}
		if used > l.Far() {
			raise(&t.meters.states[c.meter].used, used)
		}
	} else if c.slots != 0 && !c.has(denied|judged) {
		t.judge(y, l)
	}
	c.put(denied, !d.Allowed)
	if c.mayBurst(l) {
		t.checkBurst(y, l, d.Remaining)
	}
}
