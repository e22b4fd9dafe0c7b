package counters

// A page holds blocks of one size. If blocks of another size are needed, a page has to become empty: the table evicts
// cells until the other pages of the same size have room for the rest of some page, and moves that rest there. So only
// the least important cells are lost.

// patience is the number of evictions after which a complete page is cleared: the evicted cells had many sizes, or lay
// on pages that cannot be emptied.
const patience = 128

// makeRoom evicts cells until there is a free block of the size, or nothing is left to evict.
func (t *Table) makeRoom(s *shard, words int, now int64) {
	var page uint32 // of the last evictions, the page with the fewest cells that were last denied
	fewest := pageWords
	for tries := 1; !s.has(words); tries++ {
		p := t.evict(s, now)
		if p == 0 || s.has(words) {
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

func (s *shard) eachOn(p uint32, f func(ref uint32, c *cell)) {
	size := int(s.pages[p].size)
	for at := 0; at+size <= pageWords && s.pages[p].live > 0; at += size {
		ref := p<<pageBits | uint32(at)
		if c := s.cell(ref); c.meter != 0 { // 0: a free block, or a hotKey
			f(ref, c)
		}
	}
}

func (s *shard) deniedOn(p uint32) (n int) {
	s.eachOn(p, func(_ uint32, c *cell) {
		if c.has(denied) {
			n++
		}
	})
	return n
}

// relocate empties a page by moving its cells to other pages, and reports whether it did. It does not if those have too
// little room, or if there is anything but unpinned cells on the page.
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
	if free != 0 { // take the page off the list, so that no cell moves to the same page
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

// roomBeside reports whether the other pages of the same block size have so many free blocks.
func (s *shard) roomBeside(p uint32, blocks int) bool {
	size := int(s.pages[p].size)
	for q := s.memory.open[size]; q != 0 && blocks > 0; q = s.pages[q].next {
		if q != p {
			blocks -= pageWords/size - int(s.pages[q].live)
		}
	}
	return blocks <= 0
}

// move copies a cell to another block and updates all references to it.
func (s *shard) move(from, to uint32, size int) {
	c := s.cell(from)
	copy(s.block(to, size), s.block(from, size))
	s.rename(from, to, s.hashOf(from))
	if c.has(dirty) {
		s.relink(c, to, to)
	}
}

func (t *Table) clearPage(s *shard, p uint32, now int64) {
	s.eachOn(p, func(ref uint32, c *cell) {
		if c.has(pinned) {
			return
		}
		m := t.meters.state(c.number())
		if at, ok := s.settle(c, &m.shape, now); ok {
			t.evictCell(s, ref, s.standing(c, m, at, now))
		} else {
			t.remove(s, ref, c)
		}
	})
}
