package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// What others count. A decision does not look at it: a head counts what all have counted, and what this table counted
// is the rest. A key has nothing but its head until somebody else counts it, then a line of four slots, and beyond
// those blocks, with lines of sums beside them.

// others is what others counted in a sub-window that is in the ring, or the next one.
func (t *Table) others(s *rows.Shard, h uint64, c *head, sub int64) (sum uint64) {
	if c.has(slotsForm) {
		name := slotsName(c)
		if l := s.Find(rows.Sub(h, name), c.key, name); l != nil {
			for _, sl := range &slotsOf(l).slots {
				if sl.origin != 0 && sl.sub == uint8(sub) {
					sum += uint64(sl.count)
				}
			}
		}
		return sum
	}
	if c.has(blocksForm) {
		name := longName(c, sumsKind, sub)
		if l := s.Find(rows.Sub(h, name), c.key, name); l != nil {
			return longsOf(l).get(sub)
		}
	}
	return 0
}

// prune frees the slots that have left the ring. So the low bits of a sub-window tell those that are left apart.
func (t *Table) prune(s *rows.Shard, h uint64, c *head, m *Meter) {
	name := slotsName(c)
	l := s.Find(rows.Sub(h, name), c.key, name)
	if l == nil {
		c.lower(slotsForm)
		return
	}
	for i := range &slotsOf(l).slots {
		if sl := &slotsOf(l).slots[i]; int(uint8(c.sub()+1)-sl.sub) > m.N+1 {
			*sl = slot{}
		}
	}
}

// raising is one slot of another origin on its way into the lines of a head.
type raising struct {
	*Table
	s *rows.Shard
	h uint64
	c *head
}

// to raises what an origin counted, since a birth, in a sub-window, and returns by how much; full if there is no room.
func (r *raising) to(origin uint16, birth uint32, sub int64, count uint64) (rise uint64, full bool) {
	if r.c.has(blocksForm) {
		return r.toBlock(origin, birth, sub, count)
	}
	name := slotsName(r.c)
	l := ensure(r.s, rows.Sub(r.h, name), r.c.key, name)
	if l == nil {
		return 0, true
	}
	if !r.c.has(slotsForm) { // a line may be left of before
		slotsOf(l).slots = [slotsPerLine]slot{}
		r.c.raise(slotsForm)
	}
	var free *slot
	for i := range &slotsOf(l).slots {
		switch sl := &slotsOf(l).slots[i]; {
		case sl.origin == 0:
			if free == nil {
				free = sl
			}
		case sl.origin == origin && sl.birth == birth && sl.sub == uint8(sub):
			free = sl
		default:
			continue
		}
		if free.origin != 0 {
			break
		}
	}
	if free == nil || count > 1<<32-1 {
		if !r.thicken(slotsOf(l), sub) {
			return 0, true
		}
		return r.toBlock(origin, birth, sub, count)
	}
	held := uint64(free.count)
	if count <= held {
		return 0, false
	}
	*free = slot{count: uint32(count), birth: birth, origin: origin, sub: uint8(sub)}
	return count - held, false
}

// thicken moves all slots of a key into blocks. at is a sub-window in the ring, or the next one.
func (r *raising) thicken(l *slots, at int64) bool {
	r.noteMoved(l, at)
	for _, sl := range &l.slots {
		if sl.origin == 0 {
			continue
		}
		sub := near(at, uint64(sl.sub), 8)
		if _, full := r.toBlock(sl.origin, sl.birth, sub, uint64(sl.count)); full {
			return false
		}
	}
	l.slots = [slotsPerLine]slot{} // the line goes with the next scan
	r.c.lower(slotsForm)
	r.c.raise(blocksForm)
	return true
}

// toBlock is to for a key with blocks.
func (r *raising) toBlock(origin uint16, birth uint32, sub int64, count uint64) (rise uint64, full bool) {
	name, i := shortName(r.c, origin, birth, sub)
	block := ensure(r.s, rows.Sub(r.h, name), r.c.key, name)
	long := longName(r.c, sumsKind, sub)
	sums := ensure(r.s, rows.Sub(r.h, long), r.c.key, long)
	if block == nil || sums == nil {
		return 0, true
	}
	held := shortsOf(block).get(i)
	var more *rows.Line
	if held >= moreBit || count >= moreBit {
		above := name + aboveKind
		if more = ensure(r.s, rows.Sub(r.h, above), r.c.key, above); more == nil {
			return 0, true
		}
		held = held&(moreBit-1) | shortsOf(more).get(i)<<shortBits
	}
	if count <= held {
		return 0, false
	}
	if more != nil {
		shortsOf(block).set(i, count&(moreBit-1)|moreBit)
		shortsOf(more).set(i, count>>shortBits)
	} else {
		shortsOf(block).set(i, count)
	}
	longsOf(sums).set(sub, longsOf(sums).get(sub)+count-held)
	return count - held, false
}
