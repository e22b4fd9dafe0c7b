package gossip

import "time"

// Peak is the largest of the values of the last window, kept in steps of a tenth of it: it forgets up to a step too late. The
// over-admission bound is one: what an admission may have gone over the limit shows for as long as the admission counts. The zero
// value is 0; a Peak is not safe for concurrent use.
type Peak struct {
	steps [peakSteps]float64
	last  int64 // number of the step that is being filled
}

const peakSteps = 11

// Raise takes in a value of the time now, in Unix nanoseconds. The window has to be the same every time.
func (p *Peak) Raise(v float64, window time.Duration, now int64) {
	step := now / int64(window/(peakSteps-1))
	if step-p.last >= peakSteps {
		clear(p.steps[:])
	} else {
		for s := p.last + 1; s <= step; s++ {
			p.steps[s%peakSteps] = 0
		}
	}
	p.last = max(p.last, step)
	at := &p.steps[p.last%peakSteps]
	*at = max(*at, v)
}

// Value is the largest value.
func (p *Peak) Value() float64 {
	var most float64
	for _, v := range p.steps {
		most = max(most, v)
	}
	return most
}
