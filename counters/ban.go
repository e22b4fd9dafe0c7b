package counters

import (
	"fmt"
	"time"
)

// A limit may ban whom it denies: from then on until a time, it denies all that the key asks for. That time is kept and
// told like a count, of a meter of its own ([Limit.BanMeter]) whose window is as long as a ban:
//
//	slot (meter, key, sub-window in which the ban began, origin, birth)  ->  its end, in Unix milliseconds
//
// So bans are merged by max, repaired, kept by stores and sent to newcomers as counts are, and nothing has to be taken
// back: they end by themselves. A key is banned until the latest of its slots. A denial during a ban does not prolong
// it; the first one after it begins another. Two tables that deny before they know of each other agree on the
// later end; each ends a ban by its own clock. Who must not stay banned is let go by another such fact (lift.go).
//
// A slot says no later end than that of a ban that begins with the end of its sub-window: that is all that is
// plausible. So whoever makes bans up bans a key for less than three bans after the last one, and while implausible
// slots of the limit or its bans come (plausibility.go) no ban counts but the table's own. Bans that only peers began
// take up the memory of peers' keys, and no more (evict.go).

// banSpec is the ban of a limit.
type banSpec struct {
	meter Meter
	lift  Meter  // see lift.go
	id    uint64 // of meter
	shape        // of both
}

func newBanSpec(ban Meter) *banSpec {
	lift := ban
	lift.Algorithm = Lift
	return &banSpec{meter: ban, lift: lift, id: ban.id(), shape: ban.shape()}
}

// Ban returns the limit with a ban for so long, in whole milliseconds, of every key that it denies a request:
// [Decision.RetryAfter] of that denial and of later ones is at least what is left of the ban. No ban follows a
// peek, a request that a mode lets pass, or one larger than the limit. During a ban no request is counted.
func (l *Limit) Ban(lasts time.Duration) (*Limit, error) {
	m := Meter{Rule: l.meter.Rule, Algorithm: Ban, Window: lasts, Sub: lasts}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("ban: %w", err)
	}
	other := *l
	other.ban = newBanSpec(m)
	return &other, nil
}

// BanMeter returns the meter under which the limit's bans are sent, nil if it bans nobody. It is shared, and not to be
// written to.
func (l *Limit) BanMeter() *Meter {
	if l.ban == nil {
		return nil
	}
	return &l.ban.meter
}

const banWords = 1

// until is when the ban of a cell ends, in milliseconds: the latest of all origins. Its ring holds sums over all
// origins, as every ring does; from it the table knows what it sent itself.
func (c *cell) until() *uint64 { return &c.words(headWords, banWords)[0] }

// lastBan is the latest end that a ban can have that began in the sub-window, in milliseconds.
func (m *Meter) lastBan(index int64) uint64 {
	return uint64(index+2) * uint64(m.Window/time.Millisecond)
}

// takeOrBan is Take under a limit with a ban. The shards of the key and of its ban are locked.
func (t *Table) takeOrBan(l *Limit, key Key, h, cost uint64, now int64, d *Decision) {
	if t.banned(l, key, h, cost, 0, now, d) {
		return
	}
	y := t.settled(t.shardOf(h), l, key, h, cost, true, now)
	t.decide(y, l, cost, 0, take, d)
	t.ban(y, l, key, cost, now, d)
}

// banned denies a request of a banned key, and counts nothing.
func (t *Table) banned(l *Limit, key Key, h, cost, before uint64, now int64, d *Decision) bool {
	until := t.bannedUntil(l, key, cost, now)
	if until <= now {
		return false
	}
	t.decide(t.settled(t.shardOf(h), l, key, h, 0, false, now), l, cost, before, peek, d)
	d.ban(time.Duration(until - now))
	d.Banned = true
	return true
}

// bannedUntil is when the ban of a key ends, 0 if there is none. It notes that the key was asked for, unless that is a
// peek.
func (t *Table) bannedUntil(l *Limit, key Key, cost uint64, now int64) int64 {
	h := hash(t.seed, l.ban.id, key)
	s := t.shardOf(h)
	ref := s.find(l.ban.id, key, h)
	if ref == 0 {
		return 0
	}
	c := s.cell(ref)
	if _, ok := s.settle(c, &l.ban.shape, now); !ok {
		return 0
	}
	if cost > 0 {
		c.raise(denied)
		s.localize(c)
	}
	own := t.distrustsBans(l, now)
	until := *c.until()
	if own {
		until = s.ownTime(c, &l.ban.shape)
	}
	ends := int64(until) * int64(time.Millisecond)
	if ends <= now || t.lifted(s, l, key, h, until, own, now) {
		return 0
	}
	return ends
}

// ownTime is the latest time in a cell of bans, or of lifts, that this table itself put there.
func (s *shard) ownTime(c *cell, sh *shape) (latest uint64) {
	ring, rest := c.counts(sh), c.slots
	for i := len(ring) - 1; i >= 0; i-- {
		var own uint64
		own, rest = s.ownAt(c, ring, i, rest)
		latest = max(latest, own)
	}
	return latest
}

// banAll begins the bans of those layers that denied their request.
func (t *Table) banAll(charges []Charge, layers []layer, now int64, decisions []Decision) {
	for i := range charges {
		if ch := &charges[i]; ch.Limit != nil && ch.Limit.ban != nil {
			t.ban(layers[i], ch.Limit, ch.Key, ch.Cost, now, &decisions[i])
		}
	}
}

// ban begins a ban where a request was denied. Where there is no room for it, the limit denies alone.
func (t *Table) ban(y layer, l *Limit, key Key, cost uint64, now int64, d *Decision) {
	if d.Allowed || y.cell == nil || cost == 0 || d.RetryAfter == Never {
		return
	}
	h := hash(t.seed, l.ban.id, key)
	s := t.shardOf(h)
	until := ceilMillis(now + l.ban.sub)
	if t.lifted(s, l, key, h, until, t.distrustsBans(l, now), now) {
		return
	}
	ref, _ := t.reach(s, l.ban.id, &l.ban.meter, &l.ban.shape, key, h, true, now)
	if ref == 0 {
		return
	}
	s.noteTime(l, ref, until)
	d.ban(time.Duration(int64(until)*int64(time.Millisecond) - now))
}

// noteTime raises the time that a cell of bans, or of lifts, holds in its current sub-window, and has it replicated.
func (s *shard) noteTime(l *Limit, ref uint32, millis uint64) {
	c := s.cell(ref)
	ring := c.counts(&l.ban.shape)
	if own, _ := s.ownAt(c, ring, len(ring)-1, c.slots); own < millis {
		c.count(ring, millis-own)
		*c.until() = max(*c.until(), millis)
	}
	c.raise(denied)
	s.localize(c)
	if !c.has(dirty) && l.scope != Alone {
		s.enlist(ref, c)
	}
}

func ceilMillis(now int64) uint64 {
	return (uint64(now) + uint64(time.Millisecond) - 1) / uint64(time.Millisecond)
}

// ban makes it the decision on a key that is banned for so long.
func (d *Decision) ban(left time.Duration) {
	d.Allowed, d.Delay, d.Remaining = false, 0, 0
	d.ResetAfter = max(d.ResetAfter, left)
	if d.RetryAfter != Never {
		d.RetryAfter = max(d.RetryAfter, left)
	}
}
