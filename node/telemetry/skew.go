package telemetry

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// Skew is how far a node's clock is from those of others.
type Skew struct {
	Ahead  time.Duration // of the median of them; negative: behind it
	Clocks int           // how many are known; 0: Ahead is unknown, and 0
}

// medianSkew returns the median of how far a clock is ahead of others; it sorts aheads. Of an even number it takes the
// middle one that is nearer to zero: half of the clocks against the other half blame nobody.
func medianSkew(aheads []time.Duration) Skew {
	n := len(aheads)
	if n == 0 {
		return Skew{}
	}
	slices.Sort(aheads)
	median := aheads[n/2]
	if n%2 == 0 && aheads[n/2-1].Abs() < median.Abs() {
		median = aheads[n/2-1]
	}
	return Skew{Ahead: median, Clocks: n}
}

// skewMonitor compares the node's clock with those of its peers and of the region's store, which counts as one of them.
// It logs whose clock is off by more than maxSkew. look is not safe for concurrent use.
type skewMonitor struct {
	log     *slog.Logger
	maxSkew time.Duration

	latest atomic.Pointer[Skew]
	own    skewAlarm
	peers  map[counters.Origin]*skewAlarm
}

func newSkewMonitor(log *slog.Logger, maxSkew time.Duration) *skewMonitor {
	m := &skewMonitor{log: log, maxSkew: maxSkew, peers: make(map[counters.Origin]*skewAlarm)}
	m.latest.Store(&Skew{})
	return m
}

// look takes how far the members' clocks, and the store's if known, are ahead of this node's.
func (m *skewMonitor) look(members []gossip.MemberStatus, store time.Duration, storeKnown bool, now int64) {
	var aheads []time.Duration
	if storeKnown {
		aheads = append(aheads, -store)
	}
	for i := range members {
		if p := &members[i]; p.Timed {
			aheads = append(aheads, -p.Ahead)
		}
	}
	skew := medianSkew(aheads)
	m.latest.Store(&skew)
	if m.own.look(skew.Ahead, m.maxSkew, now) {
		if m.own.on {
			m.log.Warn("this node's clock is off: run NTP on its machine",
				"ahead", skew.Ahead, "of_the_median_of", skew.Clocks, "max_skew", m.maxSkew)
		} else {
			m.log.Info("this node's clock is right again", "ahead", skew.Ahead, "of_the_median_of", skew.Clocks)
		}
	}
	m.lookAtPeers(members, skew, now)
}

// lookAtPeers compares each peer's clock with the median.
func (m *skewMonitor) lookAtPeers(members []gossip.MemberStatus, skew Skew, now int64) {
	before := m.peers
	m.peers = make(map[counters.Origin]*skewAlarm, len(members))
	for i := range members {
		p := &members[i]
		alarm := before[p.PeerStatus.Origin]
		if alarm == nil {
			alarm = new(skewAlarm)
		}
		m.peers[p.PeerStatus.Origin] = alarm
		ahead := p.Ahead + skew.Ahead
		switch {
		case !p.Timed || !alarm.look(ahead, m.maxSkew, now):
		case alarm.on:
			m.log.Warn("a peer's clock is off: run NTP on its machine",
				"peer", p.NodeID, "peer_region", p.Region, "ahead", ahead, "max_skew", m.maxSkew)
		default:
			m.log.Info("a peer's clock is right again", "peer", p.NodeID, "peer_region", p.Region)
		}
	}
}

// skewAlarm is raised once a clock is off by more than maxSkew for skewHold, and cleared once it is off by less than
// three quarters of that for as long.
type skewAlarm struct {
	on    bool
	since int64 // when the clock crossed the threshold; 0: it has not
}

const skewHold = 2 * time.Second

// look takes how far the clock is ahead, and reports whether the alarm was raised or cleared by that.
func (a *skewAlarm) look(ahead, maxSkew time.Duration, now int64) (turned bool) {
	crossed := a.on && ahead.Abs() < maxSkew*3/4 || !a.on && ahead.Abs() > maxSkew
	switch {
	case !crossed:
		a.since = 0
	case a.since == 0 || now < a.since:
		a.since = now
	case now-a.since >= int64(skewHold):
		a.on, a.since = !a.on, 0
		return true
	}
	return false
}
