package gossip

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"syscall"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A firewall may let streams pass and no packets, in one direction or both, or the other way round. So what is for a
// peer takes a detour, over a stream as well, while no packet of the peer comes, or while the peer says so of this
// node's. The packets go on: those that arrive end the detour.
//
// A node whose packets all come learns from the peer's streams alone that its own do not. So a stream says which of the
// two is the case.

// packetsLate returns how long no packet has to come from a peer for a detour. It begins so early that streams can go
// to and fro before a node that is silent counts as unreachable.
func packetsLate(interval time.Duration) time.Duration { return max(3*idleBeacon/2, 4*interval) }

// ways is what a replica knows of how frames travel between it and a peer.
type ways struct {
	packetAt    int64 // when a packet of the peer came last, or when it was to begin to send some
	streamAt    int64 // when a stream with frames of the peer came last
	streamSince int64 // since when streams come again and again
	lostAt      int64 // when the peer said last that it gets no packets
	lostSince   int64 // since when it says so again and again
	deaf        bool  // this node reports to the peer that it gets none of its packets
}

// detours returns whether what is sent to a peer takes a detour, and whether that is because none of its packets come.
func (r *Replica) detours(p *peer, now int64) (detour, deaf bool) {
	due := !r.large || r.isLink(p.origin) && !r.mayBeSilent(p.origin) ||
		p.region != nil && p.region != r.firstRegion() && p.region.seenAt != 0 && over(now, p.region.seenAt, probeAfter)
	deaf = due && over(now, p.packetAt, packetsLate(r.interval))
	return deaf || r.recently(p.lostAt, now), deaf
}

// beginDetours has something sent at once to the peers whose packets have just ceased to come.
func (r *Replica) beginDetours(now int64) {
	all := r.order
	if r.large {
		all = r.links
	}
	for _, o := range all {
		if p := r.peers[o]; p != nil {
			was := p.deaf
			if _, p.deaf = r.detours(p, now); p.deaf && !was {
				r.answerSoon(o)
			}
		}
	}
}

// answerSoon has a peer sent an acknowledgement with the next tick.
func (r *Replica) answerSoon(o counters.Origin) {
	if h := r.inbound[o]; h != nil {
		h.ackDue = true
		if r.large {
			r.busy = append(r.busy, o)
		}
	}
}

// recently reports whether something that recurs every second was the case just now.
func (r *Replica) recently(at, now int64) bool {
	return at != 0 && !over(now, at, MostSilence(r.interval))
}

// detour marks the messages that take a detour.
func (r *Replica) detour(out []Message, now int64) []Message {
	for i := range out {
		if p := r.peers[out[i].To]; p != nil && !out[i].Reliable {
			out[i].Detour, out[i].Deaf = r.detours(p, now)
		}
	}
	return out
}

// ReceiveDetour takes in a stream of a peer, as appendDetour makes it.
func (r *Replica) ReceiveDetour(b []byte, now int64) error {
	from, deaf, frames, err := decodeDetour(b)
	if err != nil {
		r.stats.Malformed++
		return err
	}
	recent := false // this is no recording
	for _, f := range frames {
		by, sent := senderOf(f)
		if by != from {
			err = errors.Join(err, errDetour)
			continue
		}
		p := r.peers[from]
		recent = recent || p != nil && subtract(p.newest, sent) <= int64(MostSilence(r.interval))
		var before int64
		if p != nil {
			before = p.packetAt
		}
		err = errors.Join(err, r.Receive(f, now))
		if p != nil {
			p.packetAt = before
		}
	}
	if p := r.peers[from]; p != nil && recent {
		if !r.recently(p.streamAt, now) {
			p.streamSince = now
		}
		p.streamAt = now
		if deaf && !r.recently(p.lostAt, now) {
			p.lostSince = now
			r.answerSoon(from)
		}
		if p.lostAt = 0; deaf {
			p.lostAt = now
		}
	}
	return err
}

