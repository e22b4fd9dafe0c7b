package rowtable

// A tallied limit counts first and compares afterwards, as some servers do: every request is counted in each of its
// layers by itself, and is over the limit if the count with it exceeds Max.

// tally counts a request, and returns the decision. Without a head, there is no room for one, or the request is a peek
// of a key that was never charged. ResetAfter is until the window ends, also of an unused key.
func (t *Table) tally(y *layer, cost uint64, held bool, now int64) (d Decision) {
	l, c := y.l, y.c
	if c == nil && cost > 0 {
		return l.refuse()
	}
	d.Allowed, d.Left, d.ResetAfter = true, int64(l.Max), l.Sub-now%l.Sub
	if c == nil {
		return d
	}
	used := c.newest()
	if counted := l.debt(used, cost); counted > 0 && !held {
		y.count(counted, 0)
		used += counted
	}
	d.Left -= int64(used)
	if d.Left < 0 || held {
		d.Left = min(d.Left, 0)
		if d.Allowed, d.Wait = false, d.ResetAfter; cost > l.Max {
			d.Wait = Never
		}
	}
	if cost == 0 {
		return d
	}
	t.noteVerdict(y, d.Allowed)
	if d.Allowed {
		t.spend(y, cost, true)
		if used > l.largest-l.near {
			raise(&t.stateOf(c).used, used)
		}
	}
	t.checkBurst(y, uint64(max(d.Left, 0)))
	return d
}

// tallyHeld reports whether a request that there is room for is denied to leave room for peers.
func (t *Table) tallyHeld(y *layer, cost uint64) bool {
	return cost > 0 && y.c != nil && y.c.has(hot) && t.holdsBack(y, cost, 0, ask)
}

// tallyFits reports whether a cost has room in a head.
func (l *Limit) tallyFits(c *head, cost uint64) bool {
	return cost <= l.Max && c.newest() <= l.Max-cost
}

// tally counts the tallied layers of a request, whatever the others decide. Without Charge.Each a layer that admits is
// not charged if another tallied one denies.
func (r *request) tally(t *Table) {
	var held, denies uint32 // one bit per layer; denies: without Each; all are known before anything is counted
	for i := range r.charges {
		ch, y := &r.charges[i], &r.layers[i]
		if l := ch.Limit; l == nil || !l.tallies || y.c == nil {
			continue
		}
		holds := t.tallyHeld(y, ch.Cost)
		if holds {
			held |= 1 << i
		}
		if !ch.Each && (holds || !ch.Limit.tallyFits(y.c, ch.Cost)) {
			denies |= 1 << i
		}
	}
	for i := range r.charges {
		ch, y := &r.charges[i], &r.layers[i]
		if ch.Limit == nil || !ch.Limit.tallies || ch.Decided != nil || r.decisions[i].Banned {
			continue
		}
		cost := ch.Cost
		if denies != 0 && !ch.Each && denies&(1<<i) == 0 {
			cost = 0
		}
		r.decisions[i] = t.tally(y, cost, held&(1<<i) != 0, r.now)
	}
}
