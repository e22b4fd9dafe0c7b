package counters

import "time"

// [Table.LiftBan] ends a ban early, on all tables. A lift is merged by max like a ban, so it needs no order and no
// acknowledgement. It is the time, in Unix milliseconds, up to which bans of a key are lifted, in a slot of its own
// meter (algorithm [lifts], otherwise that of the bans). Let b be when a ban began, its end less the length of a ban:
//
//	a key is banned at the time t  if and only if  one of its bans has  b > lifted  and  b + length > t
//
// Both times only rise, so tables with the same bans and lifts agree, in whatever order they received them. If any ban
// holds, the latest does: a table compares its end alone. A lift expires after one to two lengths of a ban, when all
// bans that it lifts are over.
//
// A lift changes no counts. So a peer that forges lifts can only undo bans, for less than three of their lengths after
// its last slot, and not while a table distrusts bans: then it believes only its own bans and lifts. Versions without
// lifts ignore them; their bans end by themselves.

// liftBit distinguishes the id of a limit's lifts from that of its bans. hash ignores it: a lift lies in the shard of
// the ban, under the same lock.
const liftBit = 1

// LiftBan ends the bans of a key by b that began up to now. It returns the rest of the ban that it ended, 0 if none is
// known here: a ban that another table began then is lifted too. Counts stay as they are. kept is false if there is no
// room to store the lift: then nothing has changed.
func (t *Table) LiftBan(b *Bans, key Key, now int64) (left time.Duration, kept bool) {
	own := t.distrustsBans(nil, &b.banSpec, now)
	h, s := t.locate(b.id, key)
	s.Lock()
	defer s.Unlock()
	left = time.Duration(max(0, t.bannedUntil(&b.banSpec, key, 0, own, now)-now))
	millis := ceilMillis(now)
	if ref, _, ok := s.live(name{&b.spec, key, h}, now); ok { // a peer whose clock is ahead may have begun it
		until := *s.cell(ref).until()
		millis = max(millis, until-min(b.millis(), until))
	}
	ref, _ := t.reach(s, name{&b.lift, key, h}, true, now)
	if ref == 0 {
		return 0, false
	}
	t.noteTime(s, &b.lift, ref, millis)
	return left, true
}

// millis is the length of a ban in milliseconds.
func (b *banSpec) millis() uint64 { return uint64(b.sub) / uint64(time.Millisecond) }

// liftedUntil is the latest end, in milliseconds, of the bans that a lift ends; if own, by this table itself. 0: none
// is lifted.
func (s *shard) liftedUntil(b *banSpec, lift name, own bool, now int64) uint64 {
	ref, _, ok := s.live(lift, now)
	if !ok {
		return 0
	}
	return s.latest(s.cell(ref), &b.shape, own) + b.millis()
}

// ends is when a cell of bans or lifts expires: a lift when the last ban that it lifts is over.
func (c *cell) ends(sh *shape) int64 {
	ends := int64(*c.until()) * int64(time.Millisecond)
	if sh.algorithm == lifts {
		ends += sh.sub
	}
	return ends
}
