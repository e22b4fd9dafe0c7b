package clock

import "time"

// line is how a clock goes: with the machine's monotonic clock, but for what it makes up for bit by bit.
type line struct {
	from int64 // the monotonic clock
	at   int64 // the time then
	due  int64 // what is to be added since then, or if it is negative taken away
}

// slew is the part of the time that passes by which a clock goes too fast or too slow to make up for what it is off.
const slew = 50

// now is the time when the monotonic clock shows mono, which is not before the line's beginning. It never goes back.
func (l *line) now(mono int64) int64 {
	passed := mono - l.from
	most := passed / slew
	return l.at + passed + min(max(l.due, -most), most)
}

// off is by how much the machine's wall clock is ahead of where the line leads.
func (l *line) off(wall, mono int64) int64 { return wall - (l.at + mono - l.from + l.due) }

const (
	least   = time.Millisecond // what is off by less is as it should be
	slewed  = 2 * time.Second  // what is off by more is a jump
	lasting = 10 * time.Second // how long it has to be off by as much before the clock jumps
	doubt   = 10 * time.Minute // the same where other nodes say that it should not
	apart   = time.Hour        // between two jumps
)

// steps are what the machine's wall clock was set by.
type steps struct {
	off    time.Duration // of the jump that is waited for; 0: of none
	since  int64         // when it was seen first, by the monotonic clock
	told   news          // of it
	jumped int64         // when the clock jumped last; 0: never
}

// news is what there is to tell.
type news int

const (
	none news = iota
	noticed
	doubted
	returned
	jumped
)

// follow compares a line with the machine's clocks, and returns another one for the clock to go by, if it should, and what there is to tell
// of what the clock is off by. The clock is ahead of those of other nodes by so much, if that is known.
func (s *steps) follow(l *line, wall, mono int64, ahead time.Duration, known bool) (next *line, say news, due time.Duration) {
	now, off := l.now(mono), time.Duration(l.off(wall, mono))
	due = time.Duration(wall - now)
	if off.Abs() < least || due.Abs() <= slewed {
		if off.Abs() >= least {
			next = &line{from: mono, at: now, due: int64(due)}
		}
		if s.off != 0 {
			say = returned
		}
		s.off = 0
		return next, say, due
	}
	if s.off == 0 || (off-s.off).Abs() > least {
		s.off, s.since, s.told = off, mono, none
	}
	wait, say := lasting, noticed
	if known && (ahead+due).Abs() > ahead.Abs() {
		wait, say = doubt, doubted
	}
	if mono-s.since >= int64(wait) && (s.jumped == 0 || mono-s.jumped >= int64(apart)) {
		s.off, s.jumped = 0, mono
		return &line{from: mono, at: wall}, jumped, due
	}
	if say <= s.told {
		return nil, none, due
	}
	s.told = say
	return nil, say, due
}
