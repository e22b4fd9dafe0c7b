package counters

import (
	"sync/atomic"
	"time"
)

// Plausible counts. Whoever may send to this table can report any count, in the name of any origin, so no count is
// taken that no honest node can have: one that admits by the limits known here admits, of a key in a sub-window, at
// largest a whole limit, and a bucket beside its capacity what comes back in the meantime.
//
// Nobody can tell who made an implausible count up, and to mistrust the origin that it names would let an attacker
// silence the honest. So an implausible slot is refused, which leaves the others as they are; and for a while the table
// keeps a local floor under the limit that the slot is of, and under no other: of each key it admits a half of an even
// share
//
//	limit / 2N        N nodes
//
// whatever others report of it, as made-up counts that are plausible may stand among them. The floors of all nodes
// together are half a limit. For as long, no bans of that limit count but the table's own.
//
// What remains: counts up to the limit are plausible, so whoever has the key and knows the hashes of keys (its node
// receives them) can have those keys denied, as fast as it can send them. No node can tell it from one that admitted as
// much, as where each client has a node of its own. A floor against it would let each such client have up to a half of
// the limit more, so there is none; but keys that are denied because of one peer alone are counted, and the peer is
// named (Stats.DeniedByOne, LastDenier).

const (
	// maxLimits is by how many times limits may differ among nodes, and in time, while a change of them reaches all: a
	// slot of so many limits is plausible.
	maxLimits = 8
	// floorLasts is how long the local floor is kept at least: longer where admissions count for longer.
	floorLasts = time.Minute
)

// plausibility is what a table keeps of implausible slots.
type plausibility struct {
	implausible   atomic.Uint64 // how many came
	implausibleAt atomic.Int64  // when the last one came; 0: none did
	last          atomic.Pointer[Implausible]
	denier        atomic.Uint32 // number of the origin of which LastDenier tells
}

// Implausible names an implausible slot: the rule, the origin whose count it claimed to be, and the origin of the peer
// that sent it, 0 if that is unknown. Whoever has the gossip key can take any name.
type Implausible struct {
	Rule           string
	Origin, Sender Origin
}

// LastImplausible returns the last implausible slot that came; the zero value if none did.
func (t *Table) LastImplausible() Implausible {
	if last := t.last.Load(); last != nil {
		return *last
	}
	return Implausible{}
}

// believes raises what is plausible of the meter to what a limit in force allows. It is never lowered: counts by the
// old limit come after the new one is known. It wants the lock on drains.
func (m *meterState) believes(l *Limit) {
	m.maxCount.Store(max(m.maxCount.Load(), maxLimits*(l.max+l.refill)))
}

// isImplausible reports whether a slot counts more than a node can have admitted, says that a ban lasts longer than one
// does, or lifts bans that are still to begin, and notes that it came. Of counts of a meter that no limit here has,
// everything is plausible, until one is known.
func (m *merge) isImplausible(meter *meterState, slot *Slot) bool {
	largest := meter.maxCount.Load()
	if !meter.algorithm.Counts() {
		largest = meter.lastBan(slot.Index)
	}
	if largest == 0 || slot.Count <= largest {
		return false
	}
	m.implausible.Add(1)
	meter.implausibleAt.Store(m.now)
	m.Table.implausibleAt.Store(m.now)
	what := Implausible{Rule: meter.Rule, Origin: slot.Origin, Sender: slot.Sender}
	if last := m.last.Load(); last == nil || *last != what {
		m.last.Store(&what)
	}
	return true
}

// suspect reports whether an implausible slot of the meter came so shortly before now that the limit's floor is kept.
func (m *meterState) suspect(now int64, l *Limit) bool {
	at := m.implausibleAt.Load()
	return at != 0 && now-at < int64(max(floorLasts, l.Lasts()))
}

