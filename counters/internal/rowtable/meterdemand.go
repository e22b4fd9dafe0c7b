package rowtable

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// Demand is what peers need to know of a meter to bound what they have not received.
type Demand struct {
	Meter uint16 // its number
	// Rate is the cost per second that this table is asked for the meter's hottest key, admitted or not, without costs
	// above the limit. It follows a rise at once, and a fall with the time constant demandMemory.
	Rate float64
	// Rise is an upper bound of the cost that was admitted for one key and not sent before.
	Rise uint64
	// Used is the most of its limit that a key had used when a request was admitted since the last drain, including the
	// undercount of the algorithm; 0 if it was not above three quarters of the largest limit.
	Used uint64
	// Forgotten is the largest count of a key that was evicted since the last drain: this table may admit as much
	// again. It enters this node's own bound and does not travel.
	Forgotten uint64
}

// leastDemand: a meter with a smaller cost per second has no demand.
const leastDemand = 0.5

// meterDemand is what a table measures of a meter. One drain at a time reads and writes what is not atomic.
type meterDemand struct {
	removed atomic.Uint64 // of heads removed since the last drain, the most that one was asked for
	used    atomic.Uint64 // see Demand; 0: not more than three quarters

	forgotten atomic.Uint64 // see Demand
	demand    float64       // see Demand.Rate
	asked     uint64        // since the last drain: the most of a head
	rise      uint64        // see Demand
}

// note notes what a head was asked for, and what it has admitted of that at most.
func (d *meterDemand) note(asked uint32, rise uint64) {
	d.asked, d.rise = max(d.asked, uint64(asked)), max(d.rise, rise)
}

// demandMeasure is how a table measures demands, of one drain to the next.
type demandMeasure struct {
	drainedAt int64
	every     float64 // usual time between drains in seconds
	elapsed   float64 // see since
	found     []Demand
}

// note adds the rise of a head that was drained early.
func (d *demandMeasure) note(meter uint16, rate float64, rise uint64) {
	i := slices.IndexFunc(d.found, func(f Demand) bool { return f.Meter == meter })
	if i < 0 {
		i, d.found = len(d.found), append(d.found, Demand{Meter: meter, Rate: rate})
	}
	d.found[i].Rise = max(d.found[i].Rise, rise)
}

// since is the time in seconds over which the cost asked for is measured; 0 if unknown. After a late drain the next one
// may come too soon to measure a rate, so it is at least half of the usual time.
func (d *demandMeasure) since(now int64) float64 {
	last := d.drainedAt
	d.drainedAt = now
	if last == 0 || now <= last {
		return 0
	}
	elapsed := time.Duration(now - last).Seconds()
	if d.every == 0 {
		d.every = elapsed
	}
	d.every += (min(elapsed, 2*d.every) - d.every) / 8 // a pause changes the usual time little
	return max(elapsed, d.every/2)
}

// Demands returns what the last Drain or DrainEarly found of the meters, until the next one.
func (t *Table) Demands() []Demand { return t.demands.found }

// beginDemands begins to measure what a drain finds.
func (t *Table) beginDemands(now int64) {
	t.demands.elapsed = t.demands.since(now)
	t.demands.found = t.demands.found[:0]
	for _, st := range t.numbered() {
		st.demand *= math.Exp(-t.demands.elapsed / demandMemory.Seconds())
		st.asked = st.removed.Swap(0)
		st.rise = st.asked
	}
}

// endDemands notes what a drain has found.
func (t *Table) endDemands() {
	for i, st := range t.numbered() {
		if t.demands.elapsed > 0 {
			st.demand = max(st.demand, float64(st.asked)/t.demands.elapsed)
		}
		d := Demand{Meter: uint16(i + 1), Forgotten: st.forgotten.Swap(0)}
		if st.demand >= leastDemand || st.rise > 0 {
			d.Rate, d.Rise, d.Used = st.demand, st.rise, st.used.Swap(0)
		} else if d.Forgotten == 0 {
			continue
		}
		t.demands.found = append(t.demands.found, d)
	}
}

// numbered are the states of all meters that have a number, from 1 on.
func (t *Table) numbered() []*meterState {
	t.meters.RLock()
	defer t.meters.RUnlock()
	return t.meters.states[1 : t.meters.given+1]
}

