package counters

import (
	"math"
	"math/bits"
	"time"
)

// An elastic layer promises its own limit, and beyond that what its lender has left: another layer of the request,
// whose limit is shared by many, or the idle system. As a class and its parent do in a hierarchical token bucket:
//
//	the layer has  the lender has
//	room           room            both are charged
//	room           no room         what is promised passes: both are charged, and the lender goes over its limit
//	no room        room            a loan: the lender is charged, and the layer is waived
//	no room        no room         the layer denies
//
// A loan is not charged to who borrows: its own limit comes back as if it had not borrowed, and its count never exceeds
// its limit, on which all else that is known of counts relies. The lender counts what it could not deny, and lends
// nothing until there is room again: no window of it holds more than its limit and what was promised in it. It counts
// up to twice its limit, beyond which peers would have to believe too much of each other; by then there is nothing to
// lend for long anyway.
//
// A lender denies nothing to who borrows from it, who answers for both; but one with a limit of 0 is closed, and denies
// everything.

// Idle is the Lender of an elastic layer while the system has little to do: all that the layer has no room for passes.
const Idle = math.MaxUint8

// lend makes of what elastic layers and their lenders said each by itself what they say together.
func lend(charges []Charge, decisions []Decision) {
	var lenders uint64 // a bit a layer
	for i := range charges {
		ch, d := &charges[i], &decisions[i]
		if ch.Mode != Elastic || ch.Limit == nil || ch.Lender == 0 {
			continue
		}
		lent := ch.Lender == Idle
		var wait time.Duration
		if !lent {
			lenders |= 1 << (ch.Lender - 1)
			lender := &decisions[ch.Lender-1]
			lent, wait = lender.Allowed, lender.RetryAfter
		}
		switch {
		case d.Allowed:
		case lent:
			d.Allowed, d.Waived, d.RetryAfter = true, true, 0
		case d.RetryAfter == Never || wait != Never && wait < d.RetryAfter:
			d.RetryAfter = wait
		}
	}
	for ; lenders != 0; lenders &= lenders - 1 {
		i := bits.TrailingZeros64(lenders)
		if d := &decisions[i]; !d.Allowed && charges[i].Limit.max > 0 {
			d.Allowed, d.Waived, d.RetryAfter = true, true, 0
		}
	}
}

// overcharge counts at a lender what it has no room for and may not deny, and tells what is left.
func (t *Table) overcharge(y layer, ch *Charge, d *Decision) {
	t.overdraw(y, ch.Limit, ch.Cost)
	*d = Decision{}
	t.decide(y, ch.Limit, 0, 0, peek, d)
	d.Allowed, d.Waived, d.Delay, d.RetryAfter = true, true, 0, 0
}
