package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// Take decides on a request and counts it if it is admitted. A cost of 0 is a peek.
func (t *Table) Take(l *Limit, key, cost uint64, now int64) Decision {
	h := t.store.Hash(l.ID, key)
	s := t.store.Shard(h)
	s.Lock()
	line := s.Head(h, l.ID, key)
	if line == nil {
		d := t.takeNew(s, h, l, key, cost, now)
		s.Unlock()
		return d
	}
	c := headOf(line)
	off := now - c.sub()*l.Sub
	if uint64(off) >= uint64(l.Sub) || cost-1 >= l.Max || c.has(ahead) || l.Bucket != nil {
		if s.MustGrow() { // lines may be inserted
			s.Grow()
			c = headOf(s.Head(h, l.ID, key))
		}
		d := t.takeSlowly(s, h, l, c, cost, now)
		s.Unlock()
		return d
	}
	seen := c.newest() + c.sum() + l.window.Part(c.leaving(), l.Sub-off)
	if seen > l.Max-cost {
		d := t.deny(s, h, l, c, cost, off)
		s.Unlock()
		return d
	}
	c.offer(s, cost)
	c.name += cost << countAt
	c.counted()
	c.lower(denied)
	d := Decision{Allowed: true, Remaining: l.Max - seen - cost, ResetAfter: l.reset(c.newest(), l.N, off)}
	s.Unlock()
	return d
}

// deny denies a request of a head whose window holds now. How long there is no room for a cost of 1 is remembered.
func (t *Table) deny(s *rows.Shard, h uint64, l *Limit, c *head, cost uint64, off int64) Decision {
	until, known := c.fullUntil(l)
	if !known || cost > 1 || off >= until {
		return t.takeSlowly(s, h, l, c, cost, c.sub()*l.Sub+off)
	}
	c.offer(s, cost)
	count, age := c.newest(), c.age()
	if age > 0 {
		count = t.placeOf(s, h, c, &l.Meter, age)
	}
	return Decision{RetryAfter: until - off, ResetAfter: l.reset(count, l.N-age, off)}
}

// takeNew is Take of a key without a head.
func (t *Table) takeNew(s *rows.Shard, h uint64, l *Limit, key, cost uint64, now int64) Decision {
	if cost > l.Max || l.Max == 0 {
		return Decision{Remaining: l.Max, RetryAfter: Never}
	}
	if cost == 0 {
		return Decision{Allowed: true, Remaining: l.Max}
	}
	c := t.create(s, h, &l.Meter, key, now)
	if c == nil {
		return Decision{RetryAfter: l.Sub}
	}
	return t.takeSlowly(s, h, l, c, cost, now)
}

// takeSlowly is Take of whatever state a head is in.
func (t *Table) takeSlowly(s *rows.Shard, h uint64, l *Limit, c *head, cost uint64, now int64) Decision {
	key := c.key
	off, back, ok := t.settle(s, h, c, &l.Meter, now)
	chargeable := cost > 0 && cost <= l.Max
	if !ok {
		if chargeable {
			t.remove(s, h, c)
		}
		return t.takeNew(s, h, l, key, cost, now)
	}
	if l.Bucket != nil {
		return t.takeBucket(s, l, c, cost, off, back)
	}
	if chargeable {
		c.offer(s, cost)
	}
	inner := c.newest() + c.sum()
	seen, asked := inner+l.window.Part(c.leaving(), l.Sub-off), min(max(cost, 1), maxAsked)
	d := Decision{Allowed: asked <= l.Max && seen <= l.Max-asked}
	if d.Allowed && chargeable {
		c.setNewest(c.newest() + cost)
		c.counted()
		seen, inner = seen+cost, inner+cost
	}
	if chargeable {
		if c.lower(denied); !d.Allowed {
			c.raise(denied)
		}
	}
	d.Remaining = l.Max - min(seen, l.Max)
	if seen == 0 && d.Allowed {
		return d
	}
	var r ring
	t.load(s, h, c, &l.Meter, &r)
	var later uint64
	if c.has(ahead) {
		later = t.others(s, h, c, c.sub()+1)
	}
	places := r.counts[:l.N+1]
	if !d.Allowed {
		if d.RetryAfter = Never; asked <= l.Max {
			d.RetryAfter = l.window.Wait(places, inner, later, l.Max-asked, off) + back
		}
		if asked == 1 && back == 0 && l.Max > 0 {
			c.setFull(l, off+d.RetryAfter)
		}
	}
	if seen > 0 {
		d.ResetAfter = l.window.Reset(places, inner, later, off) + back
	}
	return d
}

// placeOf is the count of the place that is so many before the newest.
func (t *Table) placeOf(s *rows.Shard, h uint64, c *head, m *Meter, age int) uint64 {
	switch {
	case c.has(wide):
	case m.isTimed():
		return c.timed().before
	case m.Bucket != nil:
		return c.before()
	default:
		return uint64(c.places[m.N-age])
	}
	at := c.sub() - int64(age)
	name := longName(c, wideKind, at)
	if line := s.Find(rows.Sub(h, name), c.key, name); line != nil {
		return longsOf(line).get(at)
	}
	return 0
}
