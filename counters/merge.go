package counters

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

	rises  *Rises // nil: not asked for
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
	if !m.kept || slots[0].Origin == m.Table.origin || slots[0].Origin == 0 {
		return 0
	}
	m.place = slots[0].Place
	m.stored = m.place == unplaced && slots[0].Sender == 0
	if m.stored {
		m.place = Near // a store is that of the region
	}
	var room [together]hashed
	counting, locks := m.counting(room[:0], slots)
	if len(counting) == 0 {
		return 0
	}
	if m.state == nil {
		m.state = m.meters.acquire(&m.spec, false)
	}
	if m.state == nil {
		m.stats.refused.Add(uint64(len(counting)))
		return 0
	}
	origin := m.numberOf(slots[0].Origin, slots[0].Sender)
	if origin == 0 {
		m.stats.refused.Add(uint64(len(counting)))
		m.stats.originsRefused.Add(uint64(len(counting)))
		return 0
	}
	m.lockSet(locks)
	defer m.unlockSet(locks)
	m.touch(counting)
	for _, c := range counting {
		a := arrival{s: m.shardOf(c.h), slot: c.slot, h: c.h, origin: origin}
		switch raised, refused := m.slot(&a); {
		case refused:
			m.stats.refused.Add(1)
		case raised:
			novel++
		}
	}
	return novel
}

// hashed is a slot with the hash of its cell.
type hashed struct {
	slot *Slot
	h    uint64
}

// counting appends the slots that may count now, and returns the set of their shards. It refuses those of the future,
// and of a sum of another partition.
func (m *merge) counting(dst []hashed, slots []Slot) (counting []hashed, locks uint64) {
	current := m.meter.Index(m.now)
	_, partition := slots[0].Origin.Sum()
	for i := range slots {
		switch s := &slots[i]; {
		case s.Index > current+1, m.place.isSum() && partition != s.Key.Partition():
			m.stats.refused.Add(1)
		case (s.Count != 0 || s.Demand > 0) && s.Index >= max(0, current-int64(m.spec.n)):
			h := hash(m.seed, m.spec.id, s.Key)
			locks |= shardBit(h)
			dst = append(dst, hashed{s, h})
		}
	}
	return dst, locks
}

