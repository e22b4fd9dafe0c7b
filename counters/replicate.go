package counters

import (
	"math"
	"time"
)

// Drained is what changed in a table since it was last drained: what its origin has to tell.
type Drained struct {
	Slots  []Slot // the own slots that rose, each with its count so far
	Demand []Demand
}

// Demand is how much is asked of a meter's hottest key at one node, admitted or not (costs above the limit left out): what peers
// multiply by the age of what they know to bound what they do not know. Rate is in cost per second; it follows a rise at once and
// forgets it within about a second.
type Demand struct {
	Meter *Meter
	Rate  float64
}

const (
	demandMemory = 300 * time.Millisecond // time constant with which a demand that fell is forgotten
	leastDemand  = 0.5                    // cost per second below which a meter counts as quiet
)

// DrainDirty returns what changed since the last call. It has to be called regularly, every gossip interval: it is also what lets
// expired cells go, a few at a time.
func (t *Table) DrainDirty(now int64) Drained { return t.DrainInto(nil, now) }

// DrainInto is DrainDirty with memory for the slots that the caller does not need any more: in a flood of keys so many change that the
// garbage would outgrow the table.
func (t *Table) DrainInto(buffer []Slot, now int64) Drained {
	t.drain.Lock()
	defer t.drain.Unlock()
	elapsed := t.sinceDrain(now)

	for _, m := range t.meters.all() {
		m.demand *= math.Exp(-elapsed / demandMemory.Seconds())
		m.risen(m.offered.Swap(0), elapsed)
	}
	out := Drained{Slots: buffer[:0]}
	for i := range t.shards {
		out.Slots = t.drainShard(&t.shards[i], out.Slots, elapsed, now)
	}
	for _, m := range t.meters.all() {
		if m.demand >= leastDemand {
			out.Demand = append(out.Demand, Demand{Meter: &m.Meter, Rate: m.demand})
		}
	}
	t.expire(now)
	return out
}

func (t *Table) drainShard(s *shard, dst []Slot, elapsed float64, now int64) []Slot {
	s.Lock()
	defer s.Unlock()
	dst = append(dst, s.unsent...)
	s.unsent = s.unsent[:0]
	for ref := s.dirty.first; ref != 0; {
		c := s.cell(ref)
		m := t.meters.states[c.meter]
		m.risen(uint64(c.offered), elapsed)
		s.settle(c, &m.shape, now) // what has passed is not told
		dst = s.appendChanged(dst, c, m, t.origin)
		ref = c.next
		c.dirty, c.offered, c.changed, c.next, c.prev = false, 0, 0, 0, 0
	}
	s.dirty.first, s.dirty.last = 0, 0
	return dst
}

// risen notes what a cell was asked for since the last drain.
func (m *meterState) risen(offered uint64, elapsed float64) {
	if elapsed > 0 {
		m.demand = max(m.demand, float64(offered)/elapsed)
	}
}

// sinceDrain is the time in seconds over which what was offered came. Where a drain came late the next one may come too early to
// tell a rate by: no time counts as shorter than half of the usual.
func (t *Table) sinceDrain(now int64) float64 {
	last := t.drainedAt
	t.drainedAt = now
	if last == 0 || now <= last {
		return 0 // no rate can be told
	}
	elapsed := time.Duration(now - last).Seconds()
	if t.drainEvery == 0 {
		t.drainEvery = elapsed
	}
	t.drainEvery += (min(elapsed, 2*t.drainEvery) - t.drainEvery) / 8 // a pause, or a clock set forward, is not the usual
	return max(elapsed, t.drainEvery/2)
}

// Merge raises slots of other origins to the counts given, where those are larger, and returns how many were. Slots whose window
// has passed and slots of the table's own origin change nothing; slots from the future (beyond the next sub-window) or of an
// invalid meter are refused and counted in Stats. Slots of one meter and origin are cheapest in a row.
func (t *Table) Merge(slots []Slot, now int64) (novel int) {
	m := merge{Table: t, now: now}
	t.origins.RLock()
	defer t.origins.RUnlock()
	for i := range slots {
		s := &slots[i]
		m.turnTo(s.Meter)
		if !m.valid || s.Index > s.Meter.Index(now)+1 {
			t.stats.refused.Add(1)
			continue
		}
		own := s.Origin == t.origin || s.Origin == 0
		if own || s.Count == 0 || s.Index < s.Meter.Index(now)-int64(m.shape.n) || s.Index < 0 {
			continue
		}
		switch raised, refused := m.slot(s); {
		case refused:
			t.stats.refused.Add(1)
		case raised:
			novel++
		}
	}
	return novel
}

