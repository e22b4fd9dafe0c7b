package counters

// walk is how far somebody has gone through the cells of a shard. It goes through them in parts, and the shard is
// unlocked in between, so that no request waits for longer than a part takes.
//
// A part ends at a free entry of the index. A removal moves later entries of the index back, to close the gap, but none
// beyond a free entry that it was behind, not even when that is in use by then: no search for it begins there. So a
// walk misses no cell that is there all the time, and comes to none twice. It begins at a free entry for the same
// reason: the last cells of the index may lie at its beginning.
type walk struct {
	begun    bool
	at, left int // the next entry, and how many are left
}

// walkWork is after how many entries and slots of cells a part ends, at the next free entry.
const walkWork = 1024

// part calls f for the cells of the next part, until it is done with the shard. f returns by how many slots the cell is
// more work. The shard is locked, and f changes no entry of its index.
func (w *walk) part(s *shard, f func(ref uint32) (work int)) (done bool) {
	if !w.begun {
		for s.entries[w.at] != 0 {
			w.at++
		}
		w.begun, w.left = true, len(s.entries)
	}
	for work := 0; w.left > 0 && s.keys > 0; {
		e := s.entries[w.at]
		if e == 0 && work >= walkWork {
			return false
		}
		w.at, w.left = s.next(w.at), w.left-1
		if work++; e != 0 {
			work += f(s.ref(e))
		}
	}
	*w = walk{}
	return true
}

// eachLive calls f for every cell whose counts are sent, at the time now. f returns how many slots the cell has. One
// shard is locked at a time, for a part of a walk.
func (t *Table) eachLive(now int64, f func(s *shard, c *cell, m *meterState, at instant) int) {
	for i := range t.shards {
		var w walk
		for !t.livePart(&t.shards[i], &w, now, f) {
		}
	}
}

func (t *Table) livePart(
	s *shard, w *walk, now int64, f func(s *shard, c *cell, m *meterState, at instant) int,
) (done bool) {
	s.Lock()
	defer s.Unlock()
	return w.part(s, func(ref uint32) int {
		c := s.cell(ref)
		m := t.meters.state(c.number())
		if at, ok := s.settle(c, &m.shape, now); ok && m.scope != Alone {
			return f(s, c, m, at)
		}
		return 0
	})
}
