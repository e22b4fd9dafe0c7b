package counters

import (
	"time"
	"unsafe"
)

// partitionEstimate estimates what unreachable peers admitted of a key: the same part of what they were last asked for
// as this table admits. So each side of a partition gets a part of the limit in proportion to its demand. The estimate
// holds back offenders only. It is kept in tenths of the time for which an admission counts.
type partitionEstimate struct {
	step   int64 // number of the last tenth
	counts [estimateSteps + 1]float32
}

const (
	estimateSteps = 10
	estimateWords = int((unsafe.Sizeof(partitionEstimate{}) + wordBytes - 1) / wordBytes)
)

// SilentAfter is the age of a peer's watermark, in horizons, from which the peer counts as unreachable.
const SilentAfter = 8

func (m *memory) estimate(ref uint32) *partitionEstimate { return (*partitionEstimate)(m.at(ref)) }

// tenth is the length of a step in nanoseconds.
func tenth(lasts int64) int64 { return max(1, lasts/estimateSteps) }

// advance moves the estimate of what unreachable peers admitted to now.
func (g *partitionEstimate) advance(lasts, now int64) {
	step := now / tenth(lasts)
	switch by := step - g.step; {
	case by <= 0: // the same tenth, or the clock stepped back
	case by > estimateSteps:
		clear(g.counts[:])
	default:
		kept := copy(g.counts[:], g.counts[by:])
		clear(g.counts[kept:])
	}
	g.step = step
}

// count returns how much of the estimate still counts at a time that is not before the last advance.
func (g *partitionEstimate) count(lasts, at int64) (sum float64) {
	length := tenth(lasts)
	by := max(0, at/length-g.step)
	if by > estimateSteps {
		return 0
	}
	for _, n := range g.counts[by+1:] {
		sum += float64(n)
	}
	return sum + float64(g.counts[by])*(1-float64(at%length)/float64(length))
}

// updateEstimate moves the estimate of a key to now.
func (t *Table) updateEstimate(y *layer, w *hotKey, d *demands) {
	s, l, now := y.s, y.l, y.now()
	if d.unreachable == 0 {
		s.dropEstimate(w)
		return
	}
	lost := d.lost
	if w.estimate == 0 {
		if w.estimate = t.alloc(s, estimateWords, y.c, now); w.estimate == 0 {
			return
		}
	} else {
		lost += d.unreachable * min(max(0, time.Duration(now-w.summed)), l.Lasts()).Seconds()
	}
	g := s.memory.estimate(w.estimate)
	if d.back > 0 { // not by what claims amount to: how far they are believed changes all the time
		stay := float32(d.unreachable / (d.unreachable + d.back))
		for i := range g.counts {
			g.counts[i] *= stay
		}
	}
	g.advance(int64(l.Lasts()), now)
	g.counts[estimateSteps] += float32(lost) * w.part
}

func (s *shard) dropEstimate(w *hotKey) {
	if w.estimate != 0 {
		s.memory.free(w.estimate)
		w.estimate = 0
	}
}
