package counters

// create makes a cell, and room for it: at the end of the budget another cell goes. It returns 0 where there are too
// many meters, or the shard holds nothing but what the same request needs.
func (t *Table) create(s *shard, meter uint64, m *Meter, key Key, h uint64, local bool, now int64) uint32 {
	state := t.meters.acquire(meter, m, local)
	if state == nil {
		return 0
	}
	if local && state.adHoc {
		state.charged.Store(true)
	}
	for s.keys >= s.maxKeys && t.evict(s, now) != 0 {
	}
	ref := t.alloc(s, state.words, nil, now)
	if ref == 0 {
		state.release()
		return 0
	}
	c := s.cell(ref)
	if now < s.gone {
		c.raise(recreated)
		s.births++
	}
	c.key, c.index, c.birth, c.meter, c.used = key, now/state.sub, s.births, state.number, usedAt(now)
	if s.remotes++; local {
		s.localize(c)
	}
	s.add(ref, h)
	return ref
}

// localize notes that this table is asked for the cell's key.
func (s *shard) localize(c *cell) {
	if !c.has(local) {
		c.raise(local)
		s.remotes--
	}
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

// What peers count of keys that nobody asks this table for takes up half of a shard's cells at most, so that no peer
// pushes out what is counted here: beyond that, such cells go first. Of those it is the turn of the origin that has
// largest of them among the cells looked at; origins that are no members count as one.
const remoteShare = 2

// evictionSample is how many cells are looked at to find the one that goes: enough that a busy one hardly ever does.
const evictionSample = 8

// candidate is a cell that may go.
type candidate struct {
	ref    uint32
	origin uint16 // of a cell that only peers counted in: of its newest slot
	remote bool
	worth  standing
}

// evict removes one cell of the shard, and returns the page that it was on, 0 if there is none to remove. The cells
// after the hand are looked at, another handful at each call: an expired one goes at once, else one of peers' where
// they have more than their share, else an idle one, else the one that counts least; those whose last request was
// denied only if there are no others.
func (t *Table) evict(s *shard, now int64) uint32 {
	var sample [evictionSample]candidate
	n, remotes, surplus := 0, 0, s.remotes > s.keys/remoteShare
	for steps := 0; (n < evictionSample || surplus && remotes == 0) && steps < len(s.entries); steps++ {
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
		if n == evictionSample { // a remote one is looked for
			n--
		}
		sample[n] = candidate{ref, 0, !c.has(local), s.standing(c, m, at, now)}
		if sample[n].remote {
			sample[n].origin = t.countedBy(s, c)
			remotes++
		}
		n++
	}
	if n == 0 {
		return 0
	}
	v := victim(sample[:n], surplus && remotes > 0)
	if v.remote {
		t.stats.evictedRemote.Add(1)
	}
	t.evictCell(s, v.ref, v.worth)
	return v.ref >> pageBits
}

// victim is the candidate that goes: with surplus set, one of the remote ones of the origin that has most of them.
func victim(sample []candidate, surplus bool) *candidate {
	var v *candidate
	largest := 0
	for i := range sample {
		a := &sample[i]
		if surplus {
			if !a.remote {
				continue
			}
			switch n := alike(sample, a.origin); {
			case n < largest:
				continue
			case n > largest:
				v, largest = nil, n
			}
		}
		if v == nil || a.worth.below(v.worth) {
			v = a
		}
	}
	return v
}

// alike is how many remote candidates are of the origin.
func alike(sample []candidate, origin uint16) (n int) {
	for i := range sample {
		if sample[i].remote && sample[i].origin == origin {
			n++
		}
	}
	return n
}

// countedBy is the number of the origin of the newest slot of a cell; 0 of one that is no member, or where there is
// none.
func (t *Table) countedBy(s *shard, c *cell) uint16 {
	if c.slots == 0 {
		return 0
	}
	k := s.remote(c.slots).origin()
	if !t.origins.isMember[k].Load() {
		return 0
	}
	return k
}

// standing is what keeps a cell from being evicted, the weightiest first.
type standing struct {
	denied bool
	busy   bool // asked for or reported in the latter half of its window
	view   uint64
	used   uint32
}

func (s *shard) standing(c *cell, m *meterState, at instant, now int64) standing {
	idle := int32(usedAt(now)-c.used) > int32(usedAt(int64(m.Window)/2))
	view := s.view(c, m, at)
	if !m.algorithm.Counts() { // it is in force, or it is worth nothing
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

// evictCell removes a cell that still counts.
func (t *Table) evictCell(s *shard, ref uint32, w standing) {
	t.stats.evicted.Add(1)
	if w.denied {
		t.stats.evictedDenied.Add(1)
	}
	c := s.cell(ref)
	if m := t.meters.states[c.meter]; m.algorithm.Counts() {
		t.stats.forgotten.Add(w.view)
		m.noteForgotten(w.view)
		if l := m.limit.Load(); l != nil && w.view >= l.max-l.max/2 {
			t.stats.evictedFull.Add(1)
		}
	}
	t.remove(s, ref, c)
}

// remove takes the cell out of the shard. What it counted and did not send yet still leaves with the next drain.
func (t *Table) remove(s *shard, ref uint32, c *cell) {
	m := t.meters.states[c.meter]
	if c.has(dirty) {
		if len(s.unsent) < s.maxUnsent {
			s.unsent = s.appendChanged(s.unsent, c, m, t.origin)
		}
		for largest := m.offered.Load(); uint64(c.offered) > largest &&
			!m.offered.CompareAndSwap(largest, uint64(c.offered)); {
			largest = m.offered.Load()
		}
		s.delist(c)
	}
	if !c.has(local) {
		s.remotes--
	}
	s.dropSlots(c, &m.shape, int64(m.n+2))
	s.dropHotKey(c)
	s.cancelEarlyFlush(ref, c)
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

// expire removes expired cells, and slots of retired origins, from where it ended the last time.
func (t *Table) expire(now int64) {
	for range expirySpans {
		s := &t.shards[t.sweep.shard]
		from := t.sweep.place
		t.sweep.place = min(from+expirySpan, len(s.entries))
		t.expireSpan(s, from, t.sweep.place, now)
		if t.sweep.place == len(s.entries) {
			t.sweep.place, t.sweep.shard = 0, (t.sweep.shard+1)%shards
			if t.origins.sweeping {
				t.swept()
			}
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
		_, ok := s.settle(c, &m.shape, now)
		if t.origins.sweeping {
			t.dropRetired(s, c, m)
		}
		if ok && !c.empty(&m.shape) && !m.forgets(c, now) {
			i++
			continue
		}
		t.stats.expired.Add(1)
		t.remove(s, ref, c) // another may have moved into its place
	}
}
