package counters

// create makes a cell, and room for it. A new key is never admitted untracked: at the cap another cell goes. Only where a shard
// holds nothing but layers of one request does it hold more than its part, until the next cell comes.
func (t *Table) create(s *shard, m *meterState, id cellID, index, now int64) *cell {
	for len(s.cells) >= t.cap && t.evict(s, now) {
	}
	if now < s.gone {
		s.births++
	}
	c := newCell(id, m, s.births, index)
	c.used = now
	s.cells[id] = c
	return c
}

// evictionSample is how many cells are looked at to find the one that goes: enough that a busy one hardly ever does.
const evictionSample = 16

// evict removes one cell of the shard: an expired one if the sample has any, else the one that was idle longest; of those whose
// last request was denied, only if there are no others. It reports whether there was one to remove.
func (t *Table) evict(s *shard, now int64) bool {
	var victim *cell
	seen := 0
	for _, c := range s.cells { // Go starts a map's iteration at random
		if c.pinned {
			continue
		}
		if c.expired(now) {
			t.remove(s, c)
			t.stats.expired.Add(1)
			return true
		}
		if victim == nil || (c.denied == victim.denied && c.used < victim.used) || (!c.denied && victim.denied) {
			victim = c
		}
		if seen++; seen == evictionSample {
			break
		}
	}
	if victim == nil {
		return false
	}
	t.stats.evicted.Add(1)
	if at, ok := victim.settle(now); ok {
		t.stats.forgotten.Add(view(victim.total(), &victim.meter.Meter, at))
	}
	t.remove(s, victim)
	return true
}

// remove takes the cell out of the shard. What it counted and did not send yet still leaves with the next drain.
func (t *Table) remove(s *shard, c *cell) {
	delete(s.cells, c.id)
	s.gone = max(s.gone, (c.meter.Index(c.used)+2)*int64(c.meter.Sub))
}

// expired reports whether nothing in the cell can count any more. That is told by its use, as a mere look brings a cell to now as well.
// A cell of a time that the clock went back from, by more than the window, is as good as expired: settle would have it replaced.
func (c *cell) expired(now int64) bool {
	m := &c.meter.Meter
	return now >= (m.Index(c.used)+2)*int64(m.Sub)+int64(m.Window) || m.Index(now) < c.current-int64(m.SubWindows())
}

// expire removes the expired cells of one shard, a different one at each call.
func (t *Table) expire(now int64) {
	s := &t.shards[t.sweep]
	t.sweep = (t.sweep + 1) % shards
	s.Lock()
	defer s.Unlock()
	for _, c := range s.cells {
		if c.expired(now) {
			t.remove(s, c)
			t.stats.expired.Add(1)
		}
	}
}
