package counters

// create makes a cell, and room for it: at the end of the budget another cell goes. It returns 0 where there are too many meters, or the
// shard holds nothing but what the same request needs.
func (t *Table) create(s *shard, meter uint64, m *Meter, key Key, h uint64, local bool, now int64) uint32 {
	state := t.meters.bear(meter, m, local)
	if state == nil {
		return 0
	}
	for s.keys >= s.most && t.evict(s, now) != 0 {
	}
	ref := t.alloc(s, state.words, nil, now)
	if ref == 0 {
		state.release()
		return 0
	}
	c := s.cell(ref)
	if now < s.gone {
		c.raise(reborn)
		s.births++
	}
	c.key, c.index, c.birth, c.meter, c.used = key, now/state.sub, s.births, state.number, usedAt(now)
	s.add(ref, h)
	return ref
}

// alloc returns a block of so many words, 0 if even eviction can make no room for it. The cell that it is for stays.
func (t *Table) alloc(s *shard, words int, c *cell, now int64) uint32 {
	if !s.has(words) {
		was := c != nil && c.has(pinned)
		if c != nil {
			c.raise(pinned)
		}
		t.makeRoom(s, words, now)
		if c != nil {
			c.put(pinned, was)
		}
	}
	return s.memory.alloc(words)
}

// evictionTries is how many cells go, one at a time, before a whole page does to become one of blocks of another size.
const evictionTries = 8

// makeRoom evicts cells until there is a block of the size, or nothing is left to evict.
func (t *Table) makeRoom(s *shard, words int, now int64) {
	for tries := 1; !s.has(words); tries++ {
		p := t.evict(s, now)
		if p == 0 {
			return
		}
		if tries%evictionTries == 0 {
			t.clearPage(s, p, now)
		}
	}
}

// evictionSample is how many cells are looked at to find the one that goes: enough that a busy one hardly ever does.
const evictionSample = 8

// evict removes one cell of the shard, and returns the page that it was on, 0 if there is none to remove. The cells after the hand are
// looked at, another handful at each call: an expired one goes at once, else an idle one, else the one that counts least; those whose
// last request was denied only if there are no others.
func (t *Table) evict(s *shard, now int64) uint32 {
	var victim uint32
	var worth standing
	for looked, steps := 0, 0; looked < evictionSample && steps < len(s.entries); steps++ {
		s.hand = s.next(s.hand)
		if s.entries[s.hand] == 0 {
			continue
		}
		ref := s.ref(s.entries[s.hand])
		c := s.cell(ref)
		if c.has(pinned) {
			continue
		}
		m := t.meters.states[c.meter]
		at, ok := s.settle(c, &m.shape, now)
		if !ok || c.empty(&m.shape) {
			t.stats.expired.Add(1)
			t.remove(s, ref, c)
			return ref >> pageBits
		}
		looked++
		if w := s.standing(c, m, at, now); victim == 0 || w.below(worth) {
			victim, worth = ref, w
		}
	}
	if victim == 0 {
		return 0
	}
	t.forgo(s, victim, worth)
	return victim >> pageBits
}

// standing is what keeps a cell from being evicted, the weightiest first.
type standing struct {
	denied bool
	busy   bool // asked for or told of in the latter half of its window
	view   uint64
	used   uint32
}

func (s *shard) standing(c *cell, m *meterState, at instant, now int64) standing {
	idle := int32(usedAt(now)-c.used) > int32(usedAt(int64(m.Window)/2))
	view := s.view(c, m, at)
	if m.algorithm == Ban { // it is in force, or it is worth nothing
		return standing{c.has(denied) && view > 0, view > 0, view, c.used}
	}
	return standing{c.has(denied), !idle, view, c.used}
}

func (a standing) below(b standing) bool {
	switch {
	case a.denied != b.denied:
		return b.denied
	case a.busy != b.busy:
		return b.busy
	case a.view != b.view:
		return a.view < b.view
	}
	return int32(a.used-b.used) < 0
}

// forgo removes a cell that still counts.
func (t *Table) forgo(s *shard, ref uint32, w standing) {
	t.stats.evicted.Add(1)
	if w.denied {
		t.stats.evictedDenied.Add(1)
	}
	c := s.cell(ref)
	if t.meters.states[c.meter].algorithm != Ban {
		t.stats.forgotten.Add(w.view)
	}
	t.remove(s, ref, c)
}

// clearPage removes all cells of a page of cells.
func (t *Table) clearPage(s *shard, p uint32, now int64) {
	size := int(s.pages[p].size)
	for at := 0; at+size <= pageWords && s.pages[p].live > 0; at += size {
		ref := p<<pageBits | uint32(at)
		c := s.cell(ref)
		if c.meter == 0 || c.has(pinned) { // a free block has no meter, nor has a watch
			continue
		}
		m := t.meters.states[c.meter]
		if in, ok := s.settle(c, &m.shape, now); ok {
			t.forgo(s, ref, s.standing(c, m, in, now))
		} else {
			t.remove(s, ref, c)
		}
	}
}

// remove takes the cell out of the shard. What it counted and did not send yet still leaves with the next drain.
func (t *Table) remove(s *shard, ref uint32, c *cell) {
	m := t.meters.states[c.meter]
	if c.has(dirty) {
		if len(s.unsent) < s.mostUnsent {
			s.unsent = s.appendChanged(s.unsent, c, m, t.origin)
		}
		for most := m.offered.Load(); uint64(c.offered) > most && !m.offered.CompareAndSwap(most, uint64(c.offered)); {
			most = m.offered.Load()
		}
		s.delist(c)
	}
	s.dropSlots(c, &m.shape, int64(m.n+2))
	s.unwatch(c)
	s.calm(ref, c)
	if m.algorithm == SlidingLog {
		s.dropLog(c)
	}
	s.gone = max(s.gone, c.lastCounted(&m.shape))
	s.drop(ref, hash(t.seed, m.id, c.key), s.hashOf)
	s.memory.free(ref)
	m.release()
}

// hashOf is the hash under which a cell is found.
func (s *shard) hashOf(ref uint32) uint64 {
	c := s.cell(ref)
	return hash(s.seed, s.ids[c.meter], c.key)
}

// A drain sweeps so many places of the index, and so many under one lock: requests are let through in between.
const (
	expirySpan  = 1024
	expirySpans = 16
)

// expire removes expired cells, from where it ended the last time.
func (t *Table) expire(now int64) {
	for range expirySpans {
		s := &t.shards[t.sweep.shard]
		from := t.sweep.place
		t.sweep.place = min(from+expirySpan, len(s.entries))
		t.expireSpan(s, from, t.sweep.place, now)
		if t.sweep.place == len(s.entries) {
			t.sweep.place, t.sweep.shard = 0, (t.sweep.shard+1)%shards
		}
	}
}

func (t *Table) expireSpan(s *shard, from, to int, now int64) {
	s.Lock()
	defer s.Unlock()
	for i := from; i < to && s.keys > 0; {
		if s.entries[i] == 0 {
			i++
			continue
		}
		ref := s.ref(s.entries[i])
		c := s.cell(ref)
		m := t.meters.states[c.meter]
		if _, ok := s.settle(c, &m.shape, now); ok && !c.empty(&m.shape) {
			i++
			continue
		}
		t.stats.expired.Add(1)
		t.remove(s, ref, c) // another may have moved into its place
	}
}
