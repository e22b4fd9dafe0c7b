package counters

// A page holds blocks of one size. Where blocks of another size are needed, a whole page has to be emptied: cells are
// evicted, those first that count least, until there are as many free blocks on other pages as one page has cells left;
// then these move there. So nothing goes but what is worth least.

// patience is how many cells go, one at a time, before all of a page do: the cells that went were of many sizes, or on
// pages that cannot be emptied.
const patience = 128

// makeRoom evicts cells until there is a block of the size, or nothing is left to evict.
func (t *Table) makeRoom(s *shard, words int, now int64) {
	var page uint32 // of the last few that cells went from, the one with the fewest cells of keys over their limit
	fewest := pageWords
	for tries := 1; !s.has(words); tries++ {
		p := t.evict(s, now)
		if p == 0 {
			return
		}
		if s.has(words) {
			return
		}
		if s.relocate(p) {
			continue
		}
		if n := s.deniedOn(p); n < fewest {
			page, fewest = p, n
		}
		if tries%patience == 0 {
			t.clearPage(s, page, now)
			fewest = pageWords
		}
	}
}

// eachOn calls f for the cells on a page.
func (s *shard) eachOn(p uint32, f func(ref uint32, c *cell)) {
	size := int(s.pages[p].size)
	for at := 0; at+size <= pageWords && s.pages[p].live > 0; at += size {
		ref := p<<pageBits | uint32(at)
		if c := s.cell(ref); c.meter != 0 { // a free block has no meter, nor has hot-key state
			f(ref, c)
		}
	}
}

// deniedOn is how many cells of a page are of keys whose last request was denied.
func (s *shard) deniedOn(p uint32) (n int) {
	s.eachOn(p, func(_ uint32, c *cell) {
		if c.has(denied) {
			n++
		}
	})
	return n
}

// relocate empties a page by moving its cells to free blocks of other pages. It reports whether it did: there have to
// be so many, and nothing on the page but cells that nobody works on.
func (s *shard) relocate(p uint32) bool {
	pg := &s.pages[p]
	if pg.live == 0 || !s.roomBeside(p, int(pg.live)) {
		return false
	}
	var refs [pageWords / headWords]uint32
	n := 0
	s.eachOn(p, func(ref uint32, c *cell) {
		if !c.has(pinned) {
			refs[n] = ref
			n++
		}
	})
	if n != int(pg.live) {
		return false
	}
	size, free := int(pg.size), pg.free
	if free != 0 { // as if it were full, so that no cell moves to where it was
		pg.free = 0
		s.unlink(p, &s.memory.open[size])
	}
	for _, ref := range refs[:n] {
		s.move(ref, s.memory.alloc(size), size)
	}
	if free != 0 {
		pg.free = free
		s.link(p, &s.memory.open[size])
	}
	for _, ref := range refs[:n] {
		s.memory.free(ref)
	}
	return true
}

// roomBeside reports whether other pages of blocks of the page's size have so many free.
func (s *shard) roomBeside(p uint32, blocks int) bool {
	size := int(s.pages[p].size)
	for q := s.memory.open[size]; q != 0 && blocks > 0; q = s.pages[q].next {
		if q != p {
			blocks -= pageWords/size - int(s.pages[q].live)
		}
	}
	return blocks <= 0
}

// move copies a cell to another block, and has all that refers to it refer to that.
func (s *shard) move(from, to uint32, size int) {
	c := s.cell(from)
	copy(s.block(to, size), s.block(from, size))
	s.rename(from, to, s.hashOf(from))
	if c.has(dirty) {
		if c.prev != 0 {
			s.cell(c.prev).next = to
		} else {
			s.dirty.first = to
		}
		if c.next != 0 {
			s.cell(c.next).prev = to
		} else {
			s.dirty.last = to
		}
	}
	if c.has(flushEarly) {
		for i, ref := range s.early {
			if ref == from {
				s.early[i] = to
			}
		}
	}
}

// clearPage removes all cells of a page of cells.
func (t *Table) clearPage(s *shard, p uint32, now int64) {
	s.eachOn(p, func(ref uint32, c *cell) {
		if c.has(pinned) {
			return
		}
		m := t.meters.states[c.meter]
		if in, ok := s.settle(c, &m.shape, now); ok {
			t.evictCell(s, ref, s.standing(c, m, in, now))
		} else {
			t.remove(s, ref, c)
		}
	})
}
