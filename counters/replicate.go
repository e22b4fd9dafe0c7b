package counters

import (
	"math"
	"time"
)

// Drained is what a table has to send: what changed since the last drain.
type Drained struct {
	Slots     []Slot // own slots that rose, with their complete counts
	Demand    []Demand
	Forgotten []Forgotten
}

// Demand is what peers need to know of a meter to bound what they have not received.
type Demand struct {
	Meter *Meter
	// Rate is the cost per second that this table is asked for the meter's hottest key, admitted or not, without costs
	// above the limit. It follows a rise at once, and a fall with the time constant demandMemory.
	Rate float64
	// Rise is an upper bound of the cost that was admitted for one key and not sent before.
	Rise uint64
	// Used is the most of its limit that a key had used when a request was admitted since the last drain, including
	// the undercount of the algorithm; 0 if it was not above Limit.Far.
	Used uint64
}

// Forgotten is the largest count of a meter's key that was evicted since the last drain: this table may admit as much
// again. It enters this node's own bound and does not travel.
type Forgotten struct {
	Meter *Meter
	Count uint64
}

const (
	demandMemory = 300 * time.Millisecond // time constant with which a demand falls
	leastDemand  = 0.5                    // a meter with a smaller cost per second has no demand
)

// DrainDirty returns what changed since the last call. Call it every gossip interval: it also removes expired cells, a
// few at a time.
func (t *Table) DrainDirty(now int64) Drained { return t.DrainInto(nil, now) }

// DrainInto is DrainDirty that appends the slots to buffer[:0], to save garbage when many keys change.
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
	t.refreshSome(refreshParts)
	for i := range t.shards {
		out.Slots = t.drainShard(&t.shards[i], out.Slots, elapsed, now)
	}
	t.drained = t.meters.all(t.drained[:0]) // there may be new ones
	for _, m := range t.drained {
		if m.demand >= leastDemand || m.rise > 0 {
			out.Demand = append(out.Demand, Demand{&m.meter, m.demand, m.rise, m.used.Swap(0)})
		}
		if count := m.forgotten.Swap(0); count > 0 {
			out.Forgotten = append(out.Forgotten, Forgotten{&m.meter, count})
		}
	}
	t.retire()
	t.sweepRetired()
	t.expire(now)
	return out
}

func (t *Table) drainShard(s *shard, dst []Slot, elapsed float64, now int64) []Slot {
	s.Lock()
	defer s.Unlock()
	dst = append(dst, s.unsent...)
	s.unsent = s.unsent[:0]
	t.watched = t.watched[:0]
	for ref := s.dirty.first; ref != 0; {
		c := s.cell(ref)
		m := t.meters.states[c.meter]
		m.risen(uint64(c.offered), elapsed)
		m.rise = max(m.rise, s.unsentCost(c))
		at, _ := s.settle(c, &m.shape, now) // what left the window is not sent
		first := len(dst)
		dst = s.appendChanged(dst, c, m, t.origin)
		// not only others counted
		if c.offered > 0 || c.changed > 0 || c.hotKey != 0 && s.memory.hotKey(c.hotKey).has(watched) {
			if w := t.updateHotKey(s, c, m, at, elapsed, now); w != nil {
				dst = s.appendDemand(dst, first, c, w, m, t.origin, now)
				if w.has(watched) {
					t.watched = append(t.watched, watchedKey{s.ids[c.meter], c.key})
				}
			}
		}
		dst = t.appendPassedOn(dst, s, c, m, c.changed, now)
		ref = c.next
		c.lower(dirty | flushEarly)
		c.offered, c.changed, c.next, c.prev = 0, 0, 0, 0
	}
	s.dirty.first, s.dirty.last = 0, 0
	for _, k := range t.watched { // their cells may have moved
		if ref := s.find(k.meter, k.key, hash(t.seed, k.meter, k.key)); ref != 0 && !s.cell(ref).has(dirty) {
			s.enlist(ref, s.cell(ref), false)
		}
	}
	s.drainedAt = now
	return dst
}

// watchedKey is a hot key that is measured in the next interval whether somebody asks for it or not.
type watchedKey struct {
	meter uint64
	key   Key
}

// risen raises the meter's demand to that for a cell which was asked for a cost since the last drain.
func (m *meterState) risen(offered uint64, elapsed float64) {
	if elapsed > 0 {
		m.demand = max(m.demand, float64(offered)/elapsed)
	}
}

// sinceDrain is the time in seconds over which the cost asked for is measured; 0 if unknown. After a late drain the
// next one may come too soon to measure a rate, so it is at least half of the usual time.
func (t *Table) sinceDrain(now int64) float64 {
	last := t.drainedAt
	t.drainedAt = now
	if last == 0 || now <= last {
		return 0
	}
	elapsed := time.Duration(now - last).Seconds()
	if t.drainEvery == 0 {
		t.drainEvery = elapsed
	}
	t.drainEvery += (min(elapsed, 2*t.drainEvery) - t.drainEvery) / 8 // a pause changes the usual time little
	return max(elapsed, t.drainEvery/2)
}

