package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// What others count. A decision does not look at it: a head counts what all have counted, and what this table counted
// is the rest. A key has nothing but its head until somebody else counts it, then a line of four slots. If those do not
// do, up to four origins get a row each, and the line of slots says whose rows there are. Beyond, there are blocks,
// with lines of sums beside them.

// others is what others counted in a sub-window that is in the ring, or the next one.
func (t *Table) others(s *rows.Shard, h uint64, c *head, sub int64) (sum uint64) {
	if c.has(slotsForm) {
		name := slotsName(c)
		if l := s.Find(rows.Sub(h, name), c.key, name); l != nil {
			for _, sl := range &slotsOf(l).slots {
				switch {
				case sl.origin == 0:
				case c.has(rowsForm):
					sum += rowCount(s, h, c, &sl, sub)
				case sl.sub == uint8(sub):
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

// own is what this table counted in a sub-window, in which all counted so much: nothing where a count was lost, as
// there was no room for its line.
func (t *Table) own(s *rows.Shard, h uint64, c *head, sub int64, count uint64) uint64 {
	return count - min(count, t.others(s, h, c, sub))
}

// prune frees the slots that have left the ring, or whose rows have. So the low bits of a sub-window tell those that
// are left apart.
func (t *Table) prune(s *rows.Shard, h uint64, c *head, m *Meter) {
	name := slotsName(c)
	l := s.Find(rows.Sub(h, name), c.key, name)
	if l == nil {
		c.lower(slotsForm | rowsForm)
		return
	}
	left := false
	for i := range &slotsOf(l).slots {
		if sl := &slotsOf(l).slots[i]; int(uint8(c.sub()+1)-sl.sub) > m.N+1 {
			*sl = slot{}
		}
		left = left || slotsOf(l).slots[i].origin != 0
	}
	if !left {
		c.lower(slotsForm | rowsForm) // the lines go with the next scan
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
	want := slot{origin: origin, birth: shortBirth(birth), sub: uint8(sub)}
	if !r.c.has(rowsForm) {
		if sl := slotsOf(l).find(want, false); sl != nil && count <= 1<<32-1 {
			held := uint64(sl.count)
			if count <= held {
				return 0, false
			}
			*sl, sl.count = want, uint32(count)
			return count - held, false
		}
		if full = r.spread(slotsOf(l), want); full {
			return 0, true
		}
	}
	if r.c.has(rowsForm) {
		if sl := slotsOf(l).find(want, true); sl != nil {
			return r.toRow(sl, want, sub, count)
		}
		if full = r.thicken(slotsOf(l)); full {
			return 0, true
		}
	}
	return r.toBlock(origin, birth, sub, count)
}

// find returns the slot like another one, or the slot of the same row, or else a free one; nil if there is none.
func (l *slots) find(like slot, row bool) (free *slot) {
	for i := range &l.slots {
		switch sl := &l.slots[i]; {
		case sl.origin == 0:
			free = sl
		case sl.origin == like.origin && sl.birth == like.birth && (row || sl.sub == like.sub):
			return sl
		}
	}
	return free
}

// spread moves the slots of a key into rows, so that there is room for one more, or into blocks if they are of too many
// origins.
func (r *raising) spread(l *slots, more slot) (full bool) {
	few, all := slots{}, [slotsPerLine + 1]slot{slotsPerLine: more}
	copy(all[:], l.slots[:])
	for _, sl := range all {
		if sl.origin == 0 {
			continue
		}
		row := few.find(sl, true)
		if row == nil {
			return r.thicken(l)
		}
		row.note(sl)
	}
	var room [slotsPerLine]Slot
	for _, sl := range r.appendBeside(room[:0], l) {
		name, i := rowName(r.c, fewKind, sl.Origin, sl.Birth, sl.Index)
		if _, full = r.raise(name, i, sl.Count); full {
			return true
		}
	}
	r.noteMoved(l)
	l.slots = few.slots
	r.c.raise(rowsForm)
	return false
}

// note records in the slot of a row that the row counts in a sub-window.
func (sl *slot) note(of slot) {
	if sl.origin == 0 || int8(of.sub-sl.sub) > 0 {
		*sl = slot{origin: of.origin, birth: of.birth, sub: of.sub}
	}
}

// toRow is to for a key with rows, and the slot of a row or a free one.
func (r *raising) toRow(sl *slot, want slot, sub int64, count uint64) (rise uint64, full bool) {
	name, i := rowName(r.c, fewKind, want.origin, want.birth, sub)
	if rise, full = r.raise(name, i, count); rise > 0 {
		sl.note(want)
	}
	return rise, full
}

// rowCount is what a row counts in a sub-window, of a key with rows.
func rowCount(s *rows.Shard, h uint64, c *head, sl *slot, sub int64) uint64 {
	name, i := rowName(c, fewKind, sl.origin, sl.birth, sub)
	if l := s.Find(rows.Sub(h, name), c.key, name); l != nil {
		return countIn(s, h, l, i)
	}
	return 0
}

// appendBeside appends the slots of a key with slots or rows.
func (r *raising) appendBeside(dst []Slot, l *slots) []Slot {
	if !r.c.has(rowsForm) {
		return appendSlots(dst, r.c, l)
	}
	first := r.c.sub() - int64(r.meter(r.c.line().Meter()).N)
	for i := range &l.slots {
		for sub := first; l.slots[i].origin != 0 && sub <= r.c.sub()+1; sub++ {
			if count := rowCount(r.s, r.h, r.c, &l.slots[i], sub); count > 0 {
				dst = append(dst, slotOf(r.c, sub, l.slots[i].origin, l.slots[i].birth, count))
			}
		}
	}
	return dst
}

// thicken moves all slots of a key into blocks.
func (r *raising) thicken(l *slots) (full bool) {
	r.noteMoved(l)
	var room [slotsPerLine * (narrow + 2)]Slot
	for _, sl := range r.appendBeside(room[:0], l) {
		if _, full = r.toBlock(sl.Origin, sl.Birth, sl.Index, sl.Count); full {
			return true
		}
	}
	l.slots = [slotsPerLine]slot{} // the lines go with the next scan
	r.c.lower(slotsForm | rowsForm)
	r.c.raise(blocksForm)
	return false
}

// toBlock is to for a key with blocks.
func (r *raising) toBlock(origin uint16, birth uint32, sub int64, count uint64) (rise uint64, full bool) {
	name, i := shortName(r.c, origin, birth, sub)
	long := longName(r.c, sumsKind, sub)
	sums := ensure(r.s, rows.Sub(r.h, long), r.c.key, long)
	if sums == nil {
		return 0, true
	}
	rise, full = r.raise(name, i, count)
	longsOf(sums).set(sub, longsOf(sums).get(sub)+rise)
	return rise, full
}

// raise raises a count in a block or row.
func (r *raising) raise(name uint64, i int, count uint64) (rise uint64, full bool) {
	line := ensure(r.s, rows.Sub(r.h, name), r.c.key, name)
	if line == nil {
		return 0, true
	}
	held := shortsOf(line).get(i)
	if held < moreBit && count < moreBit {
		if count > held {
			shortsOf(line).set(i, count)
		}
		return count - min(held, count), false
	}
	above := name + aboveKind
	more := ensure(r.s, rows.Sub(r.h, above), r.c.key, above)
	if more == nil {
		return 0, true
	}
	held = held&(moreBit-1) | shortsOf(more).get(i)<<shortBits
	if count > held {
		shortsOf(line).set(i, count&(moreBit-1)|moreBit)
		shortsOf(more).set(i, count>>shortBits)
	}
	return count - min(held, count), false
}
