package counters

import (
	"cmp"
	"slices"
)

// Snapshot returns every slot that still counts, of all origins: what a newcomer needs. It holds at most limit slots;
// beyond that, the keys that count most come first and the others are left out.
func (t *Table) Snapshot(now int64, limit int) []Slot {
	var cells []heat
	total := 0
	t.eachLive(now, func(s *shard, c *cell, m *meterState, at instant) {
		if n := s.countSlots(c, m); n > 0 {
			cells = append(cells, heat{m, c.key, s.view(c, m, at), n})
			total += n
		}
	})
	if total > limit {
		slices.SortStableFunc(cells, func(a, b heat) int { return cmp.Compare(b.view, a.view) })
	}
	kept := make([]Slot, 0, max(0, min(total, limit)))
	for _, h := range cells {
		if len(kept)+h.slots > limit {
			break
		}
		kept = t.appendAll(kept, h, now)
	}
	return kept
}

// heat is how much a cell counts, and in how many slots.
type heat struct {
	meter *meterState
	key   Key
	view  uint64
	slots int
}

// appendAll appends all slots of a cell that still count, unless it has gone meanwhile.
func (t *Table) appendAll(dst []Slot, h heat, now int64) []Slot {
	hashed := hash(t.seed, h.meter.id, h.key)
	s := t.shardOf(hashed)
	s.Lock()
	defer s.Unlock()
	ref := s.find(h.meter.id, h.key, hashed)
	if ref == 0 {
		return dst
	}
	c := s.cell(ref)
	if _, ok := s.settle(c, &h.meter.shape, now); !ok {
		return dst
	}
	dst = s.appendOwn(dst, c, h.meter, t.origin, h.meter.size())
	for ref := c.slots; ref != 0; {
		r := s.remote(ref)
		dst = append(dst, Slot{Meter: &h.meter.Meter, Key: c.key, Index: c.index + 1 - int64(r.age(c)),
			Origin: Origin(t.origins.ids[r.origin()]), Birth: r.birth, Count: r.count()})
		ref = r.next
	}
	return dst
}

// Own returns every slot of the table's own origin that still counts.
func (t *Table) Own(now int64) []Slot {
	var own []Slot
	t.eachLive(now, func(s *shard, c *cell, m *meterState, _ instant) {
		own = s.appendOwn(own, c, m, t.origin, m.size())
	})
	return own
}

// eachLive calls f for every cell whose counts may be sent, brought to now; it locks one shard at a time.
func (t *Table) eachLive(now int64, f func(s *shard, c *cell, m *meterState, at instant)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		for i, left := 0, s.keys; left > 0; i++ {
			e := s.entries[i]
			if e == 0 {
				continue
			}
			left--
			c := s.cell(s.ref(e))
			m := t.meters.states[c.meter]
			if at, ok := s.settle(c, &m.shape, now); ok && m.scope != Alone {
				f(s, c, m, at)
			}
		}
		s.Unlock()
	}
}

// countSlots is how many slots the cell holds, of all origins.
func (s *shard) countSlots(c *cell, m *meterState) (n int) {
	ring, rest := c.counts(&m.shape), c.slots
	for i := len(ring) - 1; i >= 0; i-- {
		var own uint64
		if own, rest = s.ownAt(c, ring, i, rest); own != 0 {
			n++
		}
	}
	for ref := c.slots; ref != 0; ref = s.remote(ref).next {
		n++
	}
	return n
}

// ownAt is what remains of a place of the ring without what others sent: this table's own count. The places are to be
// asked for from the newest on, each with the rest of the slots that the one before left.
func (s *shard) ownAt(c *cell, ring []uint64, i int, slots uint32) (own uint64, rest uint32) {
	own = ring[i]
	for slots != 0 {
		r := s.remote(slots)
		age := int(r.age(c))
		if age > len(ring)-i {
			break
		}
		if age == len(ring)-i {
			own -= r.count()
		}
		slots = r.next
	}
	return own, slots
}

// appendOwn appends the own slots of the newest n places of the ring that hold a count.
func (s *shard) appendOwn(dst []Slot, c *cell, m *meterState, origin Origin, n int) []Slot {
	ring, rest := c.counts(&m.shape), c.slots
	for i := len(ring) - 1; i >= len(ring)-n; i-- {
		var own uint64
		if own, rest = s.ownAt(c, ring, i, rest); own != 0 {
			dst = append(
				dst,
				Slot{
					Meter: &m.Meter, Key: c.key, Index: c.index + int64(i-m.n), Origin: origin, Birth: c.birth,
					Count: own,
				},
			)
		}
	}
	return dst
}

// appendChanged appends the own slots that rose since the last drain.
func (s *shard) appendChanged(dst []Slot, c *cell, m *meterState, origin Origin) []Slot {
	if c.changed == 0 {
		return dst
	}
	return s.appendOwn(dst, c, m, origin, int(c.changed))
}
