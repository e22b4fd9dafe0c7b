package gossip

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// PeerStatus is what a replica knows of another one.
type PeerStatus struct {
	Origin counters.Origin
	Member bool          // in the membership now
	AsOf   int64         // the peer's time, Unix nanoseconds, at which the knowledge of it is whole; 0: never yet
	Age    time.Duration // the oldest that the knowledge of it got within the last interval
	RTT    time.Duration // smoothed time from a frame to its acknowledgement; 0 when none was measured
}

// Peers returns the status of every replica that has been heard of and has not left, by origin.
func (r *Replica) Peers(now int64) []PeerStatus {
	out := make([]PeerStatus, 0, len(r.heard))
	for o, h := range r.heard {
		if h.left {
			continue
		}
		st := PeerStatus{Origin: o, AsOf: h.asOf, Age: max(h.peakAge, h.age(now))}
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

// Audit bounds the cost that other replicas may have admitted on one key of each limit without this one knowing, at any moment
// since the last audit: for each of them the rate at which its hottest key is asked for, times the age of what is known of it, but
// at most a whole limit. An admission exceeds the limit by at most what was unseen at that moment, because the counts that were seen
// are never too high.
//
//	unseen = sum over peers of min(rate * min(age, W), L)
//
// where W is how long an admission counts ([counters.Limit.Lasts]).
//
// It holds for the rates that peers report, a burst included once its report has come. A peer that is asked for more from one moment
// to the next while it cannot be heard may admit up to L: over N nodes, (N-1) L is the ceiling for a surprise. One that has been known
// for neverHeard without a word from it, as when the way to it alone is cut, counts as L. limits and the result are by the meter's
// rule; a limit of which nothing was unseen is not in the result.
func (r *Replica) Audit(limits map[string]*counters.Limit, now int64) map[string]float64 {
	out := make(map[string]float64)
	for _, h := range r.heard {
		age := h.age(now)
		silent := h.asOf == 0 && age > neverHeard && !h.left
		if silent {
			for rule, l := range limits {
				out[rule] += float64(l.Max())
			}
		}
		for rule, d := range h.demand {
			if l := limits[rule]; l != nil && !h.left && !silent {
				unseen := max(d.peak, d.rate*min(age, l.Lasts()).Seconds())
				// In whole 1024ths, rounded up: such a sum is exact, and does not depend on the order of a map.
				out[rule] += min(math.Ceil(unseen*1024)/1024, float64(l.Max()))
			}
			if d.peak = 0; d.rate == 0 {
				delete(h.demand, rule)
			} else {
				h.demand[rule] = d
			}
		}
	}
	return out
}
