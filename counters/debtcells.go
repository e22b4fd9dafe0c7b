package counters

import (
	"math/bits"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/bucket"
)

// The cells of [Debts]: a key has one in each class that it owes something in, and one for its credits in that class.

// lock locks the shards of a key in some classes and in all that have a meter, and returns the set of these classes.
func (d *Debts) lock(key Key, classes uint32, hashes *[DebtClasses]uint64) uint32 {
	classes |= d.alive()
	set := uint64(0)
	for rest := classes; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros32(rest)
		hashes[i] = hash(d.table.seed, d.classes[i].limit.id, key)
		set |= shardBit(hashes[i])
	}
	d.table.lockSet(set)
	return classes
}

func (d *Debts) unlock(classes uint32, hashes *[DebtClasses]uint64) {
	set := uint64(0)
	for ; classes != 0; classes &= classes - 1 {
		set |= shardBit(hashes[bits.TrailingZeros32(classes)])
	}
	d.table.unlockSet(set)
}

// alive returns the set of classes that may have cells: those whose meters have a number.
func (d *Debts) alive() (classes uint32) {
	ms, live := &d.table.meters, d.live.Load()
	changes := ms.changes.Load()
	if uint32(live>>32) == changes {
		return uint32(live)
	}
	ms.RLock()
	for i, c := range d.classes {
		if ms.numbers[c.limit.id] != 0 {
			classes |= 1 << i
		}
	}
	ms.RUnlock()
	d.live.Store(uint64(changes)<<32 | uint64(classes))
	return classes
}

// owed returns what a key owes in one class, and the most that it owes in others. The shards are locked.
func (d *Debts) owed(
	key Key, classes uint32, own *debtClass, hashes *[DebtClasses]uint64, now int64,
) (here, elsewhere time.Duration) {
	for ; classes != 0; classes &= classes - 1 {
		c := d.classes[bits.TrailingZeros32(classes)]
		debt := d.table.debtOf(c, key, hashes[c.number], now)
		if c == own {
			here = debt
		} else {
			elsewhere = max(elsewhere, debt)
		}
	}
	if own == nil {
		return elsewhere, 0
	}
	return here, elsewhere
}

// debtOf returns what a key owes in a class.
func (t *Table) debtOf(c *debtClass, key Key, h uint64, now int64) time.Duration {
	s := t.shardOf(h)
	ref, at, ok := s.live(&c.limit.spec, key, h, now)
	if !ok {
		return 0
	}
	t.debitPending(s, c.limit, s.cell(ref), at)
	v := s.cell(ref).level()
	at = c.limit.notBefore(v, at)
	return c.limit.wait(v.Debt(c.limit.point(at)), at)
}

// giveBack lowers what a key owes in a class to the rest, and has the credit replicated. It reports whether the key
// owed more.
func (t *Table) giveBack(c *debtClass, key Key, h uint64, rest time.Duration, now int64) bool {
	l, s := c.limit, t.shardOf(h)
	ref, at, ok := s.live(&l.spec, key, h, now)
	if !ok {
		return false
	}
	v := s.cell(ref).level()
	at = l.notBefore(v, at)
	debt := v.Debt(l.point(at))
	if debt <= l.points(rest) {
		return false
	}
	v.Credit(debt-l.points(rest), l.point(at))
	credit := l.rate.Fits(debt - l.points(rest))
	if rest == 0 { // others may know of more
		credit += uint64(l.meter.Sub / c.unit)
	}
	if ref, _ = t.reach(s, &c.credit, key, h, true, now); ref == 0 || credit == 0 {
		return true // peers deny for longer
	}
	given := s.cell(ref)
	given.count(given.counts(&c.credit.shape), credit)
	s.localize(given)
	if !given.has(dirty) && l.scope != Alone {
		s.enlist(ref, given, false)
	}
	return true
}

// credit takes a credit of others off the debt that the table knows, in the cell of the meter with an id. The shard is
// locked.
func (t *Table) credit(s *shard, id uint64, key Key, h, count uint64, now int64) {
	ref := s.find(id, key, h)
	if ref == 0 {
		return
	}
	c := s.cell(ref)
	m := t.meters.states[c.meter]
	l := m.limit.Load()
	at, ok := s.settle(c, &m.shape, now)
	if l == nil || !ok {
		return
	}
	t.debitPending(s, l, c, at)
	v := c.level()
	v.Credit(l.rate.Span(count), l.point(m.notBefore(v, at)))
}

// takeDebt decides on a charge under a limit. Of a positive rest, by which the key owes more in another class, it
// charges a copy first.
func (t *Table) takeDebt(l *Limit, key Key, h uint64, charge, rest time.Duration, now int64, dec *Decision) {
	s, unit := t.shardOf(h), l.class.unit
	cost := max(uint64(charge/unit), 1)
	y := t.settled(s, l, key, h, cost, true, now)
	if rest > 0 && y.cell != nil {
		y.cell.count(y.cell.counts(&l.shape), uint64((rest+unit-1)/unit))
		t.adjustDebt(l, y.cell, rest, y.at)
	}
	if t.decide(y, l, cost, 0, take, dec); !dec.Allowed {
		return
	}
	if rounded := charge - time.Duration(cost)*unit; rounded > 0 {
		t.adjustDebt(l, s.cell(s.find(l.id, key, h)), rounded, y.at)
		dec.ResetAfter += rounded
	}
}

// adjustDebt debits a time that is counted apart, or not at all.
func (t *Table) adjustDebt(l *Limit, c *cell, by time.Duration, at instant) {
	v := c.level()
	now := l.point(l.notBefore(v, at))
	v.Debit(l.points(by), now, now, l.backdate)
}

// points converts a debt to fixed point.
func (l *Limit) points(debt time.Duration) uint64 {
	if uint64(debt) >= bucket.MaxSpan>>l.fraction {
		return bucket.MaxSpan
	}
	return uint64(debt) << l.fraction
}
