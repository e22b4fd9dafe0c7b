package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// drainPlaces is how many places a drain goes through before it unlocks a shard: some 50 ns each if all are marked.
const drainPlaces = 512

// Drain appends what this table counted since the last drain: own slots that rose, with their complete counts.
func (t *Table) Drain(dst []Slot, now int64) []Slot {
	for i := range t.store.Shards() {
		s := &t.store.Shards()[i]
		var cursor rows.Cursor
		for done := false; !done; {
			s.Lock()
			dst = append(dst, t.shards[i].unsent...)
			t.shards[i].unsent = t.shards[i].unsent[:0]
			done = s.Drain(&cursor, drainPlaces, func(l *rows.Line) {
				c, m, h := headOf(l), t.meter(l.Meter()), t.hashOf(l)
				if off := now - c.sub()*m.Sub; uint64(off) >= uint64(m.Sub) {
					t.settle(s, h, c, m, now)
				}
				dst = t.appendOwn(dst, s, h, c, m, c.changed())
				c.setChanged(0)
				c.state &^= 1<<flagsAt - 1 // offered
			})
			s.Unlock()
		}
	}
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

// Expire removes what counts nothing any more, of all shards.
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
}
