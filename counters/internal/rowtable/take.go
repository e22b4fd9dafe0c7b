package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// Take decides on a request and counts it if it is admitted. A cost of 0 is a peek: it is answered as a cost of 1 and
// leaves no trace. Take itself decides most requests: those under a plain window, of keys with a head in the current
// sub-window.
func (t *Table) Take(l *Limit, key, cost uint64, now int64) Decision {
	h := t.store.Hash(l.ID, key)
	s := t.store.Shard(h)
	s.Lock()
	line := s.Head(h, l.ID, key)
	if line == nil {
		d := t.takeSlowly(&layer{s: s, h: h, l: l, key: key}, cost, now)
		s.Unlock()
		return d
	}
	c := headOf(line)
	off := now - c.sub()*l.Sub
	if uint64(off) >= uint64(l.Sub) || cost-1 >= l.Max || !c.isPlain() || !l.plain {
		d := t.takeSlowly(&layer{s: s, h: h, l: l, key: key}, cost, now)
		s.Unlock()
		return d
	}
	seen := c.newest() + c.sum() + l.window.Part(c.leaving(), l.Sub-off)
	if seen > l.Max-cost {
		d, known := Decision{}, false
		if !t.implausible.some.Load() { // else there may be a floor
			d, known = c.deny(s, l, cost, off)
		}
		if !known {
			d = t.takeSlowly(&layer{s: s, h: h, l: l, key: key}, cost, now)
		}
		s.Unlock()
		return d
	}
	c.offer(s, cost)
	c.name += cost << countAt
	c.counted()
	c.lower(denied)
	d := Decision{Left: int64(l.Max - seen - cost), ResetAfter: l.reset(c.newest(), l.N, off)}
	d.Allowed = true
	if uint64(d.Left) < l.near || uint64(c.offered()) >= l.burst {
		t.noteMuch(&layer{s: s, h: h, l: l, key: key, c: c, off: off}, d)
	}
	s.Unlock()
	return d
}

// deny denies a request of a head whose window holds now, if how long there is no room for a cost of 1 is remembered.
func (c *head) deny(s *rows.Shard, l *Limit, cost uint64, off int64) (d Decision, known bool) {
	until, known := c.fullUntil(l)
	count, age := c.newest(), c.age()
	if !known || cost > 1 || off >= until || age > 0 && c.has(wide) {
		return d, false
	}
	if age > 0 {
		count = uint64(c.places[l.N-age])
	}
	c.offer(s, cost)
	return Decision{Wait: until - off, ResetAfter: l.reset(count, l.N-age, off)}, true
}

// takeSlowly is Take of any limit, and of whatever state a head is in.
func (t *Table) takeSlowly(y *layer, cost uint64, now int64) Decision {
	t.open(y, y.l.demand(cost), true, now)
	if y.l.tallies {
		return t.tally(y, cost, t.tallyHeld(y, cost), now)
	}
	return t.take(y, cost, take)
}

// take decides on a request and counts it if it is admitted.
func (t *Table) take(y *layer, cost uint64, how step) (d Decision) {
	switch {
	case y.c == nil && y.l.chargeable(cost):
		return y.l.refuse()
	case y.c == nil:
		return y.l.unused(cost, 0)
	}
	d.Allowed, d.Wait = t.fits(y, cost, 0, how)
	counts := d.Allowed && cost > 0
	if counts {
		y.admit(cost)
		t.spend(y, cost, !y.floored)
	}
	if l := y.l; !d.Allowed && cost <= 1 && y.back == 0 && l.plain && l.Max > 0 && !y.c.has(hot) {
		y.c.setFull(l, y.off+d.Wait)
	}
	d.Left, d.ResetAfter = t.rest(y, 0)
	if counts {
		t.noteMuch(y, d)
	}
	d = t.countRejected(y, cost, 0, d)
	t.note(y, cost, d)
	return d
}

// answer decides on a request that charges so much to the same head before, and writes nothing.
func (t *Table) answer(y *layer, cost, before uint64, how step) (d Decision) {
	if y.c == nil {
		return y.l.unused(cost, before)
	}
	d.Allowed, d.Wait = t.fits(y, cost, before, how)
	d.Left, d.ResetAfter = t.rest(y, before)
	return d
}

// unused answers a request of a key without a head: nothing of the limit is used.
func (l *Limit) unused(cost, before uint64) (d Decision) {
	d.Left = int64(l.Max - min(before, l.Max))
	if asked := max(cost, 1); asked > l.Max || before > l.Max-asked {
		d.Wait = Never
		return d
	}
	if d.Allowed = true; l.Algorithm == LeakyQueue {
		d.Wait = l.wait(l.span(before), 0)
	}
	return d
}

// placeOf is the count of the place that is so many before the newest.
func (t *Table) placeOf(s *rows.Shard, h uint64, c *head, m *Meter, age int) uint64 {
	switch {
	case c.has(wide):
	case m.isTimed():
		return c.timed().before
	case m.isBucket():
		return c.before()
	default:
		return uint64(c.places[m.N-age])
	}
	at := c.sub() - int64(age)
	name := longName(c, wideKind, at)
	if line := s.Find(rows.Sub(h, name), c.key, name); line != nil {
		return longsOf(line).get(at)
	}
	return 0
}
