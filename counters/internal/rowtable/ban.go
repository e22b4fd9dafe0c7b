package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// A ban denies all requests of a key until it ends, and a lift ends it early. Let b be when a ban began, its end less
// the length of a ban. A key is banned at the time t if and only if one of its bans has
//
//	b > lifted   and   b + length > t
//
// If any ban holds, the latest does. A denial during a ban does not prolong it; the first one after it begins another.

// Bans are the bans of a limit, or manual ones, and their lifts. They are immutable.
type Bans struct {
	Meter
	lift Meter
	of   *Limit // nil: manual
}

// liftBit distinguishes the id of lifts from that of their bans. A hash ignores it, so both are in one shard.
const liftBit = 1

// NewBans returns bans with an id that last so long, in whole milliseconds: those of a limit, or manual ones (nil).
func NewBans(id uint64, lasts int64, of *Limit) *Bans {
	b := &Bans{of: of, Meter: Meter{ID: id &^ liftBit, Sub: lasts, N: 1, Algorithm: Ban, Lasts: lasts}}
	if of != nil { // honest peers may ban for as long for what is implausible
		b.Lasts, b.Scope = of.Lasts, of.Scope
	}
	b.lift = b.Meter
	b.lift.ID, b.lift.Algorithm = id|liftBit, Lift
	return b
}

// LiftMeter returns the meter of the bans' lifts.
func (b *Bans) LiftMeter() *Meter { return &b.lift }

// BanKey is whom bans ban: a key that may be another one than a limit counts.
type BanKey struct {
	*Bans
	Key uint64
}

// banned is a BanKey at a time, in its shard, which is locked.
type banned struct {
	BanKey
	*Table
	s   *rows.Shard
	h   uint64
	now int64
	own bool // the table distrusts others: their times do not count
}

// banOf is for whom holds the lock of the shard of a key's bans and lifts.
func (t *Table) banOf(k BanKey, now int64) banned {
	h := t.store.Hash(k.ID, k.Key)
	return banned{k, t, t.store.Shard(h), h, now, t.distrusts(k.Bans, now)}
}

// lockBan locks the shard of a key's bans and lifts.
func (t *Table) lockBan(k BanKey, now int64) banned {
	x := t.banOf(k, now)
	x.s.Lock()
	return x
}

// head is that of the bans or their lifts, nil if there is none.
func (x *banned) head(m *Meter) *head {
	l := x.s.Head(x.h, m.ID, x.Key)
	if l == nil {
		return nil
	}
	c := headOf(l)
	if _, _, ok := x.settle(x.s, x.h, c, m, x.now); !ok {
		return nil
	}
	return c
}

// raise raises the table's own time in the head of the bans or their lifts; kept is false if there is no room.
func (x *banned) raise(m *Meter, millis uint64) (kept bool) {
	c, _ := x.reach(x.s, x.h, m, x.Key, x.now)
	if c != nil {
		x.localize(x.h, c)
		x.noteTime(x.s, c, m, millis)
	}
	return c != nil
}

// until is the end of the ban in force, 0 if there is none. asked: by a request, and not by somebody who looks.
func (x *banned) until(asked bool) int64 {
	c := x.head(&x.Meter)
	if c == nil {
		return 0
	}
	if asked {
		c.raise(denied)
		x.localize(x.h, c)
	}
	end := c.latest(x.own)
	if nanos(end) <= x.now || x.lifted(end) {
		return 0
	}
	return nanos(end)
}

// lifted reports whether a ban that ends at a time in ms is lifted.
func (x *banned) lifted(end uint64) bool {
	c := x.head(&x.lift)
	return c != nil && end <= c.latest(x.own)+x.millis()
}

// begin begins a ban and returns its end; 0 where it is lifted before it begins, or there is no room for it.
func (x *banned) begin() int64 {
	end := ceilMillis(x.now + x.Sub)
	if x.lifted(end) || !x.raise(&x.Meter, end) {
		return 0
	}
	return nanos(end)
}

// TakeOrBan is Take of a key that may be banned, and is banned if the limit denies the request.
func (t *Table) TakeOrBan(l *Limit, key, cost uint64, k BanKey, now int64) Decision {
	var room [1]Decision
	charges := [1]Charge{{Limit: l, Key: key, Cost: cost, Ban: k}}
	return t.TakeAll(charges[:], now, room[:0])[0]
}

// banAfter begins a ban after a denial, not of a key without a head, which denies for other reasons. If there is no
// room for it, the limit denies by itself.
func (t *Table) banAfter(ch *Charge, now int64, d *Decision) {
	if d.Allowed || d.Banned || ch.Cost == 0 || d.Wait == Never {
		return
	}
	x := t.banOf(ch.Ban, now)
	if until := x.begin(); until > now {
		d.ban(until - now)
	}
}

// banSpent begins a ban after a report that left nothing of the limit, unless the key is banned.
func (t *Table) banSpent(k BanKey, now int64) {
	if x := t.banOf(k, now); x.until(false) == 0 {
		x.begin()
	}
}

// ban makes it a decision on a key that is banned for some time.
func (d *Decision) ban(left int64) {
	d.Wait = d.RetryAfter() // no delay
	d.Allowed, d.Left, d.ResetAfter = false, min(d.Left, 0), max(d.ResetAfter, left)
	if d.Wait != Never {
		d.Wait = max(d.Wait, left)
	}
}

// Ban begins a ban of a key, and returns its end. It goes over lifts of before now. kept is false if there is no room
// for it: then nothing has changed.
func (t *Table) Ban(k BanKey, now int64) (ends int64, kept bool) {
	x := t.lockBan(k, now)
	defer x.s.Unlock()
	end := ceilMillis(now + x.Sub)
	if c := x.head(&x.lift); c != nil { // of a table whose clock is ahead
		end = max(end, c.latest(false)+x.millis()+1)
	}
	if !x.raise(&x.Meter, end) {
		return 0, false
	}
	return nanos(end), true
}

// Lift ends the bans of a key that began up to now. It returns the rest of the ban that it ended, 0 if none is known
// here: a ban that another table began then is lifted too. kept is false if there is no room for the lift: then nothing
// has changed.
func (t *Table) Lift(k BanKey, now int64) (left int64, kept bool) {
	x := t.lockBan(k, now)
	defer x.s.Unlock()
	left, lifted := max(0, x.until(false)-now), ceilMillis(now)
	if c := x.head(&x.Meter); c != nil { // a peer whose clock is ahead may have begun it
		end := c.latest(false)
		lifted = max(lifted, end-min(x.millis(), end))
	}
	if !x.raise(&x.lift, lifted) {
		return 0, false
	}
	return left, true
}

// BanEnds returns the end of a key's ban; 0 if it has none.
func (t *Table) BanEnds(k BanKey, now int64) int64 {
	x := t.lockBan(k, now)
	defer x.s.Unlock()
	return x.until(false)
}
