package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// A decision is made in two steps: fits and rest compute it from what the head says, and write nothing. Then admit or
// owe write what is counted. Between them nothing else changes a head, so what was computed holds.

// layer is a key under a limit, in its shard, at the time of a decision.
type layer struct {
	s    *rows.Shard
	h    uint64
	l    *Limit
	key  uint64
	c    *head // nil: the key has none, and nothing of the limit is used
	off  int64 // nanoseconds into the head's newest sub-window
	back int64 // nanoseconds by which the clock is behind the head: waits are longer by it
	late int64 // of these, those that are in off: the busy period of a bucket begins so much later

	floored bool // a floor admitted the request
}

// layerOf returns a layer without its head.
func (t *Table) layerOf(l *Limit, key uint64) layer {
	h := t.store.Hash(l.ID, key)
	return layer{s: t.store.Shard(h), h: h, l: l, key: key}
}

// find finds the head of a layer, and moves it to a time. It finds none whose counts are of no use, as the clock
// stepped back by more than the window.
func (t *Table) find(y *layer, now int64) (found bool) {
	y.c, y.late = nil, 0
	line := y.s.Head(y.h, y.l.ID, y.key)
	if line == nil {
		return false
	}
	off, back, ok := t.settle(y.s, y.h, headOf(line), &y.l.Meter, now)
	if ok {
		y.c, y.off, y.back = headOf(line), off, back
	}
	return ok
}

// open finds the head of a layer for a decision, and records what the limit is asked for. If it is asked for something
// and makes is set, open makes a missing head, and there is none only if there is no room.
func (t *Table) open(y *layer, demand uint64, makes bool, now int64) (made bool) {
	made = t.ready(y.s, y.key, now)
	if !t.find(y, now) {
		if demand == 0 || !makes {
			return made
		}
		made = true
		t.makeHead(y, now)
	}
	if y.c == nil {
		return made
	}
	switch {
	case y.l.isBucket():
		t.meet(y)
	case y.l.isLog():
		made = t.forget(y) || made
	}
	if demand > 0 {
		t.localize(y.h, y.c)
		y.c.offer(y.s, demand)
		if y.c.has(hot) {
			y.noteRequest()
		}
	}
	return made
}

// makeHead makes the head of a layer, in place of a stale one if there is one. Other lines may move.
func (t *Table) makeHead(y *layer, now int64) {
	if stale := y.s.Head(y.h, y.l.ID, y.key); stale != nil {
		t.remove(y.s, y.h, headOf(stale))
	}
	y.c = t.create(y.s, y.h, &y.l.Meter, y.key, now)
	y.off, y.back, y.late = now%y.l.Sub, 0, 0
	if y.c != nil && y.l.maxUnsent > 0 {
		y.heat()
	}
}

// fits reports whether a cost has room, beside what the request charges to the head before. If so, wait is its delay,
// else how long until it has room. A peek is answered as a cost of 1.
func (t *Table) fits(y *layer, cost, before uint64, how step) (ok bool, wait int64) {
	ok, wait = t.hasRoom(y, cost, before)
	if y.c.has(hot) && t.holdsBack(y, cost, before, how) && ok {
		ok, wait = false, int64(peerRateLasts)
	}
	y.floored = !ok && t.implausible.some.Load() && t.isBelowFloor(y, cost, before)
	if y.floored {
		return true, 0
	}
	return ok, wait
}

// hasRoom is fits without floors, and whether or not the key is hot.
func (t *Table) hasRoom(y *layer, cost, before uint64) (ok bool, wait int64) {
	l := y.l
	cost = min(max(cost, 1), maxAsked)
	if l.isBucket() {
		return y.bucketFits(cost, before)
	}
	switch {
	case l.isLog():
		return t.logFits(y, cost, before)
	case cost > l.Max:
		return false, Never
	case y.seen()+before <= l.Max-cost:
		return true, 0
	case cost+before > l.Max:
		return false, Never
	}
	var r ring
	t.load(y.s, y.h, y.c, &l.Meter, &r)
	inner := y.c.newest() + y.c.sum()
	return false, l.window.Wait(r.counts[:l.N+1], inner, t.later(y), l.Max-cost-before, y.off) + y.back
}

