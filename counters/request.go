package counters

import (
	"fmt"
	"math/bits"
)

// Charge is one layer of a request.
type Charge struct {
	Limit *Limit // nil: no rule, always admitted
	Key   Key
	Cost  uint64 // as in Take
	// Address is the key of an address that a limit with AddressBans bans in place of Key; 0: unknown, or no address.
	Address Key

	Pending  uint64 // cost that is to be charged later: there has to be room for it, too
	Mode     Mode   // what the layer's denial means for the request
	Each     bool   // charge every request that this layer admits, even if another layer denies it
	Overdraw bool   // charge the request even if it is denied, up to twice the limit (overdraft.go)
	// Lender is the layer that an Elastic layer borrows from, as its position among the charges, counted from 1. The
	// lender must not be Elastic itself, nor Decided. Idle: the idle system. 0: none.
	Lender uint8
	// Decided is the decision on the layer that was made elsewhere, see elsewhere.go; nil: the table decides.
	Decided *Decision
	// Counts has the table count what was decided elsewhere.
	Counts bool
	asked  bool // by Ask
}

// charged reports whether a layer with the decision d is charged by a request that passes or not.
func (ch *Charge) charged(d *Decision, passes bool) bool {
	if d.Waived {
		return (passes || ch.Overdraw) && ch.Mode != Elastic // a full lender is charged, a borrower is not
	}
	return ch.Limit != nil && d.Allowed && (passes || ch.Each || ch.Overdraw)
}

// overdraws reports whether a layer is charged although its decision d is a denial. A limit that counts denied requests
// by itself does not count them twice, and a ban counts nothing.
func (ch *Charge) overdraws(d *Decision) bool {
	l := ch.Limit
	return ch.Overdraw && l != nil && l.max > 0 && !l.countsRejected && !l.tallies && !d.Allowed && !d.Banned
}

// MaxLayers is the maximum number of charges of TakeAll and Report.
const MaxLayers = 32

// few is how many layers most requests have at most: it costs time to clear more.
const few = 4

// TakeAll decides on a request under several limits. It charges all of them, or none if one of them denies; modes
// ([Mode]) and Charge.Each may change that. It appends a decision for each layer to dst, in order; the request is
// allowed if and only if all decisions are. Of a denied request, the decisions of the other layers say that they would
// have admitted it. A layer whose denial does not count, by its mode, is waived and not charged, except a full lender
// (elastic.go). TakeAll panics if there are more than MaxLayers charges, or if a Lender is none of them.
func (t *Table) TakeAll(charges []Charge, now int64, dst []Decision) []Decision {
	return t.takeAll(charges, false, now, dst)
}

// takeAll is TakeAll, or with asks Ask.
func (t *Table) takeAll(charges []Charge, asks bool, now int64, dst []Decision) []Decision {
	first := len(dst)
	for range charges {
		dst = append(dst, Decision{})
	}
	r := request{charges: charges, decisions: dst[first:], now: now}
	if len(charges) <= few {
		var room [few]layer
		r.layers = room[:]
		r.decide(t, asks)
	} else {
		var room [MaxLayers]layer
		r.layers = room[:]
		r.decide(t, asks)
	}
	return dst
}

// request is one call of TakeAll, Ask or Report.
type request struct {
	charges   []Charge
	layers    []layer // by charge; without a cell: the key has none, or the table does not decide
	decisions []Decision
	now       int64
	// What any layer has, and most requests have none of: tallied limits, lenders, Decided, bans.
	tallies, lends, decided, bans bool
	// early: ask itself completes decisions, see rest. Nothing is charged later, or something is counted before.
	early bool
}

// decide decides on a request, and charges it unless asks is set and it passes.
func (r *request) decide(t *Table, asks bool) {
	r.early = asks
	locked := r.lock(t)
	defer t.unlockSet(locked)
	for i := range r.charges {
		r.ask(t, i)
	}
	if r.tallies {
		r.tallyAll(t)
	}
	if r.lends {
		lend(r.charges, r.decisions)
	}
	passes := admit(r.charges, r.decisions)
	if asks && passes {
		for i := range r.charges {
			r.charges[i].asked = r.charges[i].Decided == nil
		}
	} else {
		passes = r.prepare(t, passes)
		r.rest(passes)
		for i := range r.charges {
			r.charge(t, i, passes)
		}
		if r.decided {
			r.countDecided(t, passes)
		}
	}
	applyModes(r.charges, r.decisions)
	for i := range r.charges {
		r.layers[i].pin(false)
	}
	if r.bans && (!asks || !passes) {
		r.ban(t)
	}
}

// ask decides on a layer by itself. It charges nothing but what counts whatever the others decide. A tallied layer is
// only found: tallyAll decides on those together.
func (r *request) ask(t *Table, i int) {
	ch, y, d := &r.charges[i], &r.layers[i], &r.decisions[i]
	l := ch.Limit
	if l == nil {
		d.Allowed = true
		return
	}
	y.before = r.before(i)
	if l.ban != nil && t.banned(y, ch, y.before, r.now, d) {
		return
	}
	if ch.Decided != nil {
		*d = *ch.Decided
		return
	}
	cost := ch.Cost
	if ch.Overdraw && !l.tallies {
		cost = min(cost, l.max)
	}
	how, demand := ask, l.demand(cost)
	if ch.asked { // Ask has recorded the demand
		how, demand = askAgain, 0
	}
	// No other layer makes a cell, as a request that is denied evicts none.
	makes := l.tallies || l.countsRejected && ch.Cost > l.max
	t.open(y, demand, makes, r.now)
	y.pin(true) // no later layer may evict it
	if l.tallies {
		return
	}
	ok, wait := t.fits(y, ch.Cost, y.before, how)
	d.decide(l, ok, wait)
	if y.late = ok && y.c != nil && !r.early; !y.late {
		d.Remaining, d.ResetAfter = y.rest(y.before)
	}
	if !ch.asked {
		t.countRejected(y, ch.Cost, y.before, d)
	}
	y.note(ch.Cost, d)
}

