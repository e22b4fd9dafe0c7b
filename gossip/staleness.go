package gossip

import (
	"cmp"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// PeerStatus is what a replica knows of another one.
type PeerStatus struct {
	Origin counters.Origin
	Member bool          // in the membership now
	Far    bool          // of another region
	AsOf   int64         // the peer's time, Unix nanoseconds, at which the knowledge of it is whole; 0: never yet
	Age    time.Duration // the oldest that the knowledge of it got within the last interval
	RTT    time.Duration // smoothed time from a frame to its acknowledgement; 0 when none was measured
	// Idle says that no requests came to the peer, so that it speaks once a second: its age is no sign of how fast counts travel. Nobody
	// who is silent for longer is idle.
	Idle bool
	// Ahead is by how much the peer's clock is ahead of this replica's, if it is known (Timed): wrong by half of what the ways to it and back
	// differ in.
	Ahead time.Duration
	Timed bool
}

// Peers returns the status of every replica that has been heard of and has not left, by origin.
func (r *Replica) Peers(now int64) []PeerStatus {
	out := make([]PeerStatus, 0, len(r.heard))
	for o, h := range r.heard {
		if h.left {
			continue
		}
		st := PeerStatus{Origin: o, Far: h.far, AsOf: h.asOf, Age: max(h.peakAge, h.age(now))}
		st.Idle = h.idle && st.Age <= neverHeard
		st.Ahead, st.Timed = h.skew(now)
		if p := r.peers[o]; p != nil {
			st.Member, st.RTT = true, p.srtt
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b PeerStatus) int { return cmp.Compare(a.Origin, b.Origin) })
	return out
}

// neverHeard is how long a peer may take to say its first word: well past the second between beacons.
const neverHeard = 3 * idleBeacon

// Audit bounds by how much cost the own admissions of late may have gone over each limit, on one key: in retrospect, as soon as peers have
// told what they admitted until then. At an admission of this replica all tables together had counted what this one knew, used, and what
// others had admitted and it did not know, unseen. So for each step of the last moments
//
//	excess <= used + unseen - L
//
//	used    the most that an admission of this replica found used of the limit, itself included (counters.Demand)
//	unseen  the sum over peers of what was admitted there of the hottest key, and not known here: each report says how much that is and of
//	        what time it tells, so that this much, and no more, was unseen at most from then until the report came
//
// A peer that has not told all of so long ago as half of BoundAfter may not tell in time. It is taken to have admitted what it was asked
// for when it last said so, in the time of which it has told nothing, at most for as long as an admission counts
// ([counters.Limit.Lasts]), and at most L. That holds for the rates that peers report: where a surprise begins while they cannot be heard,
// over N nodes, (N-1) L is the ceiling. A peer that has been known for neverHeard without a word from it, as when the way to it alone is
// cut, counts as L. Of scope Region, peers of other regions do not count.
//
// limits and the result are by the meter's rule; a limit that was not exceeded is not in the result.
func (r *Replica) Audit(limits map[string]*counters.Limit, now int64) map[string]float64 {
	r.limits = limits
	silent := r.silent(now)
	out := make(map[string]float64)
	for rule, l := range r.ledgers {
		l.advance(r.step(now))
		if limit := limits[rule]; limit == nil || l.empty() {
			delete(r.ledgers, rule)
		} else if most := l.excess(limit.Max(), silent[rule]); most > 0 {
			out[rule] = float64(most)
		}
	}
	return out
}

// silent is what peers may have admitted that will not tell in time, by rule and for all of them together.
func (r *Replica) silent(now int64) map[string]uint64 {
	out := make(map[string]uint64)
	for _, h := range r.heard {
		age := h.age(now)
		switch {
		case h.left || age < BoundAfter(r.interval)/2:
		case h.asOf == 0 && age > neverHeard:
			for rule, l := range r.limits {
				if !h.far || l.Scope() == counters.Global {
					out[rule] += l.Max()
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
	return out
}
