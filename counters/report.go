package counters

import "fmt"

// The cost of a request is sometimes known only after it was answered: bytes, rows, tokens. A report charges it then.
// It comes too late to be denied, so a limit that has no room for it is overdrawn, and denies until the overdraft has
// left the window.
//
// An overdraft has an end, at twice the limit, as what a limit denies and still counts has one (rejected.go), and what
// a lender counts: one answer that cost far too much shuts its client out for at most twice as long as the limit itself
// would, the count is one that an honest peer may tell, and whoever reports without end does not make sums overflow.
// What a report has beyond that is forgotten.
//
// Of an elastic layer and its lender a report charges what a request would (elastic.go):
//
//	the layer has  the lender has
//	room                            both are charged
//	no room        room             a loan: the lender alone is charged
//	no room        no room          both are charged, and overdrawn

// maxHeld caps a count that denials do not end, as a multiple of its limit.
const maxHeld = 2

// Report charges an answered request to all of its layers, with room or not. A layer's count stops at twice its limit.
// Report denies nothing, bans nobody and also charges banned keys. It ignores modes, except that an Elastic layer may
// borrow. A cost of 0 charges nothing. A peek returns what is left. Report panics if there are more than MaxLayers
// charges, or if a Lender is none of them.
func (t *Table) Report(charges []Charge, now int64) {
	if len(charges) > MaxLayers {
		panic(fmt.Sprintf("counters: %d layers, at most %d are allowed", len(charges), MaxLayers))
	}
	var hashes [MaxLayers]uint64
	locked := t.lockAll(charges, hashes[:])
	defer t.unlockAll(locked)
	var loans uint64 // a bit per layer; all are known before anything is charged
	for i := range charges {
		if t.borrows(charges, hashes[:], i, now) {
			loans |= 1 << i
		}
	}
	for i := range charges {
		if loans&(1<<i) == 0 {
			t.report(&charges[i], hashes[i], now)
		}
	}
}

// borrows reports whether what is reported of the layer i is a loan.
func (t *Table) borrows(charges []Charge, hashes []uint64, i int, now int64) bool {
	ch := &charges[i]
	if ch.Mode != Elastic || ch.Lender == 0 || ch.Limit == nil || t.hasRoom(ch, hashes[i], now) {
		return false
	}
	return ch.Lender == Idle || t.hasRoom(&charges[ch.Lender-1], hashes[ch.Lender-1], now)
}

// hasRoom reports whether a layer has room for what is reported of it.
func (t *Table) hasRoom(ch *Charge, h uint64, now int64) bool {
	l := ch.Limit
	return l == nil || ch.Cost <= l.max && t.used(t.shardOf(h), l, ch.Key, h, now) <= l.max-ch.Cost
}

// report charges one layer. Its shard is locked.
func (t *Table) report(ch *Charge, h uint64, now int64) {
	l := ch.Limit
	if l == nil || l.max == 0 || ch.Cost == 0 {
		return
	}
	y := t.settled(t.shardOf(h), l, ch.Key, h, min(ch.Cost, l.max), true, now)
	if y.cell == nil { // there is no room at all
		return
	}
	_, used := t.overdraw(y, l, ch.Cost)
	if y.cell.mayBurst(l) {
		t.checkBurst(y, l, l.max-min(used, l.max))
	}
}

// overdraw counts a cost for which there may be no room, up to twice the limit. The cell was asked for it, or for the
// limit where it is more than that. It returns what it counted, and what is used then.
func (t *Table) overdraw(y layer, l *Limit, cost uint64) (counted, used uint64) {
	t.debitPending(y.shard, l, y.cell, y.at)
	used = y.shard.view(y.cell, t.meters.states[y.cell.meter], y.at)
	if counted = min(cost, maxHeld*l.max-min(used, maxHeld*l.max)); counted > 0 {
		t.countAnyway(y, l, counted)
	}
	if asked := min(cost, l.max); counted > asked { // no more is sent than was asked for
		y.cell.offered = uint32(min(uint64(y.cell.offered)+counted-asked, 1<<32-1))
	}
	if used += counted; used > l.max {
		y.cell.raise(denied) // as the next request will be
	}
	return counted, used
}
