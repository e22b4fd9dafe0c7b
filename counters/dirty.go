package counters

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
