package gossip

import (
	"cmp"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Counts is what a replica needs of the table whose slots it replicates.
type Counts interface {
	Merge(slots []counters.Slot, now int64) (novel int)
	Snapshot(now int64, limit int) []counters.Slot
}

// Message is a frame to send. Reliable ones are too large for a packet and go over a stream.
type Message struct {
	To       counters.Origin
	Data     []byte
	Reliable bool
}

// Replica is the replication protocol of one node as a state machine: events come in by method calls with the time, messages go
// out as return values. The same calls give the same messages, byte for byte. It is not safe for concurrent use.
type Replica struct {
	self     counters.Origin
	interval time.Duration
	counts   Counts

	log      frameLog
	peers    map[counters.Origin]*peer
	heard    map[counters.Origin]*hearing
	order    []counters.Origin // of peers, ascending: the order of sending
	beaconAt int64
	tickedAt int64
	snapshot []byte // built in this Tick, if a peer wanted one
	activeAt int64  // since when requests come without a pause; 0: none come
	hurried  bool
	stats    Stats
}

// Stats are running totals of a Replica.
type Stats struct {
	FramesSent, FramesReceived uint64 // messages, of every kind
	BytesSent, BytesReceived   uint64
	SlotsNovel                 uint64 // received slots that were news
	Resent                     uint64 // frames sent again to a peer that lacked them
	Snapshots                  uint64 // snapshots sent
	SnapshotsReceived          uint64 // snapshots received
	Malformed                  uint64 // frames that could not be read
}

const (
	idleBeacon    = time.Second      // between beacons while no request comes
	forgetSilent  = 15 * time.Minute // a peer that is silent for longer is taken to be gone for good
	maxHeard      = 1 << 13          // origins a replica keeps track of
	maxResend     = 64               // frames sent again to one peer in an interval
	snapshotRetry = 2 * time.Second
	snapshotSlots = maxSnapshot / 20 // a slot takes 11 to 16 bytes in a frame
)

// NewReplica returns the replica of a node that has just started as origin self and will call Tick every interval.
func NewReplica(self counters.Origin, interval time.Duration, counts Counts) *Replica {
	return &Replica{
		self: self, interval: interval, counts: counts,
		peers: make(map[counters.Origin]*peer),
		heard: make(map[counters.Origin]*hearing),
	}
}

// Join tells the replica of a member, which from now on is sent what the replica counts, and a snapshot to begin with.
func (r *Replica) Join(o counters.Origin, now int64) {
	if o == r.self || o == 0 || r.peers[o] != nil {
		return
	}
	r.peers[o] = &peer{origin: o, resent: make(map[uint64]int64), heardAt: now}
	i, _ := slices.BinarySearch(r.order, o)
	r.order = slices.Insert(r.order, i, o)
	r.hearing(o, now).left = false
}

// Leave tells the replica that a member is gone: with graceful set, or if it said goodbye, it admits nothing any more; otherwise it
// may go on beyond a partition, and stays in the bound.
func (r *Replica) Leave(o counters.Origin, graceful bool) {
	delete(r.peers, o)
	if i, ok := slices.BinarySearch(r.order, o); ok {
		r.order = slices.Delete(r.order, i, i+1)
	}
	if h := r.heard[o]; h != nil {
		h.left = h.left || graceful
	}
}

// Left reports whether the origin admits nothing any more, as far as is known: it said goodbye, or it left gracefully.
func (r *Replica) Left(o counters.Origin) bool {
	h := r.heard[o]
	return h != nil && h.left
}

// Hurry makes the replica repeat every interval what was not acknowledged, however long acknowledgements may take: it is about to stop.
func (r *Replica) Hurry() { r.hurried = true }

// Told reports whether every peer that was heard of late has acknowledged all that was ever told to it.
func (r *Replica) Told(now int64) bool {
	for _, p := range r.peers {
		if now-p.heardAt < int64(5*idleBeacon) && p.acked.cumulative < r.log.last() {
			return false
		}
	}
	return true
}

// heardAt is when a frame of the origin came last; 0: never.
func (r *Replica) heardAt(o counters.Origin) int64 {
	if h := r.heard[o]; h != nil {
		return h.heardAt
	}
	return 0
}

// Goodbye returns the messages that tell every member that this replica admits nothing any more. They follow the last Tick.
func (r *Replica) Goodbye(now int64) []Message {
	var out []Message
	for _, o := range r.order {
		out = r.appendFrame(out, r.peers[o], r.heard[o], &logged{kind: goodbye, tick: r.log.last(), sent: now, body: emptyBody})
	}
	return out
}

func (r *Replica) hearing(o counters.Origin, now int64) *hearing {
	h := r.heard[o]
	if h == nil {
		h = newHearing(now, r.interval)
		if len(r.heard) < maxHeard || r.peers[o] != nil {
			r.heard[o] = h
		}
	}
	return h
}

// Receive takes in a frame that a peer sent, over whichever way. The error says what is wrong with a frame that cannot be read; it
// changed nothing.
func (r *Replica) Receive(b []byte, now int64) error {
	f, err := decodeFrame(b)
	if err != nil {
		r.stats.Malformed++
		return err
	}
	if f.origin == r.self {
		return nil
	}
	r.stats.FramesReceived++
	r.stats.BytesReceived += uint64(len(b))
	since := r.toldUntil(f)
	for i := range f.groups {
		g := &f.groups[i]
		if g.origin == f.origin {
			for j := range g.slots {
				g.slots[j].Since = since
			}
		}
		r.stats.SlotsNovel += uint64(r.counts.Merge(g.slots, now))
	}
	if f.kind == snapshot {
		r.stats.SnapshotsReceived++
	}
	h := r.hearing(f.origin, now)
	h.partial = h.partial || f.kind == snapshot && len(b) > maxSnapshot/2 // a larger one may have left something out
	h.note(f, now)
	if p := r.peers[f.origin]; p != nil {
		p.heardAt = now
		if f.ack.origin == r.self {
			p.acknowledge(f.ack, &r.log, now)
		}
	}
	return nil
}

// toldUntil is the time, by the sender's clock, up to which all that the sender had counted was known before this frame of what changed;
// 0 if unknown.
func (r *Replica) toldUntil(f *frame) int64 {
	h := r.heard[f.origin]
	if h == nil || h.partial || f.kind != data && f.kind != dataMore {
		return 0
	}
	return h.asOf
}

// Tick ends an interval: it takes what changed since the last one and returns the messages to send, those to one peer in a row.
func (r *Replica) Tick(d counters.Drained, now int64) []Message {
	quiet := len(d.Slots) == 0 && len(d.Demand) == 0
	if quiet {
		r.activeAt = 0
	} else if r.activeAt == 0 {
		r.activeAt = cmp.Or(r.tickedAt, now-int64(r.interval))
	}
	r.tickedAt, r.snapshot = now, nil
	news := r.newFrames(d, now)
	beat := !quiet || now-r.beaconAt >= int64(idleBeacon)
	if beat {
		r.beaconAt = now
	}
	var out []Message
	for _, o := range r.order {
		out = r.tell(out, r.peers[o], news, beat, now)
	}
	for o, h := range r.heard {
		h.tick(now)
		// One that left is remembered as well: what it sent before may come after its goodbye.
		if r.peers[o] == nil && now-max(h.heardAt, h.since) > int64(forgetSilent) {
			delete(r.heard, o)
		}
	}
	return out
}

// newFrames packs what changed into frames, and notes them in the log. Where nothing rose, the frame is a beacon, which is not
// noted.
func (r *Replica) newFrames(d counters.Drained, now int64) []*logged {
	bodies := pack(groupDrained(r.self, d), r.self, now, maxBody)
	if len(bodies) == 0 {
		bodies = [][]byte{emptyBody}
	}
	news := make([]*logged, len(bodies))
	for i, body := range bodies {
		f := logged{kind: dataMore, tick: r.log.last(), sent: now, body: body}
		if r.activeAt != 0 {
			f.active = time.Duration(now - r.activeAt)
		}
		switch {
		case len(d.Slots) == 0:
			f.kind = beacon
			news[i] = &f
		case i == len(bodies)-1:
			f.kind = data
			fallthrough
		default:
			news[i] = r.log.add(f)
		}
	}
	return news
}

// tell appends the messages for one peer: a snapshot if it cannot follow otherwise, what it lost, and what is new.
func (r *Replica) tell(out []Message, p *peer, news []*logged, beat bool, now int64) []Message {
	h := r.heard[p.origin]
	ackDue := h != nil && h.ackDue
	if !beat && !ackDue {
		news = nil
	}
	speaks := r.hurried || now-p.heardAt < int64(max(silence, 3*r.interval))
	rto := p.rto(r.interval)
	if r.hurried {
		rto = r.interval
	}
	if r.wantsSnapshot(p, speaks, rto, now) {
		out = r.appendSnapshot(out, p, now)
	} else if speaks {
		for _, l := range p.lost(&r.log, rto, now, maxResend) {
			r.stats.Resent++
			out = r.appendFrame(out, p, h, l)
		}
	}
	for _, l := range news {
		out = r.appendFrame(out, p, h, l)
	}
	return out
}

// wantsSnapshot reports whether the peer lacks frames that are not kept any more, or has had no snapshot yet.
func (r *Replica) wantsSnapshot(p *peer, speaks bool, rto time.Duration, now int64) bool {
	if p.snapAt == 0 {
		return true
	}
	retry := max(snapshotRetry, 2*rto)
	behind := p.acked.cumulative+1 < r.log.first() || p.acked.cumulative < p.snapTick
	return behind && speaks && now-p.snapAt >= int64(retry)
}

func (r *Replica) appendSnapshot(out []Message, p *peer, now int64) []Message {
	p.snapTick, p.snapAt = r.log.last(), now
	r.stats.Snapshots++
	r.stats.FramesSent++
	if r.snapshot == nil {
		r.snapshot = r.Snapshot(now)
	}
	r.stats.BytesSent += uint64(len(r.snapshot))
	return append(out, Message{To: p.origin, Data: r.snapshot, Reliable: true})
}

func (r *Replica) appendFrame(out []Message, p *peer, h *hearing, l *logged) []Message {
	f := frame{kind: l.kind, origin: r.self, tick: l.tick, sent: l.sent, active: l.active}
	if h != nil && (h.ackDue || l.kind == beacon) {
		f.ack = h.ack(p.origin)
		h.ackDue = false
	}
	b := f.encode(make([]byte, 0, len(l.body)+maxEnvelope), l.body)
	r.stats.FramesSent++
	r.stats.BytesSent += uint64(len(b))
	return append(out, Message{To: p.origin, Data: b})
}

// Snapshot returns a frame with all live slots of all origins, the hottest keys first where there are too many. It is what a
// newcomer takes in with Receive.
func (r *Replica) Snapshot(now int64) []byte {
	return encodeSnapshot(r.self, r.log.last(), r.counts, now)
}

// encodeSnapshot covers the ticks up to the one given. It needs nothing of a replica, so that nobody waits for it.
func encodeSnapshot(self counters.Origin, tick uint64, counts Counts, now int64) []byte {
	f := frame{kind: snapshot, origin: self, tick: tick, sent: now}
	groups := groupSlots(counts.Snapshot(now, snapshotSlots))
	bodies := pack(groups, self, now, maxSnapshot-MaxFrame)
	if len(bodies) == 0 {
		return f.encode(nil, emptyBody)
	}
	return f.encode(nil, bodies[0])
}

// groupDrained sorts what changed by meter.
func groupDrained(self counters.Origin, d counters.Drained) []group {
	groups := groupSlots(d.Slots)
	for _, dem := range d.Demand {
		i := slices.IndexFunc(groups, func(g group) bool { return *g.meter == *dem.Meter })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{origin: self, meter: dem.Meter})
		}
		groups[i].demand = dem.Rate
	}
	slices.SortFunc(groups, func(a, b group) int { return compareMeters(a.meter, b.meter) })
	return groups
}