// Merge raises slots of other origins to the given counts, and returns how many slots rose. It ignores slots that left
// the window, slots of the table's own origin, and those of other regions' limits of scope Region. It refuses, and
// counts in Stats, slots of the future (beyond the next sub-window), of an invalid meter, of a sum of another partition
// than the key's, and implausible ones. Merging is fastest when slots of the same meter and origin follow each other.
func (t *Table) Merge(slots []Slot, now int64) (novel int) { return t.MergeRises(slots, now, nil) }

// MergeRises is Merge that also records by how much keys rose. The slots of a key have to follow each other for that.
func (t *Table) MergeRises(slots []Slot, now int64, rises *Rises) (novel int) {
	m := merge{Table: t, now: now, rises: rises}
	t.origins.RLock()
	defer t.origins.RUnlock()
	defer m.turnTo(nil)
	for len(slots) > 0 {
		n := 1
		for n < min(len(slots), together) && slots[n].Meter == slots[0].Meter && slots[n].Origin == slots[0].Origin {
			n++
		}
		m.origin = 0 // the number may have been given away
		novel += m.part(slots[:n])
		slots = slots[n:]
	}
	return novel
}

// together is how many slots are merged at a time: a processor has about as many memory reads under way.
const together = 16

// merge is one call of Merge, with the meter and origin of the current slots.
type merge struct {
	*Table
	now int64

	meter *Meter
	spec  spec // of meter, if it is valid
	valid bool
	kept  bool        // see Table.keeps
	state *meterState // of meter, held from its first slot in the window on

	origin Origin
	number uint16 // of the origin, valid while the lock on origins is held
	place  Place  // of the origin, as the slots say
	stored bool   // the slots are of a store

	rises  *Rises // nil: nobody asks
	rising Key    // whose slots follow each other
	rise   uint64 // by how much it rose
}

// part merges slots of one meter and origin, so many together at most.
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
	m.place = slots[0].Place
	m.stored = m.place == Unplaced && slots[0].Sender == 0
	if m.stored {
		m.place = Near // a store is that of the region
	}
	current := m.meter.Index(m.now)
	_, partition := slots[0].Origin.Sum()
	var counting [together]*Slot
	var hashes [together]uint64
	var locks uint64
	n := 0
	for i := range slots {
		switch s := &slots[i]; {
		case s.Index > current+1:
			m.stats.refused.Add(1)
		case m.place.isSum() && partition != s.Key.Partition(): // a sum of another partition
			m.stats.refused.Add(1)
		case !own && (s.Count != 0 || s.Demand > 0) && s.Index >= max(0, current-int64(m.spec.n)):
			counting[n], hashes[n] = s, hash(m.seed, m.spec.id, s.Key)
			locks |= shardBit(hashes[n])
			n++
		}
	}
	if n == 0 {
		return 0
	}
	if m.state == nil {
		m.state = m.meters.acquire(&m.spec, false)
	}
	if m.state == nil {
		m.stats.refused.Add(uint64(n))
		return 0
	}
	origin := m.numberOf(slots[0].Origin, slots[0].Sender)
	if origin == 0 {
		m.stats.refused.Add(uint64(n))
		m.stats.originsRefused.Add(uint64(n))
		return 0
	}
	m.lockSet(locks)
	defer m.unlockSet(locks)
	m.touch(hashes[:n])
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

