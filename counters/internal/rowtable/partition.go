package rowtable

import (
	"time"
	"unsafe"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// estimate is that of what unreachable peers admitted of a key: the same part of what they were last asked for as this
// table admits. So each side of a partition gets a part of the limit in proportion to its demand. It holds back
// offenders only. It is kept in tenths of the time for which an admission counts.
type estimate struct {
	_      [2]uint64
	step   uint32 // number of the last tenth, the low bits
	counts [estimateSteps + 1]float32
}

var _ [0]struct{} = [unsafe.Sizeof(estimate{}) - unsafe.Sizeof(rows.Line{})]struct{}{} // it is a line

const estimateSteps = 10

// silentAfter is the age of a peer's watermark, in horizons, from which the peer counts as unreachable.
const silentAfter = 8

// tenth is the length of a step in nanoseconds.
func tenth(lasts int64) int64 { return max(1, lasts/estimateSteps) }

// advance moves the estimate to now.
func (g *estimate) advance(lasts, now int64) {
	step := uint32(now / tenth(lasts))
	switch by := int32(step - g.step); {
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
func (g *estimate) count(lasts, at int64) (sum float64) {
	length := tenth(lasts)
	by := max(0, int32(uint32(at/length)-g.step))
	if by > estimateSteps {
		return 0
	}
	for _, n := range g.counts[by+1:] {
		sum += float64(n)
	}
	return sum + float64(g.counts[by])*(1-float64(at%length)/float64(length))
}

// estimate is that of a hot key, nil if there is none.
func (y *layer) estimate(w *share) *estimate {
	if !w.estimated {
		return nil
	}
	return (*estimate)(unsafe.Pointer(y.line(hotKind, estimateLine)))
}

// updateEstimate moves the estimate of a key to now.
func (y *layer) updateEstimate(w *share, d *demands, now int64) {
	if d.unreachable == 0 {
		w.estimated = false // the line goes with the next scan
		return
	}
	lost, g := d.lost, y.estimate(w)
	if g == nil {
		if g = (*estimate)(unsafe.Pointer(y.clearLine(hotKind, estimateLine))); g == nil {
			return
		}
		w.estimated, g.step = true, uint32(now/tenth(y.l.Lasts))
	} else {
		lost += d.unreachable * time.Duration(min(max(0, now-w.summed), y.l.Lasts)).Seconds()
	}
	if d.back > 0 { // not by what claims amount to: how far they are believed changes all the time
		stay := float32(d.unreachable / (d.unreachable + d.back))
		for i := range g.counts {
			g.counts[i] *= stay
		}
	}
	g.advance(y.l.Lasts, now)
	g.counts[estimateSteps] += float32(lost) * w.part
}
