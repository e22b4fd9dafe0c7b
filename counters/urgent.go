package counters

import "slices"

// flushShare is the part of what is left of a limit, shared out evenly, that a table may admit of a key before it tells its peers early.
const flushShare = 1.0 / 8

// A key is not looked at for a rush unless it was asked for rushes since the last drain, and for the rushShare-th part of its limit: so the
// many keys of small limits get no watch for it.
const (
	rushes    = 16
	rushShare = 64
)

// spend notes that a cost of a watched key is admitted, and asks for it to be told early if it is much of what is left. Of an offender it
// is not: peers expect what it is asked for.
func (t *Table) spend(s *shard, l *Limit, c *cell, w *watch, cost uint64) {
	w.unsent += float32(cost)
	if !c.has(urgent) && (t.tellsEarly(l, w) || l.maxUnsent > 0 && w.unsent >= float32(l.maxUnsent)) {
		t.hasten(s, l, c)
	}
}

func (t *Table) tellsEarly(l *Limit, w *watch) bool {
	peers := t.keepers(l).peers
	left := float64(l.max - min(w.view, l.max))
	return peers > 0 && w.part == 1 && float64(w.unsent) >= max(1, flushShare*left/float64(peers+1))
}

// rushes reports whether the cell is of a key that is to be looked at for a rush.
func (c *cell) rushes(l *Limit) bool {
	return c.watch == 0 && c.offered >= rushes && uint64(c.offered) >= l.max/rushShare
}

// rush looks at a key without a watch that was asked for much since the last drain. Where that is much of what is left, it may be as much
// at the peers, and all of the limit could be gone before anybody has told of it: so the key gets its watch now, and is told early.
func (t *Table) rush(y layer, l *Limit, left uint64) {
	cl, offered := t.keepers(l), float64(y.cell.offered)
	if cl.peers == 0 || offered < flushShare*float64(left)/float64(cl.peers+1) {
		return
	}
	now := y.cell.index*l.sub + y.at.off
	w := t.watched(y.shard, y.cell, now)
	if w == nil {
		return
	}
	w.view, w.unsent, w.own = l.max-left, float32(offered), float32(w.ownNow(y.cell, y.shard.drainedAt, cl.horizon, now))
	if !y.cell.has(urgent) {
		t.hasten(y.shard, l, y.cell)
	}
}

// hasten asks for a cell to be told early, if it is told at all.
func (t *Table) hasten(s *shard, l *Limit, c *cell) {
	if l.scope == Alone {
		return
	}
	c.raise(urgent)
	s.urgent = append(s.urgent, s.find(l.id, c.key, hash(t.seed, l.id, c.key)))
	select {
	case t.urgent <- struct{}{}:
	default:
	}
}

// Urgent is where to wait for counts that are better told before the interval ends: see DrainUrgent.
func (t *Table) Urgent() <-chan struct{} { return t.urgent }

// DrainUrgent returns what is to be told early: of the keys of which this table admits much of what is left, the slots that rose since
// they were last told. DrainDirty tells all others in their time.
func (t *Table) DrainUrgent(now int64) Drained {
	t.drain.Lock()
	defer t.drain.Unlock()
	var out Drained
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		for _, ref := range s.urgent {
			c := s.cell(ref)
			c.lower(urgent)
			m := t.meters.states[c.meter]
			rise := s.untold(c)
			s.settle(c, &m.shape, now)
			first := len(out.Slots)
			out.Slots = s.appendChanged(out.Slots, c, m, t.origin)
			if c.changed = 0; len(out.Slots) > first {
				out.Slots = s.tell(out.Slots, first, c, s.memory.watch(c.watch), m, t.origin, now)
			}
			i := slices.IndexFunc(out.Demand, func(d Demand) bool { return d.Meter == &m.Meter })
			if i < 0 {
				i, out.Demand = len(out.Demand), append(out.Demand, Demand{Meter: &m.Meter, Rate: m.demand})
			}
			out.Demand[i].Rise = max(out.Demand[i].Rise, rise)
		}
		s.urgent = s.urgent[:0]
		s.Unlock()
	}
	return out
}

// calm takes a cell that goes out of those to drain early.
func (s *shard) calm(ref uint32, c *cell) {
	if c.has(urgent) {
		s.urgent = slices.DeleteFunc(s.urgent, func(r uint32) bool { return r == ref })
	}
}
