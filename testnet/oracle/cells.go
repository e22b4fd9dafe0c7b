package oracle

import (
	"maps"

	"github.com/edgelimit/edgelimit/counters"
)

// Cells is a model of one limit in one table: its own requests, and the counts that it received. Unlike a [Model] it
// has a clock. Each key has a cell, whose time is the latest sub-window in which it was used. If the clock steps back
//
//   - by at most the sub-windows of a window, the cell decides as of the start of its sub-window, and waits count from
//     the clock;
//   - by more, an empty cell replaces it when something is counted.
//
// A request before the newest entry of a log counts as of that entry, and an entry that has left does not come back. A
// bucket decides no earlier than it was last full. Nothing is ever evicted.
type Cells struct {
	limit  *counters.Limit
	origin counters.Origin
	sub, n int64
	cells  map[counters.Key]*cell
	gone   map[counters.Key]int64 // until when others may report a replaced cell again
	bans   *bans                  // nil: the limit bans nobody
}

type cell struct {
	index               int64 // its time
	own                 int64 // the sub-window of its time when something was charged last; -1: never
	count               count
	received            map[remoteID]uint64
	restoredWithoutTime bool // restored without time: a new count may be old
}

type remoteID struct {
	index  int64
	origin counters.Origin
	birth  uint32
}

// NewCells returns the empty state of a limit in a table of the origin.
func NewCells(l *counters.Limit, own counters.Origin) *Cells {
	m := l.Meter()
	return &Cells{
		limit: l, origin: own, sub: int64(m.Sub), n: int64(m.SubWindows()), cells: make(map[counters.Key]*cell),
		gone: make(map[counters.Key]int64), bans: newBans(l),
	}
}

// open returns an empty cell of a sub-window.
func (s *Cells) open(index int64) *cell {
	c := &cell{index: index, own: -1, count: newCount(s.limit), received: make(map[remoteID]uint64)}
	if r, ok := c.count.(*replay); ok {
		c.count = &bucket{rate: r.rate, sub: r.sub}
	}
	return c
}

// settle advances the key's cell to the time now, and returns it with the time at which it decides. Without a cell that
// counts now it returns an empty one, which keep stores.
func (s *Cells) settle(key counters.Key, now int64) (c *cell, at int64) {
	c, index := s.cells[key], now/s.sub
	if c == nil || c.index-index > s.n {
		return s.open(index), now
	}
	at = now
	if index < c.index {
		at = c.index * s.sub
	}
	c.index = max(c.index, index)
	if l, ok := c.count.(*slidingLog); ok {
		at = max(at, l.newest())
	}
	return c, at
}

// keep stores the cell of the key.
func (s *Cells) keep(key counters.Key, c *cell, now int64) {
	old := s.cells[key]
	if old == c {
		return
	}
	if old != nil {
		newest := old.own
		for id := range old.received {
			if id.index <= old.index {
				newest = max(newest, id.index)
			}
		}
		if newest >= old.index-s.n {
			s.gone[key] = max(s.gone[key], (newest+1)*s.sub)
		}
	}
	c.restoredWithoutTime = now < s.gone[key]
	s.cells[key] = c
}

// look is settle for a reader of the cell's counts.
func (s *Cells) look(key counters.Key, now int64) (c *cell, at int64) {
	c, at = s.settle(key, now)
	switch count := c.count.(type) {
	case *slidingLog:
		count.forget(at)
	case *bucket:
		at = max(at, count.run.since)
	}
	return c, at
}

// Ask decides on a request without charging it. before is what its other layers charge to the same key.
func (s *Cells) Ask(key counters.Key, cost, before uint64, now int64) counters.Decision {
	c, at := s.look(key, now)
	return ask(s.limit, c.count, cost, before, at, now)
}

// Charge counts a cost, whether or not there is room.
func (s *Cells) Charge(key counters.Key, cost uint64, now int64) {
	if cost == 0 {
		return
	}
	c, at := s.look(key, now)
	s.keep(key, c, now)
	c.own = c.index
	c.count.charge(cost, at)
}

// Report charges a cost as [counters.Table.Report] does: whether or not there is room, up to twice the limit.
func (s *Cells) Report(key counters.Key, cost uint64, now int64) {
	maxUsed := 2 * s.limit.Max()
	s.Charge(key, min(cost, maxUsed-min(maxUsed, s.View(key, now))), now)
}

// Take decides on a request as [counters.Table.Take] does.
func (s *Cells) Take(key counters.Key, cost uint64, now int64) counters.Decision {
	return s.take(key, cost, now, s.limit.CountsRejected())
}

// Overdraw is Take of a [counters.Charge] that may overdraw the limit: what is denied counts.
func (s *Cells) Overdraw(key counters.Key, cost uint64, now int64) counters.Decision {
	return s.take(key, cost, now, true)
}

func (s *Cells) take(key counters.Key, cost uint64, now int64, countsDenied bool) counters.Decision {
	d := s.Ask(key, cost, 0, now)
	if left := s.bans.left(key, now); left > 0 {
		confine(&d, left)
		d.Banned = true
		return d
	}
	switch {
	case cost == 0:
	case d.Allowed:
		s.Charge(key, cost, now)
		c, at := s.look(key, now)
		setRemaining(&d, c.count, 0, at, now)
	default:
		if countsDenied {
			s.Report(key, cost, now)
		}
		if d = s.Ask(key, cost, 0, now); s.bans != nil && d.RetryAfter != counters.Never {
			s.bans.begin(key, now)
			confine(&d, s.bans.left(key, now))
		}
	}
	return d
}

// View returns what is used of the key's limit now.
func (s *Cells) View(key counters.Key, now int64) uint64 {
	c, at := s.look(key, now)
	return c.count.view(at)
}

// Merge raises a slot of another origin to the count given, as [counters.Table.Merge] does, and reports whether the
// count was new.
func (s *Cells) Merge(slot counters.Slot, now int64) (novel bool) {
	if slot.Count == 0 || slot.Origin == 0 || slot.Origin == s.origin {
		return false
	}
	if slot.Meter.Algorithm == counters.Ban {
		return s.bans.merge(slot, now)
	}
	if !s.holds(slot.Index, now/s.sub) {
		return false
	}
	c, at := s.settle(slot.Key, now)
	s.keep(slot.Key, c, now)
	if !s.holds(slot.Index, c.index) {
		return false
	}
	id, count := remoteID{slot.Index, slot.Origin, slot.Birth}, min(slot.Count, counters.MaxCount)
	if count <= c.received[id] {
		return false
	}
	if c.restoredWithoutTime {
		slot.CompleteThrough = 0
	}
	if b, ok := c.count.(*bucket); ok {
		b.receive(id.index, count-c.received[id], slot.CompleteThrough, at)
	} else {
		c.count.add(id.index, count-c.received[id])
	}
	c.received[id] = count
	maps.DeleteFunc(c.received, func(id remoteID, _ uint64) bool { return !s.holds(id.index, c.index) })
	return true
}

// holds reports whether a table keeps slots of the sub-window at a time in the sub-window current: those that may
// count, and one to come.
func (s *Cells) holds(index, current int64) bool { return current-s.n <= index && index <= current+1 }

// Forget drops what no view at the time before or later will see. Cells stay.
func (s *Cells) Forget(before int64) {
	for _, c := range s.cells {
		c.count.forget(min(before, c.index*s.sub))
	}
}
