package gossip

import (
	"math"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// excessWindow holds, by steps of the last BoundAfter, what Replica.Audit needs of one rule.
type excessWindow struct {
	steps [excessSteps]excessStep
	rises *[riseSteps]counters.Rises // where owners add up; nil: no key rose
	last  int64                      // number of the latest
}

type excessStep struct {
	// unseen sums, over the peers, the cost of each one's hottest key that was admitted before the step ended and
	// arrived after it began.
	unseen uint64
	used   uint64 // most of the limit that an own admission found used; 0: there was none
}

const (
	excessSteps = 1 << 7
	riseSteps   = excessSteps / stepsPerRise
	// stepsPerRise is how many steps share one of rises.
	stepsPerRise = 4
)

// BoundAfter returns how long after a moment the bound may take to cover it, given the gossip interval: by then peers
// have reported what they admitted until that moment, or count as unreachable. An excessWindow reaches back as far.
func BoundAfter(interval time.Duration) time.Duration { return max(2*time.Second, 8*interval) }

// advance moves the window to a later step and drops what is too old. A clock set back by more than the window clears
// it.
func (l *excessWindow) advance(last int64) {
	if by := last - l.last; by >= excessSteps || by <= -excessSteps {
		clear(l.steps[:])
		l.rises, l.last = nil, last
	}
	for ; l.last < last; l.last++ {
		l.steps[(l.last+1)%excessSteps] = excessStep{}
		if next := l.last + 1; l.rises != nil && next%stepsPerRise == 0 {
			l.rises[next/stepsPerRise%riseSteps] = counters.Rises{}
		}
	}
}

// isEmpty reports whether the window holds nothing.
func (l *excessWindow) isEmpty() bool { return l.steps == [excessSteps]excessStep{} && l.rises == nil }

// each calls note for the steps in [from, to] that are kept.
func (l *excessWindow) each(from, to int64, note func(*excessStep)) {
	l.advance(to)
	for step := max(from, l.last-excessSteps+1); step <= to; step++ {
		note(&l.steps[step%excessSteps])
	}
}

// excess returns the most by which an admission exceeded the limit, if more is unseen beside what the window holds.
//
// Where owners add up, a node may learn of a key only when it is first asked for it, and much was unseen until then.
// But what it then knows of the key in all is the most that can have been used when it was asked.
func (l *excessWindow) excess(limit, more uint64) (largest uint64) {
	for i, s := range l.steps {
		if s.used == 0 {
			continue
		}
		all := s.used + s.unseen
		if l.rises != nil {
			for _, rise := range l.rises[i/stepsPerRise] {
				if rise.Cost > 0 {
					all = max(all, min(s.used+s.unseen+rise.Cost, rise.Total))
				}
			}
		}
		if all += more; all > limit {
			largest = max(largest, all-limit)
		}
	}
	return largest
}

// step is the number of the step that holds a time.
func (r *Replica) step(at int64) int64 {
	return max(0, at) / (int64(BoundAfter(r.interval)) / excessSteps)
}

// orNew returns the value of a key, and makes it if there is none.
func orNew[K comparable, T any](m map[K]*T, key K) *T {
	v := m[key]
	if v == nil {
		v = new(T)
		m[key] = v
	}
	return v
}

// Demand is described at Cluster.Demand.
func (r *Replica) Demand() map[counters.Origin]map[string]float64 {
	own := make(map[string]float64, len(r.asked))
	for _, d := range r.asked {
		own[d.Meter.Rule] = d.Rate
	}
	all := map[counters.Origin]map[string]float64{r.self: own}
	for o, h := range r.inbound {
		rates := make(map[string]float64, len(h.demand))
		for rule, d := range h.demand {
			rates[rule] = d.rate
		}
		all[o] = rates
	}
	return all
}

// admitted records how much of their limits this node's admissions found used in the interval that ends.
func (r *Replica) admitted(demand []counters.Demand, from, now int64) {
	for _, d := range demand {
		limit := r.limits[d.Meter.Rule]
		if limit == nil {
			continue
		}
		used := max(1, d.Used, limit.Far())
		orNew(r.excess, d.Meter.Rule).each(r.step(from), r.step(now),
			func(s *excessStep) { s.used = max(s.used, used) })
	}
}

// forgotten records what the table evicted.
func (r *Replica) forgotten(evicted []counters.Forgotten, now int64) {
	for _, e := range evicted {
		limit := r.limits[e.Meter.Rule]
		if limit == nil || limit.Meter() != *e.Meter {
			continue
		}
		lost := min(e.Count, limit.Largest())
		orNew(r.forgot, e.Meter.Rule).Raise(float64(lost), max(e.Meter.Window, limit.Lasts()), now)
	}
}

// forgottenOf returns the largest count of an evicted key of the rule, for as long as its admissions would count: as
// much may be admitted again.
func (r *Replica) forgottenOf(rule string, limit *counters.Limit, now int64) uint64 {
	p := r.forgot[rule]
	if p == nil {
		return 0
	}
	p.Raise(0, max(limit.Meter().Window, limit.Lasts()), now)
	if p.Value() == 0 {
		delete(r.forgot, rule)
	}
	return uint64(p.Value())
}

// notSeen records that a cost under a rule was unseen here in [from, until].
func (r *Replica) notSeen(rule string, cost uint64, from, until int64) {
	if limit := r.limits[rule]; limit != nil && cost > 0 {
		cost = min(cost, limit.Largest())
		orNew(r.excess, rule).each(r.step(from), r.step(until), func(s *excessStep) { s.unseen += cost })
	}
}

// notSeenRises is notSeen of what owners and members of the region reported of keys.
func (r *Replica) notSeenRises(rule string, rises *counters.Rises, from, until int64) {
	limit := r.limits[rule]
	if limit == nil || *rises == (counters.Rises{}) {
		return
	}
	w := orNew(r.excess, rule)
	w.advance(r.step(until))
	if w.rises == nil {
		w.rises = new([riseSteps]counters.Rises)
	}
	for step := max(r.step(from), w.last-excessSteps+1) / stepsPerRise; step <= w.last/stepsPerRise; step++ {
		for i, rise := range rises {
			at := &w.rises[step%riseSteps][i]
			at.Cost += min(rise.Cost, limit.Largest())
			at.Total = max(at.Total, rise.Total)
		}
	}
}

// reckon records the demand and the unseen cost that a frame reports. It runs before the watermark of its origin is
// updated.
func (r *Replica) reckon(h *inbound, f *frame, now int64) {
	if f.kind == snapshot {
		if f.tick > h.cumulative { // some of the frames up to it will never come
			r.assume(h, h.rises(f), now)
		}
		return
	}
	if f.again || h.repeated(f) {
		return
	}
	for i := range f.groups {
		// Bans and lifts have the name of a rule, but no demand.
		if g := &f.groups[i]; g.origin == f.origin && g.meter.Algorithm.Counts() {
			rise := g.rise
			if rise == asMuchAsAsked {
				rise = uint64(math.Ceil(g.demand * f.since.Seconds()))
			}
			from := min(f.sent, now) - int64(f.since)
			if d := h.demand[g.meter.Rule]; d.sent == f.sent { // the report came in several frames
				from = max(from, d.came)
			}
			if !r.large {
				r.notSeen(g.meter.Rule, rise, from, now)
			}
			if r.follows(f.origin, h, g.meter.Rule) {
				h.noteDemand(g, f.since, f.sent, now)
			}
		}
	}
}

// How many unknown rules of one origin, and how many rules of one that is no member, a replica remembers: whoever has
// the key can make rules and origins up.
const (
	maxUnknownDemands  = 1 << 10
	maxStrangerDemands = 1 << 6
)

// follows reports whether to remember the demand that an origin reports under a rule.
func (r *Replica) follows(o counters.Origin, h *inbound, rule string) bool {
	if _, known := h.demand[rule]; known {
		return true
	}
	if r.peers[o] == nil {
		return len(h.demand) < maxStrangerDemands
	}
	return r.limits[rule] != nil || len(h.demand) < maxUnknownDemands
}

// assume records as unseen what an origin whose frames will never come may have admitted: what it was asked for, or the
// rise of its counts, whichever is more.
func (r *Replica) assume(h *inbound, rises map[string]uint64, now int64) {
	for rule, l := range r.limits {
		r.notSeen(rule, max(rises[rule], h.assumed(rule, l, now)), now-int64(h.age(now)), now)
	}
}

// rises returns, by rule, the most by which a snapshot shows one key of its origin to have risen since the watermark.
// The whole sub-window of the watermark counts as risen.
func (h *inbound) rises(f *frame) map[string]uint64 {
	rises := make(map[string]uint64)
	for i := range f.groups {
		if g := &f.groups[i]; h.watermark != 0 && g.origin == f.origin && g.meter.Algorithm.Counts() {
			rises[g.meter.Rule] = max(rises[g.meter.Rule], g.hottest(h.watermark, f.sent))
		}
	}
	return rises
}

// hottest returns the largest cost that the group counts of one key since a time. The slots of a key stand in a row.
func (g *group) hottest(since, sent int64) (largest uint64) {
	var s counters.Slot
	var key counters.Key
	var sum uint64
	for e := (entries{rest: g.entries}); e.next(&s, g.meter.Index(sent)); {
		if s.Key != key {
			key, sum = s.Key, 0
		}
		if s.Index >= g.meter.Index(since) {
			sum = min(sum+min(s.Count, counters.MaxLimit), counters.MaxLimit)
			largest = max(largest, sum)
		}
	}
	return largest
}

// assumed returns the most that the origin admitted of a key and did not report: rate * unreported time, at most the
// limit.
func (h *inbound) assumed(rule string, l *counters.Limit, now int64) uint64 {
	cost := h.demand[rule].rate * min(h.unreported(now), l.Lasts()).Seconds()
	return uint64(math.Ceil(min(cost, float64(l.Largest()))))
}

// Audit bounds by how much this node's admissions of the last BoundAfter may have exceeded each limit, on one key, once
// peers have reported what they admitted until then. For each step of that time
//
//	excess <= used + unseen - L
//
//	used    most of the limit that an admission of this node found used, itself included (counters.Demand)
//	unseen  sum over the peers of what each one's hottest key rose by and had not arrived here: a report carries the
//	        rise and the time since when it counts, so that no more was unseen from then until the report came
//
// A peer whose watermark is older than half of BoundAfter may not report in time. It counts as admitting the rate that
// it last reported for the time since, at most for as long as an admission counts ([counters.Limit.Lasts]), and at most
// L. A surprise that begins while peers are unreachable is not covered: over N nodes its ceiling is (N-1) L. A member
// that has not sent anything for neverSeen counts as L. For limits of scope Region, peers of other regions do not
// count.
//
// What the table evicted may be admitted once more: the largest count of an evicted key, up to L, is part of the excess
// for as long as it would count. A key evicted several times in a window goes beyond that.
//
// limits and the result are by the meter's rule; a limit that was not exceeded is not in the result.
func (r *Replica) Audit(limits map[string]*counters.Limit, now int64) map[string]float64 {
	r.limits = limits
	silent := r.silent(now)
	out := make(map[string]float64)
	for rule, l := range r.excess {
		l.advance(r.step(now))
		if limit := limits[rule]; limit == nil || l.isEmpty() {
			delete(r.excess, rule)
		} else if largest := l.excess(limit.Largest(), silent[rule]+r.forgottenOf(rule, limit, now)); largest > 0 {
			out[rule] = float64(largest)
		}
	}
	return out
}

// silent returns, by rule, what all peers together may have admitted that will not report in time.
func (r *Replica) silent(now int64) map[string]uint64 {
	out, sums := make(map[string]uint64), make(map[string]uint64)
	for _, h := range r.senders() {
		age := h.age(now)
		if r.large && r.reports(h.origin, h) {
			for rule, l := range r.limits {
				sums[rule] = max(sums[rule], r.assumedSum(h.origin, h, rule, l, now))
			}
		}
		switch {
		case h.left || age < BoundAfter(r.interval)/2:
		case h.watermark == 0 && age > neverSeen:
			for rule, l := range r.limits {
				if !h.otherRegion || l.Scope() == counters.Global {
					out[rule] += l.Largest()
				}
			}
		default:
			for rule := range h.demand {
				if l := r.limits[rule]; l != nil {
					out[rule] += h.assumed(rule, l, now)
				}
			}
		}
	}
	for rule, cost := range sums { // a key has one owner
		out[rule] += cost
	}
	return out
}

// Peak is the largest value of the last window, kept in steps of a tenth of it: it forgets up to a step too late. The
// zero value is 0. A Peak is not safe for concurrent use.
type Peak struct {
	steps [peakSteps]float64
	width int64 // of a step, in nanoseconds
	last  int64 // number of the step that is being filled
}

const peakSteps = 11

// Raise takes in a value of the time now, in Unix nanoseconds. When the window is another than last time, the largest
// value so far counts as one of now.
func (p *Peak) Raise(v float64, window time.Duration, now int64) {
	if width := int64(window / (peakSteps - 1)); width != p.width {
		v = max(v, p.Value())
		*p = Peak{width: width, last: now / width}
	}
	step := now / p.width
	if step-p.last >= peakSteps {
		clear(p.steps[:])
	} else {
		for s := p.last + 1; s <= step; s++ {
			p.steps[s%peakSteps] = 0
		}
	}
	p.last = max(p.last, step)
	at := &p.steps[p.last%peakSteps]
	*at = max(*at, v)
}

// Value is the largest value.
func (p *Peak) Value() float64 {
	var largest float64
	for _, v := range p.steps {
		largest = max(largest, v)
	}
	return largest
}
