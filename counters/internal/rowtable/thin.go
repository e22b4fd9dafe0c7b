package rowtable

import (
	"math"
	"time"
)

// How several tables share one limit without false rejections.
//
// A table's view V of a key never exceeds what was admitted, so a node that admits while V has room never rejects a
// client that stays within its limit L. When the limit runs short, though, each table also admits what the others have
// not reported yet. This can be estimated and divided, but a rejection by estimate is unfair without proof:
//
//	proof     A key is an offender once V plus the request exceeds 95 % of L, rounded up, for as long as an admission
//	          counts. No other key is held back. Below a limit of twenty only a request beyond L is proof: a client
//	          that keeps to L asks for the last one, too.
//	thinning  The part p of an offender's requests is admitted, evenly spread, so that all tables together admit what
//	          the limit has room for:
//
//	              p = (L - V - U + R) / (D + Lambda*H)
//
//	          U       estimate of what unreachable peers admitted (partition.go)
//	          R       cost that leaves the window within H, at most at the current rate
//	          D       cost that the other peers were asked for since their reports: sum of rate * age of the report
//	          Lambda  cost per second that all tables are asked for
//	          H       1.5 times the time until all tables know what one admits
//
// No request beyond the room in V is admitted. While peers are unreachable, an offender remains one as long as all
// tables together are asked for 95 % of the limit: otherwise each side of a partition would take itself to be alone.

const (
	proofShare     = 0.95 // the part of the limit whose use proves an offender
	horizons       = 1.5  // H in horizons of the cluster
	sumsPerHorizon = 16   // how often per horizon D and Lambda are summed, at least: ages grow with time
)

// step is what a decision is made for.
type step uint8

const (
	peek     step = iota // answer, and leave no trace
	askAgain             // answer for a layer that was asked before, and has recorded that
	ask                  // answer for one of several layers; a second decision charges it if all admit
	charge               // charge a layer, as all have admitted
	take                 // answer, and charge if admitted
)

// holdsBack reports whether a request of a hot key is denied even if there is room for it.
func (t *Table) holdsBack(y *layer, cost, before uint64, how step) bool {
	if cost == 0 {
		how = peek
	}
	asked := max(cost, 1)
	if asked > y.l.Max || how == askAgain || how == charge { // denied anyway, and no proof; or admitted before
		return false
	}
	w, isHot := y.hotKey()
	if !isHot {
		return false
	}
	if how == peek {
		seen := *w.share
		w.share = &seen
	}
	w.view = t.used(y) + before
	was := w.part
	if w.part = t.admittedPart(y, w, asked, how); was == 1 && w.part < 1 {
		t.draw(y, w.share, asked)
	}
	switch {
	case w.view+asked > y.l.Max:
		return false // it is denied anyway
	case w.part == 1:
		w.credit = 0
		return false
	}
	return !w.afford(float32(asked), how)
}

// draw draws the credit with which thinning begins. Where owners add up, there are many tables, and each may be asked
// for the key once: without a credit all of them would deny that request, whatever part of them fits.
func (t *Table) draw(y *layer, w *share, asked uint64) {
	if t.owners.Load() != nil {
		h := t.store.Hash(y.l.ID^uint64(y.off), y.c.key)
		w.credit = float32(h>>40) / (1 << 24) * float32(asked)
	}
}

// afford adds the admitted part of a request's cost to the credit, and reports whether the credit covers the request.
// Another layer may still deny a request that is only asked: its credit is limited, so that admission stays even.
func (w *share) afford(asked float32, how step) bool {
	if saved := w.credit + w.part*asked; how == take {
		w.credit = saved
	} else {
		w.credit = max(w.credit, min(saved, 2*asked))
	}
	return w.credit >= asked
}

// admittedPart is the part of the key's requests to admit: p for an offender, 1 for others.
func (t *Table) admittedPart(y *layer, w hotKey, asked uint64, how step) float32 {
	cl := t.keepers(&y.l.Meter)
	if cl.peers == 0 || w.rates == 0 {
		return 1
	}
	now, l := y.now(), y.l
	if since := now - w.summed; w.stale || since < 0 || since >= cl.horizon/sumsPerHorizon {
		t.sum(y, w, cl, how)
	}
	if !w.offends(l, asked, now) {
		return 1
	}
	within := int64(horizons * float64(cl.horizon))
	room := float64(l.Max) - float64(w.view) + float64(t.leaves(y, within))
	if g := y.estimate(w.share); g != nil {
		room -= g.count(l.Lasts, now+within)
	}
	comes := float64(w.due) + float64(w.reachable+w.unreachable)*time.Duration(within).Seconds()
	if room >= comes {
		return 1
	}
	return float32(max(0, room/comes))
}

// offends reports whether the key is an offender, and updates until when.
func (w *share) offends(l *Limit, asked uint64, now int64) bool {
	proof := math.Ceil(proofShare * float64(l.Max))
	w.until = min(w.until, now+l.Lasts) // the clock may have stepped back
	lapsed := w.until > 0 && now >= w.until && now-w.until < l.Lasts
	switch {
	case float64(w.view+asked) > proof, lapsed && w.unreachable > 0 &&
		float64(w.reachable+w.unreachable)*time.Duration(l.Lasts).Seconds() >= proof:
		w.until = now + l.Lasts
	case now >= w.until:
		w.until = 0
		return false
	}
	return true
}

// leaves is R: how much of the used cost leaves within a time, if nothing is added, at most at the current rate. A
// burst that will only begin to leave is not counted on: otherwise the next burst would begin before the last has left.
func (t *Table) leaves(y *layer, within int64) uint64 {
	l := y.l
	switch {
	case l.rate.Refill > 0:
		return l.rate.Fits(min(uint64(within), 1<<40) << l.fraction)
	case l.Algorithm == FixedWindow:
		return 0
	}
	var r ring
	t.load(y.s, y.h, y.c, &l.Meter, &r)
	counts := r.counts[:l.N+1]
	view := l.window.Part(counts[0], l.Sub-y.off)
	for _, n := range counts[1:] {
		view += n
	}
	off := y.off + within
	by := off / l.Sub
	if by > int64(l.N) {
		return view
	}
	left := l.window.Part(counts[by], l.Sub-(off-by*l.Sub))
	for _, n := range counts[by+1:] {
		left += n
	}
	return min(view-min(left, view), uint64(float64(counts[0])*float64(within)/float64(l.Sub)))
}
