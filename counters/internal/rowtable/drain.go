package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// drainPart is how many heads a drain reads before it unlocks a shard: some 20 to 100 ns each.
const drainPart = 256

// Drain appends what this table counted since the last drain: own slots that rose, with their complete counts. One
// drain at a time.
func (t *Table) Drain(dst []Slot, now int64) []Slot {
	t.beginDemands(now)
	t.refreshSome(refreshParts)
	for i := range t.store.Shards() {
		s := &t.store.Shards()[i]
		var cursor rows.Cursor
		for done := false; !done; {
			s.Lock()
			part := t.readyPart(s, drainPart, now)
			dst = append(dst, t.shards[i].unsent...)
			t.shards[i].unsent = t.shards[i].unsent[:0]
			t.dirty, done = s.Drain(&cursor, part, t.dirty[:0])
			dst = t.drainLines(dst, s, t.dirty, now)
			if done {
				t.shards[i].drainedAt = now
			}
			s.Unlock()
		}
	}
	t.endDemands()
	return dst
}

func (t *Table) drainLines(dst []Slot, s *rows.Shard, lines []*rows.Line, now int64) []Slot {
	for len(lines) > 0 {
		part := lines[:min(batch, len(lines))]
		lines = lines[len(part):]
		var sum uint64
		for _, l := range part { // nothing but reads: they overlap
			sum += l.Key
		}
		touched(sum)
		for _, l := range part {
			dst = t.drainHead(dst, s, headOf(l), now)
		}
	}
	return dst
}

// drainHead appends the own slots of a head that rose. Those of most have risen in the newest sub-window only, and
// nobody else counts them.
func (t *Table) drainHead(dst []Slot, s *rows.Shard, c *head, now int64) []Slot {
	state, first, st := c.state, len(dst), t.stateOf(c)
	m := &st.Meter
	y := layer{s: s, h: t.hashOf(c.line()), key: c.key, c: c, off: now - c.sub()*m.Sub}
	isNow := uint64(y.off) < uint64(m.Sub)
	switch {
	case m.Scope == Alone:
	case state&uint64(six<<changedAt|slotsForm|blocksForm|hot) == 1<<changedAt && isNow && c.newest() > 0:
		st.note(c.offered(), uint64(c.offered()))
		dst = append(dst,
			Slot{Key: c.key, Index: c.sub(), Count: c.newest(), Birth: c.birth(), Meter: c.line().Meter()})
	default:
		st.note(c.offered(), y.unsentCost())
		if !isNow {
			y.off, y.back, _ = t.settle(s, y.h, c, m, now)
		}
		dst = t.appendOwn(dst, s, y.h, c, m, c.changed())
	}
	if y.l = st.limit.Load(); y.l != nil && y.l.Max > 0 && t.keepers(m).peers > 0 {
		dst = t.drainDemand(dst, first, &y, now)
	}
	c.lower(flushEarly)
	c.state &^= six<<changedAt | 1<<flagsAt - 1 // changed, offered
	return dst
}

// appendOwn appends the own slots of the newest n sub-windows, the newest first.
func (t *Table) appendOwn(dst []Slot, s *rows.Shard, h uint64, c *head, m *Meter, n int) []Slot {
	for age := range n {
		sub, count := c.sub()-int64(age), c.newest()
		if age > 0 {
			count = t.placeOf(s, h, c, m, age)
		}
		if count = t.own(s, h, c, sub, count); count != 0 {
			dst = append(dst, Slot{Key: c.key, Index: sub, Count: count, Birth: c.birth(), Meter: c.line().Meter()})
		}
	}
	return dst
}

// Expire removes what counts nothing any more, of all shards. One goroutine at a time may call it.
func (t *Table) Expire(now int64) {
	for i := range t.store.Shards() {
		s := &t.store.Shards()[i]
		var cursor rows.Cursor
		for done := false; !done; {
			s.Lock()
			done = t.expire(s, &cursor, now)
			s.Unlock()
		}
	}
	t.store.UseHugePages()
}
