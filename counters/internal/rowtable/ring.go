package rowtable

import (
	"slices"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// maxRing is the largest ring: sixty sub-windows and the one that leaves.
const maxRing = 61

// ring is the counts of a head by sub-window, the oldest first, and what they add up to.
type ring struct {
	counts [maxRing]uint64
	n      int // sub-windows of the window
}

// load reads the ring of a head.
func (t *Table) load(s *rows.Shard, h uint64, c *head, m *Meter, r *ring) {
	r.n = m.N
	r.counts[r.n] = c.newest()
	switch {
	case c.has(wide):
	case m.isBucket():
		r.counts[0] = c.before()
		return
	default:
		for i, count := range c.places[:m.N] {
			r.counts[i] = uint64(count)
		}
		return
	}
	first := c.sub() - int64(m.N)
	var line *rows.Line
	for i := range m.N {
		if at := first + int64(i); line == nil || at%longs == 0 {
			name := longName(c, wideKind, at)
			line = s.Find(rows.Sub(h, name), c.key, name)
			if line == nil {
				line = &noLine
			}
		}
		r.counts[i] = longsOf(line).get(first + int64(i))
	}
}

// noLine is read where a line is missing: nothing is counted there.
var noLine rows.Line

// save writes the ring of a head. The head is wide while a place needs it.
func (t *Table) save(s *rows.Shard, h uint64, c *head, m *Meter, r *ring) {
	if m.isBucket() {
		t.saveBucket(s, h, c, m, r)
		return
	}
	var sum uint64
	large := m.N > narrow
	for i, count := range r.counts[:m.N] {
		if i > 0 {
			sum += count
		}
		large = large || count > maxPlace
	}
	c.setNewest(r.counts[m.N])
	if large {
		c.raise(wide)
		t.saveWide(s, h, c, m, r)
		c.wide().leaving, c.wide().middle = r.counts[0], sum
		return
	}
	c.lower(wide) // its lines go with the next scan
	c.middle = uint32(sum)
	for i, count := range r.counts[:m.N] {
		c.places[i] = uint16(count)
	}
}

// saveBucket is save of a bucket.
func (t *Table) saveBucket(s *rows.Shard, h uint64, c *head, m *Meter, r *ring) {
	c.setNewest(r.counts[m.N])
	if m.N > 1 || r.counts[0] > maxBefore {
		c.raise(wide)
		t.saveWide(s, h, c, m, r)
		return
	}
	c.lower(wide)
	c.setBefore(r.counts[0])
}

// saveWide writes the wide lines of a head: those in which something counts.
func (t *Table) saveWide(s *rows.Shard, h uint64, c *head, m *Meter, r *ring) {
	first := c.sub() - int64(m.N)
	for i := 0; i < m.N; {
		at := first + int64(i)
		n := min(m.N-i, longs-int(at&(longs-1)))
		name := longName(c, wideKind, at)
		line := s.Find(rows.Sub(h, name), c.key, name)
		if line == nil && slices.Max(r.counts[i:i+n]) > 0 {
			line = s.Insert(rows.Sub(h, name), c.key, name)
		}
		for k := range n {
			if line != nil {
				longsOf(line).set(at+int64(k), r.counts[i+k])
			}
		}
		i += n
	}
}

// ensure returns a line that is no head, and makes it if it is missing; nil if there is no room.
func ensure(s *rows.Shard, h, key, name uint64) *rows.Line {
	if l := s.Find(h, key, name); l != nil {
		return l
	}
	return s.Insert(h, key, name)
}

// settle moves a head to the time now. ok is false if its counts are of no use, as the clock stepped back by more than
// the window. back is by how much the clock is behind the head.
func (t *Table) settle(s *rows.Shard, h uint64, c *head, m *Meter, now int64) (off, back int64, ok bool) {
	sub := now / m.Sub
	if sub < c.sub() {
		return 0, c.sub()*m.Sub - now, c.sub()-sub <= int64(m.N)
	}
	if by := sub - c.sub(); by > 0 {
		t.advance(s, h, c, m, by)
	}
	return now - sub*m.Sub, 0, true
}

// advance moves a head on by so many sub-windows, and drops what leaves the window.
func (t *Table) advance(s *rows.Shard, h uint64, c *head, m *Meter, by int64) {
	if m.isTimed() {
		c.advanceTimes(by)
		return
	}
	var r ring
	t.load(s, h, c, m, &r)
	places := r.counts[:m.N+1]
	if by > int64(m.N) {
		clear(places)
	} else {
		clear(places[copy(places, places[by:]):])
	}
	if c.has(ahead) && by <= int64(m.N)+1 {
		places[m.N+1-int(by)] += t.others(s, h, c, c.sub()+1)
	}
	c.lower(ahead | judged)
	c.setSub(c.sub() + by)
	if by > int64(m.N)+1 {
		c.forget(t.shardOf(h))
		if m.isLog() { // its entries have left, and lines of its next generation may be there from before
			c.full = 0
		}
	} else if c.has(slotsForm) {
		t.prune(s, h, c, m)
	}
	if n := c.changed(); n > 0 {
		c.setChanged(int(min(int64(n)+by, int64(m.N)+1)))
	}
	switch {
	case m.isBucket():
		c.level().Elapse(uint64(by), uint64(m.Sub)<<m.digits())
	case m.isLog():
		c.setAge(ageOf(places))
	default:
		c.elapse(min(by, int64(m.N)+2) * m.Sub)
		c.setAge(ageOf(places))
	}
	t.save(s, h, c, m, &r)
}

// ageOf is how many places the newest count is before the newest place; all of them if there is none.
func ageOf(places []uint64) int {
	for age := range len(places) {
		if places[len(places)-1-age] != 0 {
			return age
		}
	}
	return len(places)
}
