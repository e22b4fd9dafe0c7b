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
// change none of this, as it holds for any state of the shard. A removal by the scan itself moves lines back from
// places beyond, which it has not come to.
type Cursor struct{ next uint64 }

// Scan visits the lines of the next part of a scan: those at the next so many places, and on to a free one. It removes
// those for which visit returns true. It returns whether the scan is done; the cursor is at the beginning then. visit
// must not remove a line of the shard; one that it inserts is visited at most once.
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
func (s *Shard) leastHash(i int) uint64 { return (uint64(i)<<32 + s.homes - 1) / s.homes }

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

// ahead is how many lines a drain reads at once: a processor has about as many memory reads under way.
const ahead = 16

// Drain is Scan that visits only marked lines, and takes their marks away. A line that is marked while the drain goes
// on is visited at most once by it: it stays marked if it was visited before. visit must not remove a line of the
// shard.
func (s *Shard) Drain(c *Cursor, places int, visit func(l *Line)) (done bool) {
	from := s.home(c.next)
	to := min(from+places, s.last)
	for !s.at(to).free() {
		to++
	}
	var found [ahead]*Line
	n := 0
	for w := from / 64; w <= (to-1)/64; w++ {
		set := s.dirty[w] & (^uint64(0) << max(0, from-w*64)) // no place before from
		for ; set != 0; set &= set - 1 {
			i := w*64 + bits.TrailingZeros64(set)
			if i >= to {
				break
			}
			found[n] = s.at(i)
			if n++; n == ahead {
				s.visitMarked(found[:n], c.next, visit)
				n = 0
			}
		}
	}
	s.visitMarked(found[:n], c.next, visit)
	if to+1 >= int(s.homes) {
		*c = Cursor{}
		return true
	}
	c.next = s.leastHash(to + 1)
	return false
}

func (s *Shard) visitMarked(lines []*Line, next uint64, visit func(l *Line)) {
	var sum uint64
	for _, l := range lines { // nothing but reads: they overlap
		sum += l.Key
	}
	touched(sum)
	for _, l := range lines {
		if s.hashOf(l)&(1<<32-1) >= next {
			s.setMark(s.index(l), false)
			visit(l)
		}
	}
}

// touched keeps the compiler from leaving reads out.
//
//go:noinline
func touched(uint64) {}
