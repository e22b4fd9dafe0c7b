package counters

import (
	"math"
	"math/bits"
)

// An elastic layer guarantees its own limit, and may borrow from a lender: another layer of the request, whose limit
// several share, or the idle system. It works like a class and its parent in a hierarchical token bucket:
//
//	layer has  lender has
//	room       room        both are charged
//	room       no room     both are charged: the guarantee holds, and the lender exceeds its limit
//	no room    room        a loan: the lender is charged, the layer is waived
//	no room    no room     the layer denies
//
// A loan is not charged to the borrower, so its count never exceeds its limit and recovers as if it had not borrowed.
// The lender counts what it could not deny, and lends nothing until it has room again: no window of it holds more than
// its limit plus the guarantees used in it. It counts up to twice its limit, the most that peers take for plausible.
//
// A lender does not deny the requests of its borrowers, except if its limit is 0: then it is closed and denies all.

// Idle as the Lender of an elastic layer means that the system has capacity to spare: the layer borrows all that it has
// no room for.
const Idle = math.MaxUint8

// borrows reports whether a layer has a lender.
func (ch *Charge) borrows() bool { return ch.Mode == Elastic && ch.Limit != nil && ch.Lender != 0 }

// lend combines the decisions of elastic layers and their lenders.
func lend(charges []Charge, decisions []Decision) {
	var lenders uint64 // one bit per layer
	for i := range charges {
		ch := &charges[i]
		if !ch.borrows() {
			continue
		}
		lender := &Decision{Allowed: true}
		if ch.Lender != Idle {
			lender = &decisions[ch.Lender-1]
			lenders |= 1 << (ch.Lender - 1)
		}
		if !decisions[i].Allowed {
			decisions[i].borrow(lender)
		}
	}
	for ; lenders != 0; lenders &= lenders - 1 { // last: its borrowers have to know a lender's own denial
		i := bits.TrailingZeros64(lenders)
		if d := &decisions[i]; !d.Allowed && charges[i].Limit.max > 0 {
			d.waive()
		}
	}
}

// borrow has a denied layer borrow what it has no room for, or wait until its lender has room if that is sooner.
func (d *Decision) borrow(lender *Decision) {
	switch wait := lender.RetryAfter; {
	case lender.Allowed:
		d.waive()
	case d.RetryAfter == Never || wait != Never && wait < d.RetryAfter:
		d.RetryAfter = wait
	}
}
