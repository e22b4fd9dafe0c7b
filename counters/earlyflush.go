package counters

import (
	"math"
	"slices"
)

const (
	// flushShare is the part of its even share of the remaining limit that a table may admit before it flushes early.
	flushShare = 1.0 / 8
	// A key without a hotKey is in a burst only if it was asked for burstMin and for 1/burstShare of its limit since
	// the last drain: so keys of small limits need no hotKey for this.
	burstMin   = 16
	burstShare = 64
)

// spend records an admitted cost of a hot key, and requests an early flush if it is much of what remains. An offender
// is not flushed early: peers already take its reported demand into account. pays: the cost is taken from the credit.
func (t *Table) spend(y *layer, cost uint64, pays bool) {
	c, l := y.c, y.l
	w := y.s.memory.hotKey(c.hotKey)
	if pays && w.part < 1 {
		w.credit -= float32(cost)
	}
	addTo(&w.unsent, cost)
	if c.has(flushEarly) {
		return
	}
	left := l.max - min(w.view, l.max)
	if l.maxUnsent > 0 && uint64(w.unsent) >= l.maxUnsent ||
		w.part == 1 && float64(w.unsent) >= t.flushCost(l, left) && (t.owners.Load() == nil || t.isSoon(w, l, left)) {
		t.requestEarlyFlush(y.s, l, c)
	}
}

// isSoon reports whether the nodes will soon have used up what is left of a limit. Where owners add up, a table alone
// sees little of a burst.
func (t *Table) isSoon(w *hotKey, l *Limit, left uint64) bool {
	return soon(left, max(w.reachableRate, w.own), t.keepers(l).horizon)
}

// flushCost is the cost that a table may admit before it flushes early, when so much is left of the limit.
func (t *Table) flushCost(l *Limit, left uint64) float64 {
	peers := t.keepers(l).peers
	if peers == 0 {
		return math.Inf(1)
	}
	return max(1, flushShare*float64(left)/float64(peers+1))
}

// checkBurst looks at a key without a hotKey that was asked for much since the last drain. If that is much of what is
// left, the peers may have admitted as much, and the whole limit could be used before anybody has reported it. So the
// key gets its hotKey now and is flushed early.
func (t *Table) checkBurst(y *layer, left uint64) {
	s, c, l := y.s, y.c, y.l
	if c.hotKey != 0 || uint64(c.offered) < l.burst || float64(c.offered) < t.flushCost(l, left) {
		return
	}
	w := t.ensureHotKey(s, c, y.now())
	if w == nil {
		return
	}
	w.view, w.unsent = l.max-left, c.offered
	w.own = float32(w.ownNow(c, s.drainedAt, t.keepers(l).horizon, y.now()))
	if !c.has(flushEarly) {
		t.requestEarlyFlush(s, l, c)
	}
}

// requestEarlyFlush moves a cell to the front of the list to drain, unless its counts are not replicated.
func (t *Table) requestEarlyFlush(s *shard, l *Limit, c *cell) {
	if l.scope == Alone {
		return
	}
	if c.has(dirty) {
		s.delist(c)
	}
	s.enlist(s.find(l.id, c.key, hash(t.seed, l.id, c.key)), c, true)
	c.raise(flushEarly)
	select {
	case t.earlyFlush <- struct{}{}:
	default:
	}
}

// EarlyFlush returns a channel that receives when counts should be sent before the interval ends: call DrainEarly then.
func (t *Table) EarlyFlush() <-chan struct{} { return t.earlyFlush }

// DrainEarly returns the slots that rose of the keys marked for an early flush. DrainDirty returns all others.
func (t *Table) DrainEarly(now int64) Drained {
	t.drain.Lock()
	defer t.drain.Unlock()
	var out Drained
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		for ref := s.dirty.first; ref != 0 && s.cell(ref).has(flushEarly); ref = s.cell(ref).next {
			c := s.cell(ref)
			c.lower(flushEarly)
			m := t.meters.state(c.number())
			rise, x, first := s.unsentCost(c), t.outgoing(s, c, now), len(out.Slots)
			out.Slots = s.appendChanged(out.Slots, c, m, t.origin)
			if c.setChanged(0); len(out.Slots) > first {
				out.Slots = t.appendDemand(out.Slots, first, &x, s.memory.hotKey(c.hotKey))
			}
			out.Slots = t.appendPassedOn(out.Slots, &x)
			s.memory.hotKey(c.hotKey).unsent = 0
			i := slices.IndexFunc(out.Demand, func(d Demand) bool { return d.Meter == &m.meter })
			if i < 0 {
				i, out.Demand = len(out.Demand), append(out.Demand, Demand{Meter: &m.meter, Rate: m.demand})
			}
			out.Demand[i].Rise = max(out.Demand[i].Rise, rise)
		}
		s.Unlock()
	}
	return out
}
