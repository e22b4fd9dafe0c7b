package counters

import (
	"cmp"
	"slices"
)

// Snapshot returns all slots that still count, of all origins, for a new peer. It holds at most limit slots: keys with
// the highest counts come first, and the rest is left out.
func (t *Table) Snapshot(now int64, limit int) []Slot {
	var cells []heat
	total := 0
	t.eachLive(now, func(s *shard, c *cell, m *meterState, at instant) int {
		n := s.countSlots(c, m)
		if n > 0 {
			cells = append(cells, heat{m, c.key, s.view(c, m, at), n})
			total += n
		}
		return n
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

// heat is the count of a cell, and its number of slots.
type heat struct {
	meter *meterState
	key   Key
	view  uint64
	slots int
}

// appendAll appends all slots of a cell, unless it is gone by now.
func (t *Table) appendAll(dst []Slot, heat heat, now int64) []Slot {
	m := heat.meter
	h, s := t.locate(m.id, heat.key)
	s.Lock()
	defer s.Unlock()
	ref, _, ok := s.live(name{&m.spec, heat.key, h}, now)
	if !ok {
		return dst
	}
	return t.appendSlots(dst, s, s.cell(ref), m, false)
}

// Slots returns what every origin has counted of one key in the sub-windows that still count, also of scope Alone.
func (t *Table) Slots(l *Limit, key Key, now int64) []Slot {
	h, s := t.locate(l.id, key)
	s.Lock()
	defer s.Unlock()
	ref, _, ok := s.live(name{&l.spec, key, h}, now)
	if !ok {
		return nil
	}
	c := s.cell(ref)
	return t.appendSlots(nil, s, c, t.meters.state(c.number()), true)
}

// appendSlots appends all slots of a live cell, whose shard is locked: with sums, what others added up as well.
func (t *Table) appendSlots(dst []Slot, s *shard, c *cell, m *meterState, sums bool) []Slot {
	dst = s.appendOwn(dst, c, m, t.origin, m.size())
	x := outgoing{s: s, c: c, m: m}
	for ref := c.slots; ref != 0; {
		r := s.remote(ref)
		slot := t.remoteSlot(&x, r)
		slot.Place = s.placeOf(r.origin())
		if slot.Place.isSum() {
			slot.Count += s.covered(c, r.age(c), slot.Place)
		}
		if sums || !slot.Place.isSum() {
			dst = append(dst, slot)
		}
		ref = r.next
	}
	return dst
}

// Own returns all slots of the table's own origin that still count.
func (t *Table) Own(now int64) []Slot {
	var own []Slot
	t.eachLive(now, func(s *shard, c *cell, m *meterState, _ instant) int {
		before := len(own)
		own = s.appendOwn(own, c, m, t.origin, m.size())
		return s.remotesOf(c) + len(own) - before
	})
	return own
}

func (s *shard) countSlots(c *cell, m *meterState) (n int) {
	var room [maxSubWindows + 1]uint64
	for _, count := range s.own(room[:0], c, &m.shape, m.size()) {
		if count != 0 {
			n++
		}
	}
	return n + s.remotesOf(c)
}

// remotesOf is how many slots of other origins a cell has.
func (s *shard) remotesOf(c *cell) (n int) {
	for ref := c.slots; ref != 0; ref = s.remote(ref).next {
		n++
	}
	return n
}

// appendOwn appends the own slots in the newest n places of the ring, the newest first.
func (s *shard) appendOwn(dst []Slot, c *cell, m *meterState, origin Origin, n int) []Slot {
	var room [maxSubWindows + 1]uint64
	for i, own := range slices.Backward(s.own(room[:0], c, &m.shape, n)) {
		if own != 0 {
			dst = append(dst, Slot{Meter: &m.meter, Key: c.key, Index: c.index + int64(i-n+1), Origin: origin,
				Birth: c.birth, Count: own})
		}
	}
	return dst
}

func (s *shard) appendChanged(dst []Slot, c *cell, m *meterState, origin Origin) []Slot {
	if c.changed() == 0 {
		return dst
	}
	return s.appendOwn(dst, c, m, origin, c.changed())
}
