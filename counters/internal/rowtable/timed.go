package rowtable

import (
	"time"
	"unsafe"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// A head of bans or lifts holds times instead of counts, in ms since the Unix epoch, and of all times the latest is in
// force. So it needs no line beside it, whoever sends how much: of what others sent it keeps the latest alone, as
// nothing depends on the others any more. Its own times stay by sub-window, to be sent like counts.

// timedHead is a head of a timed meter. Its own time of the newest sub-window is where other heads have a count.
type timedHead struct {
	_      [4]uint64
	latest uint64 // of all, above 16 bits of the origin that it is of: 0: this table
	before uint64 // own, of the sub-window before the newest
	birth  uint32 // of the latest, if it is another origin's
	sub    uint32 // its sub-window, the low bits
	_      uint64
}

var _ [0]struct{} = [unsafe.Sizeof(timedHead{}) - unsafe.Sizeof(rows.Line{})]struct{}{} // it is a line

func (c *head) timed() *timedHead { return (*timedHead)(unsafe.Pointer(c)) }

func (m *Meter) isTimed() bool { return m.Algorithm == Ban || m.Algorithm == Lift }

// millis is the length of a ban in ms.
func (m *Meter) millis() uint64 { return uint64(m.Sub) / uint64(time.Millisecond) }

func ceilMillis(now int64) uint64 {
	return (uint64(now) + uint64(time.Millisecond) - 1) / uint64(time.Millisecond)
}

func nanos(millis uint64) int64 { return int64(millis) * int64(time.Millisecond) }

// latest is the latest time in a head; if own, of those that this table put there.
func (c *head) latest(own bool) uint64 {
	if own {
		return max(c.newest(), c.timed().before)
	}
	return c.timed().latest >> originBits
}

// ends is when the times of a head are of no use any more: a lift when the last ban that it lifts is over.
func (m *Meter) ends(c *head) int64 {
	ends := nanos(c.latest(false))
	if m.Algorithm == Lift {
		ends += m.Sub
	}
	return ends
}

// advanceTimes moves a timed head on by so many sub-windows. What is in force stays, whenever it began.
func (c *head) advanceTimes(by int64) {
	c.timed().before = 0
	if by == 1 {
		c.timed().before = c.newest()
	}
	c.setNewest(0)
	c.setSub(c.sub() + by)
	if n := c.changed(); n > 0 {
		c.setChanged(int(min(int64(n)+by, 2)))
	}
}

// timesGone reports whether a timed head has no own times to be sent again, and nothing of others that is in force.
func (m *Meter) timesGone(c *head, now int64) bool {
	return c.newest() == 0 && c.timed().before == 0 && !c.isOthersInRing() && m.ends(c) <= now
}

// isOthersInRing reports whether the latest time is another origin's, of a sub-window that would still count.
func (c *head) isOthersInRing() bool {
	w := c.timed()
	return uint16(w.latest) != 0 && uint32(c.sub())-w.sub+1 <= 2 // in the ring, or ahead of it
}

// appendLatest appends the latest time, if others may need it: it is another origin's, and of use.
func appendLatest(dst []Slot, c *head, m *Meter, now int64) []Slot {
	w := c.timed()
	if uint16(w.latest) == 0 || m.ends(c) <= now && !c.isOthersInRing() {
		return dst
	}
	sub := near(c.sub(), uint64(w.sub), 32)
	return append(dst, slotOf(c, sub, uint16(w.latest), w.birth, c.latest(false)))
}

// noteTime raises the own time of the newest sub-window, and has it sent.
func (t *Table) noteTime(s *rows.Shard, c *head, m *Meter, millis uint64) {
	c.raise(denied)
	if millis <= c.newest() {
		return
	}
	c.setNewest(millis)
	if millis > c.latest(false) {
		c.timed().latest = millis << originBits
	}
	c.send()
	s.Mark(c.line())
	t.noteBan(c, m)
}

// mergeTime raises the latest time of a head to that of a slot, if that is later.
func (t *Table) mergeTime(c *head, m *Meter, sl *Slot) (raised bool) {
	w := c.timed()
	if sl.Count <= c.latest(false) {
		return false
	}
	w.latest, w.birth, w.sub = sl.Count<<originBits|uint64(sl.Origin), sl.Birth, uint32(sl.Index)
	t.noteBan(c, m)
	return true
}
