package counters

// A request may leave a queue before its turn, as its client hangs up. Its cost is counted already, and counts only
// grow. So the time that it takes is kept as freed, and the next requests inherit it: they are counted only for what
// they cost beyond it.
//
//	debt(t) = max(0, TAT - t) - freed, where freed <= max(0, TAT - t)
//
// For this table the request never came: whoever is behind it moves up, and the queue has its place again. Peers go on
// counting it, until it is inherited or its time has passed. They may make others wait for longer, and admit no more.

// freed is the time in a queue's cell that the next requests inherit.
func (c *cell) freed() *uint64 { return &c.words(headWords+bucketWords, 1)[0] }

// Withdraw takes a request that Take or TakeAll admitted with a Delay out of its queue, for good. Its turn must not
// have come. It does nothing under limits that are no LeakyQueue.
func (t *Table) Withdraw(l *Limit, key Key, cost uint64, now int64) {
	if l.algorithm != LeakyQueue || l.rate.Refill == 0 {
		return
	}
	y := t.layerOf(l, key)
	y.s.Lock()
	defer y.s.Unlock()
	if !y.find(now) {
		return
	}
	if y.c.has(pendingDebit) { // l may be of rules before a reload: it is not the one to know
		y.fold()
	}
	*y.c.freed() += l.rate.Span(cost)
	l.trimFreed(y.c, l.notBefore(y.c.level(), y.instant))
}

// debt is what a bucket owes at an instant.
func (l *Limit) debt(c *cell, at instant) uint64 {
	debt := c.level().Debt(l.point(at))
	if l.algorithm == LeakyQueue {
		debt -= min(debt, *c.freed())
	}
	return debt
}

// trimFreed forgets what was freed and has been refilled since. It comes before each debit, which must not bring it
// back: so it does not matter who looks at a queue in between.
func (l *Limit) trimFreed(c *cell, at instant) {
	if l.algorithm == LeakyQueue && *c.freed() > 0 {
		*c.freed() = min(*c.freed(), c.level().Debt(l.point(at)))
	}
}

// debit takes a time from a bucket.
func (y *layer) debit(span uint64) {
	y.l.trimFreed(y.c, y.busy)
	now := y.l.point(y.busy)
	y.c.level().Debit(span, now, now, y.l.backdate)
}

// debitInheriting debits a bucket by an admitted cost, and counts what it does not inherit.
func (y *layer) debitInheriting(cost uint64) {
	l, c := y.l, y.c
	take := l.span(cost)
	if l.algorithm == LeakyQueue {
		inherited := y.inherit(cost)
		cost, take = cost-inherited, take-l.span(inherited)
	}
	if cost > 0 {
		y.debit(take)
		c.count(c.counts(&l.shape), cost)
	}
	y.seen = l.debt(c, y.busy)
}

// inherit returns what a cost inherits of what its queue has freed.
func (y *layer) inherit(cost uint64) uint64 {
	freed := y.c.freed()
	if *freed == 0 {
		return 0
	}
	y.l.trimFreed(y.c, y.busy)
	inherited := min(cost, y.l.rate.Fits(*freed))
	*freed -= y.l.rate.Span(inherited)
	return inherited
}
