package counters

import "time"

// A decision is made in two steps. First fits and rest compute it from what the cell counts, and write nothing but what
// a hotKey estimates. Then admit (or owe, see overdraft.go) writes what is counted. Nothing else changes a cell between
// them, so what was computed holds.

// layer is a key under a limit, in its shard, at the time of a decision.
type layer struct {
	s       *shard
	l       *Limit
	key     Key
	h       uint64
	c       *cell // nil: the key has none, and nothing of the limit is used
	ref     uint32
	floored bool // the local floor admits the request, see plausibility.go
	late    bool // what is left is not in the decision yet, see request.rest
	instant
	busy   instant // the same, but not before the busy period of a bucket, see meet
	before uint64  // what the request charges to the cell before, see request.before
	seen   uint64  // count of a window, or debt of a bucket: fits computes it, admit raises it, and rest reads it
}

// layerOf returns a layer without its cell.
func (t *Table) layerOf(l *Limit, key Key) layer {
	h := hash(t.seed, l.id, key)
	return layer{s: t.shardOf(h), l: l, key: key, h: h}
}

// find finds the cell of a layer, and moves it to the time now. It finds none whose counts are of no use, see settle.
func (y *layer) find(now int64) (found bool) {
	y.c = nil
	if y.ref = y.s.probe(y.s.home(y.h), y.l.id, y.key, y.h); y.ref == 0 {
		if y.ref = y.s.find(y.l.id, y.key, y.h); y.ref == 0 {
			return false
		}
	}
	c := y.s.cell(y.ref)
	if y.instant, found = y.s.settle(c, &y.l.shape, now); found {
		y.c = c
	}
	return found
}

// open finds the cell of a layer, moves it to the time now, and records what the limit is asked for. If it is asked for
// something and makes is set, open makes a missing cell; there is none then if there is no room for one.
func (t *Table) open(y *layer, demand uint64, makes bool, now int64) {
	s, l := y.s, y.l
	if !y.find(now) {
		if demand == 0 || !makes {
			return
		}
		if y.ref, y.instant = t.create(s, y.ref, name{&l.spec, y.key, y.h}, true, now); y.ref == 0 {
			return
		}
		y.c = s.cell(y.ref)
		if l.maxUnsent > 0 {
			t.ensureHotKey(s, y.c, now)
		}
	}
	switch {
	case l.algorithm == SlidingLog:
		s.forget(y.c, &l.shape, y.instant)
	case l.rate.Refill > 0:
		t.meet(y)
	}
	if demand > 0 {
		y.ask(demand, now)
	}
}

// demand is the cost that a request of a limit asks for: 0 if it is a peek or too large.
func (l *Limit) demand(cost uint64) uint64 {
	switch {
	case l.countsRejected:
		return min(cost, l.max)
	case cost > l.max && !l.tallies:
		return 0
	}
	return cost
}

// ask records that the limit is asked for a cost.
func (y *layer) ask(demand uint64, now int64) {
	c := y.c
	addTo(&c.offered, demand)
	if c.hotKey != 0 {
		if w := y.s.hotKey(c.hotKey); w.requests < 1<<8-1 {
			w.requests++
		}
	}
	c.used = usedAt(now)
	y.s.noteDemand(y.ref, c, y.l.scope)
}

// noteDemand records that this table was asked for a cell, and has what it counts replicated.
func (s *shard) noteDemand(ref uint32, c *cell, of Scope) {
	s.localize(c)
	if !c.has(dirty) && of != Alone {
		s.enlist(ref, c, false)
	}
}

// name is what a cell is found by: a meter and a key, and the hash of both.
type name struct {
	y   *spec
	key Key
	h   uint64
}

// live finds a cell and moves it to the time now. ok is false if there is no cell, or if the counts of the cell are of
// no use, see settle.
func (s *shard) live(of name, now int64) (ref uint32, at instant, ok bool) {
	if ref = s.find(of.y.id, of.key, of.h); ref != 0 {
		at, ok = s.settle(s.cell(ref), &of.y.shape, now)
	}
	return ref, at, ok
}

// reach is live that makes a cell if there is none. It returns 0 if there is no room for one.
func (t *Table) reach(s *shard, of name, local bool, now int64) (ref uint32, at instant) {
	ref, at, ok := s.live(of, now)
	if ok {
		s.cell(ref).used = usedAt(now)
		return ref, at
	}
	return t.create(s, ref, of, local, now)
}

// now is the time of a decision, or the start of the cell's sub-window if the clock is behind that.
func (y *layer) now() int64 { return y.c.index*y.l.sub + y.off }

