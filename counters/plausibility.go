package counters

import (
	"sync/atomic"
	"time"
)

// A peer can report any count in the name of any origin, so a table refuses a count that no honest node can have: an
// honest node admits a key at most its limit in a sub-window; a bucket also admits what it refills meanwhile.
//
// Nobody can tell who forged an implausible slot: distrust of the origin that it names would let an attacker silence
// honest nodes. So the slot is refused and others are not. But plausible forged counts may have come with it, so for a
// while the table keeps a local floor for the limit of the slot: it admits half of an even share of the limit,
//
//	limit / 2N        N nodes
//
// whatever others report. The floors of all nodes together are half of the limit. Meanwhile only the table's own bans
// of that limit count.
//
// A sum may count what all nodes that it is over can have admitted (Owners.Members), and an owner sends no more,
// whatever its members reported to it: otherwise one of them could have the sum of all refused.
//
// Plausible counts remain: a peer that knows the gossip key and the hashes of keys, which its node receives, can have
// those keys denied for as long as it sends. A node cannot distinguish this from a peer that admitted as much. A floor
// against it would let clients with a node of their own have half of the limit more, so there is none. But the table
// counts the keys that are denied because of a single peer, and names the peer (Stats.DeniedByOne, Stats.LastDenier).
//
// The same is true of an owner: its region may well have used up a limit, so no denial names it. And an owner that
// keeps back what its members counted does not show either: the other regions then admit the limit without them.

const (
	// maxLimits is the factor by which the limits of nodes may differ while a change reaches all of them: a slot of so
	// many limits is plausible.
	maxLimits = 8
	// floorLasts is how long the local floor is kept at least; longer if admissions count for longer.
	floorLasts = time.Minute
	// denierShare is the part of a key's count that one peer alone has to report to be Stats.LastDenier.
	denierShare = 0.9
)

// plausibility is what a table keeps of implausible slots.
type plausibility struct {
	implausible   atomic.Uint64 // how many came
	implausibleAt atomic.Int64  // time of the last one; 0: none came
	last          atomic.Pointer[Implausible]
	denier        atomic.Uint64 // Stats.LastDenier
}

// Implausible describes an implausible slot: its rule, the origin that it names, and the origin of the peer that sent
// it, 0 if unknown. Whoever has the gossip key can use any name.
type Implausible struct {
	Rule           string
	Origin, Sender Origin
}

// isImplausible reports whether a slot counts more than a node can have admitted, a ban lasts too long, or a lift is
// for bans of the future, and records it. While no limit of the meter is known, every count is plausible.
func (m *merge) isImplausible(meter *meterState, slot *Slot) bool {
	largest := meter.maxCount.Load()
	if meter.algorithm.timed() { // the end of a ban that began at the end of its sub-window
		largest = uint64(slot.Index+2) * uint64(meter.meter.Window/time.Millisecond)
	}
	if slot.Place.isSum() && !meter.algorithm.timed() {
		largest = m.maxSum(meter, slot.Place)
	}
	if largest == 0 || slot.Count <= largest {
		return false
	}
	m.implausible.Add(1)
	meter.implausibleAt.Store(m.now)
	m.Table.implausibleAt.Store(m.now)
	what := Implausible{Rule: meter.meter.Rule, Origin: slot.Origin, Sender: slot.Sender}
	if last := m.last.Load(); last == nil || *last != what {
		m.last.Store(&what)
	}
	return true
}

// maxSum is the maximum of a plausible sum: what all nodes that it is over can have admitted; 0: none.
func (t *Table) maxSum(meter *meterState, sum Place) uint64 {
	members := t.owners.Load().membersOf(sum)
	if members == 0 {
		members = t.clusters[Global].Load().peers + 1
	}
	return min(meter.maxCount.Load(), MaxCount) * uint64(members)
}

// maxSlot is the most that a slot of an honest node counts under the limit.
func (l *Limit) maxSlot() uint64 {
	if l.tallies {
		return MaxTally
	}
	return maxLimits * (l.Largest() + l.rate.Refill)
}

// suspect reports whether, because of an implausible slot, the floor of a limit whose admissions count for so long is
// kept at the time now.
func (m *meterState) suspect(now int64, lasts time.Duration) bool {
	at := m.implausibleAt.Load()
	return at != 0 && now-at < int64(max(floorLasts, lasts))
}

// distrustsBans reports whether only the table's own bans by b, of the limit, count: there were implausible bans, or
// counts for which honest peers may have banned. Where l is nil, it is the known limit, if these are bans of one.
func (t *Table) distrustsBans(l *Limit, b *banSpec, now int64) bool {
	if t.implausibleAt.Load() == 0 {
		return false
	}
	if l == nil {
		l = t.limitOfBans(b.id)
	}
	ids, lasts := [...]uint64{b.id, b.lift.id, b.id}, b.meter.Window
	if l != nil {
		ids[2], lasts = l.id, l.Lasts()
	}
	t.meters.RLock()
	defer t.meters.RUnlock()
	for _, id := range ids {
		if m := t.meters.state(t.meters.numbers[id]); m != nil && m.id == id && m.suspect(now, lasts) {
			return true
		}
	}
	return false
}

// judge looks at a key that was denied since the last drain, for the first time in a sub-window and since it was
// admitted. If one peer alone reported denierShare of what is counted of the key, and that is half of the limit, that
// peer becomes the last denier: otherwise a large cost was denied.
func (t *Table) judge(s *shard, c *cell, m *meterState) {
	c.raise(judged)
	var origin uint16 // of more than half of the count, if there is one (majority vote of Boyer and Moore)
	var lead uint64
	for ref := c.slots; ref != 0; {
		r := s.remote(ref)
		switch {
		case s.placeOf(r.origin()).isSum(): // of many peers
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
	l := m.limit.Load()
	all := c.inner + c.counts(&m.shape)[0]
	if l != nil && count > 0 && count >= l.max/2 && float64(count) >= denierShare*float64(all) {
		t.stats.deniedByOne.Add(1)
		t.denier.Store(s.origins.ids[origin])
	}
}

// floor is the local floor of a limit.
func (t *Table) floor(l *Limit) uint64 {
	largest := l.max
	if l.rate.Refill > 0 {
		largest = min(largest, l.rate.Refill)
	}
	return largest / 2 / uint64(t.keepers(l).peers+1)
}

// keepsFloor reports whether the local floor admits a denied request, beside what the request charges to the cell
// before: the limit is suspect, and this table has admitted no more in the window.
func (t *Table) keepsFloor(y *layer, cost, before uint64) bool {
	if y.c == nil || !t.meters.state(y.c.number()).suspect(y.now(), y.l.Lasts()) {
		return false
	}
	asked, floor := max(cost, 1), t.floor(y.l)
	return asked <= floor && before <= floor-asked && y.s.ownSum(y.c, &y.l.shape)+before <= floor-asked
}
