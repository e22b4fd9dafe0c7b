package gossip

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// excessWindow holds, of the last BoundAfter, what Replica.Audit needs of one rule, by step.
type excessWindow struct {
	used [excessSteps]uint64 // most of the limit that an own admission found used, 0 if there was none
	// reported is the sum over the reports of the cost of each one's hottest key that was admitted before the step
	// ended and arrived after it began; unreported the same of what peers admitted and will not report.
	reported, unreported [excessSteps]uint64
	// shown is most of the limit that had been used, as such reports showed, of a key that they raised: an admission
	// in the step found no more used of any key for which something was reported later.
	shown [excessSteps]uint64
	spans map[counters.Origin][]span // of members: the latest, which the next report may overlap
	last  int64                      // number of the latest step
}

// span is a cost that was unseen from one step to another.
type span struct {
	from, until int64
	cost        uint64
}

const (
	excessSteps = 1 << 7
	// maxSpans is how many spans of a peer a window holds. Reports that overlap more than that add up.
	maxSpans = 1 << 5
)

// BoundAfter returns how long after a moment the bound may take to cover it, given the gossip interval: by then peers
// have reported what they admitted until that moment, or count as unreachable. An excessWindow reaches back as far.
func BoundAfter(interval time.Duration) time.Duration { return max(2*time.Second, 8*interval) }

// advance moves the window to a later step and drops what is too old. A clock set back by more than the window clears
// it.
func (w *excessWindow) advance(last int64) {
	if by := last - w.last; by >= excessSteps || by <= -excessSteps {
		*w = excessWindow{last: last}
	}
	for ; w.last < last; w.last++ {
		i := (w.last + 1) % excessSteps
		w.used[i], w.reported[i], w.unreported[i], w.shown[i] = 0, 0, 0, 0
	}
}

// first is the earliest step that the window holds.
func (w *excessWindow) first() int64 { return max(0, w.last-excessSteps+1) }

// isEmpty reports whether the window holds nothing.
func (w *excessWindow) isEmpty() bool {
	nothing := [excessSteps]uint64{}
	return w.used == nothing && w.reported == nothing && w.unreported == nothing
}

// admit notes what an own admission found used, for some steps.
func (w *excessWindow) admit(used uint64, from, until int64) {
	w.advance(until)
	for step := max(from, w.first()); step <= until; step++ {
		w.used[step%excessSteps] = max(w.used[step%excessSteps], used)
	}
}

// most is the most that one node admits of a key in the time that spans take together.
type most func(spans ...span) uint64

// miss notes a cost that was unseen in the steps given. With what a member's other reports hold of the same step, it
// comes to no more than one node can have admitted. Others than members, 0, may all be the same node.
func (w *excessWindow) miss(unseen *[excessSteps]uint64, member counters.Origin, s span, most most) {
	w.advance(s.until)
	s.cost = min(s.cost, most(s))
	spans := slices.DeleteFunc(w.spans[member], func(other span) bool { return other.until < s.from })
	w.add(unseen, spans, s, s.from, most)
	if member == 0 {
		return
	}
	if len(spans) == maxSpans {
		spans = slices.Delete(spans, 0, 1)
	}
	if w.spans == nil {
		w.spans = make(map[counters.Origin][]span)
	}
	w.spans[member] = append(spans, s)
}

// add adds the cost of a span to what is unseen in each step from one on, as far as one node can have admitted it
// beside its other spans.
func (w *excessWindow) add(unseen *[excessSteps]uint64, others []span, s span, from int64, most most) {
	before, after := most(others...), most(append(slices.Clip(others), s)...)
	for step := max(from, w.first()); step <= s.until; step++ {
		held := costOf(others, step)
		unseen[step%excessSteps] += min(after, held+s.cost) - min(before, held)
	}
}

// costOf adds up the spans of a step.
func costOf(spans []span, step int64) (sum uint64) {
	for _, s := range spans {
		if s.from <= step && step <= s.until {
			sum += s.cost
		}
	}
	return sum
}

// prune drops the spans of members that have ended before the window.
func (w *excessWindow) prune() {
	maps.DeleteFunc(w.spans, func(_ counters.Origin, spans []span) bool {
		return spans[len(spans)-1].until < w.first()
	})
}