// pin protects the cell from eviction, or no longer does.
func (y *layer) pin(on bool) {
	if y.c != nil {
		y.c.put(pinned, on)
	}
}

// fits reports whether a cost has room, beside what the request charges to the cell before. If so, wait is its delay,
// else how long until it has room. A cost of 0 is answered as 1.
func (t *Table) fits(y *layer, cost, before uint64, how step) (ok bool, wait time.Duration) {
	switch asked := max(cost, 1); {
	case y.c == nil:
		return y.l.unusedFits(asked, before)
	case y.l.algorithm.bucket():
		ok, wait = y.bucketFits(asked, before)
	default:
		ok, wait = y.countFits(asked, before)
	}
	if y.c.hotKey != 0 && t.holdsBack(y, cost, before, how) && ok {
		ok, wait = false, peerRateLasts
	}
	y.floored = !ok && t.implausibleAt.Load() != 0 && t.keepsFloor(y, cost, before)
	if y.floored {
		return true, 0
	}
	return ok, wait
}

// unusedFits is fits of a key without a cell.
func (l *Limit) unusedFits(asked, before uint64) (ok bool, wait time.Duration) {
	if asked > l.max || before > l.max-asked {
		return false, Never
	}
	if l.algorithm == LeakyQueue && before > 0 {
		wait = l.wait(l.rate.Span(before), 0)
	}
	return true, wait
}

// rest is what the cell leaves of the limit, beside what the request charges to it before, and how long until nothing
// of the limit is used.
func (y *layer) rest(before uint64) (left uint64, reset time.Duration) {
	switch {
	case y.c == nil:
		return y.l.max - min(before, y.l.max), 0
	case y.l.algorithm.bucket():
		return y.bucketRest(before)
	}
	return y.countRest(before)
}

// countFits is fits of a window or a log.
func (y *layer) countFits(asked, before uint64) (ok bool, wait time.Duration) {
	l := y.l
	if l.algorithm == SlidingLog {
		y.seen = y.c.logView(&l.shape)
	} else {
		y.seen = l.windowView(y.c, y.instant)
	}
	switch {
	case asked > l.max:
		return false, Never
	case y.seen+before <= l.max-asked:
		return true, 0
	case before > l.max-asked:
		return false, Never
	}
	return false, y.falls(l.max - asked - before)
}

// countRest is rest of a window or a log.
func (y *layer) countRest(before uint64) (left uint64, reset time.Duration) {
	if left = y.l.max - min(y.seen+before, y.l.max); y.seen == 0 {
		return left, 0
	}
	return left, y.falls(0)
}

// falls is the shortest wait until the count of a window or a log, which is above a limit, falls to it, if nothing is
// added. Others' counts in the sub-window after the cell's time are not in the count, but make waits longer.
func (y *layer) falls(limit uint64) time.Duration {
	l, c := y.l, y.c
	if l.algorithm == SlidingLog {
		return y.logFalls(limit)
	}
	ring, ahead := c.counts(&l.shape), y.s.ahead(c)
	if limit == 0 {
		return time.Duration(l.window.Reset(ring, c.inner, ahead, y.off) + y.back)
	}
	return time.Duration(l.window.Wait(ring, c.inner, ahead, limit, y.off) + y.back)
}

// used is how much of the limit is used: the count of a window, or the debt of a bucket.
func (t *Table) used(y *layer) uint64 {
	return y.s.viewUnder(y.l, y.c, t.meters.state(y.c.number()), y.instant)
}

// admit counts an admitted cost. What a queue has freed is counted already.
func (t *Table) admit(y *layer, cost uint64) {
	l, c := y.l, y.c
	switch {
	case l.algorithm == SlidingLog:
		c.count(c.counts(&l.shape), cost)
		t.log(y, cost)
		y.seen += cost
	case l.algorithm.bucket():
		y.debitInheriting(cost)
	default:
		c.count(c.counts(&l.shape), cost)
		y.seen += cost
	}
	if c.hotKey != 0 {
		t.spend(y, cost, true)
	}
}

// count counts a cost with room or not.
func (t *Table) count(y *layer, cost uint64) {
	l, c := y.l, y.c
	c.count(c.counts(&l.shape), cost)
	switch {
	case l.algorithm == SlidingLog:
		t.log(y, cost)
	case l.algorithm.bucket():
		y.debit(l.rate.Span(cost))
	}
	if c.hotKey != 0 {
		t.spend(y, cost, false)
	}
}