// touch brings the cells, and the newest slot of each, into the processor's cache. Reads do not depend on each other,
// so the processor waits for memory once. It may read other cells than those, too.
func (m *merge) touch(all []hashed) {
	var refs [together]uint32
	for i := range all {
		s := m.shardOf(all[i].h)
		refs[i] = s.index.ref(s.entries[s.home(all[i].h)])
	}
	var sum uint64
	for i, ref := range refs[:len(all)] {
		if ref != 0 {
			s := m.shardOf(all[i].h)
			page := int(ref) &^ (pageWords - 1)
			last := min(int(ref)+m.spec.words, page+pageWords) - 1
			sum += *(*uint64)(s.at(uint32(last)))
			refs[i] = s.cell(ref).slots
		}
	}
	for i, ref := range refs[:len(all)] {
		if ref != 0 {
			sum += m.shardOf(all[i].h).remote(ref).what
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
	m.origin, m.number = o, m.origins.known(name)
	if m.number == 0 {
		m.origins.RUnlock()
		m.origins.Lock()
		m.origins.number(o, sender, m.place, m.now)
		m.origins.Unlock()
		m.origins.RLock()
		m.number = m.origins.known(name) // it may have been given to another origin since
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
	if m.number != 0 && m.place != unplaced && m.place != known && (known == unplaced || certain) {
		state.place.Store(uint32(m.place))
	}
}

// arrival is a slot of another origin on its way into its cell.
type arrival struct {
	s      *shard
	slot   *Slot
	h      uint64
	origin uint16 // its number
	place  Place
	c      *cell
	ref    uint32 // of the cell
	instant
	r       *remote // what the cell has of the origin
	created bool    // r is new
}

// slot merges a slot. Its shard is locked.
func (m *merge) slot(a *arrival) (raised, refused bool) {
	s := a.s
	if m.isImplausible(m.state, a.slot) {
		return false, true // it makes no cell, evicts none, and moves none on
	}
	if a.ref, a.instant = m.reach(s, name{&m.spec, a.slot.Key, a.h}, false, m.now); a.ref == 0 {
		return false, true
	}
	a.c, a.place = s.cell(a.ref), s.placeOf(a.origin)
	if i := m.inRing(a); i < 0 || i > m.spec.n+1 {
		return false, false // the clock stepped back, and the cell did not
	}
	if a.slot.Demand > 0 {
		m.noteDemand(a)
	}
	if a.slot.Count == 0 {
		return false, false
	}
	rise, raised, refused := m.raise(a)
	if !raised {
		return false, refused
	}
	asks := m.passOn(a)
	if m.origins.summed.Load() && !m.spec.algorithm.timed() {
		rise = s.absorb(a.c, a.age(), a.place, rise)
	}
	m.add(a, rise)
	m.noteRise(a, rise)
	m.flushRise(a, rise, asks)
	switch {
	case m.spec.algorithm.timed():
		*a.c.until() = max(*a.c.until(), min(a.slot.Count, MaxCount))
		m.noteBan(s, a.c)
	case m.spec.algorithm == credits && !a.c.has(recreated): // or it may have been credited before
		m.credit(a, rise)
	}
	return true, false
}

// inRing is the slot's place in the cell's ring; one more than its last place if it is ahead of the cell.
func (m *merge) inRing(a *arrival) int { return int(a.slot.Index-a.c.index) + m.spec.n }

// age is the slot's age, as that of a remote.
func (a *arrival) age() uint64 { return uint64(a.c.index + 1 - a.slot.Index) }

// noteDemand records what the origin is asked for.
func (m *merge) noteDemand(a *arrival) {
	m.notePeerRate(a.s, a.c, a.origin, a.slot, m.now)
	if o := m.owners.Load(); o != nil && !a.c.has(dirty) && m.passesOn(a, o) {
		a.s.enlist(a.ref, a.c, false)
	}
}

// raise raises the count that the cell has of the origin, and returns by how much. A sum counts what it has beyond its
// parts, and that may be no rise; a region's sum of 0 means that the region asks for the key. The cell of a sum
// is not made again, so it has no birth.
func (m *merge) raise(a *arrival) (rise uint64, raised, refused bool) {
	s, c, slot := a.s, a.c, a.slot
	count, birth := min(slot.Count, MaxCount), slot.Birth&maxBirth
	if a.place.isSum() {
		birth = 0
		count -= min(count, s.covered(c, a.age(), a.place))
	}
	ref, link, full := s.place(c, a.origin, birth, slot.Index)
	switch {
	case full:
		return 0, false, true
	case ref != 0 && s.remote(ref).count() >= count, count == 0 && !a.place.isRegion():
		return 0, false, false
	case ref == 0:
		if ref = m.newRemote(a, link); ref == 0 {
			return 0, false, true
		}
		a.created = true
	}
	a.r = s.remote(ref)
	rise = count - a.r.count()
	a.r.set(a.origin, birth, slot.Index, count)
	return rise, true, false
}

// newRemote makes a slot of the origin in the cell's list, where a link leads; 0 if there is no room.
func (m *merge) newRemote(a *arrival, link *uint32) (ref uint32) {
	s := a.s
	if !s.hasSlotFor(a.origin) {
		m.stats.originsRefused.Add(1)
		return 0
	}
	if ref = m.alloc(s, remoteWords, a.c, m.now); ref == 0 {
		return 0
	}
	if m.origins.state(a.origin).stranger.Load() {
		s.strangers++
	}
	s.remote(ref).next, *link = *link, ref
	m.origins.holders[a.origin].Add(1)
	return ref
}

// add adds a rise of others' counts to the ring. A count ahead of the cell's time enters windows and logs when its
// sub-window begins, but buckets at once.
func (m *merge) add(a *arrival, by uint64) {
	if by == 0 { // sums had counted it
		return
	}
	c, sh, i := a.c, &m.spec.shape, m.inRing(a)
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
		since := a.slot.CompleteThrough
		if c.has(recreated) { // the cell may have debited some of it before it was evicted
			since = 0
		}
		if l := m.meters.state(c.number()).limit.Load(); l != nil && !c.has(pendingDebit) {
			l.mergeBucket(c, i, by, since-(c.index-int64(sh.n))*sh.sub, a.instant)
		} else {
			c.raise(pendingDebit)
		}
	}
}
