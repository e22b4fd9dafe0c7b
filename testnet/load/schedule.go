package load

import (
	"math/rand/v2"
	"time"
)

// arrival is a request that is to be sent.
type arrival struct {
	after  time.Duration // since the start
	stream int
	target int
}

// schedule draws the arrivals of all streams, in order. The same options give the same arrivals.
type schedule struct {
	options *Options
	next    []arrival // by stream
	drawn   []int
	rand    []*rand.Rand
}

func newSchedule(o *Options) *schedule {
	s := &schedule{options: o, next: make([]arrival, len(o.Streams)), drawn: make([]int, len(o.Streams))}
	for i := range o.Streams {
		// Each stream draws for itself, so that one more changes nothing of the others.
		s.rand = append(s.rand, rand.New(rand.NewPCG(o.Seed, uint64(i))))
		s.next[i] = arrival{stream: i}
		s.draw(i)
	}
	return s
}

// draw makes the next arrival of a stream.
func (s *schedule) draw(i int) {
	stream, a, r := &s.options.Streams[i], &s.next[i], s.rand[i]
	interval := float64(time.Second) / stream.Rate
	if stream.Spacing == Even {
		a.after = time.Duration(float64(s.drawn[i]) * interval)
	} else {
		a.after += time.Duration(r.ExpFloat64() * interval)
	}
	switch {
	case stream.Weights != nil:
		a.target = weighted(r.Float64(), stream.Weights)
	case stream.Spacing == Even:
		a.target = s.drawn[i] % len(s.options.Targets)
	default:
		a.target = r.IntN(len(s.options.Targets))
	}
	s.drawn[i]++
}

// weighted is the place in the weights that a number from 0 to 1 falls on.
func weighted(at float64, weights []float64) int {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	last := 0
	for i, w := range weights {
		if w == 0 {
			continue
		}
		last = i
		if at -= w / sum; at < 0 {
			break
		}
	}
	return last
}

// pop returns the next arrival of all.
func (s *schedule) pop() arrival {
	first := 0
	for i := range s.next {
		if s.next[i].after < s.next[first].after {
			first = i
		}
	}
	a := s.next[first]
	s.draw(first)
	return a
}
