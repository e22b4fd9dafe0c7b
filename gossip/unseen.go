package gossip

import (
	"math"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// ledger is what a replica keeps of one rule to bound by how much its own admissions went over the limit: step by step, of the last moments.
type ledger struct {
	steps [ledgerSteps]ledgerStep
	last  int64 // number of the latest
}

type ledgerStep struct {
	unseen uint64 // the sum over peers of the cost of each one's hottest key that was admitted before the step ended and known after it began
	used   uint64 // the most of the limit that was used by an own admission, as far as was known; 0: there was none
}

const ledgerSteps = 1 << 7

// BoundAfter is how long after a moment a bound may come that speaks for it, with an interval between reports: by then what peers admitted
// until that moment is told, again if it was lost, or the peers are taken to be silent. Ledgers go back for as long.
func BoundAfter(interval time.Duration) time.Duration { return max(2*time.Second, 8*interval) }

// advance brings the latest step up to one, and forgets what is too long ago. Where the clock was set back by more, it forgets all.
func (l *ledger) advance(last int64) {
	if by := last - l.last; by >= ledgerSteps || by <= -ledgerSteps {
		clear(l.steps[:])
		l.last = last
	}
	for ; l.last < last; l.last++ {
		l.steps[(l.last+1)%ledgerSteps] = ledgerStep{}
	}
}

// each calls note for the steps from one to another that are kept.
func (l *ledger) each(from, to int64, note func(*ledgerStep)) {
	l.advance(to)
	for step := max(from, l.last-ledgerSteps+1); step <= to; step++ {
		note(&l.steps[step%ledgerSteps])
	}
}

// empty reports whether nothing is kept.
func (l *ledger) empty() bool { return l.steps == [ledgerSteps]ledgerStep{} }

// excess is the most by which an admission went over the limit, if so much more was unseen than is known.
func (l *ledger) excess(limit, more uint64) (most uint64) {
	for _, s := range l.steps {
		if all := s.used + s.unseen + more; s.used > 0 && all > limit {
			most = max(most, all-limit)
		}
	}
	return most
}

// step is the number of the step that holds a time.
func (r *Replica) step(at int64) int64 {
	return max(0, at) / (int64(BoundAfter(r.interval)) / ledgerSteps)
}

// ledger is that of a rule, which has a limit.
func (r *Replica) ledger(rule string) *ledger {
	l := r.ledgers[rule]
	if l == nil {
		l = &ledger{}
		r.ledgers[rule] = l
	}
	return l
}

// admitted notes what the own admissions left of their limits, in the interval that ends.
func (r *Replica) admitted(demand []counters.Demand, from, now int64) {
	for _, d := range demand {
		limit := r.limits[d.Meter.Rule]
		if limit == nil {
			continue
		}
		used := max(1, d.Used, limit.Far())
		r.ledger(d.Meter.Rule).each(r.step(from), r.step(now), func(s *ledgerStep) { s.used = max(s.used, used) })
	}
}

// notSeen notes a cost under a rule that was unseen for a time.
func (r *Replica) notSeen(rule string, cost uint64, from, until int64) {
	if limit := r.limits[rule]; limit != nil && cost > 0 {
		cost = min(cost, limit.Max())
		r.ledger(rule).each(r.step(from), r.step(until), func(s *ledgerStep) { s.unseen += cost })
	}
}

// reckon notes what a frame that has come tells: what its origin is asked for, and what of it was unseen until now. It comes before what
// is known of the origin is brought up to date.
func (r *Replica) reckon(h *hearing, f *frame, now int64) {
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
		// Nobody asks for bans, which have the name of a rule that somebody asks for.
		if g := &f.groups[i]; g.origin == f.origin && g.meter.Algorithm != counters.Ban {
			rise := g.rise
			if rise == asMuchAsAsked {
				rise = uint64(math.Ceil(g.demand * f.since.Seconds()))
			}
			from := min(f.sent, now) - int64(f.since)
			if d := h.demand[g.meter.Rule]; d.sent == f.sent { // it was told in several frames
				from = max(from, d.came)
			}
			r.notSeen(g.meter.Rule, rise, from, now)
			h.noteDemand(g, f.sent, now)
		}
	}
}

// assume takes an origin to have admitted what it was asked for where it will never tell, or what its counts rose by, by rule, if that is more.
func (r *Replica) assume(h *hearing, rises map[string]uint64, now int64) {
	for rule, l := range r.limits {
		r.notSeen(rule, max(rises[rule], h.assumed(rule, l, now)), now-int64(h.age(now)), now)
	}
}

// rises is by rule the most by which a snapshot says that one key of its origin's can have risen since the knowledge of it was whole. What
// it counted in the sub-window of that time may have been known: all of it is taken to have come since.
func (h *hearing) rises(f *frame) map[string]uint64 {
	rises := make(map[string]uint64)
	for i := range f.groups {
		if g := &f.groups[i]; h.asOf != 0 && g.origin == f.origin && g.meter.Algorithm != counters.Ban {
			rises[g.meter.Rule] = max(rises[g.meter.Rule], g.hottest(h.asOf, f.sent))
		}
	}
	return rises
}

// hottest is the most that the group, of a frame of the time sent, counts of one key since a time. A key's slots stand in a row.
func (g *group) hottest(since, sent int64) (most uint64) {
	var s counters.Slot
	var key counters.Key
	var sum uint64
	for e := (entries{rest: g.entries}); e.next(&s, g.meter.Index(sent)); {
		if s.Key != key {
			key, sum = s.Key, 0
		}
		if s.Index >= g.meter.Index(since) {
			sum = min(sum+min(s.Count, counters.MaxLimit), counters.MaxLimit)
			most = max(most, sum)
		}
	}
	return most
}

// assumed is at most what the origin admitted of a key and did not tell, if it was asked for as much as it said last.
func (h *hearing) assumed(rule string, l *counters.Limit, now int64) uint64 {
	cost := h.demand[rule].rate * min(h.untold(now), l.Lasts()).Seconds()
	return uint64(math.Ceil(min(cost, float64(l.Max()))))
}
