package counters

import (
	"sync/atomic"
	"time"
)

// Who shows or exports bans learns of changes by a feed, not by a search through all cells. Each shard lists the cells
// of bans and lifts whose time rose, here or by a merge. A list that overflows is dropped: then its shard is searched,
// once. So are all when the table begins or ceases to distrust others' bans (plausibility.go), as then bans count no
// more, or again. Ends of bans are not listed, nor are cells that were evicted.

const (
	// maxBanChanges is how many changes a shard lists, at 16 bytes.
	maxBanChanges = 4096
	// relistPause is the shortest time between two searches of all shards: peers can cause them.
	relistPause = 5 * time.Second
)

// banFeed is the part of the feed that all shards share.
type banFeed struct {
	watched atomic.Bool
	changed chan struct{}                     // of capacity 1
	limits  atomic.Pointer[map[uint64]*Limit] // the known limits that ban, by the ids of their bans
	relist  atomic.Bool                       // all shards are to be searched

	// Of ChangedBans:
	distrusted uint64 // which meters were distrusted, as the sum of their ids
	relistedAt int64  // when all shards were last searched
}

// banChanges are what changed in a shard. Its lock guards them.
type banChanges struct {
	list []banChange
	lost bool // the list is not complete
}

type banChange struct {
	meter *Meter
	key   Key
}

// noteBan lists a cell of bans or lifts that has changed. Its shard is locked.
func (t *Table) noteBan(s *shard, c *cell) {
	if !t.bans.watched.Load() {
		return
	}
	switch m := t.meters.state(c.number()); {
	case s.bans.lost:
	case len(s.bans.list) == maxBanChanges:
		s.bans = banChanges{lost: true}
	default:
		s.bans.list = append(s.bans.list, banChange{&m.meter, c.key})
	}
	select {
	case t.bans.changed <- struct{}{}:
	default:
	}
}

// WatchBans begins to list changes of bans for ChangedBans, and returns a channel that receives after some. It may be
// called once, before any other method.
func (t *Table) WatchBans() <-chan struct{} {
	t.bans.changed = make(chan struct{}, 1)
	t.bans.watched.Store(true)
	return t.bans.changed
}

// RelistBans has ChangedBans list all bans once more, some seconds later at most.
func (t *Table) RelistBans() { t.bans.relist.Store(true) }

// ChangedBans calls f for every ban that began, was prolonged or lifted since the last call, and with a delay of some
// seconds at most for all bans after the table came to distrust or trust those of others; possibly more than once, and
// possibly for others. The meter is of the algorithm [Ban]; meters that are equal may differ in address, and are valid
// afterwards. f may call the table. One goroutine at a time may call ChangedBans; trust changes without a signal of
// WatchBans.
func (t *Table) ChangedBans(now int64, f func(m *Meter, key Key)) {
	all := t.relistDue(now)
	var last *Meter // of a lift
	var ban *Meter
	for i := range t.shards {
		for _, ch := range t.shards[i].takeBanChanges(t, all) {
			if ch.meter.Algorithm == lifts {
				if ch.meter != last {
					m := *ch.meter
					m.Algorithm, last, ban = Ban, ch.meter, &m
				}
				ch.meter = ban
			}
			f(ch.meter, ch.key)
		}
	}
}

// takeBanChanges returns the changes of a shard, or all its bans and lifts.
func (s *shard) takeBanChanges(t *Table, all bool) []banChange {
	s.Lock()
	changes := s.bans
	s.bans = banChanges{} // what changes from now on comes next time
	s.Unlock()
	if !changes.lost && !all {
		return changes.list
	}
	var found []banChange
	w := new(walk)
	for w != nil {
		w, found = t.appendBans(found, s, w)
	}
	return found
}

// appendBans appends the bans and lifts of the next part of a shard; no walk is left at its end.
func (t *Table) appendBans(found []banChange, s *shard, w *walk) (left *walk, all []banChange) {
	s.Lock()
	defer s.Unlock()
	if !w.part(s, func(ref uint32) int {
		c := s.cell(ref)
		if m := t.meters.state(c.number()); m.algorithm.timed() {
			found = append(found, banChange{&m.meter, c.key})
		}
		return 0
	}) {
		left = w
	}
	return left, found
}

// relistDue reports whether all shards are to be searched now.
func (t *Table) relistDue(now int64) bool {
	if sum := t.distrustedMeters(now); sum != t.bans.distrusted {
		t.bans.distrusted = sum
		t.bans.relist.Store(true)
	}
	due := t.bans.relist.Load() && uint64(now-t.bans.relistedAt) >= uint64(relistPause)
	if due {
		t.bans.relist.Store(false)
		t.bans.relistedAt = now
	}
	return due
}

// distrustedMeters returns the sum of the ids of all meters that distrust bans now.
func (t *Table) distrustedMeters(now int64) (sum uint64) {
	if t.implausibleAt.Load() == 0 {
		return 0
	}
	t.meters.RLock()
	defer t.meters.RUnlock()
	for k := range uint32(t.meters.given) {
		m := t.meters.state(k + 1)
		if m.implausibleAt.Load() == 0 {
			continue
		}
		l, lasts := m.limit.Load(), m.meter.Window
		if m.algorithm.timed() {
			l = t.limitOfBans(m.id &^ liftBit)
		}
		if l != nil {
			lasts = l.Lasts()
		}
		if m.suspect(now, lasts) {
			sum += m.id
		}
	}
	return sum
}

// limitOfBans returns the known limit whose bans have an id, nil for none and for manual bans.
func (t *Table) limitOfBans(id uint64) *Limit {
	if limits := t.bans.limits.Load(); limits != nil {
		return (*limits)[id]
	}
	return nil
}
