package gossip

import "time"

// Peak is the largest of the values of the last window, kept in steps of a tenth of it: it forgets up to a step too
// late. The over-admission bound is one: what an admission may have gone over the limit shows for as long as the
// admission counts. The zero value is 0; a Peak is not safe for concurrent use.
type Peak struct {
	steps [peakSteps]float64
	width int64 // of a step, in nanoseconds
	last  int64 // number of the step that is being filled
}

const peakSteps = 11

// Raise takes in a value of the time now, in Unix nanoseconds. When the window is another than last time,
// what was the largest is taken for a value of now: it shows for longer than it had to.
func (p *Peak) Raise(v float64, window time.Duration, now int64) {
	if width := int64(window / (peakSteps - 1)); width != p.width {
		v = max(v, p.Value())
		*p = Peak{width: width, last: now / width}
	}
	step := now / p.width
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
	var largest float64
	for _, v := range p.steps {
		largest = max(largest, v)
	}
	return largest
}
