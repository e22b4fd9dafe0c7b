package counters

import (
	"math"
	"time"
)

// Take decides on a request of the given cost and counts it if it is admitted. A cost of 0 is a peek: it is answered as
// a cost of 1 and leaves no trace.
func (t *Table) Take(l *Limit, key Key, cost uint64, now int64) (d Decision) {
	t.takeInto(&d, l, key, cost, now) // Take itself is inlined: the caller's decision is filled in place
	return d
}

// takeInto is Take that writes the decision to d, which is zero. It decides most requests itself: those under an
// ordinary limit, of keys that have a cell in the current sub-window and no hotKey.
func (t *Table) takeInto(d *Decision, l *Limit, key Key, cost uint64, now int64) {
	if l.ban != nil || l.tallies {
		t.takeWithBan(d, l, key, cost, now)
		return
	}
	h, s := t.locate(l.id, key)
	s.Lock()
	ref := s.find(l.id, key, h)
	if ref == 0 || !l.ordinary || !l.chargeable(cost) || t.implausibleAt.Load() != 0 {
		t.takeLocked(d, l, key, cost, now)
		return
	}
	c := s.cell(ref)
	off := now - c.index*l.sub
	if uint64(off) >= uint64(l.sub) || c.hotKey != 0 {
		t.takeLocked(d, l, key, cost, now)
		return
	}
	addTo(&c.offered, cost)
	c.used = usedAt(now)
	s.noteDemand(ref, c, l)
	y := layer{s, c, instant{off: off}}
	d.Rule, d.Window, d.Limit = l.meter.Rule, l.meter.Window, l.max
	if l.rate.Refill == 0 {
		ring, ahead := c.counts(&l.shape), s.ahead(c)
		seen := l.window.Seen(ring, c.inner, off)
		if d.Allowed = seen <= l.max-cost; d.Allowed {
			c.count(ring, cost)
			seen += cost
		} else {
			d.RetryAfter = time.Duration(l.window.Wait(ring, c.inner, ahead, l.max-cost, off))
		}
		d.Remaining = l.max - min(seen, l.max)
		d.ResetAfter = time.Duration(l.window.Reset(ring, c.inner, ahead, off))
	} else {
		t.debitPending(s, l, c, y.at)
		l.takeBucket(c, cost, 0, y.at, true, d)
	}
	if !d.Allowed {
		t.noteDenial(y, l)
	} else {
		c.lower(denied)
		t.noteUse(l, c, l.Largest()-d.Remaining+l.undercount(c))
		if c.mayBurst(l) {
			t.checkBurst(y, l, d.Remaining)
		}
	}
	s.Unlock()
}

// takeLocked is takeInto of what is less common, with the shard of the key locked. It unlocks it.
func (t *Table) takeLocked(d *Decision, l *Limit, key Key, cost uint64, now int64) {
	h, s := t.locate(l.id, key)
	defer s.Unlock()
	t.decide(t.settled(s, l, key, h, cost, true, now), l, cost, 0, take, d)
}

// takeWithBan is takeInto of a limit whose bans may be in another shard, or that tallies.
func (t *Table) takeWithBan(d *Decision, l *Limit, key Key, cost uint64, now int64) {
	h := hash(t.seed, l.id, key)
	set := t.shardSet(l, key, 0, h)
	t.lockSet(set)
	defer t.unlockSet(set)
	t.take(l, key, 0, h, cost, now, d)
}

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

// live finds a cell and moves it to the time now. ok is false if there is no cell, or if the counts of the cell are of
// no use, see settle.
func (s *shard) live(y *spec, key Key, h uint64, now int64) (ref uint32, at instant, ok bool) {
	if ref = s.find(y.id, key, h); ref != 0 {
		at, ok = s.settle(s.cell(ref), &y.shape, now)
	}
	return ref, at, ok
}

// reach is live that makes a cell if there is none. It returns 0 if there is no room for one.
func (t *Table) reach(s *shard, y *spec, key Key, h uint64, local bool, now int64) (ref uint32, at instant) {
	ref, at, ok := s.live(y, key, h, now)
	if ok {
		s.cell(ref).used = usedAt(now)
		return ref, at
	}
	return t.create(s, ref, y, key, h, local, now)
}