// drainDemand measures the demand of a head that is drained, and adds it to the newest of its slots in dst[first:].
// Where there is none and the demand changed, it appends the unchanged count to carry it.
func (t *Table) drainDemand(dst []Slot, first int, y *layer, now int64) []Slot {
	if y.c.offered() == 0 && y.c.changed() == 0 && !y.isWatched() {
		return dst // it was sent early
	}
	w, isHot := t.updateHotKey(y, now)
	if !isHot {
		return dst
	}
	dst = t.appendDemand(dst, first, y, w, now)
	if w.watched { // it is measured in the next interval whether somebody asks for it or not
		y.s.Mark(y.c.line())
	}
	return dst
}

// appendDemand adds the demand to the newest slot of a hot key in dst[first:]. Where there is none and the demand
// changed, it appends the unchanged count to carry it.
func (t *Table) appendDemand(dst []Slot, first int, y *layer, w hotKey, now int64) []Slot {
	if len(dst) == first {
		if !w.changed(now) {
			return dst
		}
		c := y.c
		own := t.own(y.s, y.h, c, c.sub(), c.newest())
		dst = append(dst, Slot{Key: c.key, Index: c.sub(), Count: own, Birth: c.birth(), Meter: c.line().Meter()})
	}
	dst[first].Demand = w.own
	w.sentRate, w.sentAt, w.unsent = w.own, coarseTime(now), 0
	return dst
}

// updateHotKey measures the demand of a head that is drained. The head becomes hot where 1/hotShare of the limit is
// used, and cools where less than 1/coolShare is used and no peer reports the key. isHot is false where peers need no
// demand: for a key that is no offender and uses less than 1/coolShare.
func (t *Table) updateHotKey(y *layer, now int64) (w hotKey, isHot bool) {
	l := y.l
	view := t.knownUse(y)
	if !y.c.has(hot) && l.maxUnsent == 0 && hotShare*view < l.Max {
		return w, false
	}
	if w, isHot = y.heat(); !isHot {
		return w, false
	}
	w.measure(y.c.offered(), t.demands.elapsed, now)
	if now < w.until || coolShare*view >= l.Max {
		return w, true
	}
	w.unsent = 0 // the counts are sent, only the demand is not
	w.watched = false
	if l.maxUnsent == 0 && !t.hasPeerRate(y, w.share, now) {
		y.c.lower(hot) // the lines go with the next scan
	}
	return w, false
}

// knownUse is how much of the limit that its meter is known by a head uses.
func (t *Table) knownUse(y *layer) uint64 {
	switch l := y.l; {
	case l.isLog():
		y.forgetEntries()
		return t.logSeen(y)
	case !l.isBucket():
		return y.seen()
	case !y.c.has(pendingDebit):
		at := *y
		at.notBefore()
		return l.tokens(at.debt())
	}
	var r ring
	t.load(y.s, y.h, y.c, &y.l.Meter, &r)
	var sum uint64
	for _, count := range r.counts[1 : y.l.N+1] {
		sum += count
	}
	return sum
}

// hasPeerRate reports whether a peer reports demand for the key.
func (t *Table) hasPeerRate(y *layer, w *share, now int64) (has bool) {
	direct := t.owners.Load() == nil
	y.eachRate(w, func(v *peerRate) bool {
		left := direct && t.origins.placeOf(v.origin).isSum() && v.outdated(now) // see peerDemands
		has = has || !left && !v.over(t.origins.watermarkOf(v.origin, y.c.key).Load(), now)
		return true
	})
	return has
}

// isCold reports whether a line of what is known of demand is of no use any more.
func (t *Table) isCold(s *rows.Shard, c *head, l *rows.Line) bool {
	y := layer{s: s, h: t.hashOf(l), c: c}
	w, isHot := y.hotKey()
	number := int(l.Rest())
	switch {
	case !isHot:
		return true
	case l.Kind() == ratesKind:
		return number*ratesPerLine >= int(w.rates)
	case number == estimateLine:
		return !w.estimated
	}
	return false
}

// raise stores n if it is larger than the value.
func raise(value *atomic.Uint64, n uint64) {
	for old := value.Load(); n > old && !value.CompareAndSwap(old, n); {
		old = value.Load()
	}
}
