package counters

import "time"

// A denied request is not counted; otherwise a client that keeps asking would stay denied for ever. There are two
// exceptions. Both count up to twice the limit, as a report does (report.go), so peers take the count for plausible,
// and a client that stops asking is admitted again once the count has left the window.
//
// A limit with LimitConfig.CountRejected counts every request: a client that keeps asking stays denied until its
// requests of the last window fit the limit.
//
// A charge with [Charge.Overdraw] is for a cost that has already arisen, such as the tokens of a response. A denial
// comes too late for it; if it did not count, the next peek would let the client spend again. It counts in each layer
// with Overdraw, whichever layer denies. Example: a limit of 1,000 per window has 100 left, and a charge of 5,000
// comes. It is denied, 1,100 of it are counted, and nothing remains. Peeks are denied until the 900 from before and
// more than 100 of the 1,100 have left the window. A fixed window forgets both at its end; a bucket first refills its
// debt.

// CountsRejected reports whether the limit counts denied requests.
func (l *Limit) CountsRejected() bool { return l.countsRejected }

// overdraws reports whether a layer is charged although its decision d is a denial. A limit that counts denied requests
// by itself does not count them twice, and a ban counts nothing.
func (ch *Charge) overdraws(d *Decision) bool {
	l := ch.Limit
	return ch.Overdraw && l != nil && l.max > 0 && !l.countsRejected && !l.tallies && !d.Allowed && !d.Banned
}

// countDenied counts a denied request, and updates how long it has to wait.
func (t *Table) countDenied(y layer, l *Limit, cost, before uint64, d *Decision) {
	wait := d.RetryAfter
	if counted, _ := t.overdraw(y, l, cost); counted == 0 {
		return
	}
	*d = Decision{}
	t.answer(y, l, cost, before, peek, d)
	if l.chargeable(cost) {
		t.noteVerdict(y, l, d.Allowed)
	}
	if d.Allowed { // there is room: the request was only held back
		d.deny(wait)
	}
}

// deny denies a request that there is room for, but not for all that will come. Remaining goes on saying what the
// counts leave: the judge of the testnet adds it up.
func (d *Decision) deny(wait time.Duration) { d.Allowed, d.Delay, d.RetryAfter = false, 0, wait }