// settled finds the cell of a request, moves it to the time now and records the demand. If the request is chargeable
// and create is set, it makes a missing cell; otherwise the layer may have none. A limit that counts what it denies is
// asked for no more than its maximum.
func (t *Table) settled(s *shard, l *Limit, key Key, h, cost uint64, create bool, now int64) (y layer) {
	y.shard = s
	if l.countsRejected {
		cost = min(cost, l.max)
	}
	chargeable, ok := l.chargeable(cost) || l.tallies && cost > 0, false
	ref := s.find(l.id, key, h) // not live: one call less
	if ref != 0 {
		y.at, ok = s.settle(s.cell(ref), &l.shape, now)
	}
	if !ok {
		if !chargeable || !create {
			return y
		}
		if ref, y.at = t.create(s, ref, &l.spec, key, h, true, now); ref == 0 {
			return y
		}
		if l.maxUnsent > 0 {
			t.ensureHotKey(s, s.cell(ref), now)
		}
	}
	y.cell = s.cell(ref)
	if c := y.cell; chargeable {
		addTo(&c.offered, cost)
		if c.hotKey != 0 {
			w := s.memory.hotKey(c.hotKey)
			w.requests += min(1, math.MaxUint8-w.requests)
		}
		c.used = usedAt(now)
		s.noteDemand(ref, c, l)
	}
	return y
}

// noteDemand records that this table was asked for a cell, and has what it counts replicated.
func (s *shard) noteDemand(ref uint32, c *cell, l *Limit) {
	if c.flags&(local|dirty) != local|dirty {
		s.localize(c)
		if !c.has(dirty) && l.scope != Alone {
			s.enlist(ref, c, false)
		}
	}
}

type step uint8

const (
	peek     step = iota // answer, and leave no trace
	askAgain             // answer for a layer that was asked before, and has recorded that
	ask                  // answer for one of several layers; a second decision charges it if all admit
	charge               // charge a layer, as all have admitted
	take                 // answer, and charge if admitted
)

func (how step) charges() bool { return how >= charge }

// decide answers a request and writes the decision to d, which is zero. before is the cost that earlier layers of the
// same request charge to the same cell. Without a cell, the key was never charged.
func (t *Table) decide(y layer, l *Limit, cost, before uint64, how step, d *Decision) {
	c := y.cell
	if c == nil {
		l.decideEmpty(cost, before, how.charges(), d)
		return
	}
	if cost == 0 {
		how = peek
	}
	held := t.answer(y, l, cost, before, how, d)
	switch {
	case d.Allowed && how.charges():
		t.noteUse(l, c, l.Largest()-d.Remaining+l.undercount(c))
	case !d.Allowed && l.countsRejected && how > askAgain:
		t.countDenied(y, l, cost, before, d)
	}
	if l.chargeable(cost) {
		t.noteVerdict(y, l, d.Allowed)
	}
	if d.Allowed && how.charges() && !held && c.mayBurst(l) {
		t.checkBurst(y, l, d.Remaining)
	}
}

// answer is decide without what follows from the decision. It reports whether the request was held back, which a floor
// may have admitted all the same.
func (t *Table) answer(y layer, l *Limit, cost, before uint64, how step, d *Decision) (held bool) {
	c := y.cell
	d.Rule, d.Window, d.Limit = l.meter.Rule, l.meter.Window, l.max
	held = c.hotKey != 0 && t.holdsBack(y, l, cost, before, how)
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
		d.deny(peerRateLasts)
	}
	if !d.Allowed && t.implausibleAt.Load() != 0 {
		t.keepFloor(y, l, cost, before, how, d)
	}
	return held
}

// noteUse records how much of a limit an admitted key has used, if that is much.
func (t *Table) noteUse(l *Limit, c *cell, used uint64) {
	if used > l.Far() {
		raise(&t.meters.states[c.meter].used, used)
	}
}

// noteVerdict records whether the cell's last request was denied.
func (t *Table) noteVerdict(y layer, l *Limit, allowed bool) {
	if allowed {
		y.cell.lower(denied)
	} else {
		t.noteDenial(y, l)
	}
}

// noteDenial records that the cell's last request was denied.
func (t *Table) noteDenial(y layer, l *Limit) {
	if c := y.cell; c.slots != 0 && !c.has(denied|judged) {
		t.judge(y, l)
	}
	y.cell.raise(denied)
}