// rest is what a head leaves of the limit, beside what the request charges to it before, and the time until nothing of
// the limit is used.
func (t *Table) rest(y *layer, before uint64) (left, reset int64) {
	if y.l.isBucket() {
		return y.bucketRest(before)
	}
	seen := t.seen(y)
	if left = int64(y.l.Max - min(seen+before, y.l.Max)); seen == 0 {
		return left, 0
	}
	return left, t.windowReset(y) + y.back
}

// windowReset is the time until nothing is seen of a window that counts something.
func (t *Table) windowReset(y *layer) int64 {
	c, l := y.c, y.l
	if l.isLog() {
		return t.logReset(y)
	}
	if c.has(ahead) {
		var r ring
		t.load(y.s, y.h, c, &l.Meter, &r)
		return l.window.Reset(r.counts[:l.N+1], c.newest()+c.sum(), t.later(y), y.off)
	}
	count, age := c.newest(), c.age()
	if age > 0 {
		count = t.placeOf(y.s, y.h, c, &l.Meter, age)
	}
	return l.reset(count, l.N-age, y.off)
}

// seen is the count of a window or a log.
func (t *Table) seen(y *layer) uint64 {
	if y.l.isLog() {
		return t.logSeen(y)
	}
	return y.seen()
}

// seen is the count of a window.
func (y *layer) seen() uint64 {
	return y.c.newest() + y.c.sum() + y.l.window.Part(y.c.leaving(), y.l.Sub-y.off)
}

// later is what others counted in the sub-window after the newest.
func (t *Table) later(y *layer) uint64 {
	if !y.c.has(ahead) {
		return 0
	}
	return t.others(y.s, y.h, y.c, y.c.sub()+1)
}

// used is how much of the limit is used: the count of a window, or the debt of a bucket.
func (t *Table) used(y *layer) uint64 {
	switch {
	case !y.l.isBucket():
		return t.seen(y)
	case y.l.rate.Refill > 0:
		return y.l.tokens(y.debt())
	}
	var r ring
	t.load(y.s, y.h, y.c, &y.l.Meter, &r)
	var sum uint64
	for _, count := range r.counts[1 : y.l.N+1] {
		sum += count
	}
	return sum
}

// admit counts an admitted cost. What a queue has freed is counted already.
func (y *layer) admit(cost uint64) {
	var take uint64
	if y.l.isBucket() {
		if cost, take = y.inherit(cost, y.l.span(cost)); cost == 0 {
			return
		}
	}
	y.count(cost, take)
}

// count adds a cost, which takes a time from a bucket, to the newest sub-window.
func (y *layer) count(cost, take uint64) {
	if y.c.offered() == 0 { // the demand was recorded before the last drain
		y.s.Mark(y.c.line())
	}
	y.c.setNewest(y.c.newest() + cost)
	if y.l.isBucket() {
		y.debit(take)
		y.c.send()
		return
	}
	if y.l.isLog() {
		y.enter(cost)
		y.c.setAge(0)
		y.c.send()
		return
	}
	y.c.counted()
}

// View returns how much of the limit is used now, as far as this table knows: the count of the window that ends now, or
// a bucket's debt.
func (t *Table) View(l *Limit, key uint64, now int64) uint64 {
	y := t.layerOf(l, key)
	y.s.Lock()
	defer y.s.Unlock()
	return t.view(&y, now)
}

// view is View with the shard locked.
func (t *Table) view(y *layer, now int64) uint64 {
	if t.open(y, 0, false, now); y.c == nil {
		return 0
	}
	return t.used(y)
}
