package counters

import "unsafe"

// cell is the head of what a table keeps of one meter and key. In the same block follow the words of its algorithm, if
// any, and its ring: the counts of all origins together, by sub-window, from the oldest that overlaps the window to the
// current one. The counts of other origins lie apart, in a list of slots, so that a key which only this table counts
// has none; the ring less those slots is this table's own count. Slots of the next sub-window, of a peer whose clock is
// ahead, enter the ring when that sub-window begins, so that no window is ever longer than it should be.
type cell struct {
	key        Key
	index      int64  // the sub-window of the cell's time, the last of the ring
	inner      uint64 // sum of the ring without its first place, which overlaps the window in part
	birth      uint32 //
	used       uint32 // when a request or a remote count last came, see usedAt
	slots      uint32 // the first remote slot: those of the newest sub-window come first
	offered    uint32 // cost asked for since the last drain, admitted or not
	next, prev uint32 // in the list of cells to drain
	hotKey     uint32 // what is known of the demand for the key, 0 for most
	meter      uint16 // its number
	changed    uint8  // how many sub-windows, up to index, may have changed since the last drain
	flags
}

// flags are states of a cell.
type flags uint8

const (
	dirty  flags = 1 << iota // in the list of cells to drain
	denied                   // the last decision was a denial: evicted last
	pinned                   // in use by the request or the merge that is under way: not evicted
	// another of its key may have been evicted before, and have known what peers send again
	recreated
	pendingDebit // a bucket that holds what is not debited yet, because no limit was known
	flushEarly   // in the list of cells to drain early
	local        // this table was asked for its key: it is not only peers that count in it
	judged       // a denial was looked at in the sub-window of now: see judge
)

func (f *flags) has(one flags) bool { return *f&one != 0 }
func (f *flags) raise(one flags)    { *f |= one }
func (f *flags) lower(one flags)    { *f &^= one }

func (f *flags) put(one flags, up bool) {
	*f &^= one
	if up {
		*f |= one
	}
}

const headWords = int(unsafe.Sizeof(cell{}) / wordBytes)

// usedAt is a time as cells note it: 67 ms is fine enough to tell which is idle for longer, and 32 bits last for nine
// years.
func usedAt(now int64) uint32 { return uint32(now >> 26) }

// words are n words of the cell's block, from the one at.
func (c *cell) words(at, n int) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Add(unsafe.Pointer(c), at*wordBytes)), n)
}

func (c *cell) counts(sh *shape) []uint64 { return c.words(sh.ring, sh.size()) }

// instant is the time of a decision, as its cell sees it.
type instant struct {
	off  int64 // into the sub-window of the cell's time
	back int64 // by how much the clock is behind the cell's time: what a wait is longer by
}

// settle brings the cell to the time now. Where the clock went back to an earlier sub-window, the cell stays where it
// was; where it went back by more than the window, what the cell holds belongs to no time that will come soon, and the
// caller replaces it (ok is false).
func (s *shard) settle(c *cell, sh *shape, now int64) (at instant, ok bool) {
	if off := now - c.index*sh.sub; uint64(off) < uint64(sh.sub) {
		return instant{off: off}, true
	}
	return s.settleFar(c, sh, now)
}

// settleFar settles a cell whose sub-window is not that of now.
func (s *shard) settleFar(c *cell, sh *shape, now int64) (at instant, ok bool) {
	index := now / sh.sub
	if index < c.index {
		return instant{back: c.index*sh.sub - now}, c.index-index <= int64(sh.n)
	}
	s.advance(c, sh, index)
	return instant{off: now - index*sh.sub}, true
}

// advance brings the cell to a later sub-window, and lets go what falls out of the window.
func (s *shard) advance(c *cell, sh *shape, index int64) {
	by := index - c.index
	s.dropSlots(c, sh, by)
	c.index = index
	c.lower(judged)
	ring := c.counts(sh)
	shift(ring, by)
	if c.changed > 0 {
		c.changed = uint8(min(int64(c.changed)+by, int64(sh.n+1)))
	}
	switch {
	case sh.algorithm.bucket():
		c.level().elapse(sh, by)
	case sh.algorithm == SlidingLog:
		shift(c.others(sh), by)
	}
	if c.slots != 0 {
		s.seeAhead(c, sh, by)
	}
	c.inner = 0
	for _, n := range ring[1:] {
		c.inner += n
	}
}

// ahead is what others counted in the sub-window after the cell's time.
func (s *shard) ahead(c *cell) (sum uint64) {
	for ref := c.slots; ref != 0; {
		r := s.remote(ref)
		if r.age(c) != 0 {
			break
		}
		sum += r.count()
		ref = r.next
	}
	return sum
}

// seeAhead adds to the ring what others counted ahead of the cell's time before it moved on by so many sub-windows.
func (s *shard) seeAhead(c *cell, sh *shape, by int64) {
	for ref := c.slots; ref != 0; {
		r := s.remote(ref)
		if int64(r.age(c)) != by {
			return
		}
		i := sh.n + 1 - int(by)
		c.counts(sh)[i] += r.count()
		if sh.algorithm == SlidingLog {
			c.others(sh)[i] += r.count()
		}
		ref = r.next
	}
}

// shift moves a ring on by so many sub-windows.
func shift(ring []uint64, by int64) {
	if by >= int64(len(ring)) {
		clear(ring)
		return
	}
	kept := copy(ring, ring[by:])
	clear(ring[kept:])
}

// count adds an admitted cost to the sub-window of the cell's time, in its ring.
func (c *cell) count(ring []uint64, cost uint64) {
	ring[len(ring)-1] += cost
	c.inner += cost
	c.changed = max(c.changed, 1)
}

// lastCounted is when the newest sub-window in which something was counted ends: a cell that comes later needs no birth
// of its own.
func (c *cell) lastCounted(sh *shape) int64 {
	ring := c.counts(sh)
	for i := len(ring) - 1; i >= 0; i-- {
		if ring[i] != 0 {
			return (c.index + int64(i-sh.n) + 1) * sh.sub
		}
	}
	return 0
}

// empty reports whether nothing in the cell counts any more, or will. A bucket is, once it has been full for so long
// that no merge reaches back to before.
func (c *cell) empty(sh *shape) bool {
	return c.slots == 0 && isZero(c.counts(sh)) &&
		!(sh.algorithm.bucket() && max(c.level().run.tat, c.level().backdated.tat) > 0)
}

func isZero(ring []uint64) bool {
	for _, n := range ring {
		if n != 0 {
			return false
		}
	}
	return true
}