// undercount is the most by which the table's view may lag the counts that it received. For a bucket it is the refill
// of the time by which the backdated run begins earlier, for a log the count of others in the sub-window that leaves.
func (l *Limit) undercount(c *cell) uint64 {
	switch {
	case l.algorithm <= FixedWindow:
		return 0
	case l.algorithm == SlidingLog:
		return c.others(&l.shape)[0]
	}
	return l.backdateCost
}

// decideEmpty answers a request of a key without a cell: nothing of the limit is used. A request that was to be charged
// (commit) found no room for a cell and is denied: no key is admitted untracked.
func (l *Limit) decideEmpty(cost, before uint64, commit bool, d *Decision) {
	asked := max(cost, 1)
	d.Rule, d.Window, d.Limit = l.meter.Rule, l.meter.Window, l.max
	switch {
	case commit && l.chargeable(cost):
		l.refuse(d)
	case asked <= l.max && asked+before <= l.max:
		d.Allowed, d.Remaining = true, l.max-before
		if l.algorithm == LeakyQueue && before > 0 {
			d.Delay = l.wait(l.rate.Span(before), instant{})
		}
	default:
		d.Remaining, d.RetryAfter = l.max-min(before, l.max), Never
	}
}

// refuse denies because there is no room for a cell.
func (l *Limit) refuse(d *Decision) {
	*d = Decision{Rule: l.meter.Rule, Window: l.meter.Window, Limit: l.max, RetryAfter: l.meter.Sub}
}

// debitPending makes the limit known to merges, and debits from a bucket what came while none was known.
func (t *Table) debitPending(s *shard, l *Limit, c *cell, at instant) {
	if l.rate.Refill == 0 {
		return
	}
	known := l
	if l.class != nil { // keys of the meter have limits of their own
		known = l.class.limit
	}
	if m := t.meters.states[c.meter]; m.limit.Load() != known {
		m.limit.Store(known)
	}
	if c.has(pendingDebit) {
		l.fold(c, s.ahead(c), at)
	}
}

// view is viewUnder the limit that the meter is known by. If there is none, a sub-window that leaves counts in full.
func (s *shard) view(c *cell, m *meterState, at instant) uint64 {
	return s.viewUnder(m.limit.Load(), c, m, at)
}

// viewUnder is how much of a limit is used: the count of the window that ends at the instant, or the debt of a bucket
// whose limit is known. A ban in force weighs as much as any limit, and so does a lift that may still end bans.
func (s *shard) viewUnder(l *Limit, c *cell, m *meterState, at instant) uint64 {
	switch {
	case m.algorithm.timed():
		if c.ends(&m.shape) > c.index*m.sub+at.off-at.back {
			return MaxLimit
		}
		return 0
	case m.algorithm == SlidingLog:
		s.forget(c, &m.shape, at)
		return c.logView(&m.shape)
	case m.algorithm.bucket():
		if l := m.limit.Load(); l != nil && !c.has(pendingDebit) {
			return l.tokens(l.debt(c, m.notBefore(c.level(), at)))
		}
	}
	if l != nil {
		return l.windowView(c, at)
	}
	if m.algorithm == SlidingWindow {
		return c.inner + c.counts(&m.shape)[0]
	}
	return c.inner
}

// enlist inserts the cell into the list of cells to drain: after the last, or before the first to drain it early.
func (s *shard) enlist(ref uint32, c *cell, early bool) {
	c.raise(dirty)
	c.prev, c.next = s.dirty.last, 0
	if early {
		c.prev, c.next = 0, s.dirty.first
	}
	s.relink(c, ref, ref)
}

func (s *shard) delist(c *cell) {
	s.relink(c, c.next, c.prev)
	c.lower(dirty)
}

// relink makes the cell before c, or the head of the list, lead to next, and the cell after c, or its end, back to
// prev.
func (s *shard) relink(c *cell, next, prev uint32) {
	if c.prev != 0 {
		s.cell(c.prev).next = next
	} else {
		s.dirty.first = next
	}
	if c.next != 0 {
		s.cell(c.next).prev = prev
	} else {
		s.dirty.last = prev
	}
}