// A detour is a stream of frames of one sender:
//
//	0      type    detourMessage
//	1      flags   1: no packet of the addressee's has come for a while
//	2..9   origin  who sends it, big-endian
//	10...  frames  each a msgpack bin
const (
	detourMessage = 3 // no frame begins with it, see digestMessage
	detourHeader  = 10
	detourDeaf    = 1
	// maxDetour is how many bytes of frames wait for a stream. The oldest of more are dropped: what is not acknowledged
	// is sent again.
	maxDetour = 1 << 20
)

var errDetour = errors.New("gossip: malformed detour")

func isDetour(b []byte) bool { return len(b) > 0 && b[0] == detourMessage }

func encodeDetour(from counters.Origin, deaf bool, frames [][]byte) []byte {
	size := detourHeader
	for _, f := range frames {
		size += maxHeader + len(f)
	}
	b := append(make([]byte, 0, size), detourMessage, 0)
	if deaf {
		b[1] = detourDeaf
	}
	b = binary.BigEndian.AppendUint64(b, uint64(from))
	for _, f := range frames {
		b = appendBin(b, f)
	}
	return b
}

// decodeDetour reads a detour from untrusted bytes. The frames lie in b.
func decodeDetour(b []byte) (from counters.Origin, deaf bool, frames [][]byte, err error) {
	if len(b) < detourHeader || len(b) > detourHeader+2*maxDetour {
		return 0, false, nil, errDetour
	}
	r := borrowReader(b[detourHeader:])
	defer r.giveBack()
	for r.err == nil && r.src.Len() > 0 {
		if f := r.bytes(); r.err == nil {
			frames = append(frames, f)
		}
	}
	if r.err != nil {
		return 0, false, nil, errors.Join(errDetour, r.err)
	}
	return counters.Origin(binary.BigEndian.Uint64(b[2:])), b[1]&detourDeaf != 0, frames, nil
}

// detourQueue is what waits for a stream to one peer, one of which is under way at a time.
type detourQueue struct {
	frames  [][]byte
	bytes   int
	deaf    bool
	busy    bool
	retryAt time.Time // after one that failed
}

// detourRetry is how long after a stream that failed the next one is tried.
const detourRetry = time.Second

// sendDetours sends those of the messages that take a detour over streams, in the background. What waits for a stream
// goes with the next one.
func (c *Cluster) sendDetours(out []delivery) {
	s := c.outbox
	for _, d := range out {
		if !d.Detour {
			continue
		}
		s.mu.Lock()
		q := s.detours[d.To]
		if q == nil {
			maps.DeleteFunc(s.detours, func(_ counters.Origin, q *detourQueue) bool {
				return !q.busy && !time.Now().Before(q.retryAt)
			})
			if len(s.detours) < maxStream {
				q = new(detourQueue)
				s.detours[d.To] = q
			}
		}
		free := q != nil && !q.busy && !time.Now().Before(q.retryAt)
		if q != nil && (q.busy || free) {
			q.add(d.Data, d.Deaf)
			q.busy = true
		}
		s.mu.Unlock()
		if free {
			go c.sendDetour(d.route, q)
		}
	}
}

func (q *detourQueue) add(frame []byte, deaf bool) {
	for q.bytes+len(frame) > maxDetour && len(q.frames) > 0 {
		q.bytes -= len(q.frames[0])
		q.frames = q.frames[1:]
	}
	q.frames, q.bytes, q.deaf = append(q.frames, frame), q.bytes+len(frame), deaf
}

// sendDetour sends streams to a peer until nothing waits any more, or one fails.
func (c *Cluster) sendDetour(r *route, q *detourQueue) {
	s := c.outbox
	for {
		s.mu.Lock()
		if len(q.frames) == 0 {
			q.busy = false
			s.mu.Unlock()
			return
		}
		b := encodeDetour(c.self.Origin(), q.deaf, q.frames)
		q.frames, q.bytes = nil, 0
		s.mu.Unlock()
		if err := r.pool.ml().SendReliable(&r.node, b); err != nil {
			c.log.Debug("gossip: detour not sent", "peer", r.member.NodeID, "error", err)
			s.mu.Lock()
			q.frames, q.bytes, q.retryAt = nil, 0, time.Now().Add(detourRetry)
			s.mu.Unlock()
		}
	}
}

