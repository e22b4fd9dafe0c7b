package counters

import "fmt"

// A limit may count what it denies as well: who goes on asking stays denied, until what was asked for in the last window fits the limit.
// What is counted beyond the limit has an end, at twice the limit: who asks for that much is denied without a break in any case, the count
// is one that an honest peer may tell, and who falls silent is let in again within a window.

// CountRejected returns the limit counting what it denies as well: as much of it as keeps the view within twice the maximum. A peek is
// never counted, nor a request that no wait can make room for, nor one that only another layer denies. It is for windows and logs: a
// bucket comes back whatever is asked of it.
func (l *Limit) CountRejected() (*Limit, error) {
	if l.algorithm.bucket() {
		return nil, fmt.Errorf("meter %s: what a %s holds comes back whatever is asked of it", l.meter.Rule, l.algorithm)
	}
	other := *l
	other.countsRejected = true
	return &other, nil
}

// CountsRejected reports whether the limit counts what it denies.
func (l *Limit) CountsRejected() bool { return l.countsRejected }

// countRejected counts a request that was denied, and says anew how long it takes.
func (t *Table) countRejected(y layer, l *Limit, cost, before uint64, d *Decision) {
	s, c := y.shard, y.cell
	seen := s.view(c, t.meters.states[c.meter], y.at)
	counted := min(cost, maxHeld*l.max-min(seen, maxHeld*l.max))
	if d.RetryAfter == Never || counted == 0 {
		return
	}
	c.count(c.counts(&l.shape), counted)
	after := Decision{Rule: d.Rule, Window: d.Window, Limit: d.Limit}
	if l.algorithm == SlidingLog {
		t.log(s, l, c, counted, y.at)
		t.takeLog(s, l, c, cost, before, y.at, false, &after)
	} else {
		l.takeWindow(c, s.ahead(c), cost, before, y.at, false, &after)
	}
	if after.Allowed { // it was held back, though there is room
		after.Allowed, after.RetryAfter = false, d.RetryAfter
	}
	*d = after
}
