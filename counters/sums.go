package counters

// A table may hold a sum beside slots that are part of it: an owner was a member before, and the other way round. So
// the slot of a sum holds only what the sum counts beyond them, and the ring of a cell stays the plain sum of all
// slots:
//
//	held = max(sum, parts) - parts
//
// A part that rises takes its rise from what is held above it (absorb). The result does not depend on the order in
// which sums and parts come.
//
// The sum over a region is part of that over all other regions (Elsewhere). An origin whose place is unknown may be
// part of any sum, so it is taken for part of each that comes later: then a view is too low, never too high. It may not
// rise beside sums, as its rise would be taken from any of them: gossip keeps such slots away.

// covers reports whether what is counted at a place is part of the sum p.
func (p Place) covers(part Place) bool {
	switch {
	case !p.isSum():
		return false
	case part.isSum():
		return p == Elsewhere && part.isRegion()
	}
	return part == unplaced || p == part.Sum() || p == Elsewhere && part.isFar()
}

// placeOf is the place of the origin with a number.
func (s *shard) placeOf(origin uint16) Place { return Place(s.origins.state(origin).place.Load()) }

// covered is the count of the slots of an age that are part of a sum.
func (s *shard) covered(c *cell, age uint64, sum Place) (count uint64) {
	for ref := c.slots; ref != 0; {
		r := s.remote(ref)
		switch a := r.age(c); {
		case a > age:
			return count
		case a == age && sum.covers(s.placeOf(r.origin())):
			count += r.count()
		}
		ref = r.next
	}
	return count
}

// absorb takes a rise of a part from what sums hold beyond their parts, and returns what is left of it. Elsewhere comes
// last: what a region's sum absorbs does not rise elsewhere.
func (s *shard) absorb(c *cell, age uint64, part Place, rise uint64) uint64 {
	for _, last := range [...]bool{false, true} {
		for ref := c.slots; ref != 0 && rise > 0; {
			r := s.remote(ref)
			a := r.age(c)
			if a > age {
				break
			}
			if place := s.placeOf(r.origin()); a == age && place.covers(part) && (place == Elsewhere) == last {
				by := min(rise, r.count())
				r.lower(by)
				rise -= by
			}
			ref = r.next
		}
	}
	return rise
}
