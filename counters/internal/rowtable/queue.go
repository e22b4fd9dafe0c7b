package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// A request may leave a queue before its turn. Its cost is counted already, and counts only grow. So the time that it
// takes is kept as freed, and the next requests inherit it: they are counted for what they cost beyond.
//
//	debt(t) = max(0, TAT - t) - freed, where freed <= max(0, TAT - t)
//
// Few queues have freed time, so it is in a line of its own, which a flag of the head leads to.

// Withdraw takes a request that was admitted with a Delay out of its queue, for good. It does nothing under limits that
// are no LeakyQueue.
func (t *Table) Withdraw(l *Limit, key, cost uint64, now int64) {
	if l.Algorithm != LeakyQueue || l.rate.Refill == 0 {
		return
	}
	y := t.layerOf(l, key)
	y.s.Lock()
	defer y.s.Unlock()
	t.ready(y.s, key, now)
	if !t.find(&y, now) {
		return
	}
	t.debitPending(&y) // not meet: the limit may be of rules before a reload, and is not the one to know
	y.setFreed(y.freed() + l.rate.Span(cost))
	y.notBefore()
	y.trimFreed()
}

func freedName(c *head) uint64 { return rows.Name(c.line().Meter(), freedKind, 0) }

func (y *layer) freed() uint64 {
	if !y.c.has(gaveBack) {
		return 0
	}
	name := freedName(y.c)
	if l := y.s.Find(rows.Sub(y.h, name), y.c.key, name); l != nil {
		return l.Words[0]
	}
	return 0
}

// setFreed sets the freed time. Without room for it, the next requests wait for longer.
func (y *layer) setFreed(span uint64) {
	y.c.lower(gaveBack)
	if span == 0 {
		return // the line goes with the next scan
	}
	name := freedName(y.c)
	if l := ensure(y.s, rows.Sub(y.h, name), y.c.key, name); l != nil {
		l.Words[0] = span
		y.c.raise(gaveBack)
	}
}

// debt is what a bucket owes.
func (y *layer) debt() uint64 {
	debt := y.c.level().Debt(y.l.point(y.off))
	if y.c.has(gaveBack) {
		debt -= min(debt, y.freed())
	}
	return debt
}

// trimFreed forgets what was freed and has been refilled since. It comes before each debit, which must not bring it
// back: so it does not matter who looks at a queue in between.
func (y *layer) trimFreed() {
	if y.c.has(gaveBack) {
		if debt := y.c.level().Debt(y.l.point(y.off)); y.freed() > debt {
			y.setFreed(debt)
		}
	}
}

// inherit returns what a cost, which takes a time, costs beyond the freed time of its queue.
func (y *layer) inherit(cost, take uint64) (rest, restTake uint64) {
	y.trimFreed()
	freed := y.freed()
	if freed == 0 {
		return cost, take
	}
	inherits := min(cost, y.l.rate.Fits(freed))
	span := y.l.rate.Span(inherits)
	y.setFreed(freed - span)
	return cost - inherits, take - span
}
