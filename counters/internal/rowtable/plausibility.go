package rowtable

import (
	"sync"
	"sync/atomic"
	"time"
)

// A peer can send any count in the name of any origin, so a table refuses a count that no honest node can have, and a
// ban that ends later than one begun at the end of its sub-window. Plausible forged slots may have come with it. So for
// a while the meter of the slot is suspect: bans of others do not count, and the table keeps a local floor of limits.
// It admits half of an even share, limit / 2N among N nodes, whatever others report. The floors of all nodes together
// are half of the limit.

// suspectFor is how long a meter is suspect at least; longer if what it counts lasts for longer.
const suspectFor = int64(time.Minute)

// suspicion is what a table keeps of implausible slots.
type suspicion struct {
	count atomic.Uint64 // how many came
	some  atomic.Bool   // whether one came
	last  atomic.Pointer[Implausible]

	deniedByOne atomic.Uint64 // see denier.go
	denier      atomic.Uint32

	sync.RWMutex
	at map[uint16]int64 // time of the last one, by the number of its meter
}

// isImplausible reports whether a slot counts more than a node can have admitted, a ban lasts too long, or a lift is
// for bans of the future, and records it.
func (t *Table) isImplausible(m *Meter, sl *Slot, now int64) bool {
	largest := m.MaxSlot
	if m.isTimed() {
		largest = uint64(sl.Index+2) * m.millis()
	} else if sl.Place.isSum() {
		largest = t.maxSum(m, sl.Place)
	}
	if largest == 0 || sl.Count <= largest {
		return false
	}
	t.implausible.count.Add(1)
	t.implausible.Lock()
	defer t.implausible.Unlock()
	t.implausible.at[t.number(m)] = now
	t.implausible.some.Store(true)
	what := Implausible{Meter: m.ID, Origin: sl.Origin, Sender: sl.Sender}
	if last := t.implausible.last.Load(); last == nil || *last != what {
		t.implausible.last.Store(&what)
	}
	return true
}

// Implausible describes an implausible slot: the id of its meter, the origin that it names, and the origin of the peer
// that sent it, 0 if unknown. Whoever has the gossip key can use any name.
type Implausible struct {
	Meter          uint64
	Origin, Sender uint16
}

// LastImplausible returns the last implausible slot, zero if none came.
func (t *Table) LastImplausible() Implausible {
	if last := t.implausible.last.Load(); last != nil {
		return *last
	}
	return Implausible{}
}

// Implausible returns how many implausible slots came.
func (t *Table) Implausible() uint64 { return t.implausible.count.Load() }

// isSuspect reports whether an implausible slot of the meter with an id came lately.
func (t *Table) isSuspect(id uint64, now int64) bool {
	if !t.implausible.some.Load() {
		return false
	}
	t.meters.RLock()
	k := t.meters.numbers[id]
	t.meters.RUnlock()
	t.implausible.RLock()
	at, ok := t.implausible.at[k]
	t.implausible.RUnlock()
	return ok && k != 0 && now-at < max(suspectFor, t.meter(k).Lasts)
}

// suspects is the sum of the ids of all suspect meters.
func (t *Table) suspects(now int64) (sum uint64) {
	t.implausible.RLock()
	defer t.implausible.RUnlock()
	for k, at := range t.implausible.at {
		if m := t.meter(k); m != nil && now-at < max(suspectFor, m.Lasts) {
			sum += m.ID
		}
	}
	return sum
}

// distrusts reports whether only the table's own times count of bans: there were implausible bans, or counts for which
// honest peers may have banned.
func (t *Table) distrusts(b *Bans, now int64) bool {
	return t.isSuspect(b.ID, now) || t.isSuspect(b.lift.ID, now) || b.of != nil && t.isSuspect(b.of.ID, now)
}

// floor is the local floor of a limit.
func (t *Table) floor(l *Limit) uint64 {
	largest := l.Max
	if l.rate.Refill > 0 {
		largest = min(largest, l.rate.Refill)
	}
	return largest / 2 / uint64(t.keepers(&l.Meter).peers+1)
}

// isBelowFloor reports whether a cost has room under the local floor, beside what the request charges to the head
// before: the limit is suspect, and this table has admitted no more in the window.
func (t *Table) isBelowFloor(y *layer, cost, before uint64) bool {
	cost = max(cost, 1)
	floor := t.floor(y.l)
	return cost <= floor && before <= floor-cost && t.isSuspect(y.l.ID, y.now()) &&
		t.ownSum(y)+before <= floor-cost
}

// ownSum is the sum of this table's own counts in the sub-windows that are completely in the window.
func (t *Table) ownSum(y *layer) (sum uint64) {
	var r ring
	n := y.l.N
	t.load(y.s, y.h, y.c, &y.l.Meter, &r)
	for i, count := range r.counts[1 : n+1] {
		sum += t.own(y.s, y.h, y.c, y.c.sub()+int64(i+1-n), count)
	}
	return sum
}
