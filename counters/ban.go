package counters

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A limit may ban a key that it denies: until the end of the ban it denies all requests of the key. The end is stored
// and replicated like a count, under a meter of its own ([Limit.BanMeter]) whose window is as long as a ban:
//
//	slot (meter, key, sub-window in which the ban began, origin, birth)  ->  end of the ban in Unix milliseconds
//
// So bans are merged by max, repaired, stored and sent in snapshots like counts, and expire by themselves. A key is
// banned until the latest end of its slots. A denial during a ban does not prolong it; the first denial after it begins
// another. Tables that ban the same key before they have exchanged it agree on the later end; each ends a ban by its
// own clock. Table.LiftBan ends a ban early (lift.go).
//
// A slot whose end is later than that of a ban begun at the end of its sub-window is implausible. So a peer that forges
// bans can ban a key for less than three bans after its last slot. While implausible slots of the limit or its bans
// come (plausibility.go), only the table's own bans count. Cells of bans that only peers began are evicted like other
// remote cells (evict.go).

// banSpec is the ban of a limit: the meters of bans and of their lifts, which differ in algorithm and id alone.
type banSpec struct {
	spec
	lift spec
}

func newBanSpec(ban Meter) *banSpec {
	lift := ban
	lift.Algorithm = lifts
	return &banSpec{newSpec(ban), newSpec(lift)}
}

// A limit with LimitConfig.AddressBans bans addresses: then Charge.Address is the key of the ban, and not the key that
// is counted. Manual bans (manualban.go) are no limit's.

// setBans sets the bans of a new limit.
func (l *Limit) setBans(c *LimitConfig) (err error) {
	if c.Ban == 0 {
		if c.BanSpent || c.AddressBans != "" {
			return errors.New("ban: BanSpent and AddressBans need a limit with bans")
		}
		return nil
	}
	l.bansSpent = c.BanSpent
	if l.ban, err = bansOf(l.meter.Rule, c.Ban); err == nil && c.AddressBans != "" {
		l.addressBan, err = bansOf(c.AddressBans+homeOf(c.Scope, c.Region), c.Ban)
	}
	return err
}

func bansOf(rule string, lasts time.Duration) (*banSpec, error) {
	m := Meter{Rule: rule, Algorithm: Ban, Window: lasts, Sub: lasts}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("ban: %w", err)
	}
	return newBanSpec(m), nil
}

// AddressBanMeter returns the meter under which bans of addresses are sent, nil if it bans none. It is shared: do not
// write to it.
func (l *Limit) AddressBanMeter() *Meter {
	if l.addressBan == nil {
		return nil
	}
	return &l.addressBan.meter
}

// bans returns the meters of the ban of a layer, and its key there. The limit has bans.
func (ch *Charge) bans() (*banSpec, Key) {
	if ch.Address != 0 && ch.Limit.addressBan != nil {
		return ch.Limit.addressBan, ch.Address
	}
	return ch.Limit.ban, ch.Key
}

// BanMeter returns the meter under which the limit's bans are sent, nil if it has no bans. It is shared: do not write
// to it.
func (l *Limit) BanMeter() *Meter {
	if l.ban == nil {
		return nil
	}
	return &l.ban.meter
}

const banWords = 1

// until is the latest end in a cell of bans, or the latest time in a cell of lifts, over all origins, in milliseconds.
// The ring holds sums over all origins, as for counts.
func (c *cell) until() *uint64 { return &c.words(headWords, banWords)[0] }

// banned denies a request of a banned key, and counts nothing.
func (t *Table) banned(y *layer, ch *Charge, before uint64, now int64, d *Decision) bool {
	b, key := ch.bans()
	until := t.bannedUntil(b, key, ch.Cost, t.distrustsBans(ch.Limit, b, now), now)
	if until <= now {
		return false
	}
	t.open(y, 0, false, now)
	t.answer(y, ch.Cost, before, peek, d)
	y.note(ch.Cost, d)
	d.ban(time.Duration(until - now))
	d.Banned, y.c = true, nil
	return true
}

// bannedUntil is the end of a key's ban, 0 if there is none; if own, by the table's own bans and lifts alone. Unless
// the cost is that of a peek, it records that this table was asked for the key.
func (t *Table) bannedUntil(b *banSpec, key Key, cost uint64, own bool, now int64) int64 {
	h, s := t.locate(b.id, key)
	ref, _, ok := s.live(name{&b.spec, key, h}, now)
	if !ok {
		return 0
	}
	c := s.cell(ref)
	if cost > 0 {
		c.raise(denied)
		s.localize(c)
	}
	until := s.latest(c, &b.shape, own)
	ends := int64(until) * int64(time.Millisecond)
	if ends <= now || until <= s.liftedUntil(b, name{&b.lift, key, h}, own, now) {
		return 0
	}
	return ends
}

// latest is the latest time in a cell of bans or lifts; if own, of those that this table itself put there.
func (s *shard) latest(c *cell, sh *shape, own bool) uint64 {
	if own {
		var room [maxSubWindows + 1]uint64
		return slices.Max(s.own(room[:0], c, sh, sh.size()))
	}
	return *c.until()
}

// ban begins a ban after a denial, not of a key without a cell, which denies for other reasons. If there is no room for
// it, the limit denies by itself.
func (t *Table) ban(ch *Charge, now int64, d *Decision) {
	if d.Allowed || d.Banned || ch.Cost == 0 || d.RetryAfter == Never {
		return
	}
	b, key := ch.bans()
	if until := t.beginBan(ch.Limit, b, key, now); until > now {
		d.ban(time.Duration(until - now))
	}
}

// banReported begins a ban after a report that left nothing of the limit, unless the key is banned.
func (t *Table) banReported(ch *Charge, now int64) {
	b, key := ch.bans()
	if t.bannedUntil(b, key, 0, t.distrustsBans(ch.Limit, b, now), now) <= now {
		t.beginBan(ch.Limit, b, key, now)
	}
}

// beginBan begins a ban and returns its end; 0 where it is lifted before it begins, or there is no room for it.
func (t *Table) beginBan(l *Limit, b *banSpec, key Key, now int64) int64 {
	h, s := t.locate(b.id, key)
	until := ceilMillis(now + b.sub)
	if until <= s.liftedUntil(b, name{&b.lift, key, h}, t.distrustsBans(l, b, now), now) {
		return 0
	}
	ref, _ := t.reach(s, name{&b.spec, key, h}, true, now)
	if ref == 0 {
		return 0
	}
	t.noteTime(s, &b.spec, ref, until)
	return int64(until) * int64(time.Millisecond)
}

// noteTime raises the own time in a cell of bans or lifts, in the current sub-window, and has it replicated.
func (t *Table) noteTime(s *shard, y *spec, ref uint32, millis uint64) {
	c := s.cell(ref)
	var room [1]uint64
	if own := s.own(room[:0], c, &y.shape, 1)[0]; own < millis {
		c.count(c.counts(&y.shape), millis-own)
		*c.until() = max(*c.until(), millis)
		t.noteBan(s, c)
	}
	c.raise(denied)
	s.noteDemand(ref, c, y.scope)
}

func ceilMillis(now int64) uint64 {
	return (uint64(now) + uint64(time.Millisecond) - 1) / uint64(time.Millisecond)
}

// ban makes it a decision on a key that is banned for some time.
func (d *Decision) ban(left time.Duration) {
	d.Allowed, d.Delay, d.Remaining = false, 0, 0
	d.ResetAfter = max(d.ResetAfter, left)
	if d.RetryAfter != Never {
		d.RetryAfter = max(d.RetryAfter, left)
	}
}
