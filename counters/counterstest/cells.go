package counterstest

import "github.com/edgelimit/edgelimit/counters"

// Cells is a model of what one table keeps of one limit: what it was asked for, and what it heard of others. Unlike a [Model] it lives in
// time. Each key has a cell, and the time of a cell is the latest sub-window that anything came to it in. Where the clock goes back,
//
//   - into an earlier sub-window, but by no more of them than a window has, all is as of the beginning of the cell's sub-window, and waits
//     are told by the clock;
//   - by more, the cell belongs to no time that will come soon: it is not seen, and an empty one takes its place where something is
//     counted.
//
// A log never runs backwards: what comes before its newest entry is as of that, and what has left it once does not come back. Nor does a
// bucket run behind the moment when it was full the last time: it never owes more than what was taken.
//
// It knows nothing of memory: nothing is ever evicted, and a cell without counts keeps its time.
type Cells struct {
	limit  *counters.Limit
	origin counters.Origin
	sub, n int64
	cells  map[counters.Key]*cell
	gone   map[counters.Key]int64 // until when a cell that was replaced may be told of again
	bans   *bans                  // nil: the limit bans nobody
}

type cell struct {
	index  int64 // its time
	own    int64 // the sub-window of its time when something was charged last; -1: never
	count  count
	heard  map[heardOf]uint64
	reborn bool // what is new to it need not be new: it does not know since when
}

// heardOf is a slot of a key but for its count.
type heardOf struct {
	index  int64
	origin counters.Origin
	birth  uint32
}

// MaxCount is the most that a slot counts.
const MaxCount = 1<<42 - 1

// NewCells returns what a table of the origin keeps of a limit before anything came.
func NewCells(l *counters.Limit, own counters.Origin) *Cells {
	m := l.Meter()
	return &Cells{limit: l, origin: own, sub: int64(m.Sub), n: int64(m.SubWindows()), cells: make(map[counters.Key]*cell),
		gone: make(map[counters.Key]int64), bans: newBans(l)}
}

// open returns an empty cell of a sub-window.
func (s *Cells) open(index int64) *cell {
	c := &cell{index: index, own: -1, count: newCount(s.limit), heard: make(map[heardOf]uint64)}
	if r, ok := c.count.(*replay); ok {
		c.count = &bucket{rate: r.rate, sub: r.sub}
	}
	return c
}

// settle brings the key's cell to the time now, and returns it with the time as of which it is to be asked. It returns an empty cell that
// is nobody's where there is none, or none that can be seen from now.
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

// keep makes the cell that of the key.
func (s *Cells) keep(key counters.Key, c *cell, now int64) {
	old := s.cells[key]
	if old == c {
		return
	}
	if old != nil {
		newest := old.own
		for id := range old.heard {
			if id.index <= old.index {
				newest = max(newest, id.index)
			}
		}
		if newest >= old.index-s.n {
			s.gone[key] = max(s.gone[key], (newest+1)*s.sub)
		}
	}
	c.reborn = now < s.gone[key]
	s.cells[key] = c
}

// look is settle for whoever wants to know what the cell counts.
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

// Ask answers a request that charges the key so much before already, without charging anything.
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
	most := 2 * s.limit.Max()
	s.Charge(key, min(cost, most-min(most, s.View(key, now))), now)
}

// Take decides on a request as [counters.Table.Take] does.
func (s *Cells) Take(key counters.Key, cost uint64, now int64) counters.Decision {
	d := s.Ask(key, cost, 0, now)
	if left := s.bans.left(key, now); left > 0 {
		confine(&d, left)
		d.Banned = true
		return d
	}
	switch {
	case cost == 0 || d.RetryAfter == counters.Never:
	case d.Allowed:
		s.Charge(key, cost, now)
		c, at := s.look(key, now)
		tell(&d, c.count, 0, at, now)
	default:
		d = s.deny(key, cost, now)
	}
	return d
}

// deny does what the limit does to whom it denies.
func (s *Cells) deny(key counters.Key, cost uint64, now int64) counters.Decision {
	if s.limit.CountsRejected() {
		s.Report(key, cost, now)
	}
	d := s.Ask(key, cost, 0, now)
	if s.bans != nil {
		s.bans.begin(key, now)
		confine(&d, s.bans.left(key, now))
	}
	return d
}

// View is what is used of the key's limit now.
func (s *Cells) View(key counters.Key, now int64) uint64 {
	c, at := s.look(key, now)
	return c.count.view(at)
}

// Merge raises a slot of another origin to the count given, as [counters.Table.Merge] does, and reports whether that was news.
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
	id, count := heardOf{slot.Index, slot.Origin, slot.Birth}, min(slot.Count, MaxCount)
	if count <= c.heard[id] {
		return false
	}
	if c.reborn {
		slot.Since = 0
	}
	c.take(id, count-c.heard[id], slot.Since, at)
	c.heard[id] = count
	for id := range c.heard {
		if !s.holds(id.index, c.index) {
			delete(c.heard, id)
		}
	}
	return true
}

// take counts what is new of a slot.
func (c *cell) take(id heardOf, cost uint64, since, at int64) {
	if b, ok := c.count.(*bucket); ok {
		b.hear(id.index, cost, since, at)
		return
	}
	c.count.add(id.index, cost)
}

// holds reports whether a table keeps slots of the sub-window at a time in the sub-window current: those that may count, and one to come.
func (s *Cells) holds(index, current int64) bool { return current-s.n <= index && index <= current+1 }

// Forget drops what no view at the time before or later will see. Cells stay.
func (s *Cells) Forget(before int64) {
	for _, c := range s.cells {
		c.count.forget(min(before, c.index*s.sub))
	}
}
