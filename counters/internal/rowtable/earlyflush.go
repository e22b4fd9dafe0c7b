package rowtable

import (
	"math"
	"time"
)

const (
	// flushShare is the part of its even share of the remaining limit that a table may admit before it flushes early.
	flushShare = 1.0 / 8
	// A key that is not hot is in a burst only if it was asked for burstMin and for 1/burstShare of its limit since the
	// last drain: so keys of small limits do not become hot by this.
	burstMin   = 16
	burstShare = 64
)

// earlyKey is a head that is to be drained early.
type earlyKey struct {
	meter uint64
	h     uint64
	key   uint64
}

// spend records the admitted cost of a hot key, and requests an early flush if it is much of what remains. An offender
// is not flushed early: peers already take its reported demand into account. pays: the cost is taken from the credit.
func (t *Table) spend(y *layer, cost uint64, pays bool) {
	if !y.c.has(hot) {
		return
	}
	w, isHot := y.hotKey()
	if !isHot {
		return
	}
	if pays && w.part < 1 {
		w.credit -= float32(cost)
	}
	addTo(&w.unsent, cost)
	if y.c.has(flushEarly) {
		return
	}
	left := y.l.Max - min(w.view, y.l.Max)
	if y.l.maxUnsent > 0 && uint64(w.unsent) >= y.l.maxUnsent ||
		w.part == 1 && float64(w.unsent) >= t.flushCost(y.l, left) &&
			(t.owners.Load() == nil || t.isSoon(w, y.l, left)) {
		t.requestEarlyFlush(y)
	}
}

// soonHorizons is in how many horizons a limit is soon used up.
const soonHorizons = 4

// isSoon reports whether the nodes will soon have used up what is left of a limit. Where owners add up, a table alone
// sees little of a burst.
func (t *Table) isSoon(w hotKey, l *Limit, left uint64) bool {
	horizon := time.Duration(t.keepers(&l.Meter).horizon)
	return float64(max(w.reachable, w.own))*soonHorizons*horizon.Seconds() >= float64(left)
}

// addTo adds a cost, up to the maximum of 32 bits.
func addTo(sum *uint32, cost uint64) { *sum = uint32(min(uint64(*sum)+cost, math.MaxUint32)) }

// flushCost is the cost that a table may admit before it flushes early, when so much is left of the limit.
func (t *Table) flushCost(l *Limit, left uint64) float64 {
	peers := t.keepers(&l.Meter).peers
	if peers == 0 {
		return math.Inf(1)
	}
	return max(1, flushShare*float64(left)/float64(peers+1))
}

// noteMuch looks at an admitted request that leaves little of the limit, or of a key that was asked for much.
func (t *Table) noteMuch(y *layer, d Decision) {
	l := y.l
	if used := l.largest - uint64(d.Left) + t.undercount(y); used > l.largest-l.near {
		raise(&t.stateOf(y.c).used, used)
	}
	t.checkBurst(y, uint64(d.Left))
}

// undercount is the most by which the table's view may lag the counts that it received. For a bucket it is the refill
// of the time by which the backdated period begins earlier, for a log the count of others in the sub-window that
// leaves.
func (t *Table) undercount(y *layer) uint64 {
	switch {
	case y.l.isBucket():
		return y.l.bucketLimit.back
	case y.l.isLog():
		return t.others(y.s, y.h, y.c, y.c.sub()-int64(y.l.N))
	}
	return 0
}

// checkBurst looks at a key that is not hot and was asked for much since the last drain. If that is much of what is
// left, the peers may have admitted as much, and the whole limit could be used before anybody has reported it. So the
// key becomes hot now and is flushed early.
func (t *Table) checkBurst(y *layer, left uint64) {
	c, l := y.c, y.l
	offered := uint64(c.offered())
	if offered < l.burst || c.has(hot) || float64(offered) < t.flushCost(l, left) {
		return
	}
	w, isHot := y.heat()
	if !isHot {
		return
	}
	w.view, w.unsent = l.Max-left, c.offered()
	w.own = float32(w.ownNow(c, t.shardOf(y.h).drainedAt, t.keepers(&l.Meter).horizon, y.now()))
	if !c.has(flushEarly) {
		t.requestEarlyFlush(y)
	}
}

// requestEarlyFlush has a head drained early, unless its counts are not sent.
func (t *Table) requestEarlyFlush(y *layer) {
	if y.l.Scope == Alone {
		return
	}
	y.c.raise(flushEarly)
	y.s.Mark(y.c.line())
	cold := t.shardOf(y.h)
	cold.early = append(cold.early, earlyKey{y.l.ID, y.h, y.c.key})
	select {
	case t.earlyFlush <- struct{}{}:
	default:
	}
}

// EarlyFlush returns a channel that receives when counts should be sent before the interval ends: call DrainEarly then.
func (t *Table) EarlyFlush() <-chan struct{} { return t.earlyFlush }

// DrainEarly appends the slots that rose of the keys marked for an early flush. Drain returns all others. One drain at
// a time.
func (t *Table) DrainEarly(dst []Slot, now int64) []Slot {
	t.demands.found = t.demands.found[:0]
	for i := range t.store.Shards() {
		s, cold := &t.store.Shards()[i], &t.shards[i]
		s.Lock()
		for _, k := range cold.early {
			t.ready(s, k.key, now)
			if l := s.Head(k.h, k.meter, k.key); l != nil && headOf(l).has(flushEarly) {
				dst = t.drainEarly(dst, &layer{s: s, h: k.h, c: headOf(l), key: k.key}, now)
			}
		}
		cold.early = cold.early[:0]
		s.Unlock()
	}
	return dst
}

// drainEarly appends the own slots of a head that rose.
func (t *Table) drainEarly(dst []Slot, y *layer, now int64) []Slot {
	c := y.c
	c.lower(flushEarly)
	number := c.line().Meter()
	m := t.meter(number)
	rise := y.unsentCost()
	t.settle(y.s, y.h, c, m, now)
	first := len(dst)
	dst = t.appendOwn(dst, y.s, y.h, c, m, c.changed())
	c.setChanged(0)
	if w, isHot := y.hotKey(); isHot {
		if len(dst) > first {
			dst = t.appendDemand(dst, first, y, w, now)
		}
		w.unsent = 0
	}
	t.demands.note(number, t.meters.states[number].demand, rise)
	return dst
}
