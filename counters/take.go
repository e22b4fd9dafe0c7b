package counters

// find returns the ref of a key's cell, 0 if it has none.
func (s *shard) find(meter uint64, key Key, h uint64) uint32 {
	i, tag := s.home(h), uint32(h)
	for {
		e := s.entries[i]
		if e == 0 {
			return 0
		}
		if (e^tag)&^s.refMask == 0 {
			ref := s.ref(e)
			if c := s.cell(ref); c.key == key && s.ids[c.meter] == meter {
				return ref
			}
		}
		if i++; i == len(s.entries) {
			i = 0
		}
	}
}

// settled finds the cell, brings it to now and notes what is asked of it. For a peek, a cost of 0, and for a cost that no wait can
// make room for it makes no cell, nor where none is to be made: it may return nil.
func (t *Table) settled(s *shard, l *Limit, key Key, h, cost uint64, create bool, now int64) (y layer) {
	y.shard = s
	ref := s.find(l.id, key, h)
	chargeable := l.chargeable(cost)
	if ref != 0 {
		c := s.cell(ref)
		if at, ok := s.settle(c, &l.shape, now); ok {
			y.cell, y.at = c, at
		} else if chargeable && create {
			t.remove(s, ref, c)
		}
	}
	if !chargeable || y.cell == nil && !create {
		return y
	}
	c := y.cell
	if c == nil {
		if ref = t.create(s, l.id, &l.meter, key, h, true, now); ref == 0 {
			return y
		}
		c = s.cell(ref)
		y.cell, y.at = c, instant{off: now - c.index*l.sub}
	}
	c.offered = uint32(min(uint64(c.offered)+cost, 1<<32-1))
	c.used = usedAt(now)
	if !c.dirty {
		s.enlist(ref, c)
	}
	return y
}

// decide answers a request, and charges it if it is admitted and is to be charged (commit). What the same request charges to the same
// cell besides comes before it. The decision is written to d, which is zero. The cell is nil where a key was never charged, and is not to be.
func (t *Table) decide(y layer, l *Limit, cost, before uint64, commit bool, d *Decision) {
	d.Rule, d.Window, d.Limit = l.meter.Rule, l.meter.Window, l.max
	c := y.cell
	if c == nil {
		l.decideEmpty(cost, before, commit, d)
		return
	}
	switch {
	case l.algorithm <= FixedWindow:
		l.takeWindow(c, y.shard.ahead(c), cost, before, y.at, commit, d)
	case l.algorithm == SlidingLog:
		t.takeLog(y.shard, l, c, cost, before, y.at, commit, d)
	default:
		t.debitUnfolded(y.shard, l, c, y.at)
		l.takeBucket(c, cost, before, y.at, commit, d)
	}
	if l.chargeable(cost) {
		c.denied = !d.Allowed
	}
}

// decideEmpty answers a request of a key without a cell, of which all is left. One that was to be charged (commit) found no room for a
// cell, and is denied: no key is admitted untracked.
func (l *Limit) decideEmpty(cost, before uint64, commit bool, d *Decision) {
	asked := max(cost, 1)
	switch {
	case commit && l.chargeable(cost):
		l.refuse(d)
	case asked <= l.max && asked+before <= l.max:
		d.Allowed, d.Remaining = true, l.max-before
		if l.algorithm == LeakyQueue && before > 0 {
			d.Delay = l.wait(l.span(before), instant{})
		}
	default:
		d.Remaining, d.RetryAfter = l.max-min(before, l.max), Never
	}
}

// refuse denies for want of memory.
func (l *Limit) refuse(d *Decision) {
	d.Rule, d.Window, d.Limit, d.RetryAfter = l.meter.Rule, l.meter.Window, l.max, l.meter.Sub
}

// debitUnfolded lets merges know the limit that a bucket's counts are debited by, and debits those that came when none was known.
func (t *Table) debitUnfolded(s *shard, l *Limit, c *cell, at instant) {
	if l.refill == 0 {
		return
	}
	if m := t.meters.states[c.meter]; m.limit.Load() != l {
		m.limit.Store(l)
	}
	if c.unfolded {
		l.fold(c, s.ahead(c), at)
	}
}

// view is the count of the window that ends at the instant; of a bucket whose limit is known, its debt.
func (s *shard) view(c *cell, m *meterState, at instant) uint64 {
	switch {
	case m.algorithm == SlidingLog:
		s.forget(c, &m.shape, at)
		return c.logView(&m.shape)
	case m.algorithm.bucket():
		if l := m.limit.Load(); l != nil && !c.unfolded {
			v := c.level()
			return l.tokens(v.debt(&m.shape, v.notBefore(&m.shape, at)))
		}
	}
	return c.windowView(&m.shape, at)
}

// enlist notes that the cell is to be drained.
func (s *shard) enlist(ref uint32, c *cell) {
	c.dirty, c.next, c.prev = true, 0, s.dirty.last
	if s.dirty.last != 0 {
		s.cell(s.dirty.last).next = ref
	} else {
		s.dirty.first = ref
	}
	s.dirty.last = ref
}

// delist takes a cell that goes out of those to be drained.
func (s *shard) delist(c *cell) {
	if c.prev != 0 {
		s.cell(c.prev).next = c.next
	} else {
		s.dirty.first = c.next
	}
	if c.next != 0 {
		s.cell(c.next).prev = c.prev
	} else {
		s.dirty.last = c.prev
	}
	c.dirty = false
}
