package rowtable

import (
	"sync/atomic"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// Heads that only peers count may be 1/remoteShare of a shard's heads. Beyond that they are evicted first, so that no
// peer evicts what this table counts: of those that compete, the least of the peer with most of them.
const remoteShare = 2

// Stats are totals since the table was made, except Keys and Bytes.
type Stats struct {
	Keys          int    // current heads
	Bytes         int    // currently used part of the memory
	Expired       uint64 // heads removed because they counted nothing any more
	Evicted       uint64 // heads removed to make room
	EvictedDenied uint64 // evicted heads whose last request was denied: all others were even more in use
	EvictedRemote uint64 // evicted heads that only peers counted: those had more than their share of the memory
	EvictedFull   uint64 // evicted heads with half of their limit or more: the table may admit as much again
	Forgotten     uint64 // cost that evicted heads still counted: the table may admit as much again
	Implausible   uint64 // refused slots that count more than a node can have admitted
	DeniedByOne   uint64 // keys, once per sub-window, denied because of a single peer: see LastDenier
}

// tableStats are what a table counts of its Stats by itself.
type tableStats struct {
	expired, evicted, evictedDenied, evictedRemote, evictedFull, forgotten atomic.Uint64
}

// Stats returns the table's totals.
func (t *Table) Stats() Stats {
	st := Stats{
		Bytes:         t.store.Bytes(),
		Expired:       t.stats.expired.Load(),
		Evicted:       t.stats.evicted.Load(),
		EvictedDenied: t.stats.evictedDenied.Load(),
		EvictedRemote: t.stats.evictedRemote.Load(),
		EvictedFull:   t.stats.evictedFull.Load(),
		Forgotten:     t.stats.forgotten.Load(),
		Implausible:   t.Implausible(),
		DeniedByOne:   t.DeniedByOne(),
	}
	for i := range t.shards {
		s := &t.store.Shards()[i]
		s.Lock()
		st.Keys += t.shards[i].heads
		s.Unlock()
	}
	return st
}

// victim is the line to remove from a shard, but not the head of a key; nil if nothing may go.
func (t *Table) victim(s *rows.Shard, key uint64, now int64) *rows.Line {
	worth := func(l *rows.Line) uint64 {
		if l.Key == key && l.Kind() == rows.Head {
			return rows.Pinned
		}
		return t.worth(s, l, now)
	}
	if cold := &t.shards[t.store.Number(s)]; cold.remotes > cold.heads/remoteShare {
		if l := t.remoteVictim(s, worth); l != nil {
			return l
		}
	}
	return s.Victim(worth)
}

// candidate is a head that competes for eviction.
type candidate struct {
	line   *rows.Line
	worth  uint64
	origin uint16 // see reporter
}

// remoteVictim is victim among the heads that only peers count.
func (t *Table) remoteVictim(s *rows.Shard, worth func(l *rows.Line) uint64) *rows.Line {
	var all [rows.Sample]candidate
	n := 0
	first := s.Victim(func(l *rows.Line) uint64 {
		w := worth(l)
		switch {
		case w == rows.Worthless:
			n = 0 // it goes at once
		case w == rows.Pinned || l.Kind() != rows.Head:
		case headOf(l).has(local):
			return rows.Pinned
		default:
			all[n] = candidate{l, w, t.reporter(s, headOf(l))}
			n++
		}
		return w
	})
	if n == 0 {
		return first
	}
	var siblings [rows.Sample]int
	best := 0
	for i := range all[:n] {
		for k := range all[:n] {
			if all[k].origin == all[i].origin {
				siblings[i]++
			}
		}
		more := siblings[i] - siblings[best]
		if more > 0 || more == 0 && all[i].worth < all[best].worth {
			best = i
		}
	}
	return all[best].line
}

// reporter is a member that counts a head, 0 if it is none or many origins count the head.
func (t *Table) reporter(s *rows.Shard, c *head) (origin uint16) {
	switch {
	case t.meter(c.line().Meter()).isTimed():
		origin = uint16(c.timed().latest)
	case c.has(slotsForm):
		name := slotsName(c)
		if l := s.Find(rows.Sub(t.hashOf(c.line()), name), c.key, name); l != nil {
			for _, sl := range &slotsOf(l).slots {
				if origin == 0 {
					origin = sl.origin
				}
			}
		}
	}
	if origin == 0 || !t.origins.of(origin).member.Load() {
		return 0
	}
	return origin
}

// noteEviction notes that a head goes to make room.
func (t *Table) noteEviction(s *rows.Shard, c *head, now int64) {
	worth := t.worth(s, c.line(), now)
	if worth == rows.Worthless {
		t.stats.expired.Add(1)
		return
	}
	t.stats.evicted.Add(1)
	if worth >= deniedWorth {
		t.stats.evictedDenied.Add(1)
	}
	if !c.has(local) {
		t.stats.evictedRemote.Add(1)
	}
	st := t.stateOf(c)
	if st.isTimed() || st.Algorithm == Credit {
		return
	}
	used := worth&(busyWorth-1) - 1
	t.stats.forgotten.Add(used)
	raise(&st.forgotten, used)
	if l := st.limit.Load(); l != nil && used >= l.Max-l.Max/2 {
		t.stats.evictedFull.Add(1)
	}
}
