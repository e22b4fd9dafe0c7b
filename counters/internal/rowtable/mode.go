package rowtable

import "math"

// Mode is what the denial of one layer means for its request. The numbers are those of counters.Mode.
type Mode uint8

const (
	// Enforce: the denial denies the request.
	Enforce Mode = iota
	// Soft is Enforce for a limit with a margin.
	Soft
	// Shadow: the denial is only recorded.
	Shadow
	// Quota: the request is denied if all of its quotas deny.
	Quota
	// Elastic is Enforce with a loan: a request over the limit passes if the layer's lender has room.
	Elastic
	// Throttle is Soft for a queue that delays only what needs the margin.
	Throttle
)

// mayWaive reports whether a layer's denial may let the request pass.
func (m Mode) mayWaive() bool { return m == Shadow || m == Quota || m == Elastic }

// denies reports whether a layer's denial denies the request by itself.
func (m Mode) denies() bool { return m != Shadow && m != Quota }

// Idle as the Lender of an elastic layer means that the system has capacity to spare: the layer borrows all that it has
// no room for.
const Idle = math.MaxUint8

// An elastic layer guarantees its own limit, and may borrow from a lender: another layer of the request, or the idle
// system.
//
//	layer has  lender has
//	room       room        both are charged
//	room       no room     both are charged: the guarantee holds, and the lender exceeds its limit
//	no room    room        a loan: the lender is charged, the layer is waived
//	no room    no room     the layer denies
//
// A lender does not deny the requests of its borrowers, except if its limit is 0: then it is closed and denies all.

// lend combines the decisions of elastic layers and their lenders.
func lend(charges []Charge, decisions []Decision) {
	for i := range charges {
		if ch := &charges[i]; ch.borrows() && !decisions[i].Allowed {
			decisions[i].borrow(ch.Lender, decisions)
		}
	}
	for i := range charges { // a lender's own denial has to be known to all of its borrowers before
		ch := &charges[i]
		if !ch.borrows() || ch.Lender == Idle {
			continue
		}
		if d := &decisions[ch.Lender-1]; !d.Allowed && charges[ch.Lender-1].Limit.Max > 0 {
			d.waive()
		}
	}
}

// borrow has a denied layer borrow what it has no room for, or wait until its lender has room if that is sooner.
func (d *Decision) borrow(lender uint8, decisions []Decision) {
	if lender == Idle || decisions[lender-1].Allowed {
		d.waive()
		return
	}
	if wait := decisions[lender-1].Wait; d.Wait == Never || wait != Never && wait < d.Wait {
		d.Wait = wait
	}
}

// admit reports whether a request passes, given the decisions of its layers.
func admit(charges []Charge, decisions []Decision) bool {
	for i := range charges {
		if charges[i].Mode.denies() && !decisions[i].Allowed {
			return false
		}
	}
	return !quotasFull(charges, decisions)
}

// quotasFull reports whether the request has quotas and all of them deny.
func quotasFull(charges []Charge, decisions []Decision) (full bool) {
	for i := range charges {
		if charges[i].Mode == Quota && charges[i].Limit != nil {
			if decisions[i].Allowed {
				return false
			}
			full = true
		}
	}
	return full
}

// applyModes sets the mode of each decision, and waives the denials that do not count.
func applyModes(charges []Charge, decisions []Decision) {
	full := quotasFull(charges, decisions)
	for i := range charges {
		ch, d := &charges[i], &decisions[i]
		if ch.Limit == nil {
			continue
		}
		d.Mode = ch.Mode
		switch {
		case !d.Allowed && (ch.Mode == Shadow || ch.Mode == Quota && !full):
			d.waive()
		case d.Allowed && ch.Mode == Shadow:
			d.Wait = 0
		}
	}
}