// dials are the addresses to which the last stream could not be opened. The cluster's lock guards it.
type dials map[string]failedStreams

// failedStreams is when the first and the last stream failed of those since one was opened.
type failedStreams struct{ first, last int64 }

const (
	// streamsFail is for how long streams to a node have to fail, while its packets come, to be taken for blocked.
	streamsFail = 3 * time.Second
	maxDials    = 1 << 12 // addresses to which streams fail
)

// noteDial takes notice of how it went to open a stream to an address. One that is refused comes from a host that
// answers, where nobody listens any more: the boots of nodes that were reached there have ended.
func (p *pool) noteDial(addr string, err error) {
	var failed []counters.Origin
	ended := errors.Is(err, syscall.ECONNREFUSED)
	if ended {
		p.mu.Lock()
		for _, f := range p.failed {
			if f.addr == addr {
				failed = append(failed, f.Origin())
			}
		}
		p.mu.Unlock()
	}
	c := p.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Now()
	c.dials.note(addr, err != nil, now)
	if !ended {
		return
	}
	for o, r := range c.routes {
		if r.addr == addr {
			failed = append(failed, o)
		}
	}
	for _, o := range failed {
		c.replica.End(o, now)
	}
}

func (all dials) note(addr string, failed bool, now int64) {
	d, known := all[addr]
	switch {
	case !failed:
		delete(all, addr)
		return
	case !known && len(all) >= maxDials:
		maps.DeleteFunc(all, func(_ string, d failedStreams) bool { return over(now, d.last, forgetSilent) })
		if len(all) >= maxDials {
			return
		}
	}
	all[addr] = failedStreams{cmp.Or(d.first, now), now}
}

// streamsBlocked reports whether streams to a member fail, all of late, while its packets come. The lock is held.
func (c *Cluster) streamsBlocked(r *route) bool {
	d, failed := c.dials[r.addr]
	return failed && time.Duration(d.last-d.first) >= streamsFail &&
		c.replica.packetsCome(r.member.Origin(), c.cfg.Now())
}

// doubtful returns the routes of a pool whose packets come, and to which the last stream failed: it is to be tried
// again.
func (c *Cluster) doubtful(p *pool) (all []*route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o, r := range c.routes {
		if _, failed := c.dials[r.addr]; failed && r.pool == p && c.replica.packetsCome(o, c.cfg.Now()) {
			all = append(all, r)
		}
	}
	return all[:min(len(all), maxGreet)]
}

// packetsCome reports whether a peer's packets come.
func (r *Replica) packetsCome(o counters.Origin, now int64) bool {
	p := r.peers[o]
	return p != nil && !over(now, p.packetAt, MostSilence(r.interval))
}

// Blocked is which ways between this node and another one a firewall seems to close, while the other protocol passes.
type Blocked struct {
	UDPTo, UDPFrom bool // packets to it, and from it, while streams pass
	TCPTo          bool // streams to it, while packets come
}

// Any reports whether any way is.
func (b Blocked) Any() bool { return b != Blocked{} }

// blocked returns which ways between the replica and a peer no packets pass, though streams do, for a while: a packet
// is lost now and then, and after a partition the first streams are of a time when nothing passed.
func (r *Replica) blocked(p *peer, now int64) Blocked {
	late := packetsLate(r.interval)
	lasts := func(since, at int64) bool { return r.recently(at, now) && at-since >= int64(late) }
	return Blocked{
		UDPTo:   lasts(p.lostSince, p.lostAt),
		UDPFrom: lasts(p.streamSince, p.streamAt) && over(now, p.packetAt, late),
	}
}

// End notes that the process of an origin has ended, without a goodbye. It admits nothing any more, but for what it did
// before and did not report. A frame of it that comes later shows that it has not ended.
func (r *Replica) End(o counters.Origin, now int64) {
	h := r.inbound[o]
	if h == nil || h.left || h.ended || !over(now, max(h.lastSeen, h.since), endedAfter) {
		return
	}
	r.assume(h, nil, now)
	h.ended = true
	r.setWatermark(o, h)
}

// endedAfter is how long an origin has to be silent whose host refuses a stream: what it sent last may be under way.
const endedAfter = time.Second
