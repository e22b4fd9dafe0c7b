package clock

import "time"

// line maps the machine's monotonic clock to the node's time:
//
//	time = at + passed + correction, where passed = mono - from,
//
// and the correction so far is at most passed/slewRate.
type line struct {
	from int64 // the monotonic clock
	at   int64 // the node's time at from
	due  int64 // the whole correction; negative: the node's time is ahead
}

// slewRate: the clock runs up to 1/slewRate faster or slower than the monotonic clock while it corrects.
const slewRate = 50

// now returns the time when the monotonic clock shows mono >= from. It never goes back.
func (l *line) now(mono int64) int64 {
	passed := mono - l.from
	limit := passed / slewRate
	return l.at + passed + min(max(l.due, -limit), limit)
}

// off returns how far the machine's wall clock is ahead of the fully corrected line.
func (l *line) off(wall, mono int64) int64 { return wall - (l.at + mono - l.from + l.due) }

const (
	minStep      = time.Millisecond // a smaller difference is left alone
	maxSlew      = 2 * time.Second  // a larger difference is a clock step: the clock jumps
	jumpWait     = 10 * time.Second // how long a step has to last before the clock jumps
	disputedWait = 10 * time.Minute // the same where other nodes' clocks contradict it
	jumpGap      = time.Hour        // between two jumps
)

// steps is the state of following the machine's wall clock.
type steps struct {
	off    time.Duration // the clock step that is pending; 0: none
	since  int64         // when it was first seen, by the monotonic clock
	logged event         // of it
	jumped int64         // when the clock jumped last; 0: never
}

// event is what follow reports for the log.
type event int

const (
	none     event = iota
	stepped        // the machine's clock was set
	disputed       // and other nodes' clocks contradict it
	returned       // it was set back
	jumped         // the node's clock jumped to it
)

// follow compares a line with the machine's clocks. It returns the next line, nil to keep this one, with an event for
// the log and how far the clock is behind the machine's. ahead is how far it is ahead of other nodes' clocks, if known.
func (s *steps) follow(l *line, wall, mono int64, ahead time.Duration, known bool) (next *line, what event,
	due time.Duration) {
	now, off := l.now(mono), time.Duration(l.off(wall, mono))
	due = time.Duration(wall - now)
	if off.Abs() < minStep || due.Abs() <= maxSlew {
		if off.Abs() >= minStep {
			next = &line{from: mono, at: now, due: int64(due)}
		}
		if s.off != 0 {
			what = returned
		}
		s.off = 0
		return next, what, due
	}
	if s.off == 0 || (off-s.off).Abs() > minStep {
		s.off, s.since, s.logged = off, mono, none
	}
	wait, what := jumpWait, stepped
	if known && (ahead+due).Abs() > ahead.Abs() {
		wait, what = disputedWait, disputed
	}
	if mono-s.since >= int64(wait) && (s.jumped == 0 || mono-s.jumped >= int64(jumpGap)) {
		s.off, s.jumped = 0, mono
		return &line{from: mono, at: wall}, jumped, due
	}
	if what <= s.logged {
		return nil, none, due
	}
	s.logged = what
	return nil, what, due
}
