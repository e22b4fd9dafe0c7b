package counters

import (
	"cmp"
	"slices"
)

// create makes a cell in place of a stale one, if there is one, and evicts others if there is no room. It returns 0 if
// no number is left for the meter, or if the shard holds only cells of the same request.
func (t *Table) create(s *shard, stale uint32, of name, local bool, now int64) (ref uint32, at instant) {
	if stale != 0 {
		t.remove(s, stale, s.cell(stale))
	}
	m := t.meters.acquire(of.y, local)
	if m == nil {
		return 0, at
	}
	if local && m.adHoc {
		m.charged.Store(true)
	}
	if d := t.debts.Load(); d != nil && m.adHoc && m.limit.Load() == nil {
		d.recognize(m)
	}
	for s.keys >= s.maxKeys && t.evict(s, now) != 0 {
	}
	if ref = t.alloc(s, m.words, nil, now); ref == 0 {
		m.release()
		return 0, at
	}
	c := s.cell(ref)
	if now < s.gone {
		c.raise(recreated)
		s.births = (s.births + 1) & maxBirth
	}
	c.key, c.index, c.birth, c.used = of.key, now/m.sub, s.births, usedAt(now)
	c.setNumber(m.number)
	if s.remotes++; local {
		s.localize(c)
	}
	s.add(ref, of.h)
	return ref, instant{off: now % m.sub}
}

// localize records that this table was asked for the cell's key.
func (s *shard) localize(c *cell) {
	if !c.has(local) {
		c.raise(local)
		s.remotes--
	}
}

// alloc returns a block of so many words for a cell, and evicts other cells if there is no room. It returns 0 if that
// is not enough.
func (t *Table) alloc(s *shard, words int, c *cell, now int64) uint32 {
	if !s.has(words) {
		if c == nil {
			c = new(cell) // the caller has none yet
		}
		was := c.has(pinned)
		c.raise(pinned)
		t.makeRoom(s, words, now)
		c.put(pinned, was)
	}
	return s.memory.alloc(words)
}

const (
	// Cells that only peers counted in may take 1/remoteShare of a shard's cells. Beyond that they are evicted first,
	// so that no peer evicts what this table counts.
	remoteShare = 2
	// evictionSample is how many cells compete for eviction: enough that a busy one hardly ever loses.
	evictionSample = 8
)

type candidate struct {
	ref      uint32
	origin   uint16 // of the newest slot of a remote cell; 0: none, or no member
	remote   bool   // only peers counted in it
	siblings int    // remote candidates of the same origin
	standing
}

// evict removes one cell of the shard, and returns its page, 0 if there is none to remove. Each call looks at the next
// few cells after the hand. An expired one goes at once. Otherwise, if remote cells have more than their share, the
// least of the origin with most of them goes; else the least of all.
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
		m := t.meters.state(c.number())
		at, ok := s.settle(c, &m.shape, now)
		if !ok || c.empty(&m.shape) {
			t.stats.expired.Add(1)
			t.remove(s, ref, c)
			return ref >> pageBits
		}
		if n == evictionSample { // the search goes on for a remote cell
			n--
		}
		sample[n] = candidate{ref: ref, remote: !c.has(local), standing: s.standing(c, m, at, now)}
		if sample[n].remote {
			remotes++
			if c.slots != 0 {
				if k := s.remote(c.slots).origin(); t.origins.state(k).member.Load() {
					sample[n].origin = k
				}
			}
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
	t.evictCell(s, v.ref, v.standing)
	return v.ref >> pageBits
}

// victim is the candidate to evict; with surplus, a remote one of the origin that has most of them.
func victim(sample []candidate, surplus bool) candidate {
	if surplus {
		sample = slices.DeleteFunc(sample, func(a candidate) bool { return !a.remote })
		for i := range sample {
			for j := range sample {
				if sample[i].origin == sample[j].origin {
					sample[i].siblings++
				}
			}
		}
	}
	return slices.MinFunc(sample, func(a, b candidate) int {
		return cmp.Or(b.siblings-a.siblings, a.rank-b.rank, cmp.Compare(a.view, b.view), int(int32(a.used-b.used)))
	})
}

// standing is what protects a cell from eviction, the most important first.
type standing struct {
	rank int    // deniedRank if the last request was denied, plus busyRank if used in the latter half of the window
	view uint64 // forgetting less costs less
	used uint32
}

const (
	busyRank   = 1
	deniedRank = 2
)

func (s *shard) standing(c *cell, m *meterState, at instant, now int64) standing {
	w := standing{view: s.view(c, m, at), used: c.used}
	busy := int32(usedAt(now)-c.used) <= int32(usedAt(int64(m.meter.Window)/2))
	if m.algorithm.timed() { // a ban or lift is in force, or worth nothing
		if busy = w.view > 0; !busy {
			return w
		}
	}
	if busy {
		w.rank += busyRank
	}
	if c.has(denied) {
		w.rank += deniedRank
	}
	return w
}

// evictCell removes a cell that still counts.
func (t *Table) evictCell(s *shard, ref uint32, w standing) {
	t.stats.evicted.Add(1)
	if w.rank >= deniedRank {
		t.stats.evictedDenied.Add(1)
	}
	c := s.cell(ref)
	if m := t.meters.state(c.number()); m.algorithm.Counts() {
		t.stats.forgotten.Add(w.view)
		raise(&m.forgotten, w.view)
		if l := m.limit.Load(); l != nil && w.view >= l.max-l.max/2 {
			t.stats.evictedFull.Add(1)
		}
	}
	t.remove(s, ref, c)
}

// remove frees a cell and all that belongs to it. The next drain still returns its unsent counts.
func (t *Table) remove(s *shard, ref uint32, c *cell) {
	m := t.meters.state(c.number())
	if c.has(dirty) {
		if len(s.unsent) < s.maxUnsent {
			s.unsent = s.appendChanged(s.unsent, c, m, t.origin)
			s.unsent = t.appendPassedOn(s.unsent, &outgoing{s: s, c: c, m: m, changed: c.changed()})
		}
		raise(&m.offered, uint64(c.offered))
		s.delist(c)
	}
	if !c.has(local) {
		s.remotes--
	}
	s.dropSlots(c, &m.shape, int64(m.n+2))
	s.dropHotKey(c)
	if m.algorithm == SlidingLog {
		s.dropLog(c)
	}
	s.gone = max(s.gone, c.lastCounted(&m.shape))
	s.drop(ref, hash(t.seed, m.id, c.key), s.hashOf)
	s.memory.free(ref)
	m.release()
}

func (s *shard) hashOf(ref uint32) uint64 {
	c := s.cell(ref)
	return hash(s.seed, s.ids[c.number()], c.key)
}

// A drain looks at expirySpans parts of the index of expirySpan entries each, and unlocks the shard after each part.
const (
	expirySpan  = 1024
	expirySpans = 16
)

// expire removes expired cells. It continues where the last call ended.
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
		m := t.meters.state(c.number())
		_, ok := s.settle(c, &m.shape, now)
		if ok && !c.empty(&m.shape) && !m.forgets(c, now) {
			i++
			continue
		}
		t.stats.expired.Add(1)
		t.remove(s, ref, c) // another entry may move to this position
	}
}
