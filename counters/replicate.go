package counters

import (
	"math"
	"time"
)

// Drained is what changed in a table since it was last drained: what its origin has to send.
type Drained struct {
	Slots     []Slot // the own slots that rose, each with its count so far
	Demand    []Demand
	Forgotten []Forgotten
}

// Demand is what peers need of a meter to bound what they do not know. Rate is how much is asked of its hottest key at
// one node, admitted or not (costs above the limit left out), in cost per second; it follows a rise at once and forgets
// it within about a second. Rise is the most cost that was admitted of one key and not told before, or more. Used is
// the most of its limit that was used by when something was admitted since the last drain, as far as was known, and
// with all that the algorithm may overlook; 0 where it was not more than Limit.Far.
type Demand struct {
	Meter *Meter
	Rate  float64
	Rise  uint64
	Used  uint64
}

// Forgotten is the largest count of one key of a meter that was evicted since the last drain: this table may admit as
// much of it again. It is of interest to the own bound alone, and does not travel.
type Forgotten struct {
	Meter *Meter
	Count uint64
}

const (
	demandMemory = 300 * time.Millisecond // time constant with which a demand that fell is forgotten
	leastDemand  = 0.5                    // cost per second below which a meter counts as quiet
)

// DrainDirty returns what changed since the last call. It has to be called regularly, every gossip interval: it is also
// what lets expired cells go, a few at a time.
func (t *Table) DrainDirty(now int64) Drained { return t.DrainInto(nil, now) }

// DrainInto is DrainDirty with memory for the slots that the caller does not need any more: in a flood of keys so many
// change that the garbage would outgrow the table.
func (t *Table) DrainInto(buffer []Slot, now int64) Drained {
	t.drain.Lock()
	defer t.drain.Unlock()
	elapsed := t.sinceDrain(now)

	t.drained = t.meters.all(t.drained[:0])
	for _, m := range t.drained {
		m.demand *= math.Exp(-elapsed / demandMemory.Seconds())
		m.retire(now)
		m.rise = m.offered.Swap(0)
		m.risen(m.rise, elapsed)
	}
	out := Drained{Slots: buffer[:0]}
	for i := range t.shards {
		out.Slots = t.drainShard(&t.shards[i], out.Slots, elapsed, now)
	}
	t.drained = t.meters.all(t.drained[:0]) // one may have come meanwhile
	for _, m := range t.drained {
		if m.demand >= leastDemand || m.rise > 0 {
			out.Demand = append(out.Demand, Demand{&m.Meter, m.demand, m.rise, m.used.Swap(0)})
		}
		if count := m.forgotten.Swap(0); count > 0 {
			out.Forgotten = append(out.Forgotten, Forgotten{&m.Meter, count})
		}
	}
	t.retire()
	t.expire(now)
	return out
}

func (t *Table) drainShard(s *shard, dst []Slot, elapsed float64, now int64) []Slot {
	s.Lock()
	defer s.Unlock()
	dst = append(dst, s.unsent...)
	s.unsent = s.unsent[:0]
	for ref := s.dirty.first; ref != 0; {
		c := s.cell(ref)
		m := t.meters.states[c.meter]
		m.risen(uint64(c.offered), elapsed)
		m.rise = max(m.rise, s.unsentCost(c))
		at, _ := s.settle(c, &m.shape, now) // what has passed is not sent
		c.lower(flushEarly)
		first := len(dst)
		dst = s.appendChanged(dst, c, m, t.origin)
		if w := t.updateHotKey(s, c, m, at, elapsed, now); w != nil {
			dst = s.appendDemand(dst, first, c, w, m, t.origin, now)
		}
		ref = c.next
		c.lower(dirty)
		c.offered, c.changed, c.next, c.prev = 0, 0, 0, 0
	}
	s.dirty.first, s.dirty.last = 0, 0
	s.early = s.early[:0]
	s.drainedAt = now
	return dst
}

// risen notes what a cell was asked for since the last drain.
func (m *meterState) risen(offered uint64, elapsed float64) {
	if elapsed > 0 {
		m.demand = max(m.demand, float64(offered)/elapsed)
	}
}

