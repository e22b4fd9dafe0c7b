package counters

import (
	"math/bits"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/bucket"
)

// The cells of [Debts]: a key has one in each class that it owes something in, and one for its credits in that class.

// lock locks the shards of a key in some classes and in all that have a meter, and returns the set of these classes.
func (d *Debts) lock(key Key, classes uint32, hashes *[debtClasses]uint64) uint32 {
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

func (d *Debts) unlock(classes uint32, hashes *[debtClasses]uint64) {
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
	key Key, classes uint32, own *debtClass, hashes *[debtClasses]uint64, now int64,
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
	l := c.limit
	y := layer{s: t.shardOf(h), l: l, key: key, h: h}
	if !y.find(now) {
		return 0
	}
	t.meet(&y)
	return l.wait(y.c.level().Debt(l.point(y.busy)), y.busy.back)
}

// giveBack lowers what a key owes in a class to the rest, and has the credit replicated. It reports whether the key
// owed more.
func (t *Table) giveBack(c *debtClass, key Key, h uint64, rest time.Duration, now int64) bool {
	l, s := c.limit, t.shardOf(h)
	y := layer{s: s, l: l, key: key, h: h}
	if !y.find(now) {
		return false
	}
	v := y.c.level()
	at := l.notBefore(v, y.instant)
	debt := v.Debt(l.point(at))
	if debt <= l.points(rest) {
		return false
	}
	v.Credit(debt-l.points(rest), l.point(at))
	credit := l.rate.Fits(debt - l.points(rest))
	if rest == 0 { // others may know of more
		credit += uint64(l.meter.Sub / c.unit)
	}
	ref, _ := t.reach(s, name{&c.credit, key, h}, true, now)
	if ref == 0 || credit == 0 {
		return true // peers deny for longer
	}
	given := s.cell(ref)
	given.count(given.counts(&c.credit.shape), credit)
	s.noteDemand(ref, given, l.scope)
	return true
}

// credit takes a credit that arrived off the debt that the table knows.
func (m *merge) credit(a *arrival, count uint64) {
	y := layer{s: a.s, key: a.slot.Key, h: a.h, ref: a.s.find(m.spec.id&^liftBit, a.slot.Key, a.h)}
	if y.ref == 0 {
		return
	}
	y.l = m.meters.state(a.s.cell(y.ref).number()).limit.Load()
	if y.l == nil || !y.find(m.now) {
		return
	}
	m.meet(&y)
	y.c.level().Credit(y.l.rate.Span(count), y.l.point(y.busy))
}

// takeDebt decides on a charge under a limit. Of a positive rest, by which the key owes more in another class, it
// charges a copy first.
func (t *Table) takeDebt(y *layer, charge, rest time.Duration, now int64, dec *Decision) {
	l, unit := y.l, y.l.class.unit
	cost := max(uint64(charge/unit), 1)
	t.open(y, l.demand(cost), true, now)
	if rest > 0 && y.c != nil {
		y.c.count(y.c.counts(&l.shape), uint64((rest+unit-1)/unit))
		y.debit(l.points(rest))
	}
	if t.take(y, cost, take, dec); !dec.Allowed {
		return
	}
	if rounded := charge - time.Duration(cost)*unit; rounded > 0 {
		y.debit(l.points(rounded)) // it is counted rounded down
		dec.ResetAfter += rounded
	}
}

// points converts a debt to fixed point.
func (l *Limit) points(debt time.Duration) uint64 {
	if uint64(debt) >= bucket.MaxSpan>>l.fraction {
		return bucket.MaxSpan
	}
	return uint64(debt) << l.fraction
}
