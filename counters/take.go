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
		i = s.next(i)
	}
}

// settled finds the cell, brings it to now and notes what is asked of it. For a peek, a cost of 0, and for a cost
// that no wait can make room for it makes no cell, nor where none is to be made: it may return nil. A limit that
// counts what it denies is asked for no more than it can hold.
func (t *Table) settled(s *shard, l *Limit, key Key, h, cost uint64, create bool, now int64) (y layer) {
	y.shard = s
	ref := s.find(l.id, key, h)
	if l.countsRejected {
		cost = min(cost, l.max)
	}
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
		if l.maxUnsent > 0 {
			t.ensureHotKey(s, c, now)
		}
	}
	s.localize(c)
	c.offered = uint32(min(uint64(c.offered)+cost, 1<<32-1))
	c.used = usedAt(now)
	if !c.has(dirty) && l.scope != Alone {
		s.enlist(ref, c)
	}
	return y
}

// step is what is done about a request in one decision.
type step uint8

const (
	peek step = iota // it is answered, and leaves no trace
	// it is answered as one layer of several, and charged by a second decision if all of them admit it
	ask
	charge // it is charged, as all layers have admitted it
	take   // it is answered, and charged if it is admitted
)

// charges reports whether an admitted request is charged.
func (how step) charges() bool { return how >= charge }

// decide answers a request. What the same request charges to the same cell besides comes before it. The decision is
// written to d, which is zero. The cell is nil where a key was never charged, and is not to be.
func (t *Table) decide(y layer, l *Limit, cost, before uint64, how step, d *Decision) {
	d.Rule, d.Window, d.Limit = l.meter.Rule, l.meter.Window, l.max
	c := y.cell
	if c == nil {
		l.decideEmpty(cost, before, how.charges(), d)
		return
	}
	if cost == 0 {
		how = peek
	}
	held := c.hotKey != 0 && t.holdsBack(y, l, cost, before, how)
	commit := how.charges() && !held
	switch {
	case l.algorithm <= FixedWindow:
		l.takeWindow(c, y.shard.ahead(c), cost, before, y.at, commit, d)
	case l.algorithm == SlidingLog:
		t.takeLog(y.shard, l, c, cost, before, y.at, commit, d)
	default:
		t.debitPending(y.shard, l, c, y.at)
		l.takeBucket(c, cost, before, y.at, commit, d)
	}
	if held && d.Allowed {
		d.Allowed, d.Delay, d.RetryAfter = false, 0, peerRateLasts
	}
	if !d.Allowed {
		t.keepFloor(y, l, cost, before, how, d)
		if l.countsRejected && !d.Allowed && how != peek {
			t.countDenied(y, l, cost, before, d)
		}
	}
	if d.Allowed && how.charges() {
		if used := l.max - d.Remaining + l.undercount(c); used > l.Far() {
			t.meters.states[c.meter].noteUsed(used)
		}
	}
	if l.chargeable(cost) {
		if !d.Allowed && c.slots != 0 && !c.has(denied|judged) {
			t.judge(y, l)
		}
		c.put(denied, !d.Allowed)
	}
	if commit && d.Allowed && c.mayBurst(l) {
		t.checkBurst(y, l, d.Remaining)
	}
}

// undercount is by how much less than what it received of the cell's key a table may believe that it counts: what comes
// back while the late run of a bucket waits to begin, and what others took late in the sub-window that leaves a log.
func (l *Limit) undercount(c *cell) uint64 {
	switch {
	case l.algorithm <= FixedWindow:
		return 0
	case l.algorithm == SlidingLog:
		return c.others(&l.shape)[0]
	}
	return l.backdateCost
}

// decideEmpty answers a request of a key without a cell, of which all is left. One that was to be charged (commit)
// found no room for a cell, and is denied: no key is admitted untracked.
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

// debitPending lets merges know the limit that a bucket's counts are debited by, and debits those that came when none
// was known.
func (t *Table) debitPending(s *shard, l *Limit, c *cell, at instant) {
	if l.refill == 0 {
		return
	}
	if m := t.meters.states[c.meter]; m.limit.Load() != l {
		m.limit.Store(l)
	}
	if c.has(pendingDebit) {
		l.fold(c, s.ahead(c), at)
	}
}

// view is the count of the window that ends at the instant; of a bucket whose limit is known, its debt. A ban in force,
// and a lift of one that would be, weigh as much as any limit.
func (s *shard) view(c *cell, m *meterState, at instant) uint64 {
	switch {
	case !m.algorithm.Counts():
		if c.ends(&m.shape) > c.index*m.sub+at.off-at.back {
			return MaxLimit
		}
		return 0
	case m.algorithm == SlidingLog:
		s.forget(c, &m.shape, at)
		return c.logView(&m.shape)
	case m.algorithm.bucket():
		if l := m.limit.Load(); l != nil && !c.has(pendingDebit) {
			v := c.level()
			return l.tokens(v.debt(&m.shape, v.notBefore(&m.shape, at)))
		}
	}
	return c.windowView(&m.shape, at)
}

// enlist notes that the cell is to be drained.
func (s *shard) enlist(ref uint32, c *cell) {
	c.raise(dirty)
	c.next, c.prev = 0, s.dirty.last
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
	c.lower(dirty)
}
