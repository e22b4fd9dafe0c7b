package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// drainPart is how many heads a drain reads before it unlocks a shard: some 20 to 100 ns each.
const drainPart = 256

// Drain appends what this table counted since the last drain: own slots that rose, with their complete counts. One
// drain at a time.
func (t *Table) Drain(dst []Slot, now int64) []Slot {
	for i := range t.store.Shards() {
		s := &t.store.Shards()[i]
		var cursor rows.Cursor
		for done := false; !done; {
			s.Lock()
			s.Grow()
			dst = append(dst, t.shards[i].unsent...)
			t.shards[i].unsent = t.shards[i].unsent[:0]
			t.dirty, done = s.Drain(&cursor, drainPart, t.dirty[:0])
			dst = t.drainLines(dst, s, t.dirty, now)
			s.Unlock()
		}
	}
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
	number, state := c.line().Meter(), c.state
	m := t.meter(number)
	off := now - c.sub()*m.Sub
	if state&uint64(six<<changedAt|slotsForm|blocksForm) == 1<<changedAt && uint64(off) < uint64(m.Sub) &&
		c.newest() > 0 {
		dst = append(dst, Slot{Key: c.key, Index: c.sub(), Count: c.newest(), Birth: c.birth(), Meter: number})
	} else {
		h := t.hashOf(c.line())
		if uint64(off) >= uint64(m.Sub) {
			t.settle(s, h, c, m, now)
		}
		dst = t.appendOwn(dst, s, h, c, m, c.changed())
	}
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
		if count -= t.others(s, h, c, sub); count != 0 {
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
			s.Grow()
			done = t.expire(s, &cursor, now)
			s.Unlock()
		}
	}
	t.store.UseHugePages()
}
