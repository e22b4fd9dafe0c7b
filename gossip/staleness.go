package gossip

import (
	"cmp"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// PeerStatus is what a replica knows of another one.
type PeerStatus struct {
	Origin      counters.Origin
	Member      bool // in the membership now
	OtherRegion bool // of another region
	// CompleteThrough is the peer's time, in Unix nanoseconds, before which all that it admitted is known; 0: never yet.
	CompleteThrough int64
	Age             time.Duration // the largest age of that within the last interval
	RTT             time.Duration // smoothed time from a frame to its acknowledgement; 0 when none was measured
	// Idle says that no requests came to the peer, so that it sends once a second only. A peer that is silent for longer
	// is not idle.
	Idle bool
	// Ahead is by how much the peer's clock is ahead of this replica's, if Timed: wrong by half of what the transit
	// times to and from it differ in.
	Ahead time.Duration
	Timed bool
}

// Peers returns the status of every replica that sent something and has not left, by origin.
func (r *Replica) Peers(now int64) []PeerStatus {
	out := make([]PeerStatus, 0, len(r.inbound))
	for o, h := range r.inbound {
		if h.left {
			continue
		}
		st := PeerStatus{Origin: o, OtherRegion: h.otherRegion, CompleteThrough: h.watermark,
			Age: max(h.peakAge, h.age(now))}
		st.Idle = h.idle && st.Age <= neverSeen
		st.Ahead, st.Timed = h.skew(now)
		if p := r.peers[o]; p != nil {
			st.Member, st.RTT = true, p.srtt
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b PeerStatus) int { return cmp.Compare(a.Origin, b.Origin) })
	return out
}

// neverSeen is how long a peer may take to send its first frame: well past the second between beacons.
const neverSeen = 3 * idleBeacon

// Audit bounds by how much this node's admissions of the last BoundAfter may have exceeded each limit, on one key. It
// is computed in retrospect, once peers have reported what they admitted until then. For each step of that time
//
//	excess <= used + unseen - L
//
//	used    most of the limit that an admission of this node found used, itself included (counters.Demand)
//	unseen  sum over the peers of what each one's hottest key rose by and had not arrived here: a report carries the
//	        rise and the time since when it counts, so that no more was unseen from then until the report came
//
// A peer whose watermark is older than half of BoundAfter may not report in time. It is taken to have admitted the rate
// that it last reported, for the time of which it has reported nothing, at most for as long as an admission counts
// ([counters.Limit.Lasts]), and at most L. A surprise that begins while peers are unreachable is not covered: over N
// nodes its ceiling is (N-1) L. A peer that is a member for neverSeen and never sent anything counts as L. For limits
// of scope Region, peers of other regions do not count.
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
		if limit := limits[rule]; limit == nil || *l == (excessWindow{last: l.last}) {
			delete(r.excess, rule)
		} else if largest := l.excess(limit.Max(), silent[rule]+r.forgottenOf(rule, limit, now)); largest > 0 {
			out[rule] = float64(largest)
		}
	}
	return out
}

// silent returns, by rule, what all peers together may have admitted that will not report in time.
func (r *Replica) silent(now int64) map[string]uint64 {
	out := make(map[string]uint64)
	for _, h := range r.inbound {
		age := h.age(now)
		switch {
		case h.left || age < BoundAfter(r.interval)/2:
		case h.watermark == 0 && age > neverSeen:
			for rule, l := range r.limits {
				if !h.otherRegion || l.Scope() == counters.Global {
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
