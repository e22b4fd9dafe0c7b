package counterstest

import (
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// bans are those of one limit at one table: of each key what it was told, and told itself. Its time goes like that of a cell: where the
// clock goes back by more than one of its sub-windows, which are as long as a ban, it is not seen.
type bans struct {
	lasts int64
	keys  map[counters.Key]*banned
}

type banned struct {
	index int64              // its time
	until uint64             // the latest end that was told, in milliseconds
	heard map[heardOf]uint64 // of others
}

func newBans(l *counters.Limit) *bans {
	m := l.BanMeter()
	if m == nil {
		return nil
	}
	return &bans{lasts: int64(m.Window), keys: make(map[counters.Key]*banned)}
}

// of returns what is seen of a key now: nil if nothing is.
func (b *bans) of(key counters.Key, now int64) *banned {
	k := b.keys[key]
	if k == nil || k.index-now/b.lasts > 1 {
		return nil
	}
	k.index = max(k.index, now/b.lasts)
	return k
}

// keep is of where something is to be noted.
func (b *bans) keep(key counters.Key, now int64) *banned {
	k := b.of(key, now)
	if k == nil {
		k = &banned{index: now / b.lasts, heard: make(map[heardOf]uint64)}
		b.keys[key] = k
	}
	return k
}

// left is for how long a key is banned yet.
func (b *bans) left(key counters.Key, now int64) time.Duration {
	if b == nil {
		return 0
	}
	if k := b.of(key, now); k != nil {
		return time.Duration(max(0, int64(k.until)*int64(time.Millisecond)-now))
	}
	return 0
}

// begin bans a key.
func (b *bans) begin(key counters.Key, now int64) {
	k, end := b.keep(key, now), time.Duration(now+b.lasts)
	until := uint64(end / time.Millisecond)
	if end%time.Millisecond != 0 {
		until++
	}
	k.until = max(k.until, until)
}

// merge takes in what another table told, and reports whether that was news.
func (b *bans) merge(slot counters.Slot, now int64) (novel bool) {
	seen := func(current int64) bool { return current-1 <= slot.Index && slot.Index <= current+1 }
	if !seen(now / b.lasts) {
		return false
	}
	k, id := b.keep(slot.Key, now), heardOf{slot.Index, slot.Origin, slot.Birth}
	if !seen(k.index) || slot.Count <= k.heard[id] {
		return false
	}
	k.heard[id], k.until = slot.Count, max(k.until, slot.Count)
	return true
}

// confine makes it the decision on a key that is banned for so long.
func confine(d *counters.Decision, left time.Duration) {
	d.Allowed, d.Remaining, d.Delay = false, 0, 0
	d.ResetAfter = max(d.ResetAfter, left)
	if d.RetryAfter != counters.Never {
		d.RetryAfter = max(d.RetryAfter, left)
	}
}
