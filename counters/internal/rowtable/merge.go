package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// batch is how many slots Merge reads ahead: a processor has about as many memory reads under way.
const batch = 16

// Merge raises slots of one meter and other origins, and returns how many rose. It ignores slots that left the window,
// and those of the future.
func (t *Table) Merge(m *Meter, slots []Slot, now int64) (novel int) {
	return t.MergeRises(m, slots, now, nil)
}

// MergeRises is Merge that also records by how much keys rose. The slots of a key have to follow each other for that.
func (t *Table) MergeRises(m *Meter, slots []Slot, now int64, rises *Rises) (novel int) {
	if m.Scope == Alone {
		return 0
	}
	g := merging{Table: t, m: m, now: now, rises: rises}
	for len(slots) > 0 {
		part := slots[:min(batch, len(slots))]
		slots = slots[len(part):]
		novel += g.part(part)
	}
	return novel
}

func (g *merging) part(slots []Slot) (novel int) {
	t, m := g.Table, g.m
	var hashes [batch]uint64
	number := t.number(m)
	fresh := head{name: rows.Name(number, rows.Head, 0)} // the lines of most heads have the names of a new one's
	var sum uint64
	for i := range slots {
		sl := &slots[i]
		h := t.store.Hash(m.ID, sl.Key)
		hashes[i] = h
		block, _ := shortName(&fresh, sl.Origin, sl.Birth, sl.Index)
		row, _ := rowName(&fresh, fewKind, sl.Origin, sl.Birth, sl.Index)
		s := t.store.Shard(h)
		sum += s.Touch(h) + s.Touch(rows.Sub(h, slotsName(&fresh))) + s.Touch(rows.Sub(h, row)) +
			s.Touch(rows.Sub(h, block)) + s.Touch(rows.Sub(h, longName(&fresh, sumsKind, sl.Index)))
	}
	touched(sum)
	current := g.now / m.Sub
	for i := range slots {
		if sl := &slots[i]; sl.Index <= current+1 && (sl.Count > 0 || sl.Demand > 0) &&
			sl.Index >= max(0, current-int64(m.N)) {
			s := t.store.Shard(hashes[i])
			s.Lock()
			if g.slot(s, hashes[i], sl) {
				novel++
			}
			s.Unlock()
		}
	}
	return novel
}

// touched keeps the compiler from leaving reads out.
//
//go:noinline
func touched(uint64) {}

func (g *merging) slot(s *rows.Shard, h uint64, sl *Slot) (raised bool) {
	t, m, now := g.Table, g.m, g.now
	if t.isImplausible(m, sl, now) {
		return false
	}
	t.ready(s, sl.Key, now)
	c, off := t.reach(s, h, m, sl.Key, now)
	if c == nil {
		return false
	}
	age := c.sub() - sl.Index
	if age > int64(m.N) || age < -1 {
		return false // the clock stepped back, and the head did not
	}
	if sl.Place != Unplaced && !m.isTimed() { // bans come by way of an owner, wherever they began
		t.origins.setPlace(sl.Origin, sl.Place)
	}
	if sl.Demand > 0 {
		t.notePeerRate(&layer{s: s, h: h, c: c}, sl, now)
	}
	if m.isTimed() {
		return t.mergeTime(c, m, sl)
	}
	count := min(sl.Count, maxSlot)
	if count > maxCount-min(t.countOf(s, h, c, m, int(age)), maxCount) {
		return false
	}
	r := raising{t, s, h, c}
	rise, raised := r.at(sl, count)
	if rise == 0 {
		return raised
	}
	switch {
	case age < 0:
		c.raise(ahead)
	case age == 0:
		c.setNewest(c.newest() + rise)
	default:
		t.addAt(s, h, c, m, int(age), rise)
	}
	g.noteRise(s, h, c, rise)
	if m.isBucket() {
		t.mergeBucket(&layer{s: s, h: h, c: c, off: off}, sl, rise)
		return true
	}
	if !m.isLog() {
		c.full = 0
	}
	if age >= 0 {
		c.setAge(min(c.age(), int(age)))
	}
	if m.Algorithm == Credit && c.birth() == 0 { // else the head before may have had it
		t.credit(&layer{s: s, h: h, key: sl.Key}, m.ID&^liftBit, rise, now)
	}
	return true
}

// mergeBucket debits a rise of others' counts, if a limit is known. The head may be one that was made again: the one
// before may have debited some of the rise.
func (t *Table) mergeBucket(y *layer, sl *Slot, rise uint64) {
	c := y.c
	if y.l = t.stateOf(c).limit.Load(); y.l == nil || c.has(pendingDebit) {
		c.raise(pendingDebit)
		return
	}
	since := sl.CompleteThrough
	if c.birth() != 0 {
		since = 0
	}
	y.debitPast(c.sub()-sl.Index, rise, since)
}

// countOf is what all count in the sub-window that is so many before the newest, or in the next one, -1.
func (t *Table) countOf(s *rows.Shard, h uint64, c *head, m *Meter, age int) uint64 {
	switch {
	case age < 0:
		return t.others(s, h, c, c.sub()+1)
	case age == 0:
		return c.newest()
	}
	return t.placeOf(s, h, c, m, age)
}

// addAt adds to the place that is so many before the newest.
func (t *Table) addAt(s *rows.Shard, h uint64, c *head, m *Meter, age int, rise uint64) {
	i := m.N - age
	if !m.isBucket() && !c.has(wide) && uint64(c.places[i])+rise <= maxPlace {
		c.places[i] += uint16(rise)
		if i > 0 {
			c.middle += uint32(rise)
		}
		return
	}
	var r ring
	t.load(s, h, c, m, &r)
	r.counts[i] += rise
	t.save(s, h, c, m, &r)
}

// reach finds the head of a key and moves it to the time now, or makes one; nil if there is no room. off is how far
// into the head's newest sub-window now is.
func (t *Table) reach(s *rows.Shard, h uint64, m *Meter, key uint64, now int64) (c *head, off int64) {
	if l := s.Head(h, m.ID, key); l != nil {
		c = headOf(l)
		if off = now - c.sub()*m.Sub; uint64(off) < uint64(m.Sub) {
			return c, off
		}
		var ok bool
		if off, _, ok = t.settle(s, h, c, m, now); ok {
			return c, off
		}
		t.remove(s, h, c)
	}
	return t.create(s, h, m, key, now), now % m.Sub
}
