package rowtable

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/bucket"
	"github.com/edgelimit/edgelimit/node/text"
)

// Debts are token buckets whose limits come with the requests: a key has one debt, whatever limits it is charged under.
// redis-cell keeps one theoretical arrival time per key in the same way.
//
// Their counts are time instead of tokens. A token of a limit of 30 per minute costs two seconds, and a bucket of 16 of
// them holds 32 seconds of debt. Debt is paid as time passes, at the same pace under all limits, so tables debit the
// counts of peers without a need to know the limits that admitted them.
//
// # Classes
//
// No single unit and window suits a second as well as a year. So limits are divided into classes by their capacity,
// each with a meter: up to 4^k seconds, a year, and more. A limit belongs to the smallest that holds its capacity. What
// a key owes is the most that it owes in any class. A charge that finds more debt in another class copies the
// difference first. Copies only raise a debt to what is owed anyway. But two tables that copy the same debt before they
// have exchanged it count it twice, until it is paid: a change between classes may deny for as long too much, and never
// admits too much.
//
// # Credits
//
// Counts only grow, so what is given back is a count, too: of a meter of the algorithm [Credit], otherwise that of the
// class. Its slots are sent and merged like others, and a rise is taken off the debt at once. Of a credit that comes
// before the debt which it is for, a table loses what exceeds the debt that it knows: it may deny for longer, and
// admits no more. A credit of all that a key owes is a sub-window larger, as others may know of more.
//
// # Trust
//
// With credits, a node may admit any multiple of a limit in a window, so no count is implausible. Instead, a debt that
// peers report ends at twice the largest capacity of its class. Whoever has the gossip key can have a key denied for as
// long, and free it, as clients can.
type Debts struct {
	table   *Table
	learn   func([]*Limit)
	classes [DebtClasses]*debtClass
	live    atomic.Uint32 // the set of classes whose meters have numbers: those that may have heads
	cached  [debtCache]atomic.Pointer[cachedLimit]

	mu   sync.Mutex
	used atomic.Uint32 // the set of classes that were charged; written with mu held
}

// debtClass is the class of the limits with a capacity of up to the largest.
type debtClass struct {
	number  int
	largest time.Duration
	unit    time.Duration // of counts
	limit   *Limit        // of the least capacity: merges and drains use it
	credit  Meter
}

// cachedLimit is the limit of a capacity.
type cachedLimit struct {
	capacity time.Duration
	*Limit
}

const (
	// DebtClasses is the number of meters that Debts have, not counting those of credits.
	DebtClasses = 15
	// MaxDebt is the largest capacity of a limit.
	MaxDebt = 68 * maxDebtWindow
	// maxDebtWindow is the longest window of a class.
	maxDebtWindow = 366 * 24 * time.Hour
	// debtClassRatio is the factor between the windows of two classes.
	debtClassRatio = 4
	// debtSubWindows is how many sub-windows a window has: a table that does not know when a peer charged a key debits
	// it as of the sub-window's start.
	debtSubWindows = 8
	// maxDebtUnits caps a capacity in units, so that the demand of a burst fits into 32 bits.
	maxDebtUnits = 1 << 36
	// debtCache is how many limits are kept ready.
	debtCache = 256
)

// NewDebts returns the debts of a table, which can have one of them. The ids are those of the classes' meters; the
// lowest bit is that of their credits. learn, unless nil, is called with the limits to [Table.Know] before a class is
// charged first; calls do not overlap.
func NewDebts(t *Table, ids [DebtClasses]uint64, learn func([]*Limit)) *Debts {
	d := &Debts{table: t, learn: learn}
	for i, window := 0, time.Second; i < DebtClasses; i, window = i+1, window*debtClassRatio {
		largest := window
		if window >= maxDebtWindow {
			window, largest = maxDebtWindow, maxDebtWindow
		}
		if i == DebtClasses-1 {
			largest = MaxDebt
		}
		c := &debtClass{number: i, largest: largest, unit: 1}
		for largest/c.unit > maxDebtUnits {
			c.unit *= 10
		}
		m := Meter{ID: ids[i] &^ liftBit, Sub: int64(window / debtSubWindows), N: debtSubWindows,
			Algorithm: TokenBucket}
		c.limit = LimitConfig{Meter: m, Max: uint64(window / debtClassRatio / c.unit),
			Refill: uint64(window / c.unit)}.New()
		m.ID, m.Algorithm = m.ID|liftBit, Credit
		c.limit.class, c.credit = c, m
		d.classes[i] = c
	}
	t.debts.Store(d)
	t.meters.Lock()
	defer t.meters.Unlock()
	for _, k := range t.meters.numbers {
		d.recognize(t.meters.states[k])
	}
	return d
}

