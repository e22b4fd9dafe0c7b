package counters

import "time"

// A ban ends by itself. [Table.Lift] ends it earlier, on all tables, by a fact that is merged by max as bans are, so
// that it needs no order, no acknowledgement and no lock: up to when the bans of a key are lifted, in milliseconds
// since the Unix epoch, as a slot of a meter of its own (algorithm [Lift], else that of the bans). With b, when a ban
// began, which is its end less the length of a ban,
//
//	a key is banned at a time t  if and only if  one of its bans has  b > lifted  and  b + length > t
//
// Both sides only ever grow, so tables that hold the same bans and the same lifts agree, whatever they received first,
// twice, or again. As only the latest ban can hold where any does, its end is all that a table compares. A lift leaves
// after two lengths of a ban at most and one at least: no ban that it lifts lasts longer.
//
// A lift denies nobody anything and admits nobody: counts stay as they are. So what a peer that lies can do with it is
// undo bans, for less than three of their lengths after its last lie, and not at all while a table doubts its peers:
// then it believes its own lifts alone, as it believes its own bans alone. A version that does not know lifts passes
// them over, and its bans end by themselves.

// liftBit tells the id of a limit's lifts from that of its bans. A hash of a key does not look at it: a lift lies in
// the shard of the ban, whose lock is enough for both.
const liftBit = 1

// Lift ends the bans of a key that began up to now, and returns for how long it would have been banned yet, 0 if no ban
// was known here: one that another table began does not come to bear then either. What the limit has counted stays.
// kept is false where there is no room to remember it: then nothing has changed.
func (t *Table) Lift(l *Limit, key Key, now int64) (left time.Duration, kept bool) {
	if l.ban == nil {
		return 0, false
	}
	h := hash(t.seed, l.ban.id, key)
	s := t.shardOf(h)
	s.Lock()
	defer s.Unlock()
	left = time.Duration(max(0, t.bannedUntil(l, key, 0, now)-now))
	millis := ceilMillis(now)
	if ref := s.find(l.ban.id, key, h); ref != 0 { // it may have begun by a clock that is ahead
		lasts := uint64(l.ban.sub) / uint64(time.Millisecond)
		millis = max(millis, *s.cell(ref).until()-min(lasts, *s.cell(ref).until()))
	}
	ref, _ := t.reach(s, l.ban.id|liftBit, &l.ban.lift, &l.ban.shape, key, h, true, now)
	if ref == 0 {
		return 0, false
	}
	s.noteTime(l, ref, millis)
	return left, true
}

// lifted reports whether a ban that ends at a time, in milliseconds, is lifted: if own, by this table itself. The shard
// of its hash is locked.
func (t *Table) lifted(s *shard, l *Limit, key Key, h, until uint64, own bool, now int64) bool {
	ref := s.find(l.ban.id|liftBit, key, h)
	if ref == 0 {
		return false
	}
	c := s.cell(ref)
	if _, ok := s.settle(c, &l.ban.shape, now); !ok {
		return false
	}
	lifted := *c.until()
	if own {
		lifted = s.ownTime(c, &l.ban.shape)
	}
	return until <= lifted+uint64(l.ban.sub)/uint64(time.Millisecond)
}

// ends is when a cell of bans, or of lifts, says nothing any more: a lift when the last ban that it lifts is over.
func (c *cell) ends(sh *shape) int64 {
	ends := int64(*c.until()) * int64(time.Millisecond)
	if sh.algorithm == Lift {
		ends += sh.sub
	}
	return ends
}
