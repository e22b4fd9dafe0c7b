package counters

import (
	"time"
	"unsafe"
)

// ghost is what peers that are not heard any more are taken to have admitted of a key: the same part of what they were asked for as this
// table admits of what it is. So each side of a cut gets the part of the limit that it is asked for. It is kept by tenths of the time for
// which an admission counts, and nothing is denied for it unless the key is an offender.
type ghost struct {
	step   int64 // the number of the last tenth
	counts [ghostSteps + 1]float32
}

const (
	ghostSteps = 10
	ghostWords = int((unsafe.Sizeof(ghost{}) + wordBytes - 1) / wordBytes)
	// silentAfter is the age of what is known of a peer, in horizons, from which it is not heard any more.
	silentAfter = 8
)

func (m *memory) ghost(ref uint32) *ghost { return (*ghost)(m.at(ref)) }

// tenth is the length of a step.
func tenth(lasts int64) int64 { return max(1, lasts/ghostSteps) }

// advance brings the ghost to now.
func (g *ghost) advance(lasts, now int64) {
	step := now / tenth(lasts)
	switch by := step - g.step; {
	case by <= 0: // where the clock was set back, what was counted lasts from now on
	case by > ghostSteps:
		clear(g.counts[:])
	default:
		kept := copy(g.counts[:], g.counts[by:])
		clear(g.counts[kept:])
	}
	g.step = step
}

// count is what of it counts at a time that is not before it was brought to.
func (g *ghost) count(lasts, at int64) (sum float64) {
	length := tenth(lasts)
	by := max(0, at/length-g.step)
	if by > ghostSteps {
		return 0
	}
	for _, n := range g.counts[by+1:] {
		sum += float64(n)
	}
	return sum + float64(g.counts[by])*(1-float64(at%length)/float64(length))
}

// wonder brings a key's ghost to now, of whom peers that are not heard are asked for frozen a second. lost is what was asked since they
// were heard of those that fell silent only now.
func (t *Table) wonder(s *shard, l *Limit, c *cell, w *watch, frozen, lost float64, now int64) {
	if frozen == 0 {
		s.lay(w)
		return
	}
	if w.ghost == 0 {
		if w.ghost = t.alloc(s, ghostWords, c, now); w.ghost == 0 {
			return
		}
	} else {
		lost += frozen * min(max(0, time.Duration(now-w.summed)), l.Lasts()).Seconds()
	}
	g := s.memory.ghost(w.ghost)
	if heard := frozen / float64(w.frozen); heard < 1 { // what some of them admitted is known now
		for i := range g.counts {
			g.counts[i] *= float32(heard)
		}
	}
	g.advance(int64(l.Lasts()), now)
	g.counts[ghostSteps] += float32(lost) * w.part
}

// lay lets the ghost go.
func (s *shard) lay(w *watch) {
	if w.ghost != 0 {
		s.memory.free(w.ghost)
		w.ghost = 0
	}
}
