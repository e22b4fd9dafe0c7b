package checker

import (
	"fmt"
	"time"
)

// boundAfter is how long after a moment a bound may be observed that speaks for it. A node exports the largest of the last window, it
// is observed once a second, and a burst is in it as soon as the peers' reports of it have come.
const boundAfter = 2 * time.Second

// judgeBound holds what was admitted over the limit, second by second, against the bound that the nodes exported and against the
// ceiling of partitions.
func (c *check) judgeBound() {
	exported := make([]bool, len(c.seconds))
	for i := range c.observations {
		o := &c.observations[i]
		if c.timeline.quiet(o.Sent, o.Done) {
			c.steady = max(c.steady, o.Bound)
		}
		// It speaks for the second in which it was answered, and for those before that it is not too late for.
		first := max(0, c.second(max(c.header.Started, o.Sent-int64(boundAfter)-1)))
		for s := first; s <= c.second(o.Done); s++ {
			exported[s] = true
			c.seconds[s].bound = max(c.seconds[s].bound, o.Bound)
		}
		c.at(o.Done, func(s *sums) { s.bound = max(s.bound, o.Bound) })
	}
	for s := range c.seconds {
		excess, from := c.seconds[s].excess, c.header.Started+int64(s)*int64(time.Second)
		if bound := c.seconds[s].bound; excess > bound+rounding {
			expected := fmt.Sprintf("at most the exported bound of %.2f %%", 100*bound)
			if !exported[s] {
				expected = fmt.Sprintf("a bound observed within %v", boundAfter)
			}
			c.violate(Bounded, from, "admitted over the limit", expected, fmt.Sprintf("%.2f %%", 100*excess))
		}
		if ceiling := c.ceiling(from, from+int64(time.Second)-1); ceiling > 0 && excess > ceiling+rounding {
			c.violate(Ceiling, from, "admitted over the limit in a partition, or before it had left the window",
				fmt.Sprintf("at most %.2f %%", 100*ceiling), fmt.Sprintf("%.2f %%", 100*excess))
		}
	}
}

// rounding is what sums of floating-point numbers may be off.
const rounding = 1e-9

// ceiling is what the sides of a partition may admit over the limit: each its own limit and, beside, the bound as it was when no fault
// showed. It is 0 where no partition shows, or where there was never a time without.
func (c *check) ceiling(from, to int64) float64 {
	sides := float64(c.timeline.sides(from, to))
	if sides < 2 || c.steady == 0 {
		return 0
	}
	return sides*(1+c.steady) - 1
}
