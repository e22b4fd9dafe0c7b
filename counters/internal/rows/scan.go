package rows

import "math/bits"

// Cursor is how far a scan of a shard has come. The zero value is the beginning.
//
// A scan visits the lines in the order of their hashes, roughly, a part at a time, and the shard may be unlocked
// between two parts. **It visits a line that is there all the time exactly once, and any other at most once**, however
// often it is removed and added again meanwhile.
//
// This is why. A line's hash never changes, wherever the line moves. Before each part, next is such that all lines with
// a hash below it were visited, if they were there, and no others were. A part ends at a free line. As there is no free
// line between a line's home and itself, all lines before the free one have their homes before it, and all lines after
// it have theirs after it. So next becomes the least hash whose home is after the free line. The next part begins at
// the home of next: no line with a hash of next or above lies before it. Up to the first free line there may be lines
// with hashes below, whose homes are before: it leaves them out. Insertions, removals and moves between two parts
// change none of this, as it holds for any state of the shard. A step of growth changes none of it either: the cursor
// is a hash, and homes ascend with hashes before the step and after it. A removal by the scan itself moves lines back
// from places beyond, which it has not come to.
type Cursor struct{ next uint64 }

// Scan visits the lines of the next part of a scan: those at the next so many places, and on to a free one. It removes
// those for which visit returns true. It returns whether the scan is done; the cursor is at the beginning then. visit
// must not remove a line of the shard, nor have it grow; a line that it inserts is visited at most once.
func (s *Shard) Scan(c *Cursor, places int, visit func(l *Line) (remove bool)) (done bool) {
	i := s.home(c.next)
	end, visited := i+places, c.next > 0
	for i < int(s.homes) || !s.at(i).free() {
		l := s.at(i)
		switch {
		case l.free():
			if i >= end && i+1 < int(s.homes) {
				c.next = s.leastHash(i + 1)
				return false
			}
			visited = false
			i++
		case visited && s.hashOf(l)&(1<<32-1) < c.next:
			i++
		case visit(l):
			s.removeAt(i) // another line may move here
		default:
			i++
		}
	}
	*c = Cursor{}
	return true
}

// leastHash is the least hash, of its low 32 bits, whose home is not before a place.
func (s *Shard) leastHash(i int) uint64 {
	if h := (uint64(i)<<33 + s.homes - 1) / s.homes; h < s.split {
		return h
	}
	return max(s.split, (uint64(i)<<32+s.homes-1)/s.homes)
}

// Mark marks a line: the next drain visits it.
func (s *Shard) Mark(l *Line) { s.setMark(s.index(l), true) }

// Marked reports whether a line is marked.
func (s *Shard) Marked(l *Line) bool { return s.marked(s.index(l)) }

func (s *Shard) marked(i int) bool { return s.dirty[i/64]>>(i%64)&1 != 0 }

func (s *Shard) setMark(i int, on bool) {
	s.dirty[i/64] &^= 1 << (i % 64)
	if on {
		s.dirty[i/64] |= 1 << (i % 64)
	}
}

// Drain is Scan of the marked lines: it appends those of the next part to dst, and takes their marks away. A part has
// so many lines, or some more; the places between them cost nothing. A line that is marked while the drain goes on
// is appended at most once by it: it stays marked if it was before. The lines are valid until one is removed, or the
// shard grows.
func (s *Shard) Drain(c *Cursor, part int, dst []*Line) (lines []*Line, done bool) {
	part += len(dst)
	at := s.home(c.next)
	for c.next > 0 && !s.at(at).free() { // some of these were visited
		if s.hashOf(s.at(at))&(1<<32-1) >= c.next {
			dst = s.takeMarked(at, dst)
		}
		at++
	}
	for at < s.last && len(dst) < part {
		w := at / 64
		set := s.dirty[w] >> (at % 64) << (at % 64)
		for s.dirty[w] ^= set; set != 0; set &= set - 1 {
			dst = append(dst, s.at(w*64+bits.TrailingZeros64(set)))
		}
		at = w*64 + 64
	}
	for at < s.last && !s.at(at).free() {
		dst = s.takeMarked(at, dst)
		at++
	}
	if at+1 >= int(s.homes) {
		*c = Cursor{}
		return dst, true
	}
	c.next = s.leastHash(at + 1)
	return dst, false
}

func (s *Shard) takeMarked(i int, dst []*Line) []*Line {
	if !s.marked(i) {
		return dst
	}
	s.setMark(i, false)
	return append(dst, s.at(i))
}
