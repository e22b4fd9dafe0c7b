package counters

import "fmt"

// A denial leaves no count, or who asks without a break would never get in again. There are two exceptions. Both
// count up to twice the limit, as a report does (report.go): so the count is one that an honest peer may send, and
// whoever stops asking is let in again when what was counted has left the window.
//
// A limit that counts what it denies ([Limit.CountRejected]) counts every request: who goes on asking stays denied,
// until what was asked for in the last window fits the limit.
//
// An overdraft ([Charge.Overdraw]) is a charge for what has happened already, as of tokens after a response. A denial
// comes too late for it, and without a count the next peek would let its client spend again. It counts in each layer
// of its request that may be overdrawn, whichever of them denies. Example: of a limit of 1,000 per window 100 are
// left, and a charge of 5,000 comes. It is denied, 1,100 of it count, and nothing remains. Peeks are denied until the
// 900 from before and more than 100 of the 1,100 have left the window. A fixed window forgets both at its end; a
// bucket has to get back what it is short of.

// CountRejected returns the limit counting what it denies as well: as much of it as keeps the view within twice the
// maximum. A peek is never counted, nor a request that only another layer denies. It is for windows and logs: a
// bucket comes back whatever is asked of it.
func (l *Limit) CountRejected() (*Limit, error) {
	if l.algorithm.bucket() {
		return nil, fmt.Errorf("meter %s: what a %s holds comes back whatever is asked of it", l.meter.Rule,
			l.algorithm)
	}
	other := *l
	other.countsRejected = true
	return &other, nil
}

// CountsRejected reports whether the limit counts what it denies.
func (l *Limit) CountsRejected() bool { return l.countsRejected }

// overdraws reports whether a layer that said d is charged for a request that it denies. What the limit counts by
// itself it does not count twice, and a ban counts nothing.
func (ch *Charge) overdraws(d *Decision) bool {
	return ch.Overdraw && ch.Limit != nil && ch.Limit.max > 0 && !ch.Limit.countsRejected && !d.Allowed && !d.Banned
}

// countDenied counts a request that was denied, and decides anew how long it has to wait.
func (t *Table) countDenied(y layer, l *Limit, cost, before uint64, d *Decision) {
	wait := d.RetryAfter
	if counted, _ := t.overdraw(y, l, cost); counted == 0 {
		return
	}
	*d = Decision{}
	t.decide(y, l, cost, before, peek, d)
	if d.Allowed { // it was held back, though there is room
		d.Allowed, d.Delay, d.RetryAfter = false, 0, wait
	}
}