// groupSlots sorts slots by meter and origin.
func groupSlots(slots []counters.Slot) []group {
	slots = slices.Clone(slots)
	slices.SortFunc(slots, compareSlots)
	var groups []group
	for i := range slots {
		s := &slots[i]
		if n := len(groups); n == 0 || groups[n-1].origin != s.Origin || *groups[n-1].meter != *s.Meter {
			groups = append(groups, group{origin: s.Origin, meter: s.Meter})
		}
		g := &groups[len(groups)-1]
		g.slots = append(g.slots, *s)
	}
	return groups
}

func compareSlots(a, b counters.Slot) int {
	return cmp.Or(
		compareMeters(a.Meter, b.Meter),
		cmp.Compare(a.Origin, b.Origin),
		cmp.Compare(a.Key, b.Key),
		cmp.Compare(a.Index, b.Index),
		cmp.Compare(a.Birth, b.Birth),
	)
}

func compareMeters(a, b *counters.Meter) int {
	return cmp.Or(
		cmp.Compare(a.Rule, b.Rule),
		cmp.Compare(a.Algorithm, b.Algorithm),
		cmp.Compare(a.Window, b.Window),
		cmp.Compare(a.Sub, b.Sub),
	)
}

// Stats returns the replica's totals.
func (r *Replica) Stats() Stats { return r.stats }
