package counters

import "time"

// Take decides on a request of the given cost and counts it if it is admitted. A cost of 0 is a peek: it is answered as
// a cost of 1 and leaves no trace.
func (t *Table) Take(l *Limit, key Key, cost uint64, now int64) (d Decision) {
	t.takeInto(&d, l, key, cost, now) // Take itself is inlined: the caller's decision is filled in place
	return d
}

// takeInto is Take that writes the decision to d, which is zero. It decides most requests itself: those under a plain
// limit, of keys that have a cell in the current sub-window and no hotKey.
func (t *Table) takeInto(d *Decision, l *Limit, key Key, cost uint64, now int64) {
	if l.ban != nil {
		t.takeBanning(d, &Charge{Limit: l, Key: key, Cost: cost}, now)
		return
	}
	h := hash(t.seed, l.id, key)
	s := t.shardOf(h)
	at := s.home(h)
	s.Lock()
	ref := s.probe(at, l.id, key, h)
	if ref == 0 {
		ref = s.find(l.id, key, h)
	}
	if ref == 0 || !l.plain || cost-1 >= l.max {
		t.takeLocked(d, &layer{s: s, l: l, key: key, h: h}, cost, now)
		return
	}
	c := s.cell(ref)
	off := now - c.index*l.sub
	if uint64(off) >= uint64(l.sub) || c.hotKey != 0 {
		t.takeLocked(d, &layer{s: s, l: l, key: key, h: h}, cost, now)
		return
	}
	addTo(&c.offered, cost)
	c.used = usedAt(now)
	if c.flags&(local|dirty) != local|dirty {
		s.noteDemand(ref, c, l.scope)
	}
	d.Rule, d.Window, d.Limit = l.meter.Rule, l.meter.Window, l.max
	if l.rate.Refill == 0 {
		s.takeWindow(l, c, cost, off, d)
	} else {
		t.takeBucket(&layer{s: s, l: l, c: c, instant: instant{off: off}}, cost, d)
	}
	switch {
	case d.Allowed && d.Remaining >= l.near && uint64(c.offered) < l.burst:
		c.lower(denied)
	case !d.Allowed && t.implausibleAt.Load() == 0:
		c.raise(denied)
	default:
		t.takeNote(&layer{s: s, l: l, key: key, h: h, ref: ref, c: c, instant: instant{off: off}}, cost, d)
	}
	s.Unlock()
}

// takeNote notes what follows from a decision of takeInto: a denial, or that little is left, or was asked for.
func (t *Table) takeNote(y *layer, cost uint64, d *Decision) {
	if !d.Allowed && t.implausibleAt.Load() != 0 { // there may be a floor
		t.open(y, 0, false, y.now())
		t.take(y, cost, take, d)
		return
	}
	y.c.put(denied, !d.Allowed)
	if d.Allowed {
		t.noteMuch(y, d.Remaining)
	}
}

// takeLocked is takeInto of any limit without bans, and of whatever state a cell is in. The shard is locked; takeLocked
// unlocks it.
func (t *Table) takeLocked(d *Decision, y *layer, cost uint64, now int64) {
	defer y.s.Unlock()
	t.takeOpen(d, y, cost, now)
}

// takeOpen opens a layer and decides on a request.
func (t *Table) takeOpen(d *Decision, y *layer, cost uint64, now int64) {
	t.open(y, y.l.demand(cost), true, now)
	if y.l.tallies {
		t.tally(y, cost, t.tallyHeld(y, cost), now, d)
	} else {
		t.take(y, cost, take, d)
	}
}

// takeBanning is takeInto of a limit with bans, which may be in another shard.
func (t *Table) takeBanning(d *Decision, ch *Charge, now int64) {
	y := t.layerOf(ch.Limit, ch.Key)
	locked := t.shardsOf(&y, ch)
	t.lockSet(locked)
	defer t.unlockSet(locked)
	if t.banned(&y, ch, 0, now, d) {
		return
	}
	t.takeOpen(d, &y, ch.Cost, now)
	if y.c != nil {
		t.ban(ch, now, d)
	}
}

// take decides on a request and counts it if it is admitted. how is take or charge.
func (t *Table) take(y *layer, cost uint64, how step, d *Decision) {
	switch {
	case y.c == nil && y.l.chargeable(cost):
		y.l.refuse(d)
		return
	case y.c == nil || cost == 0:
		t.answer(y, cost, 0, peek, d)
		return
	}
	l := y.l
	if l.plain && l.rate.Refill == 0 && cost <= l.max && y.back == 0 && y.c.hotKey == 0 && t.implausibleAt.Load() == 0 {
		d.Rule, d.Window, d.Limit = l.meter.Rule, l.meter.Window, l.max
		y.s.takeWindow(l, y.c, cost, y.off, d)
	} else {
		t.takeSteps(y, cost, how, d)
	}
	if d.Allowed {
		y.c.lower(denied)
		if d.Remaining < l.near || uint64(y.c.offered) >= l.burst || l.algorithm == SlidingLog {
			t.noteMuch(y, d.Remaining)
		}
		return
	}
	t.countRejected(y, cost, 0, d)
	y.note(cost, d)
}

// takeSteps decides on a request and counts it if it is admitted, under any limit.
func (t *Table) takeSteps(y *layer, cost uint64, how step, d *Decision) {
	ok, wait := t.fits(y, cost, 0, how)
	if ok && !y.floored {
		t.admit(y, cost)
	}
	d.decide(y.l, ok, wait)
	d.Remaining, d.ResetAfter = y.rest(0)
	if y.floored { // beyond what the limit leaves
		t.count(y, cost)
	}
}

// answer decides on a request that charges so much to the same cell before, and counts nothing.
func (t *Table) answer(y *layer, cost, before uint64, how step, d *Decision) {
	ok, wait := t.fits(y, cost, before, how)
	d.decide(y.l, ok, wait)
	d.Remaining, d.ResetAfter = y.rest(before)
}

// decide makes it a decision that admits, after a delay, or denies, for as long as it has to wait.
func (d *Decision) decide(l *Limit, allowed bool, wait time.Duration) {
	d.Rule, d.Window, d.Limit, d.Allowed = l.meter.Rule, l.meter.Window, l.max, allowed
	if d.Delay, d.RetryAfter = wait, 0; !allowed {
		d.Delay, d.RetryAfter = 0, wait
	}
}

// refuse denies because there is no room for a cell: no key is admitted untracked.
func (l *Limit) refuse(d *Decision) {
	*d = Decision{Rule: l.meter.Rule, Window: l.meter.Window, Limit: l.max, RetryAfter: l.meter.Sub}
}

// note records whether the last request of a cell was denied, unless it was a peek or too large for the limit.
func (y *layer) note(cost uint64, d *Decision) {
	if y.c != nil && y.l.chargeable(cost) {
		y.c.put(denied, !d.Allowed)
	}
}

// noteMuch records how much of the limit an admitted request leaves, if that is little, and looks whether the key was
// asked for much.
func (t *Table) noteMuch(y *layer, left uint64) {
	if used := y.l.Largest() - left + y.undercount(); used > y.l.Far() {
		raise(&t.meters.state(y.c.number()).used, used)
	}
	t.checkBurst(y, left)
}

// undercount is the most by which the table's view may lag the counts that it received. For a bucket it is the refill
// of the time by which the backdated run begins earlier, for a log the count of others in the sub-window that leaves.
func (y *layer) undercount() uint64 {
	if y.l.algorithm == SlidingLog {
		return y.c.others(&y.l.shape)[0]
	}
	return y.l.backdateCost
}