// merge is one call of Merge: what slots in a row have in common.
type merge struct {
	*Table
	now int64

	meter *Meter
	id    uint64
	valid bool
	shape shape

	origin Origin
	number uint16 // of the origin; good as long as the lock on origins is held
}

func (m *merge) turnTo(meter *Meter) {
	if meter == m.meter {
		return
	}
	m.meter = meter
	if m.valid = meter != nil && meter.Validate() == nil; m.valid {
		m.id, m.shape = meter.id(), meter.shape()
	}
}

// maxOrigins is how many origins a table knows at a time: boots of nodes of which slots still count.
const maxOrigins = 1<<13 - 1

// numberOf is the number of an origin, 0 if there are too many.
func (m *merge) numberOf(o Origin) uint16 {
	if o == m.origin {
		return m.number
	}
	m.origin, m.number = o, m.origins.numbers[uint64(o)]
	if m.number == 0 {
		m.origins.RUnlock()
		m.origins.Lock()
		m.origins.register(uint64(o), 0)
		m.origins.Unlock()
		m.origins.RLock()
		m.number = m.origins.numbers[uint64(o)] // it may have gone again to another since
	}
	return m.number
}

// slot merges a slot that counts in the window of now.
func (m *merge) slot(slot *Slot) (raised, refused bool) {
	origin := m.numberOf(slot.Origin)
	if origin == 0 {
		return false, true
	}
	h := hash(m.id, slot.Key)
	s := m.shardOf(h)
	s.Lock()
	defer s.Unlock()
	c, at := m.mergeable(s, slot.Key, h)
	if c == nil {
		return false, true
	}
	i := int(slot.Index-c.index) + m.shape.n
	if i < 0 || i > m.shape.n+1 {
		return false, false // the clock went back, and the cell did not
	}
	count := min(slot.Count, MaxCount)
	ref, link, full := s.place(c, origin, slot.Birth, slot.Index)
	switch {
	case full:
		return false, true
	case ref != 0 && s.remote(ref).count() >= count:
		return false, false
	case ref == 0:
		if ref = m.alloc(s, remoteWords, c, m.now); ref == 0 {
			return false, true
		}
		s.remote(ref).next, *link = *link, ref
		m.origins.bearers[origin].Add(1)
	}
	r := s.remote(ref)
	rise := count - r.count()
	r.set(origin, slot.Birth, slot.Index, count)
	m.raise(c, i, rise, slot.Since, at)
	return true, false
}

// mergeable is the cell that a slot is merged into, brought to now.
func (m *merge) mergeable(s *shard, key Key, h uint64) (*cell, instant) {
	ref := s.find(m.id, key, h)
	if ref != 0 {
		c := s.cell(ref)
		if at, ok := s.settle(c, &m.shape, m.now); ok {
			c.used = usedAt(m.now)
			return c, at
		}
		m.remove(s, ref, c)
	}
	if ref = m.create(s, m.id, m.meter, key, h, false, m.now); ref == 0 {
		return nil, instant{}
	}
	c := s.cell(ref)
	return c, instant{off: m.now - c.index*m.shape.sub}
}

// raise adds to a place of the ring what others counted there, as the algorithm has it. The place after its last is seen later, but by
// buckets: what is taken from them is taken now, whatever a clock says.
func (m *merge) raise(c *cell, i int, by uint64, since int64, at instant) {
	if i <= m.shape.n {
		c.counts(&m.shape)[i] += by
		if i > 0 {
			c.whole += by
		}
	}
	switch {
	case m.shape.algorithm == SlidingLog && i <= m.shape.n:
		c.others(&m.shape)[i] += by
	case m.shape.algorithm.bucket():
		if c.reborn { // what is new to the cell need not be new
			since = 0
		}
		if l := m.meters.states[c.meter].limit.Load(); l != nil && !c.unfolded {
			l.mergeBucket(c, i, by, since-(c.index-int64(m.shape.n))*m.shape.sub, at)
		} else {
			c.unfolded = true
		}
	}
}
