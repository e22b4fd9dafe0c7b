package rowtable

import (
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// Who shows or exports bans learns of changes by a feed, not by a search through all lines. Each shard lists the keys
// whose bans or lifts rose. A list that overflows is dropped: then its shard is searched, once. So are all when the
// table begins or ceases to distrust others. Ends of bans are not listed, nor are heads that were evicted.

const (
	maxBanChanges = 4096                   // that a shard lists, at 16 bytes
	relistPause   = int64(5 * time.Second) // between two searches of all shards: peers can cause them
)

// banFeed is the part of the feed that all shards share.
type banFeed struct {
	watched atomic.Bool
	changed chan struct{} // of capacity 1
	relist  atomic.Bool   // all shards are to be searched

	// Of ChangedBans:
	suspects   uint64 // see suspects
	relistedAt int64  // when all shards were last searched
}

// banChanges are what changed in a shard.
type banChanges struct {
	list []banChange
	lost bool // the list is not complete
}

type banChange struct{ bans, key uint64 } // the id of the bans

// noteBan lists a key whose bans or lifts have changed. Its shard is locked.
func (t *Table) noteBan(c *head, m *Meter) {
	if !t.bans.watched.Load() {
		return
	}
	switch changes := &t.shardOf(t.store.Hash(m.ID, c.key)).bans; {
	case changes.lost:
	case len(changes.list) == maxBanChanges:
		*changes = banChanges{lost: true}
	default:
		changes.list = append(changes.list, banChange{m.ID &^ liftBit, c.key})
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

// ChangedBans calls f for every ban, by the id of its meter and its key, that began, was prolonged or lifted since the
// last call, and with a delay of some seconds at most for all bans after the table came to distrust or trust those of
// others; possibly more than once, and possibly for others. f may call the table. One goroutine at a time may call
// ChangedBans.
func (t *Table) ChangedBans(now int64, f func(bans, key uint64)) {
	all := t.relistDue(now)
	for i := range t.shards {
		s, changes := &t.store.Shards()[i], &t.shards[i].bans
		s.Lock()
		list := *changes
		*changes = banChanges{} // what changes from now on comes next time
		s.Unlock()
		if all || list.lost {
			list.list = t.bansIn(s)
		}
		for _, change := range list.list {
			f(change.bans, change.key)
		}
	}
}

// bansIn returns all bans and lifts in a shard.
func (t *Table) bansIn(s *rows.Shard) (found []banChange) {
	var cursor rows.Cursor
	for done := false; !done; {
		s.Lock()
		done = s.Scan(&cursor, scanPlaces, func(l *rows.Line) bool {
			if m := t.meter(l.Meter()); m.isTimed() {
				found = append(found, banChange{m.ID &^ liftBit, l.Key})
			}
			return false
		})
		s.Unlock()
	}
	return found
}

// relistDue reports whether all shards are to be searched now.
func (t *Table) relistDue(now int64) bool {
	if sum := t.suspects(now); sum != t.bans.suspects {
		t.bans.suspects = sum
		t.bans.relist.Store(true)
	}
	due := t.bans.relist.Load() && uint64(now-t.bans.relistedAt) >= uint64(relistPause)
	if due {
		t.bans.relist.Store(false)
		t.bans.relistedAt = now
	}
	return due
}
