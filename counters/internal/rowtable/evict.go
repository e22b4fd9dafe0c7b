package rowtable

import (
	"slices"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// create makes the head of a key that has none, and evicts others if there is no room. It returns nil if the meter gets
// no number, or there is no room.
func (t *Table) create(s *rows.Shard, h uint64, m *Meter, key uint64, now int64) *head {
	number := t.number(m)
	if number == 0 {
		return nil
	}
	s.Grow()
	if s.Used() >= s.Limit() {
		t.makeRoom(s, key, now)
	}
	if s.Used() >= s.Limit() {
		return nil
	}
	l := s.Insert(h, key, rows.Name(number, rows.Head, 0))
	if l == nil {
		return nil
	}
	c, cold := headOf(l), t.shardOf(h)
	cold.heads++
	cold.remotes++ // until it is asked for
	if now < cold.gone {
		cold.births = cold.births%maxBirth + 1
		c.when = cold.births << subBits
		c.renew(cold)
	}
	c.setSub(now / m.Sub)
	switch {
	case m.isTimed():
	case !m.isBucket():
		if c.setAge(m.N + 1); m.N > narrow {
			c.raise(wide)
		}
	case m.N > 1:
		c.raise(wide)
	}
	return c
}

// ready prepares a shard for new lines of the heads that are there: each request, merge and part of a scan begins with
// it, as a head may need some when it moves on in time. Where such lines have taken the shard above its limit, ready
// evicts heads, but not that of a key. Lines may have moved if it returns true.
func (t *Table) ready(s *rows.Shard, key uint64, now int64) (moved bool) {
	if !s.MustGrow() && s.Used() <= s.Limit() {
		return false
	}
	s.Grow()
	if s.Used() > s.Limit() {
		t.makeRoom(s, key, now)
	}
	return true
}

// linesPerHead is how many lines a head gets at most as it moves on and becomes hot: a wide one, or all that it needs
// to become wide, and two that say what it is asked for.
const linesPerHead = 5

// readyPart is ready for a part of a scan. It returns how large the part may be: for the lines of so many heads there
// is room.
func (t *Table) readyPart(s *rows.Shard, most int, now int64) int {
	t.ready(s, 0, now)
	return max(1, min(most, s.Room()/linesPerHead))
}

// makeRoom evicts heads, but not that of a key, until there is room for one or nothing is left to evict.
func (t *Table) makeRoom(s *rows.Shard, key uint64, now int64) {
	for s.Used() >= s.Limit() {
		l := t.victim(s, key, now)
		if l == nil {
			return
		}
		if l.Kind() == rows.Head {
			t.noteEviction(s, headOf(l), now)
			t.remove(s, t.hashOf(l), headOf(l))
		} else {
			s.Remove(l)
		}
	}
}

func (t *Table) hashOf(l *rows.Line) uint64 { return t.store.Hash(t.meters.ids[l.Meter()], l.Key) }

// worth is that of a line in an eviction. Lines of a head that is there go with it; others go at once. A head stays in
// its sub-window: it might need lines for the next one, and there is no room.
func (t *Table) worth(s *rows.Shard, l *rows.Line, now int64) uint64 {
	m := t.meter(l.Meter())
	if l.Kind() != rows.Head {
		if t.isOrphan(s, l) {
			return rows.Worthless
		}
		return rows.Pinned
	}
	c := headOf(l)
	if c.has(pinned) {
		return rows.Pinned
	}
	var worth uint64
	var busy bool
	by := now/m.Sub - c.sub()
	age := int64(c.age()) + max(by, 0)
	switch {
	case by < -int64(m.N):
		return rows.Worthless // see settle
	case m.isTimed(): // as much as any limit, or nothing
		if m.ends(c) <= now {
			return 1
		}
		worth, busy = mostWorth, true
	case m.isBucket():
		worth, busy = t.bucketWorth(c, m, max(by, 0), now), c.newest() > 0 && by <= 0
	case age > int64(m.N) && !c.has(ahead):
		return rows.Worthless
	default:
		worth, busy = c.newest()+c.sum()+c.leaving(), age <= int64(m.N/2)
	}
	worth = min(worth, mostWorth) + 1
	if busy {
		worth |= busyWorth
	}
	if c.has(denied) {
		worth |= deniedWorth
	}
	return worth
}

// bucketWorth is how much of its limit a bucket has used, so many sub-windows after its newest; the newest count if no
// limit is known.
func (t *Table) bucketWorth(c *head, m *Meter, by, now int64) uint64 {
	l := t.stateOf(c).limit.Load()
	if l == nil || c.has(pendingDebit) {
		return c.newest()
	}
	level := *c.level()
	level.Elapse(uint64(by), uint64(m.Sub)<<m.digits())
	return l.tokens(level.Debt(l.point(max(0, now-(c.sub()+by)*m.Sub))))
}

// empty reports whether the head counts nothing, now or later. A bucket is empty once it has been full for so long that
// no merge reaches back to a time before.
func (t *Table) empty(s *rows.Shard, h uint64, c *head, m *Meter, now int64) bool {
	if m.isTimed() {
		return m.timesGone(c, now)
	}
	if c.has(ahead) || !m.isBucket() {
		return !c.has(ahead) && c.age() > m.N
	}
	if !c.level().Forgotten() || c.newest() > 0 {
		return false
	}
	var r ring
	t.load(s, h, c, m, &r)
	return slices.Max(r.counts[:m.N]) == 0
}

// isOrphan reports whether a line belongs to no head, or to one that does not need it any more.
func (t *Table) isOrphan(s *rows.Shard, l *rows.Line) bool {
	head := s.Head(t.hashOf(l), t.meters.ids[l.Meter()], l.Key)
	if head == nil {
		return true
	}
	c := headOf(head)
	switch l.Kind() {
	case freedKind:
		return !c.has(gaveBack)
	case hotKind, ratesKind:
		return t.isCold(s, c, l)
	}
	if l.Rest()&maxGeneration != c.generation() {
		return true
	}
	m := t.meter(l.Meter())
	more := l.Rest() >> generationBits
	from := c.sub() - int64(m.N)
	switch l.Kind() {
	case logKind:
		return !c.isLogLine(more)
	case slotsKind:
		return !c.has(slotsForm)
	case wideKind:
		return !c.has(wide) || behind(more, uint64(from/longs), rows.RestBits-generationBits)
	case partsKind:
		return !c.has(summed) || behind(more, uint64(from), rows.RestBits-generationBits)
	case sumsKind:
		return behind(more, uint64(from/longs), rows.RestBits-generationBits)
	case blockKind, blockKind + aboveBy:
		return behind(more>>originBits, uint64(from)>>blockSubs, spanBits)
	case fewKind, fewKind + aboveBy, rowKind, rowKind + aboveBy:
		const bits = spanBits - birthBits
		few := l.Kind()&(aboveBy-1) == fewKind
		return few && !c.has(rowsForm) || behind(more>>(originBits+birthBits), uint64(from)>>rowSubs, bits)
	}
	return false
}

// behind reports whether a number, of which the low bits are known, is below another one.
func behind(low, than uint64, bits uint) bool {
	return (low-than)&(1<<bits-1) >= 1<<(bits-1)
}

// remove removes a head. Its lines have no head then, and go when the hand or a scan comes to them.
func (t *Table) remove(s *rows.Shard, h uint64, c *head) {
	t.leave(s, h, c)
	s.Remove(c.line())
}

// leave prepares the removal of a head. The next drain still returns its unsent counts. Until all that it knows of has
// left the window, a new head of the key gets another birth: so lines of this one are not taken for its own.
func (t *Table) leave(s *rows.Shard, h uint64, c *head) {
	cold, m := t.shardOf(h), t.meter(c.line().Meter())
	if cold.heads--; !c.has(local) {
		cold.remotes--
	}
	if m.Scope != Alone {
		cold.unsent = t.appendOwn(cold.unsent, s, h, c, m, c.changed())
		raise(&t.stateOf(c).removed, uint64(c.offered()))
	}
	age := c.age()
	switch {
	case m.isTimed():
		age = ageOf([]uint64{c.timed().before, c.newest()})
	case m.isBucket():
		var r ring
		t.load(s, h, c, m, &r)
		age = ageOf(r.counts[:m.N+1])
	}
	last := c.sub() - int64(age)
	if c.has(ahead) {
		last = c.sub() + 1
	}
	cold.gone = max(cold.gone, (last+int64(m.N)+1)*m.Sub)
}

// expire removes what counts nothing any more, in a part of a scan.
func (t *Table) expire(s *rows.Shard, cursor *rows.Cursor, now int64) (done bool) {
	return s.Scan(cursor, t.readyPart(s, scanPlaces, now), func(l *rows.Line) bool {
		if l.Kind() != rows.Head {
			return t.isOrphan(s, l)
		}
		c, h, m := headOf(l), t.hashOf(l), t.meter(l.Meter())
		if _, _, ok := t.settle(s, h, c, m, now); ok && !t.empty(s, h, c, m, now) {
			return false
		}
		t.stats.expired.Add(1)
		t.leave(s, h, c)
		return true
	})
}

const scanPlaces = 512