// sinceDrain is the time in seconds over which what was offered came. Where a drain came late the next one may come too
// early to measure a rate: no time counts as shorter than half of the usual.
func (t *Table) sinceDrain(now int64) float64 {
	last := t.drainedAt
	t.drainedAt = now
	if last == 0 || now <= last {
		return 0 // no rate is known
	}
	elapsed := time.Duration(now - last).Seconds()
	if t.drainEvery == 0 {
		t.drainEvery = elapsed
	}
	// a pause, or a clock set forward, is not the usual
	t.drainEvery += (min(elapsed, 2*t.drainEvery) - t.drainEvery) / 8
	return max(elapsed, t.drainEvery/2)
}

// Merge raises slots of other origins to the counts given, where those are larger, and returns how many were. Slots
// whose window has passed, slots of the table's own origin, and those of other regions' limits of scope Region change
// nothing; slots from the future (beyond the next sub-window), of an invalid meter, or that count more than a node can
// have admitted are refused and counted in Stats. Slots of one meter and origin are cheapest in a row.
func (t *Table) Merge(slots []Slot, now int64) (novel int) {
	m := merge{Table: t, now: now}
	t.origins.RLock()
	defer t.origins.RUnlock()
	for len(slots) > 0 {
		n := 1
		for n < min(batch, len(slots)) && slots[n].Meter == slots[0].Meter && slots[n].Origin == slots[0].Origin &&
			slots[n].Sender == slots[0].Sender {
			n++
		}
		novel += m.part(slots[:n])
		slots = slots[n:]
	}
	return novel
}

// merge is one call of Merge: what slots in a row have in common.
type merge struct {
	*Table
	now int64

	meter *Meter
	id    uint64
	valid bool
	kept  bool // see Table.keeps
	shape shape

	origin Origin
	number uint16 // of the origin; good as long as the lock on origins is held
}