// distrustsBans reports whether only the table's own bans of the limit count at the time now: implausible bans came, or
// counts, for which honest peers may have banned.
func (t *Table) distrustsBans(l *Limit, now int64) bool {
	if t.implausibleAt.Load() == 0 {
		return false
	}
	t.meters.RLock()
	defer t.meters.RUnlock()
	for _, id := range [...]uint64{l.id, l.ban.id, l.ban.id | liftBit} {
		if m := t.meters.states[t.meters.numbers[id]]; m != nil && m.id == id && m.suspect(now, l) {
			return true
		}
	}
	return false
}

// denierShare of the limit, nine tenths, is what one peer alone has to report of a key for a denial to be put down to
// it, where this table admitted no more than its local floor would be.
const denierShare = 0.9

// judge looks at the first denial of a key in a sub-window: whether it is because of what one peer alone reported.
func (t *Table) judge(y layer, l *Limit) {
	s, c := y.shard, y.cell
	c.raise(judged)
	if s.ownSum(c, &l.shape) > t.floor(l) {
		return
	}
	var origin uint16 // the one that has more than half, if one has (Boyer and Moore)
	var lead uint64
	for ref := c.slots; ref != 0; {
		r := s.remote(ref)
		switch {
		case r.origin() == origin:
			lead += r.count()
		case r.count() > lead:
			origin, lead = r.origin(), r.count()-lead
		default:
			lead -= r.count()
		}
		ref = r.next
	}
	var count uint64
	for ref := c.slots; ref != 0; ref = s.remote(ref).next {
		if r := s.remote(ref); r.origin() == origin {
			count += r.count()
		}
	}
	if float64(count) >= denierShare*float64(l.max) {
		t.stats.deniedByOne.Add(1)
		t.denier.Store(uint32(origin))
	}
}

// LastDenier returns the origin because of which a key was denied last that no other peer reported much of; 0 if there
// was none.
func (t *Table) LastDenier() Origin {
	t.origins.RLock()
	defer t.origins.RUnlock()
	return Origin(t.origins.ids[t.denier.Load()])
}

// floor is how much of a key the table admits in a window whatever others report.
func (t *Table) floor(l *Limit) uint64 {
	largest := l.max
	if l.refill > 0 {
		largest = min(largest, l.refill)
	}
	return largest / 2 / uint64(t.keepers(l).peers+1)
}

// keepFloor admits a request that was denied, where this table has admitted less than its floor in the window.
func (t *Table) keepFloor(y layer, l *Limit, cost, before uint64, how step, d *Decision) {
	s, c, asked := y.shard, y.cell, max(cost, 1)
	if t.implausibleAt.Load() == 0 || !t.meters.states[c.meter].suspect(c.index*l.sub+y.at.off, l) {
		return
	}
	floor := t.floor(l)
	if asked > floor || before > floor-asked {
		return
	}
	if s.ownSum(c, &l.shape)+before > floor-asked {
		return
	}
	d.Allowed, d.Delay, d.RetryAfter = true, 0, 0
	if how.charges() && cost > 0 {
		t.countAnyway(y, l, cost)
	}
}

// ownSum is what this table counted in the sub-windows that lie in the window as a whole.
func (s *shard) ownSum(c *cell, sh *shape) (own uint64) {
	ring, rest := c.counts(sh), c.slots
	for i := len(ring) - 1; i > 0; i-- {
		var count uint64
		count, rest = s.ownAt(c, ring, i, rest)
		own += count
	}
	return own
}

// countAnyway counts a cost that the limit may have no room for.
func (t *Table) countAnyway(y layer, l *Limit, cost uint64) {
	c := y.cell
	c.count(c.counts(&l.shape), cost)
	if c.hotKey != 0 {
		t.spend(y.shard, l, c, y.shard.memory.hotKey(c.hotKey), cost)
	}
	switch {
	case l.algorithm == SlidingLog:
		t.log(y.shard, l, c, cost, y.at)
	case l.algorithm.bucket():
		v := c.level()
		v.take(l.span(cost), l.point(v.notBefore(&l.shape, y.at)), l.backdate)
	}
}
