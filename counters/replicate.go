package counters

import (
	"math"
	"time"
)

// Drained is what a table has to send: what changed since the last drain.
type Drained struct {
	Slots     []Slot // own slots that rose, with their complete counts
	Demand    []Demand
	Forgotten []Forgotten
}

// Demand is what peers need to know of a meter to bound what they have not received.
type Demand struct {
	Meter *Meter
	// Rate is the cost per second that this table is asked for the meter's hottest key, admitted or not, without costs
	// above the limit: a moving average over DemandMemory.
	Rate float64
	// Rise is an upper bound of the cost that was admitted for one key and not sent before.
	Rise uint64
	// Used is the most of its limit that a key had used when a request was admitted since the last drain, including
	// the undercount of the algorithm; 0 if it was not above Limit.Far.
	Used uint64
}

// Forgotten is the largest count of a meter's key that was evicted since the last drain: this table may admit as much
// again. It enters this node's own bound and does not travel.
type Forgotten struct {
	Meter *Meter
	Count uint64
}

// DemandMemory is the time constant of a demand: the rate falls like this while nothing is asked for.
const DemandMemory = 300 * time.Millisecond

// leastDemand is the least cost per second of a meter that has a demand.
const leastDemand = 0.5

// DrainDirty returns what changed since the last call. Call it every gossip interval: it also removes expired cells, a
// few at a time.
func (t *Table) DrainDirty(now int64) Drained { return t.DrainInto(nil, now) }

// DrainInto is DrainDirty that appends the slots to buffer[:0], to save garbage when many keys change.
func (t *Table) DrainInto(buffer []Slot, now int64) Drained {
	t.drain.Lock()
	defer t.drain.Unlock()
	elapsed := t.sinceDrain(now)

	t.drained = t.meters.all(t.drained[:0])
	for _, m := range t.drained {
		m.retire(now)
		m.rise = m.offered.Swap(0)
		m.asked = m.rise
	}
	out := Drained{Slots: buffer[:0]}
	t.refreshSome(refreshParts)
	for i := range t.shards {
		out.Slots = t.drainShard(&t.shards[i], out.Slots, elapsed, now)
	}
	t.drained = t.meters.all(t.drained[:0]) // there may be new ones
	memory := math.Exp(-elapsed / DemandMemory.Seconds())
	for _, m := range t.drained {
		if m.demand *= memory; elapsed > 0 {
			m.demand += float64(m.asked) / elapsed * (1 - memory)
		}
		if m.demand >= leastDemand || m.rise > 0 {
			out.Demand = append(out.Demand, Demand{&m.meter, m.demand, m.rise, m.used.Swap(0)})
		}
		if count := m.forgotten.Swap(0); count > 0 {
			out.Forgotten = append(out.Forgotten, Forgotten{&m.meter, count})
		}
	}
	t.retire()
	t.sweepRetired()
	t.expire(now)
	return out
}

func (t *Table) drainShard(s *shard, dst []Slot, elapsed float64, now int64) []Slot {
	s.Lock()
	defer s.Unlock()
	dst = append(dst, s.unsent...)
	s.unsent = s.unsent[:0]
	t.watched = t.watched[:0]
	for ref := s.dirty.first; ref != 0; {
		c := s.cell(ref)
		m := t.meters.state(c.number())
		m.asked = max(m.asked, uint64(c.offered))
		m.rise = max(m.rise, s.unsentCost(c))
		if c.has(denied) && !c.has(judged) && c.slots != 0 && m.algorithm.Counts() {
			t.judge(s, c, m)
		}
		x := t.outgoing(s, c, now)
		first := len(dst)
		dst = s.appendChanged(dst, c, m, t.origin)
		// not only others counted
		if c.offered > 0 || c.changed() > 0 || c.hotKey != 0 && s.memory.hotKey(c.hotKey).has(watched) {
			if w := t.updateHotKey(&x, elapsed); w != nil {
				dst = t.appendDemand(dst, first, &x, w)
				if w.has(watched) {
					t.watched = append(t.watched, watchedKey{s.ids[c.number()], c.key})
				}
			}
		}
		dst = t.appendPassedOn(dst, &x)
		ref = c.next
		c.lower(dirty | flushEarly)
		c.offered, c.next, c.prev = 0, 0, 0
		c.setChanged(0)
	}
	s.dirty.first, s.dirty.last = 0, 0
	for _, k := range t.watched { // their cells may have moved
		if ref := s.find(k.meter, k.key, hash(t.seed, k.meter, k.key)); ref != 0 && !s.cell(ref).has(dirty) {
			s.enlist(ref, s.cell(ref), false)
		}
	}
	s.drainedAt = now
	return dst
}

// outgoing is a cell that is drained.
type outgoing struct {
	s       *shard
	c       *cell
	m       *meterState
	changed int   // how many of the newest own sub-windows changed
	now     int64 // 0: the cell is evicted, and its demand is of no use any more
	instant
}

// outgoing moves a cell to the time now, as what left the window is not sent, and then looks at what changed.
func (t *Table) outgoing(s *shard, c *cell, now int64) outgoing {
	m := t.meters.state(c.number())
	at, _ := s.settle(c, &m.shape, now)
	return outgoing{s: s, c: c, m: m, changed: c.changed(), now: now, instant: at}
}

// slot is a slot of the cell at an age.
func (x *outgoing) slot(age int, origin Origin, count uint64) Slot {
	return Slot{Meter: &x.m.meter, Key: x.c.key, Index: x.c.index + 1 - int64(age), Origin: origin, Count: count}
}

// watchedKey is a hot key that is measured in the next interval whether somebody asks for it or not.
type watchedKey struct {
	meter uint64
	key   Key
}

// sinceDrain is the time in seconds over which the cost asked for is measured; 0 if unknown. After a late drain the
// next one may come too soon to measure a rate, so it is at least half of the usual time.
func (t *Table) sinceDrain(now int64) float64 {
	last := t.drainedAt
	t.drainedAt = now
	if last == 0 || now <= last {
		return 0
	}
	elapsed := time.Duration(now - last).Seconds()
	if t.drainEvery == 0 {
		t.drainEvery = elapsed
	}
	t.drainEvery += (min(elapsed, 2*t.drainEvery) - t.drainEvery) / 8 // a pause changes the usual time little
	return max(elapsed, t.drainEvery/2)
}
