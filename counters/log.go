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

// forget drops the entries of a log that have left the window. They do not come back if the clock steps back.
func (s *shard) forget(c *cell, sh *shape, at instant) {
	if sh.algorithm != SlidingLog {
		return
	}
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

// log appends an admitted cost. If the clock stepped back, the cost counts as of the newest entry.
func (t *Table) log(y *layer, cost uint64) {
	s, j := y.s, y.c.requestLog()
	now := y.now()
	if j.newest != 0 {
		if e := s.memory.entry(j.newest); e.time >= now {
			e.cost += uint32(cost)
			j.sum += cost
			return
		}
	}
	ref := t.alloc(s, entryWords, y.c, now)
	if ref == 0 { // no room even after eviction: count it by sub-window
		y.c.others(&y.l.shape)[y.l.n] += cost
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

// logFalls is the shortest wait until a view above limit falls to it, if nothing is added.
func (y *layer) logFalls(limit uint64) time.Duration {
	at := int64(0)
	if ahead := y.s.ahead(y.c); ahead == 0 && slices.Max(y.c.others(&y.l.shape)) == 0 {
		at = y.ownFalls(limit)
	} else {
		at = y.allFall(limit, ahead)
	}
	return time.Duration(at - y.now() + y.back)
}

// ownFalls is when the view falls to a limit if only this table counts: only entries leave.
func (y *layer) ownFalls(limit uint64) int64 {
	j, m := y.c.requestLog(), &y.s.memory
	ref, view := j.newest, j.sum
	if limit > 0 {
		for ref = j.oldest; view-uint64(m.entry(ref).cost) > limit; ref = m.entry(ref).next {
			view -= uint64(m.entry(ref).cost)
		}
	}
	return m.entry(ref).time + int64(y.l.n)*y.l.sub
}

// allFall is when the view falls to a limit. It goes through entries and sub-windows in the order in which they leave.
func (y *layer) allFall(limit, ahead uint64) int64 {
	l, m, others := y.l, &y.s.memory, y.c.others(&y.l.shape)
	view, window := y.c.logView(&l.shape), int64(l.n)*l.sub
	ref := y.c.requestLog().oldest
	for i := 1; ; {
		leaves := (y.c.index + int64(i)) * l.sub // the time at which the place i leaves
		when := leaves
		if ref != 0 {
			when = min(when, m.entry(ref).time+window)
		}
		for ; ref != 0 && m.entry(ref).time+window <= when; ref = m.entry(ref).next {
			view -= uint64(m.entry(ref).cost)
		}
		if when == leaves {
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
			return when
		}
	}
}
