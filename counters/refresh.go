package counters

// Refresh has the next drains return again all that the table knows of the keys of some partitions, for somebody who is
// new. It goes through the table a part at a time, once for each partition and call: a call while others are not over
// returns nothing of their partitions again.
func (t *Table) Refresh(partitions PartitionSet) {
	t.drain.Lock()
	defer t.drain.Unlock()
	for p := range Partitions {
		if partitions.Has(p) {
			t.refresh.partitions.Add(p)
			t.refresh.left[p] = shards + 1 // the current shard comes again at the end
		}
	}
}

// Refreshed reports whether drains have returned all that Refresh asked for.
func (t *Table) Refreshed() bool {
	t.drain.Lock()
	defer t.drain.Unlock()
	return t.refresh.partitions == PartitionSet{}
}

// refresh is what Refresh has not gone through yet. Table.drain guards it.
type refresh struct {
	partitions PartitionSet
	left       [Partitions]uint8 // shards, of these partitions
	shard      int
	walk       walk // of the shard
}

// refreshParts is how many parts of a walk a drain goes through to refresh cells.
const refreshParts = 256

// refreshSome enlists cells that are to be sent again: those of so many parts of a walk.
func (t *Table) refreshSome(parts int) {
	r := &t.refresh
	for ; r.partitions != (PartitionSet{}) && parts > 0; parts-- {
		if !t.refreshPart(&t.shards[r.shard]) {
			continue
		}
		r.shard = (r.shard + 1) % shards
		for p := range Partitions {
			if !r.partitions.Has(p) {
				continue
			}
			if r.left[p]--; r.left[p] == 0 {
				r.partitions[p/64] &^= 1 << (p % 64)
			}
		}
	}
}

func (t *Table) refreshPart(s *shard) (done bool) {
	s.Lock()
	defer s.Unlock()
	return t.refresh.walk.part(s, func(ref uint32) int {
		c := s.cell(ref)
		if !t.refresh.partitions.Has(c.key.Partition()) || t.meters.state(c.number()).scope == Alone {
			return 0
		}
		return t.refreshCell(s, ref, c)
	})
}

// refreshCell enlists a cell as if all of it had just changed, and returns how many slots of others it has.
func (t *Table) refreshCell(s *shard, ref uint32, c *cell) (slots int) {
	c.setChanged(t.meters.state(c.number()).size())
	for ref := c.slots; ref != 0; {
		r := s.remote(ref)
		r.mark(raisedMark | freshMark)
		slots++
		ref = r.next
	}
	if !c.has(dirty) {
		s.enlist(ref, c, false)
	}
	return slots
}
