package rowtable

import (
	"fmt"
	"math/bits"
)

// Charge is one layer of a request.
type Charge struct {
	Limit    *Limit // nil: no rule, always admitted
	Key      uint64
	Cost     uint64 // as in Take
	Ban      BanKey // whom the limit bans; without Bans: nobody
	Pending  uint64 // cost that is to be charged later: there has to be room for it, too
	Mode     Mode   // what the layer's denial means for the request
	Each     bool   // charge every request that this layer admits, even if another layer denies it
	Overdraw bool   // charge the request even if it is denied, as a debt (debt.go)
	// Lender is the layer that an Elastic layer borrows from, as its position among the charges, counted from 1. The
	// lender must not be Elastic itself, nor Decided. Idle: from the idle system. 0: from nobody.
	Lender uint8
	Counts bool // have the table count what was decided elsewhere
	asked  bool // by Ask
	// Decided is the decision on the layer that was made elsewhere; nil: the table decides.
	Decided *Decision
}

func (ch *Charge) borrows() bool { return ch.Mode == Elastic && ch.Limit != nil && ch.Lender != 0 }

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
	return ch.Overdraw && l != nil && l.Max > 0 && !l.countsRejected && !l.tallies && !d.Allowed && !d.Banned
}

// MaxLayers is the maximum number of charges of TakeAll and Report.
const MaxLayers = 32

// request is one call of TakeAll.
type request struct {
	charges   []Charge
	now       int64
	layers    []layer // without a head: the key has none, or the table does not decide
	decisions []Decision
}

// TakeAll decides on a request under several limits. It charges all of them, or none if one of them denies; modes and
// Charge.Each may change that. It appends a decision for each layer to dst, in order; the request is allowed if and
// only if all decisions are. Of a denied request, the decisions of the other layers say that they would have admitted
// it. A layer whose denial does not count, by its mode, is waived and not charged, except a full lender. TakeAll panics
// if there are more than MaxLayers charges, or if a Lender is none of them.
func (t *Table) TakeAll(charges []Charge, now int64, dst []Decision) []Decision {
	return t.takeAll(charges, false, now, dst)
}

// Ask is the first half of TakeAll for a request with Decided layers; none has a tallied limit. If a decision denies
// the request, it is done, as by TakeAll. Otherwise nothing is charged: TakeAll with the same charges comes next.
func (t *Table) Ask(charges []Charge, now int64, dst []Decision) []Decision {
	return t.takeAll(charges, true, now, dst)
}

// few is how many layers most requests have at most: it costs time to clear more.
const few = 4

func (t *Table) takeAll(charges []Charge, asks bool, now int64, dst []Decision) []Decision {
	locked := t.lock(charges)
	defer t.unlock(locked)
	first := len(dst)
	for range charges {
		dst = append(dst, Decision{})
	}
	r := request{charges: charges, now: now, decisions: dst[first:]}
	if len(charges) <= few {
		var room [few]layer
		r.layers = room[:len(charges)]
	} else {
		var room [MaxLayers]layer
		r.layers = room[:len(charges)]
	}
	r.find(t)
	r.decide(t)
	lend(charges, r.decisions)
	passes := admit(charges, r.decisions)
	if asks && passes {
		for i := range charges {
			charges[i].asked = charges[i].Decided == nil
		}
	} else {
		passes = r.prepare(t, passes)
		r.charge(t, passes)
		r.countDecided(t, passes)
	}
	applyModes(charges, r.decisions)
	r.release()
	if !asks || !passes {
		r.ban(t)
	}
	return dst
}

// find finds the heads of all layers. It makes those of layers that count whatever the others decide; a request that is
// denied makes no other one, so it evicts nobody.
func (r *request) find(t *Table) {
	moved := false
	for i := range r.charges {
		ch, y := &r.charges[i], &r.layers[i]
		l := ch.Limit
		if l == nil {
			continue
		}
		*y = t.layerOf(l, ch.Key)
		if r.findBan(t, i); r.decisions[i].Banned || ch.Decided != nil {
			continue
		}
		cost := ch.Cost
		if ch.Overdraw && !l.tallies {
			cost = min(cost, l.Max)
		}
		demand, makes := l.demand(cost), l.tallies || l.countsRejected && ch.Cost > l.Max
		if ch.asked { // Ask has recorded the demand
			demand = 0
		}
		moved = t.open(y, demand, makes, r.now) || moved
		y.pin(true)
	}
	if moved {
		r.again()
	}
}

// findBan notes that the key of a layer is banned, and for how long.
func (r *request) findBan(t *Table, i int) {
	ch := &r.charges[i]
	if ch.Ban.Bans == nil {
		return
	}
	x := t.banOf(ch.Ban, r.now)
	if until := x.until(ch.Cost > 0); until > r.now {
		r.decisions[i].Banned, r.decisions[i].Wait = true, until-r.now
	}
}

// denyBanned denies a layer whose key is banned. It leaves the layer without a head: nothing is counted.
func (r *request) denyBanned(t *Table, i int, before uint64) {
	ch, y, d := &r.charges[i], &r.layers[i], &r.decisions[i]
	left := d.Wait
	if t.open(y, 0, false, r.now) {
		r.again()
	}
	*d = t.answer(y, ch.Cost, before, peek)
	t.note(y, ch.Cost, *d)
	d.ban(left)
	d.Banned, y.c = true, nil
}

// again finds the heads after some were made, as they may have moved.
func (r *request) again() {
	for i := range r.layers {
		if y := &r.layers[i]; y.c != nil {
			y.c = headOf(y.s.Head(y.h, y.l.ID, y.key))
		}
	}
}

