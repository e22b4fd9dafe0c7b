package counters

import "time"

// What a table passes on of what others counted: an owner sums, any other table what a node of its region sent to it in
// the belief that it is the owner. Bans and lifts are no sums: an owner sends them to all members and regions as they
// are.

// passOn marks the slot, which rose, for those that are to know of it, and enlists its cell. It reports whether the
// origin asks for the key for the first time.
func (m *merge) passOn(a *arrival) (asks bool) {
	o := m.owners.Load()
	if o == nil || !m.passesOn(a, o) {
		return false
	}
	a.r.mark(raisedMark)
	if asks = a.created && !a.s.hasOlder(a.c, a.r); asks {
		a.r.mark(freshMark)
	}
	if !a.c.has(dirty) {
		a.s.enlist(a.ref, a.c, false)
	}
	return asks
}

// passesOn reports whether the table passes on the slot: the owner everything but what it gets from another owner of
// its region, any other table what a node of its region sent to it as to the owner.
func (m *merge) passesOn(a *arrival, o *Owners) bool {
	if o.owns(a.c.key) {
		return a.place != unplaced && !a.place.isDown()
	}
	sender := a.slot.Sender
	return a.place == Near && sender != 0 && (sender == a.slot.Origin || !m.spec.algorithm.timed())
}

// hasOlder reports whether the cell has another slot of the same origin.
func (s *shard) hasOlder(c *cell, r *remote) bool {
	for ref := c.slots; ref != 0; {
		other := s.remote(ref)
		if other != r && other.origin() == r.origin() {
			return true
		}
		ref = other.next
	}
	return false
}

const (
	// An owner flushes early when its region's counts rose by 1/ownerFlushAcross of the region's even share of what is
	// left, for the other regions, or all counts by 1/ownerFlushDown of what is left, for its members.
	ownerFlushAcross = 10
	ownerFlushDown   = 16
	// An owner makes a hotKey of a key of which burstMin and 1/ownerHotShare of the limit are used.
	ownerHotShare = 16
	// soonHorizons is in how many horizons a limit is soon used up.
	soonHorizons = 4
)

// flushRise has the owner of a cell flush it early when what others counted rose by much of what is left, and when
// an origin asks for the first time for a key whose limit runs short.
func (m *merge) flushRise(a *arrival, rise uint64, asks bool) {
	t, s, c, state := m.Table, a.s, a.c, m.meters.state(a.c.number())
	o, l, near := t.owners.Load(), state.limit.Load(), a.place.isNear()
	if l == nil || l.max == 0 || rise == 0 || !o.owns(c.key) {
		return
	}
	view := s.view(c, state, a.instant)
	if asks && hotShare*view >= l.max && !c.has(flushEarly) {
		t.requestEarlyFlush(s, l, c)
	}
	left := float64(l.max - min(view, l.max))
	across, down := max(1, left/ownerFlushAcross/float64(o.Regions)), max(1, left/ownerFlushDown)
	isLarge := near && float64(rise) >= across || float64(rise) >= down
	if c.hotKey == 0 && !isLarge && (view < burstMin || view < l.max/ownerHotShare) {
		return
	}
	w := t.ensureHotKey(s, c, m.now)
	if w == nil {
		return
	}
	addTo(&w.unsent, rise)
	owned := t.ensureOwned(s, c, w, m.now)
	if owned == nil {
		return
	}
	if near {
		owned.risen += float32(rise)
	}
	if !c.has(flushEarly) && (float64(owned.risen) >= across || float64(w.unsent) >= down) && view < l.max {
		t.requestEarlyFlush(s, l, c)
	}
}

// soon reports whether so much of a limit is used up soon at a rate.
func soon(left uint64, rate float32, horizon int64) bool {
	return float64(rate)*soonHorizons*time.Duration(horizon).Seconds() >= float64(left)
}

// appendPassedOn appends what others are to know of a cell beside its own counts.
func (t *Table) appendPassedOn(dst []Slot, x *outgoing) []Slot {
	o := t.owners.Load()
	if o == nil || x.m.scope == Alone {
		return dst
	}
	switch owned := o.owns(x.c.key); {
	case x.m.algorithm.timed() && owned:
		dst = t.appendToAll(dst, x)
	case owned:
		dst = t.appendSums(dst, x, o)
	default:
		dst = t.appendForwarded(dst, x)
	}
	for ref := x.c.slots; ref != 0; {
		r := x.s.remote(ref)
		r.unmark()
		ref = r.next
	}
	return dst
}

// remoteSlot is a slot of another origin as it came.
func (t *Table) remoteSlot(x *outgoing, r *remote) Slot {
	slot := x.slot(int(r.age(x.c)), t.origins.originOf(r.origin(), x.c), r.count())
	slot.Birth = r.birth()
	return slot
}

// appendForwarded appends the slots and the demand that were sent to this table in the belief that it is the owner.
func (t *Table) appendForwarded(dst []Slot, x *outgoing) []Slot {
	for ref := x.c.slots; ref != 0; {
		r := x.s.remote(ref)
		if r.has(raisedMark) && x.s.placeOf(r.origin()) == Near {
			slot := t.remoteSlot(x, r)
			slot.Demand = x.s.rateOf(x.c, r.origin())
			dst = append(dst, slot)
		}
		ref = r.next
	}
	return dst
}

// appendToAll appends bans and lifts: the owner sends them to everybody.
func (t *Table) appendToAll(dst []Slot, x *outgoing) []Slot {
	toAll := func(slot Slot, across bool) {
		slot.To = AllMembers
		dst = append(dst, slot)
		if slot.To = AllRegions; across && x.m.scope == Global {
			dst = append(dst, slot)
		}
	}
	for _, slot := range x.s.appendOwn(nil, x.c, x.m, t.origin, x.changed) {
		toAll(slot, true)
	}
	for ref := x.c.slots; ref != 0; {
		r := x.s.remote(ref)
		place := x.s.placeOf(r.origin())
		if r.has(raisedMark) && place != unplaced && !place.isSum() {
			toAll(t.remoteSlot(x, r), place == Near)
		}
		ref = r.next
	}
	return dst
}