// recognize sets the limit of a meter if it is a class's: a table then debits what peers report before it is asked
// itself.
func (d *Debts) recognize(m *meterState) {
	for i, c := range d.classes {
		if m.ID == c.limit.ID {
			m.limit.Store(c.limit)
			d.live.Or(1 << i)
		}
	}
}

// limitOf returns the limit of a capacity, which is positive and MaxDebt at most. Capacities are rounded up to the unit
// of their class.
func (d *Debts) limitOf(capacity time.Duration) *Limit {
	at := &d.cached[uint64(capacity)*0x9e3779b97f4a7c15>>(64-8)]
	if kept := at.Load(); kept != nil && kept.capacity == capacity {
		return kept.Limit
	}
	i := 0
	for capacity > d.classes[i].largest {
		i++
	}
	c := d.classes[i]
	l := LimitConfig{Meter: c.limit.Meter, Max: uint64((capacity + c.unit - 1) / c.unit),
		Refill: c.limit.rate.Refill}.New()
	l.class = c
	at.Store(&cachedLimit{capacity, l})
	return l
}

// Take charges a key if it then owes no more than the capacity. A charge of 0 is a peek: it is allowed if the key owes
// no more than the capacity, and leaves no trace. The decision's Left is in units, ResetAfter is what the key owes.
// Take panics if the charge is negative, or the capacity is outside 1 to MaxDebt.
//
// A table's own charges are exact. Others learn them rounded down to the unit of the class, but to one unit at least.
func (d *Debts) Take(key uint64, charge, capacity time.Duration, now int64) (dec Decision) {
	if charge < 0 || capacity < 1 || capacity > MaxDebt {
		panic(fmt.Sprintf("rowtable: a charge of %s to a debt of at most %s", text.Duration(charge),
			text.Duration(capacity)))
	}
	charge = min(charge, MaxDebt+1)
	l := d.limitOf(capacity)
	cost := uint64(charge / l.class.unit)
	if charge > 0 {
		cost = max(cost, 1)
		d.use(l.class)
	}
	classes := d.lock(key, 1<<l.class.number)
	defer d.unlock(key, classes)
	owed, elsewhere := d.owed(key, classes, l.class, now)
	most := max(owed, elsewhere)
	fits := most+charge <= capacity
	if charge == 0 || !fits && (elsewhere > owed || l.points(owed)+l.rate.Span(cost) <= l.full) {
		dec.Allowed, dec.ResetAfter = fits, int64(most)
		dec.Left = max(0, int64((capacity-most)/l.class.unit))
	} else {
		dec = d.table.takeDebt(l, key, charge, elsewhere-owed, now)
	}
	switch {
	case charge > capacity:
		dec.Wait = Never
	case !fits:
		dec.Wait = max(dec.Wait, int64(most+charge-capacity))
	}
	return dec
}

// GiveBack takes an amount off what a key owes, or all of it if that is less, unless more than the capacity is left
// then: ok is false, and nothing has changed. It returns what the key owed.
func (d *Debts) GiveBack(key uint64, amount, capacity time.Duration, now int64) (owed time.Duration, ok bool) {
	owed, given, ok := d.giveBack(key, amount, capacity, now)
	for ; given != 0; given &= given - 1 {
		d.use(d.classes[bits.TrailingZeros32(given)]) // a table forgets credits of classes that it does not use
	}
	return owed, ok
}

// giveBack is GiveBack without use of the classes in which something was given back.
func (d *Debts) giveBack(key uint64, amount, capacity time.Duration, now int64) (
	owed time.Duration, given uint32, ok bool,
) {
	classes := d.lock(key, 0)
	defer d.unlock(key, classes)
	owed, _ = d.owed(key, classes, nil, now)
	rest := owed - min(owed, amount)
	if rest > capacity {
		return owed, 0, false
	}
	for left := classes; left != 0; left &= left - 1 {
		if c := d.classes[bits.TrailingZeros32(left)]; d.table.giveBack(c, key, rest, now) {
			given |= 1 << c.number
		}
	}
	return owed, given, true
}

// Limits returns a limit of each class that was charged, to Know.
func (d *Debts) Limits() []*Limit {
	var limits []*Limit
	for used := d.used.Load(); used != 0; used &= used - 1 {
		limits = append(limits, d.classes[bits.TrailingZeros32(used)].limit)
	}
	return limits
}

// CreditMeter returns the meter of the credits of a limit among Limits.
func (l *Limit) CreditMeter() *Meter { return &l.class.credit }

