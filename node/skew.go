package node

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// DefaultMaxSkew is what Config.MaxSkew is by default: a hundredth of a window of ten seconds.
const DefaultMaxSkew = 100 * time.Millisecond

// Skew is how far a node's clock is from those of others.
type Skew struct {
	Ahead  time.Duration // of the median of them; negative: behind it
	Clocks int           // how many are known; 0: Ahead is unknown, and 0
}

// medianSkew is the skew of a clock that is ahead of others by so much; the order of aheads is lost. Of an even number it is that of the two
// in the middle that is nearer to zero: half of the clocks against the other half, and nobody is blamed who need not be.
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

// skewWatch compares the node's clock with those of its peers and of the region's store, which is one voice among them. It says who has to
// see to a clock that is off by more than budget. Its methods are the loop's that watches, but for now.
type skewWatch struct {
	log    *slog.Logger
	budget time.Duration

	latest atomic.Pointer[Skew]
	own    skewAlarm
	peers  map[counters.Origin]*skewAlarm
	aheads []time.Duration // memory
}

func newSkewWatch(log *slog.Logger, budget time.Duration) *skewWatch {
	w := &skewWatch{log: log, budget: budget, peers: make(map[counters.Origin]*skewAlarm)}
	w.latest.Store(&Skew{})
	return w
}

// now is the skew that was found last.
func (w *skewWatch) now() Skew { return *w.latest.Load() }

// look takes in what is known of the members' clocks, and of the store's, which is ahead of this node's by so much.
func (w *skewWatch) look(members []gossip.MemberStatus, store time.Duration, storeKnown bool, now int64) {
	w.aheads = w.aheads[:0]
	if storeKnown {
		w.aheads = append(w.aheads, -store)
	}
	for i := range members {
		if m := &members[i]; m.Timed {
			w.aheads = append(w.aheads, -m.Ahead)
		}
	}
	skew := medianSkew(w.aheads)
	w.latest.Store(&skew)
	switch w.own.look(skew.Ahead, w.budget, now) {
	case raised:
		w.log.Warn("this node's clock is off: run NTP on its machine", slog.Duration("ahead", skew.Ahead), slog.Int("of_the_median_of", skew.Clocks),
			slog.Duration("max_skew", w.budget))
	case cleared:
		w.log.Info("this node's clock is right again", slog.Duration("ahead", skew.Ahead), slog.Int("of_the_median_of", skew.Clocks))
	}
	w.lookAtPeers(members, skew, now)
}

// lookAtPeers compares each peer's clock with the median, too.
func (w *skewWatch) lookAtPeers(members []gossip.MemberStatus, skew Skew, now int64) {
	seen := make(map[counters.Origin]bool, len(members))
	for i := range members {
		m := &members[i]
		seen[m.PeerStatus.Origin] = true
		if !m.Timed {
			continue
		}
		alarm := w.peers[m.PeerStatus.Origin]
		if alarm == nil {
			alarm = new(skewAlarm)
			w.peers[m.PeerStatus.Origin] = alarm
		}
		ahead := m.Ahead + skew.Ahead
		switch alarm.look(ahead, w.budget, now) {
		case raised:
			w.log.Warn("a peer's clock is off: run NTP on its machine", slog.String("peer", m.NodeID), slog.String("peer_region", m.Region),
				slog.Duration("ahead", ahead), slog.Duration("max_skew", w.budget))
		case cleared:
			w.log.Info("a peer's clock is right again", slog.String("peer", m.NodeID), slog.String("peer_region", m.Region))
		}
	}
	for o := range w.peers {
		if !seen[o] {
			delete(w.peers, o)
		}
	}
}

// skewAlarm is on from when a clock has been off by more than the budget for a while, until it has been off by less than three quarters of
// it for a while.
type skewAlarm struct {
	on     bool
	turned int64 // since when it should turn; 0: it should not
}

// skewLasts is how long a clock has to be off, or right again, until that is said.
const skewLasts = 2 * time.Second

type turn int

const (
	stays turn = iota
	raised
	cleared
)

func (a *skewAlarm) look(ahead, budget time.Duration, now int64) turn {
	switch turns := a.on && ahead.Abs() < budget*3/4 || !a.on && ahead.Abs() > budget; {
	case !turns:
		a.turned = 0
		return stays
	case a.turned == 0 || now < a.turned:
		a.turned = now
		return stays
	case now-a.turned < int64(skewLasts):
		return stays
	}
	a.on, a.turned = !a.on, 0
	if a.on {
		return raised
	}
	return cleared
}
