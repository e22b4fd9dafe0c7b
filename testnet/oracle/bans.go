package oracle

import (
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// bans are the bans of one limit in one table: its own, and those received from others. Their time is like that of a
// cell: if the clock steps back by more than one sub-window, which is as long as a ban, a ban does not count.
type bans struct {
	lasts int64
	keys  map[counters.Key]*banned
}

type banned struct {
	index    int64               // its time
	until    uint64              // the latest end, in milliseconds
	received map[remoteID]uint64 // from others
}

func newBans(l *counters.Limit) *bans {
	m := l.BanMeter()
	if m == nil {
		return nil
	}
	return &bans{lasts: int64(m.Window), keys: make(map[counters.Key]*banned)}
}

// of returns the ban of a key that counts now, or nil.
func (b *bans) of(key counters.Key, now int64) *banned {
	k := b.keys[key]
	if k == nil || k.index-now/b.lasts > 1 {
		return nil
	}
	k.index = max(k.index, now/b.lasts)
	return k
}

// keep is of for a change: it adds an empty ban if there is none.
func (b *bans) keep(key counters.Key, now int64) *banned {
	k := b.of(key, now)
	if k == nil {
		k = &banned{index: now / b.lasts, received: make(map[remoteID]uint64)}
		b.keys[key] = k
	}
	return k
}

// left returns the rest of a key's ban.
func (b *bans) left(key counters.Key, now int64) time.Duration {
	if b == nil {
		return 0
	}
	if k := b.of(key, now); k != nil {
		return time.Duration(max(0, int64(k.until)*int64(time.Millisecond)-now))
	}
	return 0
}

func (b *bans) begin(key counters.Key, now int64) {
	k, end := b.keep(key, now), time.Duration(now+b.lasts)
	k.until = max(k.until, uint64((end+time.Millisecond-1)/time.Millisecond))
}

// merge adds a slot of another table, and reports whether it was new.
func (b *bans) merge(slot counters.Slot, now int64) (novel bool) {
	seen := func(current int64) bool { return current-1 <= slot.Index && slot.Index <= current+1 }
	if !seen(now / b.lasts) {
		return false
	}
	k, id := b.keep(slot.Key, now), remoteID{slot.Index, slot.Origin, slot.Birth}
	if !seen(k.index) || slot.Count <= k.received[id] {
		return false
	}
	k.received[id], k.until = slot.Count, max(k.until, slot.Count)
	return true
}

// confine makes it the decision on a key with the rest of a ban.
func confine(d *counters.Decision, left time.Duration) {
	d.Allowed, d.Remaining, d.Delay = false, 0, 0
	d.ResetAfter = max(d.ResetAfter, left)
	if d.RetryAfter != counters.Never {
		d.RetryAfter = max(d.RetryAfter, left)
	}
}