// touch brings the cells of the hashes, and the newest slot of each, into the processor's cache. Reads do not depend
// on each other, so the processor waits for memory once. It may read other cells than those, too.
func (m *merge) touch(hashes []uint64) {
	var refs [together]uint32
	for i, h := range hashes {
		s := m.shardOf(h)
		refs[i] = s.ref(s.entries[s.home(h)])
	}
	var sum uint64
	for i, ref := range refs[:len(hashes)] {
		if ref != 0 {
			s := m.shardOf(hashes[i])
			page := int(ref) &^ (pageWords - 1)
			last := min(int(ref)+m.spec.words, page+pageWords) - 1
			sum += *(*uint64)(s.at(uint32(last)))
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

// touched keeps the compiler from removing the reads.
//
//go:noinline
func touched(uint64) {}

func (m *merge) turnTo(meter *Meter) {
	if meter == m.meter {
		return
	}
	if m.state != nil {
		m.state.release()
	}
	m.meter, m.state = meter, nil
	if m.valid = meter != nil && meter.Validate() == nil; m.valid {
		m.spec.init(meter)
		m.kept = m.keeps(&m.spec)
	}
}

// numberOf is the number of an origin that a sender reports, 0 if it gets none.
func (m *merge) numberOf(o, sender Origin) uint16 {
	if o == m.origin {
		return m.number
	}
	name := nameOf(o, m.place)
	m.origin, m.number = o, m.origins.numbers[name]
	if m.number == 0 {
		m.origins.RUnlock()
		m.origins.Lock()
		m.origins.number(o, sender, m.place, m.now)
		m.origins.Unlock()
		m.origins.RLock()
		m.number = m.origins.numbers[name] // it may have been given to another origin since
	}
	if m.origins.state(m.number).retired.Load() {
		m.number = 0
	}
	state := m.origins.state(m.number)
	if sums := state.sums.Load(); sums != nil {
		_, partition := o.Sum()
		sums[partition].CompareAndSwap(0, m.now)
	}
	state.usedAt.Store(usedAt(m.now))
	m.replace(state)
	return m.number
}

// replace updates the place of an origin. Bans come by way of an owner, whose place says little of where they began,
// and a store may have been given what other regions counted.
func (m *merge) replace(state *originState) {
	known := Place(state.place.Load())
	certain := !m.spec.algorithm.timed() && !m.stored
	if m.number != 0 && m.place != Unplaced && m.place != known && (known == Unplaced || certain) {
		state.place.Store(uint32(m.place))
	}
}

// slot merges a slot in the current window, of the origin with a number. Its shard is locked.
func (m *merge) slot(slot *Slot, origin uint16, h uint64) (raised, refused bool) {
	if m.isImplausible(m.state, slot) {
		return false, true // it makes no cell, evicts none, and moves none on
	}
	s := m.shardOf(h)
	ref, at := m.reach(s, &m.spec, slot.Key, h, false, m.now)
	if ref == 0 {
		return false, true
	}
	c := s.cell(ref)
	i := int(slot.Index-c.index) + m.spec.n
	if i < 0 || i > m.spec.n+1 {
		return false, false // the clock stepped back, and the cell did not
	}
	place, cellRef := s.placeOf(origin), ref
	if slot.Demand > 0 {
		m.notePeerRate(s, c, origin, slot, m.now)
		if o := m.owners.Load(); o != nil && !c.has(dirty) && m.passesOn(o, c, slot, place) {
			s.enlist(cellRef, c, false)
		}
	}
	if slot.Count == 0 {
		return false, false
	}
	count := min(slot.Count, MaxCount)
	birth := slot.Birth & MaxBirth
	if place.isSum() { // beyond its parts. Nobody creates the cell of a sum again
		birth = 0
		count -= min(count, s.covered(c, uint64(c.index+1-slot.Index), place))
	}
	ref, link, full := s.place(c, origin, birth, slot.Index)
	created := ref == 0
	switch {
	case full:
		return false, true
	case ref != 0 && s.remote(ref).count() >= count, count == 0 && !place.isRegion(): // a region's sum of 0: it asked
		return false, false
	case ref == 0:
		if !s.hasSlotFor(origin) {
			m.stats.originsRefused.Add(1)
			return false, true
		}
		if ref = m.alloc(s, remoteWords, c, m.now); ref == 0 {
			return false, true
		}
		if m.origins.state(origin).stranger.Load() {
			s.strangers++
		}
		s.remote(ref).next, *link = *link, ref
		m.origins.holders[origin].Add(1)
	}
	r := s.remote(ref)
	rise := count - r.count()
	r.set(origin, birth, slot.Index, count)
	asks := m.rose(s, cellRef, c, slot, r, place, created)
	if m.origins.summed.Load() && !m.spec.algorithm.timed() {
		rise = s.absorb(c, uint64(c.index+1-slot.Index), place, rise)
	}
	m.add(c, i, rise, slot.CompleteThrough, at)
	m.noteRise(c, rise)
	m.flushRise(s, c, rise, place.isNear(), asks, at)
	switch {
	case m.spec.algorithm.timed():
		*c.until() = max(*c.until(), count)
		m.noteBan(s, c)
	case m.spec.algorithm == Credit && !c.has(recreated): // or it may have been credited before
		m.credit(s, m.spec.id&^liftBit, slot.Key, h, rise, m.now)
	}
	return true, false
}

// add adds a rise of others' counts to the place i of the ring. A count ahead of the cell's time enters windows and
// logs when its sub-window begins, but buckets at once.
func (m *merge) add(c *cell, i int, by uint64, since int64, at instant) {
	if by == 0 { // sums had counted it
		return
	}
	sh := &m.spec.shape
	if i <= sh.n {
		c.counts(sh)[i] += by
		if i > 0 {
			c.inner += by
		}
	}
	switch {
	case sh.algorithm == SlidingLog && i <= sh.n:
		c.others(sh)[i] += by
	case sh.algorithm.bucket():
		if c.has(recreated) { // the cell may have debited some of it before it was evicted
			since = 0
		}
		if l := m.meters.states[c.meter].limit.Load(); l != nil && !c.has(pendingDebit) {
			l.mergeBucket(c, i, by, since-(c.index-int64(sh.n))*sh.sub, at)
		} else {
			c.raise(pendingDebit)
		}
	}
}
