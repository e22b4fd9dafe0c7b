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
func (r *request) tallyAll(t *Table) {
	var held, denies uint32 // one bit per layer; denies: per layer without Each
	for i := range r.charges {
		ch, y := &r.charges[i], &r.layers[i]
		if ch.Limit == nil || !ch.Limit.tallies || y.c == nil {
			continue
		}
		holds := t.tallyHeld(y, ch.Cost)
		if holds {
			held |= 1 << i
		}
		if !ch.Each && (holds || ch.Cost > ch.Limit.max || y.c.inner > ch.Limit.max-ch.Cost) {
			denies |= 1 << i
		}
	}
	for i := range r.charges {
		ch := &r.charges[i]
		if ch.Limit == nil || !ch.Limit.tallies || ch.Decided != nil || r.decisions[i].Banned {
			continue
		}
		cost := ch.Cost
		if denies != 0 && !ch.Each && denies&(1<<i) == 0 {
			cost = 0
		}
		t.tally(&r.layers[i], cost, held&(1<<i) != 0, r.now, &r.decisions[i])
	}
}

// tallyHeld reports whether a request that there is room for is denied to leave room for peers.
func (t *Table) tallyHeld(y *layer, cost uint64) bool {
	return cost > 0 && y.c != nil && y.c.hotKey != 0 && t.holdsBack(y, cost, 0, ask)
}

// tally counts a request that is not held, and writes the decision to d, which is zero. Without a cell, there is no
// room for one, or the request is a peek of a key that was never charged. ResetAfter is until the window ends, also of
// an unused key.
func (t *Table) tally(y *layer, cost uint64, held bool, now int64, d *Decision) {
	l, c := y.l, y.c
	if c == nil && cost > 0 {
		l.refuse(d)
		return
	}
	ends, used := time.Duration(l.sub-now%l.sub), uint64(0)
	if c != nil {
		used = c.inner
		if counted := l.overdraft(used, cost); counted > 0 && !held {
			c.count(c.counts(&l.shape), counted)
			used += counted
		}
	}
	d.decide(l, used <= l.max && !held, 0)
	d.ResetAfter, d.Excess = ends, used-min(used, l.max)
	if d.Allowed {
		d.Remaining = l.max - used
	} else if d.RetryAfter = ends; cost > l.max {
		d.RetryAfter = Never
	}
	if cost == 0 {
		return
	}
	y.c.put(denied, !d.Allowed)
	if d.Allowed {
		if c.hotKey != 0 {
			t.spend(y, cost, true)
		}
		if used > l.Far() {
			raise(&t.meters.state(c.number()).used, used)
		}
	}
	t.checkBurst(y, d.Remaining)
}
