package counters

// View returns how much of the limit is used now, as far as this table knows: the count of the window that ends now, or
// a bucket's debt.
func (t *Table) View(l *Limit, key Key, now int64) uint64 {
	y := t.layerOf(l, key)
	y.s.Lock()
	defer y.s.Unlock()
	return t.viewLayer(&y, now)
}

// viewLayer is View with the shard locked.
func (t *Table) viewLayer(y *layer, now int64) uint64 {
	if t.open(y, 0, false, now); y.c == nil {
		return 0
	}
	return t.used(y)
}

// view is viewUnder the limit that the meter is known by. If there is none, a sub-window that leaves counts in full.
func (s *shard) view(c *cell, m *meterState, at instant) uint64 {
	return s.viewUnder(m.limit.Load(), c, m, at)
}

// viewUnder is how much of a limit is used: the count of the window that ends at the instant, or the debt of a bucket
// whose limit is known. A ban in force weighs as much as any limit, and so does a lift that may still end bans.
func (s *shard) viewUnder(l *Limit, c *cell, m *meterState, at instant) uint64 {
	switch {
	case m.algorithm.timed():
		if c.ends(&m.shape) > c.index*m.sub+at.off-at.back {
			return MaxLimit
		}
		return 0
	case m.algorithm == SlidingLog:
		s.forget(c, &m.shape, at)
		return c.logView(&m.shape)
	case m.algorithm.bucket():
		if l := m.limit.Load(); l != nil && !c.has(pendingDebit) {
			return l.tokens(l.debt(c, m.notBefore(c.level(), at)))
		}
	}
	if l != nil {
		return l.windowView(c, at)
	}
	if m.algorithm == SlidingWindow {
		return c.inner + c.counts(&m.shape)[0]
	}
	return c.inner
}