// part merges slots of one meter and origin, at most a batch. It brings what they are merged into into the processor's
// cache at once, as TakeBatch does.
func (m *merge) part(slots []Slot) (novel int) {
	m.turnTo(slots[0].Meter)
	if !m.valid {
		m.stats.refused.Add(uint64(len(slots)))
		return 0
	}
	if !m.kept {
		return 0
	}
	own := slots[0].Origin == m.Table.origin || slots[0].Origin == 0
	current := m.meter.Index(m.now)
	var counting [batch]*Slot
	var hashes [batch]uint64
	n := 0
	for i := range slots {
		switch s := &slots[i]; {
		case s.Index > current+1:
			m.stats.refused.Add(1)
		case !own && (s.Count != 0 || s.Demand > 0) && s.Index >= max(0, current-int64(m.shape.n)):
			counting[n], hashes[n] = s, hash(m.seed, m.id, s.Key)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	origin := m.numberOf(slots[0].Origin, slots[0].Sender)
	if origin == 0 {
		m.stats.refused.Add(uint64(n))
		m.stats.originsRefused.Add(uint64(n))
		return 0
	}
	locked := m.lockShards(hashes[:n])
	defer m.unlockAll(locked)
	m.touchSlots(hashes[:n])
	for i, s := range counting[:n] {
		switch raised, refused := m.slot(s, origin, hashes[i]); {
		case refused:
			m.stats.refused.Add(1)
		case raised:
			novel++
		}
	}
	return novel
}

// touchSlots is touch for slots of the meter: it reads the cells, and the newest slot that others sent of each.
func (m *merge) touchSlots(hashes []uint64) {
	var refs [batch]uint32
	for i, h := range hashes {
		s := m.shardOf(h)
		refs[i] = s.ref(s.entries[s.home(h)])
	}
	var sum uint64
	for i, ref := range refs[:len(hashes)] {
		if ref != 0 {
			s := m.shardOf(hashes[i])
			// what is there may be another, shorter cell
			last := min(ref&(pageWords-1)+uint32(m.shape.words), pageWords) - 1
			sum += *(*uint64)(s.at(ref)) + *(*uint64)(s.at(ref&^(pageWords-1) | last))
			refs[i] = s.cell(ref).slots
		}
	}
	for i, ref := range refs[:len(hashes)] {
		if ref != 0 {
			sum += m.shardOf(hashes[i]).remote(ref).what
		}
	}
	touched(sum)
}

func (m *merge) turnTo(meter *Meter) {
	if meter == m.meter {
		return
	}
	m.meter = meter
	if m.valid = meter != nil && meter.Validate() == nil; !m.valid {
		return
	}
	if m.kept = m.keeps(meter); m.kept {
		m.id, m.shape = meter.id(), meter.shape()
	}
}

// numberOf is the number of an origin that a sender reports, 0 if it may have none.
func (m *merge) numberOf(o, sender Origin) uint16 {
	if o == m.origin {
		return m.number
	}
	m.origin, m.number = o, m.origins.numbers[uint64(o)]
	if m.number == 0 {
		m.origins.RUnlock()
		m.origins.Lock()
		if m.origins.numbers[uint64(o)] == 0 {
			m.watermarks[m.origins.number(o, sender, m.now)].Store(m.now) // the number may have been another's
		}
		m.origins.Unlock()
		m.origins.RLock()
		m.number = m.origins.numbers[uint64(o)] // it may have gone again to another since
	}
	if m.origins.retired[m.number].Load() {
		m.number = 0
	}
	m.origins.usedAt[m.number].Store(usedAt(m.now))
	return m.number
}

// slot merges a slot that counts in the window of now, of the origin with the number given. The shard of its hash is
// locked.
func (m *merge) slot(slot *Slot, origin uint16, h uint64) (raised, refused bool) {
	s := m.shardOf(h)
	c, at := m.mergeable(s, slot.Key, h)
	if c == nil {
		return false, true
	}
	if m.isImplausible(m.meters.states[c.meter], slot) {
		return false, true
	}
	i := int(slot.Index-c.index) + m.shape.n
	if i < 0 || i > m.shape.n+1 {
		return false, false // the clock went back, and the cell did not
	}
	if slot.Demand > 0 {
		m.notePeerRate(s, c, origin, slot, m.now)
	}
	if slot.Count == 0 {
		return false, false
	}
	count := min(slot.Count, MaxCount)
	ref, link, full := s.place(c, origin, slot.Birth, slot.Index)
	switch {
	case full:
		return false, true
	case ref != 0 && s.remote(ref).count() >= count:
		return false, false
	case ref == 0:
		if !s.hasSlotFor(origin) {
			m.stats.originsRefused.Add(1)
			return false, true
		}
		if ref = m.alloc(s, remoteWords, c, m.now); ref == 0 {
			return false, true
		}
		s.countSlot(origin)
		s.remote(ref).next, *link = *link, ref
		m.origins.holders[origin].Add(1)
	}
	r := s.remote(ref)
	rise := count - r.count()
	r.set(origin, slot.Birth, slot.Index, count)
	m.raise(c, i, rise, slot.CompleteThrough, at)
	if !m.shape.algorithm.Counts() {
		*c.until() = max(*c.until(), count)
	}
	return true, false
}

// mergeable is the cell that a slot is merged into, brought to now.
func (m *merge) mergeable(s *shard, key Key, h uint64) (*cell, instant) {
	ref, at := m.reach(s, m.id, m.meter, &m.shape, key, h, false, m.now)
	if ref == 0 {
		return nil, at
	}
	return s.cell(ref), at
}

// reach finds the cell of a meter and key and brings it to now, or makes one. It returns 0 where there is no room for
// it.
func (t *Table) reach(
	s *shard, meter uint64, m *Meter, sh *shape, key Key, h uint64, local bool, now int64,
) (ref uint32, at instant) {
	if ref = s.find(meter, key, h); ref != 0 {
		c := s.cell(ref)
		if at, ok := s.settle(c, sh, now); ok {
			c.used = usedAt(now)
			return ref, at
		}
		t.remove(s, ref, c)
	}
	if ref = t.create(s, meter, m, key, h, local, now); ref == 0 {
		return 0, instant{}
	}
	return ref, instant{off: now - s.cell(ref).index*sh.sub}
}

// raise adds to a place of the ring what others counted there, as the algorithm has it. The place after its last is
// seen later, but by buckets: what is taken from them is taken now, whatever a clock says.
func (m *merge) raise(c *cell, i int, by uint64, since int64, at instant) {
	if i <= m.shape.n {
		c.counts(&m.shape)[i] += by
		if i > 0 {
			c.inner += by
		}
	}
	switch {
	case m.shape.algorithm == SlidingLog && i <= m.shape.n:
		c.others(&m.shape)[i] += by
	case m.shape.algorithm.bucket():
		if c.has(recreated) { // what is new to the cell need not be new
			since = 0
		}
		if l := m.meters.states[c.meter].limit.Load(); l != nil && !c.has(pendingDebit) {
			l.mergeBucket(c, i, by, since-(c.index-int64(m.shape.n))*m.shape.sub, at)
		} else {
			c.raise(pendingDebit)
		}
	}
}