// excess returns the most by which an admission exceeded the limit.
//
// Reports add up the hottest key of each peer, whichever it is. But what they show of the keys themselves is the most
// that can have been used of any.
func (w *excessWindow) excess(limit, more uint64, unreported *[excessSteps]uint64) (largest uint64) {
	for i, used := range w.used {
		if used == 0 {
			continue
		}
		all := max(used, min(used+w.reported[i], w.shown[i])) + unreported[i]
		if all += more; all > limit {
			largest = max(largest, all-limit)
		}
	}
	return largest
}

// step is the number of the step that holds a time.
func (r *Replica) step(at int64) int64 { return max(0, at) / r.stepLength() }

func (r *Replica) stepLength() int64 { return int64(BoundAfter(r.interval)) / excessSteps }

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
		orNew(r.excess, d.Meter.Rule).admit(used, r.step(from), r.step(now))
	}
}

// Found records the most that a key has used of a limit, by the meter's rule, among those that this node denies, as the
// counts say that have arrived. So the bound covers what other nodes admitted of them as well, and is never below what
// those counts show. An Audit of the same limits follows.
func (r *Replica) Found(found map[string]uint64, now int64) {
	from := cmp.Or(r.foundAt, now)
	r.foundAt = now
	for rule, used := range found {
		if used > 0 {
			orNew(r.excess, rule).admit(used, r.step(min(from, now)), r.step(now))
		}
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

// span is a cost that was unseen from one time to another.
func (r *Replica) span(from, until int64, cost uint64) span {
	return span{r.step(from), r.step(until), cost}
}

// notSeen records a cost of a peer under a rule that was unseen here, and has come or will not.
func (r *Replica) notSeen(o counters.Origin, rule string, s span, came bool) {
	limit := r.limits[rule]
	if limit == nil || s.cost == 0 {
		return
	}
	if r.peers[o] == nil {
		o = 0
	}
	w := orNew(r.excess, rule)
	unseen := &w.unreported
	if came {
		unseen = &w.reported
	}
	w.miss(unseen, o, s, r.mostOf(limit))
}

// mostOf returns what one node admits of a limit at most. A window holds no more than the limit; a bucket gets some
// back, also in the time before a report that came late.
func (r *Replica) mostOf(l *counters.Limit) most {
	return func(spans ...span) uint64 {
		if len(spans) == 0 {
			return 0
		}
		from, until := spans[0].from, spans[0].until
		for _, s := range spans {
			from, until = min(from, s.from), max(until, s.until)
		}
		return l.MostIn(BoundAfter(r.interval) + time.Duration((until-from)*r.stepLength()))
	}
}

// show records what a report raised keys by, and how much it showed of them. Where owners add up, its cost was unseen;
// otherwise frames have the cost of their interval.
func (r *Replica) show(rule string, rises *counters.Rises, now int64) {
	limit := r.limits[rule]
	if limit == nil || rises.Cost == 0 {
		return
	}
	w := orNew(r.excess, rule)
	w.advance(r.step(now))
	for step := max(r.step(min(rises.Since, now)), w.first()); step <= w.last; step++ {
		i := step % excessSteps
		w.shown[i] = max(w.shown[i], rises.Used)
		if r.large {
			w.reported[i] += min(rises.Cost, limit.Largest())
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
	if f.again || h.repeated(f) && (h.lowSince == 0 || f.sent <= h.newest) { // see disbelieve
		return
	}
	for i := range f.groups {
		// Bans and lifts have the name of a rule, but no demand.
		if g := &f.groups[i]; g.origin == f.origin && g.meter.Algorithm.Counts() {
			from := min(f.sent, now) - int64(f.since)
			if d := h.demand[g.meter.Rule]; d.sent == f.sent { // the report came in several frames
				from = max(from, d.came)
			}
			if !r.large {
				r.notSeen(f.origin, g.meter.Rule, r.span(from, now, g.rise), true)
			}
			if r.follows(h, g.meter.Rule) {
				h.noteDemand(g, f.sent, now)
			}
		}
	}
}

// maxUnknownDemands is how many unknown rules of one origin a replica remembers: whoever has the key can make rules up.
const maxUnknownDemands = 1 << 10

// follows reports whether to remember the demand that an origin reports under a rule.
func (r *Replica) follows(h *inbound, rule string) bool {
	_, known := h.demand[rule]
	return known || r.limits[rule] != nil || len(h.demand) < maxUnknownDemands
}

// assume records as unseen what an origin whose frames will never come may have admitted: what it was asked for, or the
// rise of its counts, whichever is more.
func (r *Replica) assume(h *inbound, rises map[string]uint64, now int64) {
	for rule, l := range r.limits {
		cost := max(rises[rule], h.assumed(rule, l, now))
		r.notSeen(h.origin, rule, r.span(now-int64(h.age(now)), now, cost), false)
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
	cost := h.mostRate(rule) * min(h.unreported(now), l.Lasts()).Seconds()
	return uint64(math.Ceil(min(cost, float64(l.Largest()))))
}

// Audit bounds by how much the cluster may have exceeded each limit within the last BoundAfter, on one key that this
// node admits or denies, once peers have reported what they admitted until then. For each step of that time
//
//	excess <= max(used, min(used + unseen, shown)) - L
//
//	used    most of the limit that an admission of this node found used, itself included (counters.Demand), or that
//	        a key which it denies has used (Found)
//	unseen  sum over the peers of what each one's hottest key rose by and had not arrived here, at most L of each
//	        member (see mostOf) if few of its reports overlap: a report carries the rise and the time since when it
//	        counts, so that no more was unseen from then until the report came
//	shown   most of the limit that had been used of a key at a time, as reports that came later showed it: the last of
//	        those that raise it comes when all that counted at that time has arrived (counters.Rises)
//
// A peer whose watermark is older than half of BoundAfter may not report in time. It counts as admitting the highest
// rate that it lately reported for the time since, at most for as long as an admission counts ([counters.Limit.Lasts]),
// and at most L. A surprise that begins while peers are unreachable is not covered: over N nodes its ceiling is
// (N-1) L. A member that has not sent anything for neverSeen counts as L, unless an owner has told what its region is
// asked for. For limits of scope Region, peers of other regions do not count.
//
// What the table evicted may be admitted once more: the largest count of an evicted key, up to L, is part of the excess
// for as long as it would count. A key evicted several times in a window goes beyond that.
//
// limits and the result are by the meter's rule; a limit that was not exceeded is not in the result.
func (r *Replica) Audit(limits map[string]*counters.Limit, now int64) map[string]float64 {
	r.limits = limits
	silent, sums := r.silent(now), r.silentSums(now)
	out := make(map[string]float64)
	for rule, w := range r.excess {
		w.advance(r.step(now))
		w.prune()
		limit := limits[rule]
		if limit == nil || w.isEmpty() {
			delete(r.excess, rule)
			continue
		}
		more, unreported := sums[rule]+r.forgottenOf(rule, limit, now), w.unreported
		for _, h := range silent {
			if cost := r.mayHaveAdmitted(h, rule, limit, now); cost > 0 {
				s := span{r.step(now - int64(h.age(now))), w.last, cost}
				w.add(&unreported, w.spans[h.origin], s, w.first(), r.mostOf(limit))
			}
		}
		if largest := w.excess(limit.Largest(), more, &unreported); largest > 0 {
			out[rule] = float64(largest)
		}
	}
	return out
}

// silent returns the peers that will not report in time. Where owners add up, members that are no links need not.
func (r *Replica) silent(now int64) (all []*inbound) {
	for _, h := range r.senders() {
		if r.isAwaited(h) && h.age(now) >= BoundAfter(r.interval)/2 {
			all = append(all, h)
		}
	}
	return all
}

// mayHaveAdmitted returns the most that a silent peer may have admitted of a key under a rule.
func (r *Replica) mayHaveAdmitted(h *inbound, rule string, l *counters.Limit, now int64) uint64 {
	if h.watermark != 0 || h.age(now) <= neverSeen {
		return h.assumed(rule, l, now)
	}
	if h.isFar() && (l.Scope() != counters.Global || r.hasReported(h.region, rule)) {
		return 0
	}
	return l.Largest()
}

// hasReported reports whether an owner of a region has told what its nodes are asked for under a rule: that is assumed
// of all of them, see silentSums.
func (r *Replica) hasReported(g *region, rule string) bool {
	return slices.ContainsFunc(r.senders(), func(h *inbound) bool {
		_, has := h.sums[ofRegion][rule]
		return has && h.region == g
	})
}

// silentSums returns, by rule, what owners may have not reported of others, who do not report here themselves.
func (r *Replica) silentSums(now int64) map[string]uint64 {
	sums := make(map[string]uint64)
	if !r.large {
		return sums
	}
	for _, h := range r.senders() {
		// An owner that left knew of those out of reach, and its successor may not have reported them yet.
		if r.reports(h) || h.left && !over(now, h.leftAt, neverSeen+BoundAfter(r.interval)) {
			for rule, l := range r.limits {
				sums[rule] = max(sums[rule], r.assumedSum(h.origin, h, rule, l, now)) // a key has one owner
			}
		}
	}
	return sums
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
