package judge

import (
	"fmt"
	"time"
)

// boundDelay is the longest time after an excess at which the bound that covers it may be observed. A node exports the
// largest bound of the last window, is observed once a second, and knows of a burst once its peers have reported it.
const boundDelay = 2 * time.Second

// Covering returns the bound that covers the excess of each of n slots of time: the largest that was exported in it or
// in the slots after it, as many as after says. exported is by slot, and may be shorter or longer than n.
func Covering(exported []float64, after, n int) []float64 {
	covering := make([]float64, n)
	for i := range covering {
		for _, bound := range exported[min(i, len(exported)):min(i+after+1, len(exported))] {
			covering[i] = max(covering[i], bound)
		}
	}
	return covering
}

// judgeBound compares what was admitted over the limit, second by second, with the bound that the nodes exported and
// with the ceiling of partitions.
func (c *check) judgeBound() {
	observed, exported := make([]float64, len(c.seconds)), make([]float64, len(c.seconds))
	for i := range c.observations {
		o := &c.observations[i]
		if c.timeline.settled(o.Sent, o.Done) {
			c.steady = max(c.steady, o.Bound)
		}
		for s := c.second(max(c.header.Started, o.Sent-1)); s <= c.second(o.Done); s++ {
			observed[s], exported[s] = 1, max(exported[s], o.Bound)
		}
		c.at(o.Done, func(s *sums) { s.bound = max(s.bound, o.Bound) })
	}
	const after = int(boundDelay / time.Second)
	observed = Covering(observed, after, len(observed))
	for s, bound := range Covering(exported, after, len(exported)) {
		c.seconds[s].bound = bound
		excess, from := c.seconds[s].excess, c.header.Started+int64(s)*int64(time.Second)
		got := fmt.Sprintf("%.2f %%", 100*excess)
		if excess > bound+rounding {
			expected := fmt.Sprintf("at most the exported bound of %.2f %%", 100*bound)
			if observed[s] == 0 {
				expected = fmt.Sprintf("a bound observed within %v", boundDelay)
			}
			c.violate(Bounded, from, "admitted over the limit", expected, got)
		}
		if ceiling := c.ceiling(from, from+int64(time.Second)-1); ceiling > 0 && excess > ceiling+rounding {
			c.violate(Ceiling, from, "admitted over the limit in a partition, or before it had left the window",
				fmt.Sprintf("at most %.2f %%", 100*ceiling), got)
		}
	}
}

// rounding is the error that sums of floating-point numbers may have.
const rounding = 1e-9

// ceiling returns what the sides of a partition may admit over the limit, sides * (1 + steady bound) - 1: each its own
// limit and, beside, the bound as it was while no fault showed. It is 0 where no partition shows, or where there was
// never a time without a fault.
func (c *check) ceiling(from, to int64) float64 {
	sides := float64(c.timeline.maxSides(from, to))
	if sides < 2 || c.steady == 0 {
		return 0
	}
	return sides*(1+c.steady) - 1
}
