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
	// CompleteThrough is the peer's time, in Unix nanoseconds, before which all that it admitted is known; 0: never
	// yet.
	CompleteThrough int64
	// Age is the largest age of that within the last interval; of a peer that has just come, which may report of a time
	// before this node was there, at most how long it is known.
	Age   time.Duration
	RTT   time.Duration // smoothed time from a question to its answer, see Answered; 0: not measured yet
	Known time.Duration // since its first frame, or since it was to send one
	// Idle says that no requests came to the peer, so that it sends once a second only. A peer that is silent for
	// longer is not idle.
	Idle bool
	// Ahead is by how much the peer's clock is ahead of this replica's, if Timed: wrong by half of what the transit
	// times to and from it differ in.
	Ahead time.Duration
	Timed bool
	// Ended says that the peer's process has ended without a goodbye: its host refused a stream, and nothing came
	// since. It admits nothing any more.
	Ended   bool
	Blocked Blocked // ways between it and this node
}

// Peers returns the status of every replica that sent something and has not left, by origin.
func (r *Replica) Peers(now int64) []PeerStatus {
	out := make([]PeerStatus, 0, len(r.inbound))
	for o, h := range r.inbound {
		if h.isGone() {
			continue
		}
		st := PeerStatus{Origin: o, OtherRegion: h.isFar(), CompleteThrough: h.watermark,
			Age: max(h.peakAge, h.age(now)), Known: time.Duration(max(0, now-h.since))}
		if st.Known < neverSeen {
			st.Age = min(st.Age, st.Known)
		}
		st.Idle = h.idle && st.Age <= neverSeen
		st.Ahead, st.Timed = h.skew(now)
		if p := r.peers[o]; p != nil {
			st.Member, st.RTT, st.Blocked = true, p.rtt, r.blocked(p, now)
		}
		st.Ended = h.ended
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b PeerStatus) int { return cmp.Compare(a.Origin, b.Origin) })
	return out
}

// neverSeen is how long a peer may take to send its first frame: well past the second between beacons.
const neverSeen = 3 * idleBeacon

// MostSilence is how long nothing comes, at most, from a node that can be reached, given the gossip interval.
func MostSilence(interval time.Duration) time.Duration { return max(neverSeen, 5*interval) }
