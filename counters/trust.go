package counters

import (
	"sync/atomic"
	"time"
)

// What is believed of peers. Whoever may speak to this table can tell it any count, in the name of any origin, so no count is taken that
// no honest node can have: one that admits by the limits known here admits, of a key in a sub-window, at most a whole limit, and a bucket
// beside its capacity what comes back in the meantime.
//
// Who lied nobody can tell, and to mistrust the origin that was named would let a liar silence the honest. So a slot beyond belief is
// refused, which leaves the others as they are; and for a while the table keeps a floor: of each key it admits a half of an even share
//
//	limit / 2N        N nodes
//
// whatever others tell of it, as lies that can be believed may stand among them. The floors of all nodes together are half a limit.

const (
	// believed is by how many times limits may differ among nodes, and in time, while a change of them reaches all: a slot of so many
	// limits is believed.
	believed = 8
	// doubtFor is how long the floor is kept at least: longer where admissions count for longer.
	doubtFor = time.Minute
)

// doubt is what a table keeps of slots beyond belief.
type doubt struct {
	slots  atomic.Uint64
	origin atomic.Uint64 // of the last
	at     atomic.Int64  // when that came; 0: none did
}

// Doubted returns the origin that the last slot beyond belief was told of, 0 if there was none. It need not be who told it.
func (t *Table) Doubted() Origin { return Origin(t.doubt.origin.Load()) }

// believes raises what is believed of the meter to what a limit in force allows. It is never lowered: counts by the old limit come after
// the new one is known. It wants the lock on drains.
func (m *meterState) believes(l *Limit) {
	m.most.Store(max(m.most.Load(), believed*(l.max+l.refill)))
}

// incredible reports whether a slot counts more than a node can have admitted, or says that a ban lasts longer than one does, and notes
// that it came. Of counts of a meter that no limit here has, everything is believed, until one is known.
func (m *merge) incredible(meter *meterState, slot *Slot) bool {
	most := meter.most.Load()
	if meter.algorithm == Ban {
		most = meter.lastBan(slot.Index)
	}
	if most == 0 || slot.Count <= most {
		return false
	}
	m.doubt.slots.Add(1)
	m.doubt.origin.Store(uint64(slot.Origin))
	m.doubt.at.Store(m.now)
	return true
}

// doubts reports whether the table keeps its floor of the limit at the time now.
func (t *Table) doubts(l *Limit, now int64) bool {
	at := t.doubt.at.Load()
	return at != 0 && now-at < int64(max(doubtFor, l.Lasts()))
}

// floor is how much of a key the table admits in a window whatever others tell.
func (t *Table) floor(l *Limit) uint64 {
	most := l.max
	if l.refill > 0 {
		most = min(most, l.refill)
	}
	return most / 2 / uint64(t.keepers(l).peers+1)
}

// keepFloor admits a request that was denied, where this table has admitted less than its floor in the window.
func (t *Table) keepFloor(y layer, l *Limit, cost, before uint64, how step, d *Decision) {
	s, c, asked := y.shard, y.cell, max(cost, 1)
	if !t.doubts(l, c.index*l.sub+y.at.off) {
		return
	}
	floor := t.floor(l)
	if asked > floor || before > floor-asked {
		return
	}
	own, ring, rest := before, c.counts(&l.shape), c.slots
	for i := len(ring) - 1; i > 0; i-- {
		var count uint64
		count, rest = s.ownAt(c, ring, i, rest)
		own += count
	}
	if own > floor-asked {
		return
	}
	d.Allowed, d.Delay, d.RetryAfter = true, 0, 0
	if how.charges() && cost > 0 {
		t.countAnyway(y, l, cost)
	}
}

// countAnyway counts a cost that the limit may have no room for.
func (t *Table) countAnyway(y layer, l *Limit, cost uint64) {
	c := y.cell
	c.count(c.counts(&l.shape), cost)
	if c.watch != 0 {
		t.spend(y.shard, l, c, y.shard.memory.watch(c.watch), cost)
	}
	switch {
	case l.algorithm == SlidingLog:
		t.log(y.shard, l, c, cost, y.at)
	case l.algorithm.bucket():
		v := c.level()
		v.take(l.span(cost), l.point(v.notBefore(&l.shape, y.at)), l.late)
	}
}
