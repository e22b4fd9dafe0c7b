package counters

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

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
// A count has 40 bits, and a cell remembers two windows: no single unit and window suits a second as well as a year. So
// limits are divided into classes by their capacity, each with a meter: up to 4^k seconds, a year, and more. A limit
// belongs to the smallest that holds its capacity. What a key owes is the most that it owes in any class. A charge that
// finds more debt in another class copies the difference first. Copies only raise a debt to what is owed anyway. But
// two tables that copy the same debt before they have exchanged it count it twice, until it is paid: a change between
// classes may deny for as long too much, and never admits too much.
//
// # Credits
//
// Counts only grow, so what is given back is a count, too: of a meter of the algorithm credits, otherwise that of the
// class. Its slots are replicated and merged like others, and a rise is taken off the debt at once. Of a credit that
// comes before the debt which it is for, a table loses what exceeds the debt that it knows: it may deny for longer, and
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
	classes []*debtClass
	live    atomic.Uint64 // meterTable.changes, and the set of classes that had meters then, one bit each
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
	credit  spec
}

// cachedLimit is the limit of a capacity.
type cachedLimit struct {
	capacity time.Duration
	*Limit
}

const (
	// debtClasses is the number of meters that Debts have at most, not counting those of credits.
	debtClasses = 15
	// MaxDebt is the largest capacity of a limit.
	MaxDebt = 68 * MaxWindow
	// debtClassRatio is the factor between the windows of two classes.
	debtClassRatio = 4
	// debtSubWindows is how many sub-windows a window has: a table that does not know when a peer charged a key debits
	// it as of the sub-window's start.
	debtSubWindows = 8
	// maxDebtUnits caps a capacity in units, so that the demand of a burst fits into 32 bits (cell.offered).
	maxDebtUnits = 1 << 36
	// debtCache is how many limits are kept ready.
	debtCache = 256
)

// NewDebts returns the debts of a table, which can have one of them. The name is that of the meters, followed by a
// class. learn, unless nil, is called with the limits to [Table.Know] before a class is charged first; calls do not
// overlap.
func NewDebts(t *Table, name string, learn func([]*Limit)) (*Debts, error) {
	d := &Debts{table: t, learn: learn}
	for i, window := 0, time.Second; i < debtClasses; i, window = i+1, window*debtClassRatio {
		largest := window
		if window >= MaxWindow {
			window, largest = MaxWindow, MaxWindow
		}
		if i == debtClasses-1 {
			largest = MaxDebt
		}
		c := &debtClass{number: i, largest: largest, unit: 1}
		for largest/c.unit > maxDebtUnits {
			c.unit *= 10
		}
		m := Meter{Rule: fmt.Sprintf("%s/%d", name, int64(largest/time.Second)), Algorithm: TokenBucket, Window: window,
			Sub: window / debtSubWindows}
		limit, err := LimitConfig{
			Meter: m, Max: uint64(window / debtClassRatio / c.unit), Refill: uint64(window / c.unit),
		}.New()
		if err != nil {
			return nil, fmt.Errorf("debts: %w", err)
		}
		m.Algorithm = credits
		limit.class, c.limit, c.credit = c, limit, newSpec(m)
		d.classes = append(d.classes, c)
	}
	t.debts.Store(d)
	return d, nil
}

// recognize sets the limit of a meter if it is a class's: a table then debits what peers report before it is asked
// itself.
func (d *Debts) recognize(m *meterState) {
	for _, c := range d.classes {
		if m.id == c.limit.id {
			m.limit.Store(c.limit)
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
	l := *c.limit
	l.max = uint64((capacity + c.unit - 1) / c.unit)
	l.full = l.rate.Span(l.max)
	l.setThresholds()
	at.Store(&cachedLimit{capacity, &l})
	return &l
}

// Take charges a key if it then owes no more than the capacity. A charge of 0 is a peek: it is allowed if the key owes
// no more than the capacity, and leaves no trace. The decision's Limit and Remaining are in units, ResetAfter is what
// the key owes. Take panics if the charge is negative, or the capacity is outside 1 to MaxDebt.
//
// A table's own charges are exact. Others learn them rounded down to the unit of the class, but to one unit at least.
func (d *Debts) Take(key Key, charge, capacity time.Duration, now int64) (dec Decision) {
	if charge < 0 || capacity < 1 || capacity > MaxDebt {
		panic(fmt.Sprintf("counters: a charge of %s to a debt of at most %s", text.Duration(charge),
			text.Duration(capacity)))
	}
	charge = min(charge, MaxDebt+1)
	l := d.limitOf(capacity)
	cost := uint64(charge / l.class.unit)
	if charge > 0 {
		cost = max(cost, 1)
		d.use(l.class)
	}
	var hashes [debtClasses]uint64
	classes := d.lock(key, 1<<l.class.number, &hashes)
	defer d.unlock(classes, &hashes)
	owed, elsewhere := d.owed(key, classes, l.class, &hashes, now)
	most := max(owed, elsewhere)
	fits := most+charge <= capacity
	if charge == 0 || !fits && (elsewhere > owed || l.points(owed)+l.rate.Span(cost) <= l.full) {
		dec = Decision{Rule: l.meter.Rule, Window: l.meter.Window, Limit: l.max, Allowed: fits, ResetAfter: most}
		if most < capacity {
			dec.Remaining = uint64((capacity - most) / l.class.unit)
		}
	} else {
		h := hashes[l.class.number]
		y := layer{s: d.table.shardOf(h), l: l, key: key, h: h}
		d.table.takeDebt(&y, charge, elsewhere-owed, now, &dec)
	}
	switch {
	case charge > capacity:
		dec.RetryAfter = Never
	case !fits:
		dec.RetryAfter = max(dec.RetryAfter, most+charge-capacity)
	}
	return dec
}

// GiveBack takes an amount off what a key owes, or all of it if that is less, unless more than the capacity is left
// then: ok is false, and nothing has changed. It returns what the key owed.
func (d *Debts) GiveBack(key Key, amount, capacity time.Duration, now int64) (owed time.Duration, ok bool) {
	owed, given, ok := d.giveBack(key, amount, capacity, now)
	for ; given != 0; given &= given - 1 {
		d.use(d.classes[bits.TrailingZeros32(given)]) // a table forgets credits of classes that it does not use
	}
	return owed, ok
}

// giveBack is GiveBack without use of the classes in which something was given back.
func (d *Debts) giveBack(
	key Key, amount, capacity time.Duration, now int64,
) (owed time.Duration, given uint32, ok bool) {
	var hashes [debtClasses]uint64
	classes := d.lock(key, 0, &hashes)
	defer d.unlock(classes, &hashes)
	owed, _ = d.owed(key, classes, nil, &hashes, now)
	rest := owed - min(owed, amount)
	if rest > capacity {
		return owed, 0, false
	}
	for left := classes; left != 0; left &= left - 1 {
		c := d.classes[bits.TrailingZeros32(left)]
		if d.table.giveBack(c, key, hashes[c.number], rest, now) {
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