// pin protects the head of a layer from eviction, or no longer does.
func (y *layer) pin(on bool) {
	if y.c != nil {
		y.c.put(pinned, on)
	}
}

func (r *request) release() {
	for i := range r.layers {
		r.layers[i].pin(false)
	}
}

// decide decides on each layer. It charges nothing but what counts whatever the others decide.
func (r *request) decide(t *Table) {
	tallies := false
	for i := range r.charges {
		ch, y, d := &r.charges[i], &r.layers[i], &r.decisions[i]
		switch {
		case ch.Limit == nil:
			d.Allowed = true
		case d.Banned:
			r.denyBanned(t, i, r.before(i))
		case ch.Decided != nil:
			*d = *ch.Decided
		case ch.Limit.tallies:
			tallies = true
		default:
			before := r.before(i)
			how := ask
			if ch.asked {
				how = askAgain
			}
			*d = t.answer(y, ch.Cost, before, how)
			if !ch.asked {
				*d = t.countRejected(y, ch.Cost, before, *d)
			}
			t.note(y, ch.Cost, *d)
		}
	}
	if tallies {
		r.tally(t)
	}
}

// before is the cost that earlier layers charge to the same head as a layer, and what is to be charged later: all have
// to fit in together. A denial that may be waived charges nothing.
func (r *request) before(layer int) (sum uint64) {
	ch := &r.charges[layer]
	for i := range layer {
		b := &r.charges[i]
		if b.Limit == nil || b.Key != ch.Key || b.Limit.ID != ch.Limit.ID || !b.Limit.chargeable(b.Cost) {
			continue
		}
		if r.decisions[i].Allowed || !b.Mode.mayWaive() {
			sum = min(sum+b.Cost, maxCharged)
		}
	}
	return min(sum+ch.Pending, maxCharged)
}

// prepare makes the missing heads of the layers that are to be charged, and records a demand that find took for one
// that charges nothing. If there is no room for a head, its layer denies. It returns whether the request passes then.
func (r *request) prepare(t *Table, passes bool) bool {
	moved := false
	for i := range r.charges {
		ch, y, d := &r.charges[i], &r.layers[i], &r.decisions[i]
		charged := ch.charged(d, passes)
		if !charged && !ch.overdraws(d) || ch.Cost == 0 || ch.Limit.tallies || ch.Decided != nil {
			continue
		}
		demanded := ch.Cost <= ch.Limit.Max || ch.Overdraw || ch.Limit.countsRejected
		if y.c != nil && demanded {
			continue
		}
		moved = t.open(y, min(ch.Cost, ch.Limit.Max), true, r.now) || moved
		y.pin(true)
		if y.c == nil && charged {
			*d = ch.Limit.refuse()
			passes = admit(r.charges, r.decisions)
		}
	}
	if moved {
		r.again()
	}
	return passes
}

// charge charges the layers of a request that passes, and of one that does not those that are charged all the same.
func (r *request) charge(t *Table, passes bool) {
	for i := range r.charges {
		ch, y, d := &r.charges[i], &r.layers[i], &r.decisions[i]
		if ch.asked && y.c != nil && ch.Cost > 0 { // a merge may have made the head since
			t.localize(y.h, y.c)
		}
		switch {
		case y.c == nil || ch.Cost == 0 || ch.Limit.tallies:
		case ch.overdraws(d):
			*d = t.countDenied(y, ch.Cost, 0, *d)
		case !ch.charged(d, passes):
		case d.Waived:
			*d = t.overcharge(y, ch.Cost)
		default:
			*d = t.take(y, ch.Cost, charge)
		}
	}
}

// countDecided counts what other stores decided.
func (r *request) countDecided(t *Table, passes bool) {
	counts := false
	for i := range r.charges {
		ch, d := &r.charges[i], &r.decisions[i]
		if ch.Decided != nil && ch.Counts && (d.Allowed && !d.Waived && passes || ch.overdraws(d)) {
			t.report(ch, r.now)
			counts = true
		}
	}
	if counts { // it may have made heads
		r.again()
	}
}

// ban begins the bans of the layers that deny. It is the last, as it may evict heads. Room for what is pending is no
// fault of who is denied.
func (r *request) ban(t *Table) {
	for i := range r.charges {
		ch := &r.charges[i]
		if ch.Limit != nil && ch.Ban.Bans != nil && ch.Pending == 0 && (r.layers[i].c != nil || ch.Decided != nil) {
			t.banAfter(ch, r.now, &r.decisions[i])
		}
	}
}

// lock locks the shards of all charges, in ascending order, so that requests cannot deadlock. It returns their set.
func (t *Table) lock(charges []Charge) (set uint64) {
	if len(charges) > MaxLayers {
		panic(fmt.Sprintf("rowtable: %d layers, at most %d are allowed", len(charges), MaxLayers))
	}
	for i := range charges {
		ch := &charges[i]
		if ch.Limit == nil {
			continue
		}
		set |= 1 << (t.store.Hash(ch.Limit.ID, ch.Key) >> (64 - shardBits))
		if ch.Ban.Bans != nil {
			set |= 1 << (t.store.Hash(ch.Ban.ID, ch.Ban.Key) >> (64 - shardBits))
		}
	}
	t.lockSet(set)
	return set
}

// lockSet locks shards in ascending order, so that requests cannot deadlock.
func (t *Table) lockSet(set uint64) {
	for rest := set; rest != 0; rest &= rest - 1 {
		t.store.Shards()[bits.TrailingZeros64(rest)].Lock()
	}
}

func (t *Table) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		t.store.Shards()[bits.TrailingZeros64(set)].Unlock()
	}
}
