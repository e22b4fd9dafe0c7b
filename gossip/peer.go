package gossip

import (
	"bytes"
	"maps"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// peer is what a replica has sent to a member, and what that has acknowledged.
type peer struct {
	origin     counters.Origin
	acked      ack              // the latest it sent
	resent     map[uint64]int64 // when a tick was last sent again
	snapTick   uint64           // what the last snapshot sent covered; 0: none was sent
	snapAt     int64            // when
	snapWanted bool             // it is new, the last one failed, or others may lack what it holds
	lastSeen   int64            // when anything new came from it
	newest     int64            // its time of the newest frame or answer, at most this node's when that came
	tick       uint64           // the highest of its frames
	isStale    bool             // what comes is older than what came before
	rtt        time.Duration    // of questions and their answers; 0: not measured yet
	log        *frameLog        // what it is sent: all peers the same, or each its own
	region     *region          // that it is of; nil: unknown
	unsent     []counters.Slot  // that the next frames bring
	returned   bool             // it was a member before, and lacks what was sent meanwhile
	usedAt     int64            // when slots last went to it, or came from it
	beatAt     int64            // when it was last sent how complete that is
	active     bool             // that was in every interval
	askedAt    int64            // all that this node was asked for until then the peer has
	srtt       time.Duration    // smoothed time from sending a frame to its acknowledgement, 0: not measured yet
	rttvar     time.Duration    // its mean deviation
	ways
}

const (
	firstRTO = time.Second
	maxRTO   = 3 * time.Second
	// silence is how long (three intervals at least) nothing comes from a peer until it is sent new frames only.
	silence = 1500 * time.Millisecond
)

// rto is how long an acknowledgement may take before a frame counts as lost (RFC 6298, section 2). Acknowledgements
// wait for the next interval of the peer, so it is never below two of them.
func (p *peer) rto(interval time.Duration) time.Duration {
	if p.srtt == 0 {
		return max(firstRTO, 2*interval)
	}
	return min(max(p.srtt+max(interval/4, 4*p.rttvar), 2*interval), max(maxRTO, 2*interval))
}

// measure takes in the time of an acknowledgement of a frame that was sent once (Karn's rule).
func (p *peer) measure(rtt time.Duration) {
	if p.srtt == 0 {
		p.srtt, p.rttvar = rtt, rtt/2
		return
	}
	p.rttvar += (max(rtt-p.srtt, p.srtt-rtt) - p.rttvar) / 4
	p.srtt += (rtt - p.srtt) / 8
}

// acknowledge takes in what the peer says that it has; timed is whether it shows how long the way is. Old
// acknowledgements, which came late or twice, change nothing.
func (p *peer) acknowledge(a ack, log *frameLog, timed bool, now int64) {
	if a.cumulative < p.acked.cumulative || a.cumulative > log.last() {
		return
	}
	if newest := a.cumulative; newest > p.acked.cumulative {
		_, again := p.resent[newest]
		if l := log.get(newest); l != nil && timed && !again && !p.acked.has(newest) && newest != p.snapTick {
			p.measure(time.Duration(max(0, now-l.sent)))
		}
		maps.DeleteFunc(p.resent, func(tick uint64, _ int64) bool { return tick <= a.cumulative })
	}
	a.bitmap = bytes.Clone(a.bitmap)        // it points into the packet
	if a.cumulative == p.acked.cumulative { // either may be the older one
		a.bitmap = union(a.bitmap, p.acked.bitmap)
	}
	if a.cumulative > p.acked.cumulative || a.cumulative == log.last() {
		if l := log.get(a.cumulative); l != nil {
			p.askedAt = l.sent
		}
	}
	p.acked = a
}

// union adds the bits of b to a.
func union(a, b []byte) []byte {
	a = append(a, b[min(len(a), len(b)):]...)
	for i := range min(len(a), len(b)) {
		a[i] |= b[i]
	}
	return a
}

// lacks is how many of the kept frames the peer has not acknowledged.
func (p *peer) lacks(log *frameLog) (n int) {
	for tick := max(p.acked.cumulative+1, log.first()); tick <= log.last(); tick++ {
		if !p.acked.has(tick) {
			n++
		}
	}
	return n
}

// lost appends the kept frames that the peer should have acknowledged by now, oldest first, at most limit of them:
// those that were sent for the first time longer ago than wait, and for the last time longer ago than rto.
func (p *peer) lost(log *frameLog, rto, wait time.Duration, now int64, limit int) []logged {
	if len(p.resent) > ackWindow { // it sends, but does not receive
		maps.DeleteFunc(p.resent, func(tick uint64, _ int64) bool { return tick < log.first() })
	}
	var out []logged
	for tick := max(p.acked.cumulative+1, log.first()); tick <= log.last() && len(out) < limit; tick++ {
		l := log.get(tick)
		if l == nil || p.acked.has(tick) {
			continue
		}
		if !over(now, l.sent, wait) {
			break // nor for all that follow
		}
		if !over(now, p.resent[tick], rto) || tick <= p.snapTick && !over(now, p.snapAt, rto) { // a snapshot brings it
			continue
		}
		if p.resent == nil {
			p.resent = make(map[uint64]int64)
		}
		p.resent[tick] = now
		out = append(out, *l)
	}
	return out
}

// frameLog keeps the latest frames that a replica made for a peer, or for all, to send them again.
type frameLog struct {
	tick   uint64 // of the latest
	frames []logged
}

// logged is a frame without an ack. tail bytes follow the place for one.
type logged struct {
	kind kind
	tick uint64
	sent int64
	data []byte
	tail int
}

func (l *frameLog) last() uint64 { return l.tick }

// first is the oldest tick that is kept; ticks below it are gone.
func (l *frameLog) first() uint64 { return l.tick - uint64(len(l.frames)) + 1 }

// add keeps the frame, of the tick that follows the latest.
func (l *frameLog) add(f logged) {
	l.tick = f.tick
	if len(l.frames) == ackWindow {
		l.frames = l.frames[1:]
	}
	l.frames = append(l.frames, f)
}

func (l *frameLog) get(tick uint64) *logged {
	if first := l.first(); first <= tick && tick <= l.tick {
		return &l.frames[tick-first]
	}
	return nil
}

// trim forgets the frames up to a tick.
func (l *frameLog) trim(tick uint64) {
	if first := l.first(); tick >= first {
		n := min(int(tick-first)+1, len(l.frames))
		clear(l.frames[:n])
		l.frames = l.frames[n:]
	}
}