// use records that a class is charged.
func (d *Debts) use(c *debtClass) {
	if d.used.Load()&(1<<c.number) != 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used.Or(1<<c.number)&(1<<c.number) == 0 && d.learn != nil {
		d.learn(d.Limits())
	}
}

// lock locks the shards of a key in some classes and in all that may have heads, and returns the set of these classes.
func (d *Debts) lock(key uint64, classes uint32) uint32 {
	classes |= d.live.Load()
	d.table.lockSet(d.shards(key, classes))
	return classes
}

func (d *Debts) unlock(key uint64, classes uint32) { d.table.unlock(d.shards(key, classes)) }

// shards is the set of shards of a key in some classes, with their credits.
func (d *Debts) shards(key uint64, classes uint32) (set uint64) {
	for ; classes != 0; classes &= classes - 1 {
		c := d.classes[bits.TrailingZeros32(classes)]
		set |= 1 << (d.table.store.Hash(c.limit.ID, key) >> (64 - shardBits))
	}
	return set
}

// owed returns what a key owes in one class, and the most that it owes in others. The shards are locked.
func (d *Debts) owed(key uint64, classes uint32, own *debtClass, now int64) (here, elsewhere time.Duration) {
	for ; classes != 0; classes &= classes - 1 {
		c := d.classes[bits.TrailingZeros32(classes)]
		debt := time.Duration(0)
		if y := d.table.layerOf(c.limit, key); d.table.meetDebt(&y, now) {
			debt = time.Duration(y.l.wait(y.c.level().Debt(y.l.point(y.off)), y.back))
		}
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

// meetDebt finds the head of a debt, if there is one, and prepares it for a decision.
func (t *Table) meetDebt(y *layer, now int64) (found bool) {
	t.ready(y.s, y.key, now)
	if found = t.find(y, now); found {
		t.meet(y)
	}
	return found
}

// giveBack lowers what a key owes in a class to the rest, and has the credit sent. It reports whether the key owed
// more.
func (t *Table) giveBack(c *debtClass, key uint64, rest time.Duration, now int64) bool {
	l, y := c.limit, t.layerOf(c.limit, key)
	if !t.meetDebt(&y, now) {
		return false
	}
	v := y.c.level()
	debt := v.Debt(l.point(y.off))
	if debt <= l.points(rest) {
		return false
	}
	v.Credit(debt-l.points(rest), l.point(y.off))
	credit := l.rate.Fits(debt - l.points(rest))
	if rest == 0 { // others may know of more
		credit += uint64(time.Duration(l.Sub) / c.unit)
	}
	if credit == 0 {
		return true // peers deny for longer, as they do where there is no room for it
	}
	if given, _ := t.reach(y.s, y.h, &c.credit, key, now); given != nil {
		given.setNewest(given.newest() + credit)
		t.localize(y.h, given)
		given.counted()
		y.s.Mark(given.line())
	}
	return true
}

// credit takes a credit of others off the debt that the table knows, in the head of the meter with an id. The shard is
// locked.
func (t *Table) credit(y *layer, id, count uint64, now int64) {
	t.meters.RLock()
	k := t.meters.numbers[id]
	t.meters.RUnlock()
	if k == 0 {
		return
	}
	if y.l = t.meters.states[k].limit.Load(); y.l == nil || !t.find(y, now) {
		return
	}
	t.debitPending(y)
	y.notBefore()
	y.c.level().Credit(y.l.rate.Span(count), y.l.point(y.off))
}

// takeDebt decides on a charge under a limit. Of a positive rest, by which the key owes more in another class, it
// charges a copy first.
func (t *Table) takeDebt(l *Limit, key uint64, charge, rest time.Duration, now int64) Decision {
	unit := l.class.unit
	cost := max(uint64(charge/unit), 1)
	y := t.layerOf(l, key)
	t.open(&y, l.demand(cost), true, now)
	if rest > 0 && y.c != nil {
		y.c.setNewest(y.c.newest() + uint64((rest+unit-1)/unit))
		y.c.send()
		y.debit(l.points(rest))
	}
	d := t.take(&y, cost, take)
	if !d.Allowed {
		return d
	}
	if rounded := charge - time.Duration(cost)*unit; rounded > 0 {
		y.debit(l.points(rounded))
		d.ResetAfter += int64(rounded)
	}
	return d
}

// points converts a debt to fixed point.
func (l *Limit) points(debt time.Duration) uint64 {
	if uint64(debt) >= bucket.MaxSpan>>l.fraction {
		return bucket.MaxSpan
	}
	return uint64(debt) << l.fraction
}