// rest completes the decisions of layers that have room and are not charged: what is left, and until when. As most
// requests pass, and charge does it for their layers, ask leaves it undone.
func (r *request) rest(passes bool) {
	for i := range r.charges {
		ch, y, d := &r.charges[i], &r.layers[i], &r.decisions[i]
		if y.late && (ch.Cost == 0 || !ch.charged(d, passes)) {
			d.Remaining, d.ResetAfter = y.rest(y.before)
		}
	}
}

// before is the cost that earlier layers charge to the same cell as a layer, and what is to be charged later: all have
// to fit in together. A denial that may be waived charges nothing.
func (r *request) before(layer int) uint64 {
	ch := &r.charges[layer]
	sum := ch.Pending
	for i := range layer {
		b := &r.charges[i]
		if b.Key != ch.Key || b.Limit == nil || b.Limit.id != ch.Limit.id || !b.Limit.chargeable(b.Cost) {
			continue
		}
		if r.decisions[i].Allowed || !b.Mode.mayWaive() {
			sum = min(sum, 2*MaxLimit) + b.Cost
		}
	}
	return min(sum, 2*MaxLimit)
}

// prepare makes the missing cells of the layers that are to be charged. If there is no room for one, its layer denies.
// It returns whether the request passes then.
func (r *request) prepare(t *Table, passes bool) bool {
	for i := range r.charges {
		ch, y, d := &r.charges[i], &r.layers[i], &r.decisions[i]
		charged := ch.charged(d, passes)
		if !charged && !ch.overdraws(d) || ch.Cost == 0 || ch.Limit.tallies || ch.Decided != nil {
			continue
		}
		// A lender may be charged more than its limit: ask took that for a request that charges nothing.
		demanded := ch.Cost <= ch.Limit.max || ch.Overdraw || ch.Limit.countsRejected
		if y.c != nil && demanded {
			continue
		}
		t.open(y, min(ch.Cost, ch.Limit.max), true, r.now)
		y.pin(true)
		if y.c == nil && charged {
			ch.Limit.refuse(d)
			passes = admit(r.charges, r.decisions)
		}
	}
	return passes
}

// charge charges a layer of a request that passes or not.
func (r *request) charge(t *Table, i int, passes bool) {
	ch, y, d := &r.charges[i], &r.layers[i], &r.decisions[i]
	if y.c == nil || ch.Cost == 0 {
		return
	}
	switch {
	case ch.Limit.tallies:
	case ch.overdraws(d):
		t.countDenied(y, ch.Cost, 0, d)
	case !ch.charged(d, passes):
	case d.Waived:
		t.overcharge(y, ch.Cost, d)
	default:
		t.take(y, ch.Cost, charge, d)
	}
	if ch.asked { // a drain may have come since Ask recorded the demand
		y.s.noteDemand(y.ref, y.c, y.l.scope)
	}
}

// ban begins the bans of the layers that deny. It is the last, as it may evict cells. Room for what is pending is no
// fault of who is denied.
func (r *request) ban(t *Table) {
	for i := range r.charges {
		ch := &r.charges[i]
		if ch.Limit != nil && ch.Limit.ban != nil && ch.Pending == 0 && (r.layers[i].c != nil || ch.Decided != nil) {
			t.ban(ch, r.now, &r.decisions[i])
		}
	}
}

// lock finds the shards of all charges, and locks them. It returns their set.
func (r *request) lock(t *Table) (set uint64) {
	if len(r.charges) > MaxLayers {
		panic(fmt.Sprintf("counters: %d layers, at most %d are allowed", len(r.charges), MaxLayers))
	}
	for i := range r.charges {
		ch := &r.charges[i]
		l := ch.Limit
		if l == nil {
			continue
		}
		y := &r.layers[i]
		y.l, y.key, y.h = l, ch.Key, hash(t.seed, l.id, ch.Key)
		y.s = t.shardOf(y.h)
		set |= t.shardsOf(y, ch)
		r.early = r.early || l.tallies || l.countsRejected
		r.tallies, r.lends = r.tallies || l.tallies, r.lends || ch.borrows()
		r.decided, r.bans = r.decided || ch.Decided != nil, r.bans || l.ban != nil
	}
	t.lockSet(set)
	return set
}

// shardsOf is the set of shards, one bit each, of a layer and its ban.
func (t *Table) shardsOf(y *layer, ch *Charge) uint64 {
	set := shardBit(y.h)
	if ch.Limit.ban != nil {
		b, key := ch.bans()
		set |= shardBit(hash(t.seed, b.id, key))
	}
	return set
}

func shardBit(h uint64) uint64 { return 1 << (h >> (64 - shardBits)) }

// lockSet locks shards in ascending order, so that requests cannot deadlock.
func (t *Table) lockSet(set uint64) {
	for ; set != 0; set &= set - 1 {
		t.shards[bits.TrailingZeros64(set)].Lock()
	}
}

func (t *Table) unlockSet(set uint64) {
	for ; set != 0; set &= set - 1 {
		t.shards[bits.TrailingZeros64(set)].Unlock()
	}
}
