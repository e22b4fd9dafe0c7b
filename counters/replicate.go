package counters

import (
	"cmp"
	"math"
	"slices"
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
func (t *Table) DrainDirty(now int64) Drained {
	t.drain.Lock()
	defer t.drain.Unlock()
	elapsed := t.sinceDrain(now)

	for _, m := range t.meters.all() {
		m.demand *= math.Exp(-elapsed / demandMemory.Seconds())
	}
	var out Drained
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		for _, c := range s.touched {
			if elapsed > 0 {
				c.meter.demand = max(c.meter.demand, float64(c.offered)/elapsed)
			}
			if c.changed != 0 {
				out.Slots = c.appendSlots(out.Slots, ownRow, row{t.origin, c.birth}, c.changed, c.meter.at(now))
			}
			c.touched, c.offered, c.changed = false, 0, 0
		}
		clear(s.touched)
		s.touched = s.touched[:0]
		s.Unlock()
	}
	for _, m := range t.meters.all() {
		if m.demand >= leastDemand {
			out.Demand = append(out.Demand, Demand{Meter: &m.Meter, Rate: m.demand})
		}
	}
	t.expire(now)
	return out
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
// invalid meter are refused and counted in Stats. Slots of one meter are cheapest in a row.
func (t *Table) Merge(slots []Slot, now int64) (novel int) {
	var meter *Meter
	var state *meterState
	for i := range slots {
		s := &slots[i]
		if s.Meter != meter {
			meter, state = s.Meter, t.remoteMeter(s.Meter)
		}
		if state == nil || s.Index > state.Index(now)+1 {
			t.stats.refused.Add(1)
			continue
		}
		own := s.Origin == t.origin || s.Origin == 0
		if !own && s.Count > 0 && s.Index >= state.Index(now)-int64(state.SubWindows()) && t.mergeLive(s, state, now) {
			novel++
		}
	}
	return novel
}

// mergeLive merges a slot that counts in the window of now.
func (t *Table) mergeLive(slot *Slot, m *meterState, now int64) bool {
	id := cellID{m.id, slot.Key}
	s := &t.shards[id.shard()]
	s.Lock()
	defer s.Unlock()
	c := s.cells[id]
	if c != nil {
		if _, ok := c.settle(now); !ok {
			t.remove(s, c)
			c = nil
		}
	}
	if c == nil {
		c = t.create(s, m, id, m.Index(now), now)
	}
	c.use(now)
	novel, full := c.merge(slot)
	if full {
		t.stats.refused.Add(1)
	}
	return novel
}

// Snapshot returns every slot that still counts, of all origins: what a newcomer needs. It holds at most limit slots; beyond that,
// the keys that count most come first and the others are left out.
func (t *Table) Snapshot(now int64, limit int) []Slot {
	var cells []heat
	total := 0
	t.eachLive(now, func(c *cell, at instant) {
		if n := c.countSlots(); n > 0 {
			cells = append(cells, heat{c, view(c.total(), &c.meter.Meter, at), n})
			total += n
		}
	})
	if total > limit {
		slices.SortStableFunc(cells, func(a, b heat) int { return cmp.Compare(b.view, a.view) })
	}
	kept := make([]Slot, 0, max(0, min(total, limit)))
	for _, h := range cells {
		if len(kept)+h.slots > limit {
			break
		}
		kept = t.appendAll(kept, h.cell, now)
	}
	return kept
}

// heat is how much a cell counts, and in how many slots.
type heat struct {
	cell  *cell
	view  uint64
	slots int
}

// appendAll appends all slots of a cell that still count, unless it has gone meanwhile.
func (t *Table) appendAll(dst []Slot, c *cell, now int64) []Slot {
	s := &t.shards[c.id.shard()]
	s.Lock()
	defer s.Unlock()
	at, ok := c.settle(now)
	if !ok || s.cells[c.id] != c {
		return dst
	}
	dst = c.appendSlots(dst, ownRow, row{t.origin, c.birth}, math.MaxUint64, at)
	for i, r := range c.rows {
		dst = c.appendSlots(dst, remoteRows+i, r, math.MaxUint64, at)
	}
	return dst
}

// Own returns every slot of the table's own origin that still counts.
func (t *Table) Own(now int64) []Slot {
	var own []Slot
	t.eachLive(now, func(c *cell, at instant) {
		own = c.appendSlots(own, ownRow, row{t.origin, c.birth}, math.MaxUint64, at)
	})
	return own
}

// eachLive calls f for every cell brought to now, a shard locked at a time.
func (t *Table) eachLive(now int64, f func(c *cell, at instant)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		for _, c := range s.cells {
			if at, ok := c.settle(now); ok {
				f(c, at)
			}
		}
		s.Unlock()
	}
}
