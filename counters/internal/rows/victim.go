package rows

import "math"

// What a policy of Victim may return of a line, beside other numbers.
const (
	Worthless = 0              // it goes at once
	Pinned    = math.MaxUint64 // it must not go
)

// Sample is how many lines compete: enough that a busy one hardly ever loses.
const Sample = 8

// Victim returns the line to remove of the next few lines after the shard's hand: the one of the least worth, the first
// that is Worthless, or nil if all are Pinned. worth must not remove a line of the shard.
func (s *Shard) Victim(worth func(l *Line) uint64) (victim *Line) {
	least := uint64(Pinned)
	for steps, n := 0, 0; steps < s.last && n < Sample; steps++ {
		if s.hand++; s.hand >= s.last {
			s.hand = 0
		}
		l := s.at(s.hand)
		if l.free() {
			continue
		}
		switch w := worth(l); {
		case w == Worthless:
			return l
		case w == Pinned:
			continue
		case w < least:
			least, victim = w, l
			n++
		default:
			n++
		}
	}
	return victim
}
