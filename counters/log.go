package counters

import (
	"slices"
	"time"
	"unsafe"
)

// A sliding log holds each request that this table admitted, with its time, and what others admitted by sub-window. For
// a window W,
//
//	view(t) = sum of own costs in (t-W, t] + sum of others' counts in the sub-windows that begin in (t-W, t]
//
// A sub-window of others leaves completely when its start does, so a log may count too little of others, never too
// much.

// requestLog is the state of a sliding log: a list of entries.
type requestLog struct {
	oldest, newest uint32
	sum            uint64 // of the entries' costs
}

// entry is a request, or several of the same nanosecond.
type entry struct {
	next uint32
	cost uint32
	time int64
}

const (
	logWords   = int(unsafe.Sizeof(requestLog{}) / wordBytes)
	entryWords = int(unsafe.Sizeof(entry{}) / wordBytes)
)

func (c *cell) requestLog() *requestLog {
	return (*requestLog)(unsafe.Add(unsafe.Pointer(c), headWords*wordBytes))
}

func (c *cell) others(sh *shape) []uint64 { return c.words(headWords+logWords, sh.size()) }

// forget drops the entries that have left the window. They do not come back if the clock steps back.
func (s *shard) forget(c *cell, sh *shape, at instant) {
	j := c.requestLog()
	begin := c.index*sh.sub + at.off - int64(sh.n)*sh.sub
	for j.oldest != 0 {
		e := s.memory.entry(j.oldest)
		if e.time > begin {
			return
		}
		j.sum -= uint64(e.cost)
		s.pop(&j.oldest)
	}
	j.newest = 0
}

func (s *shard) dropLog(c *cell) {
	for j := c.requestLog(); j.oldest != 0; {
		s.pop(&j.oldest)
	}
}

// logView is the count of the window, once forget has dropped what left it.
func (c *cell) logView(sh *shape) uint64 {
	sum := c.requestLog().sum
	for _, count := range c.others(sh)[1:] {
		sum += count
	}
	return sum
}

func (t *Table) takeLog(s *shard, l *Limit, c *cell, cost, before uint64, at instant, commit bool, d *Decision) {
	s.forget(c, &l.shape, at)
	seen := c.logView(&l.shape) + before
	asked := min(max(cost, 1), MaxLimit+1) // no sum with before overflows
	if d.Allowed = asked <= l.max && seen <= l.max-asked; !d.Allowed {
		d.RetryAfter = Never
		if asked+before <= l.max {
			d.RetryAfter = s.logFalls(l, c, l.max-asked-before, at)
		}
	} else if commit && cost > 0 {
		c.count(c.counts(&l.shape), cost)
		t.log(s, l, c, cost, at)
		seen += cost
	}
	d.Remaining = l.max - min(seen, l.max)
	if seen > before {
		d.ResetAfter = s.logFalls(l, c, 0, at)
	}
}

// log appends an admitted cost. If the clock stepped back, the cost counts as of the newest entry.
func (t *Table) log(s *shard, l *Limit, c *cell, cost uint64, at instant) {
	j := c.requestLog()
	now := c.index*l.sub + at.off
	if j.newest != 0 {
		if e := s.memory.entry(j.newest); e.time >= now {
			e.cost += uint32(cost)
			j.sum += cost
			return
		}
	}
	ref := t.alloc(s, entryWords, c, now)
	if ref == 0 { // no room even after eviction: count it by sub-window
		c.others(&l.shape)[l.n] += cost
		return
	}
	*s.memory.entry(ref) = entry{cost: uint32(cost), time: now}
	if j.newest != 0 {
		s.memory.entry(j.newest).next = ref
	} else {
		j.oldest = ref
	}
	j.newest = ref
	j.sum += cost
}

// logFalls is the shortest wait until a view above limit falls to it, if nothing is added. It goes through entries and
// sub-windows in the order in which they leave.
func (s *shard) logFalls(l *Limit, c *cell, limit uint64, at instant) time.Duration {
	j, others := c.requestLog(), c.others(&l.shape)
	view, window := c.logView(&l.shape), int64(l.n)*l.sub
	start := c.index * l.sub
	ahead := s.ahead(c)
	if ahead == 0 && slices.Max(others) == 0 { // nobody else counts: only entries leave
		ref := j.newest
		if limit > 0 {
			for ref = j.oldest; view-uint64(s.memory.entry(ref).cost) > limit; ref = s.memory.entry(ref).next {
				view -= uint64(s.memory.entry(ref).cost)
			}
		}
		return time.Duration(s.memory.entry(ref).time + window - start - at.off + at.back)
	}
	for ref, i := j.oldest, 1; ; {
		when := start + int64(i)*l.sub // the time at which the place i leaves
		if ref != 0 {
			when = min(when, s.memory.entry(ref).time+window)
		}
		for ; ref != 0 && s.memory.entry(ref).time+window <= when; ref = s.memory.entry(ref).next {
			view -= uint64(s.memory.entry(ref).cost)
		}
		if when == start+int64(i)*l.sub {
			switch {
			case i < len(others):
				view -= others[i]
			case i == len(others):
				view -= ahead
			}
			if i == 1 {
				view += ahead // the sub-window ahead begins
			}
			i++
		}
		if view <= limit {
			return time.Duration(when - start - at.off + at.back)
		}
	}
}
