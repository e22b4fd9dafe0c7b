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
	// Heard says that all that the origin admitted before the time asOf is known, or with counters.Gone that it admits nothing any more.
	Heard(o counters.Origin, asOf int64)
	// SetCluster says how many peers there are, and how long it takes until they know what is admitted.
	SetCluster(peers int, horizon time.Duration)
	// SetRegion says the same of those of the replica's region.
	SetRegion(peers int, horizon time.Duration)
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

	arranger arranger
	slots    []counters.Slot // memory of what is being merged
	log      frameLog
	peers    map[counters.Origin]*peer
	heard    map[counters.Origin]*hearing
	limits   map[string]*counters.Limit // as of the last audit
	ledgers  map[string]*ledger         // by rule
	order    []counters.Origin          // of peers, ascending: the order of sending
	beaconAt int64
	tickedAt int64
	toldAt   int64  // when the last messages went
	flushes  int    // that may go early
	snapshot []byte // built in this Tick, if a peer wanted one
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
	Early                      uint64 // frames that are to come again, because their sender's clock is ahead
}

const (
	idleBeacon    = time.Second      // between beacons while no request comes
	forgetSilent  = 15 * time.Minute // a peer that is silent for longer is taken to be gone for good
	maxHeard      = 1 << 13          // origins a replica keeps track of
	maxResend     = 64               // frames sent again to one peer in an interval
	snapshotRetry = 2 * time.Second
	snapshotSlots = maxSnapshot / 2 / minEntry // so many take more than half of a snapshot's bytes, and hardly ever more than all
	mergedAtOnce  = 256                        // slots that come out of a frame before they are merged
)

// NewReplica returns the replica of a node that has just started as origin self and will call Tick every interval.
func NewReplica(self counters.Origin, interval time.Duration, counts Counts) *Replica {
	return &Replica{
		self: self, interval: interval, counts: counts,
		slots:   make([]counters.Slot, 0, mergedAtOnce),
		peers:   make(map[counters.Origin]*peer),
		heard:   make(map[counters.Origin]*hearing),
		ledgers: make(map[string]*ledger),
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

// Far tells the replica that a member, which has joined, is of another region: the two do not share the limits of scope Region.
func (r *Replica) Far(o counters.Origin) {
	if h := r.heard[o]; h != nil {
		h.far = true
	}
}

// Leave tells the replica that a member is gone: with graceful set, or if it said goodbye, it admits nothing any more; otherwise it
// may go on beyond a partition, and stays in the bound.
func (r *Replica) Leave(o counters.Origin, graceful bool) {
	delete(r.peers, o)
	if i, ok := slices.BinarySearch(r.order, o); ok {
		r.order = slices.Delete(r.order, i, i+1)
	}
	if h := r.heard[o]; h != nil {
		if graceful && !h.left {
			r.assume(h, nil, r.tickedAt+int64(r.interval))
		}
		h.left = h.left || graceful
		r.heardOf(o, h)
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
	f := frame{kind: goodbye, origin: r.self, tick: r.log.last(), sent: now}
	last := logged{kind: goodbye, data: f.encode(nil, emptyBody)}
	for _, o := range r.order {
		out = r.appendFrames(out, o, last)
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
	h := r.hearing(f.origin, now)
	h.follow(f)
	since := r.toldUntil(f)
	for i := range f.groups {
		g := &f.groups[i]
		if g.origin == f.origin {
			r.merge(g, f.sent, since, now)
		} else {
			r.merge(g, f.sent, 0, now)
		}
	}
	if f.kind == snapshot {
		r.stats.SnapshotsReceived++
	}
	h.partial = h.partial || f.kind == snapshot && len(b) > maxSnapshot/2 // a larger one may have left something out
	h.timed(f, now)
	if f.again = h.comesAgain(f, now); f.again {
		r.stats.Early++
	}
	r.reckon(h, f, now)
	h.note(f, now)
	if f.ack.origin == r.self {
		h.told(f.ack)
	}
	r.heardOf(f.origin, h)
	if p := r.peers[f.origin]; p != nil {
		p.heardAt = now
		if f.ack.origin == r.self {
			p.acknowledge(f.ack, &r.log, now)
		}
	}
	return nil
}

// heardOf lets the table know how old what it knows of the origin is.
func (r *Replica) heardOf(o counters.Origin, h *hearing) {
	switch {
	case h.left:
		r.counts.Heard(o, counters.Gone)
	case h.asOf != 0:
		r.counts.Heard(o, min(h.asOf, h.asOfHere))
	}
}

// merge hands the slots of a group to the table, some at a time: so a frame takes no memory in proportion to them.
func (r *Replica) merge(g *group, sent, since, now int64) {
	index := g.meter.Index(sent)
	for e := (entries{rest: g.entries}); len(e.rest) > 0; {
		slots := r.slots[:0]
		for len(slots) < cap(slots) {
			s := counters.Slot{Meter: g.meter, Origin: g.origin, Since: since, Told: sent}
			if !e.next(&s, index) {
				break
			}
			slots = append(slots, s)
		}
		r.stats.SlotsNovel += uint64(r.counts.Merge(slots, now))
	}
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
	news := r.newFrames(d, true, now)
	r.admitted(d.Demand, cmp.Or(r.tickedAt, now-int64(r.interval)), now)
	r.tickedAt, r.toldAt, r.snapshot = now, now, nil
	r.flushes = min(r.flushes+1, mostSaved)
	r.sayWhoKeeps()
	beat := asked(d) || over(now, r.beaconAt, idleBeacon)
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
			r.counts.Heard(o, counters.Gone)
		}
	}
	return out
}

// asked reports whether requests came.
func asked(d counters.Drained) bool { return len(d.Slots)+len(d.Demand) > 0 }

// newFrames packs what changed into frames, and notes them in the log. Where nothing rose, the frame is a beacon, which is not
// noted. With whole set it is all that changed until now.
func (r *Replica) newFrames(d counters.Drained, whole bool, now int64) []logged {
	bodies := pack(r.arranger.arrange(d.Slots, d.Demand, r.self), r.self, now, maxBody)
	if len(bodies) == 0 {
		bodies = [][]byte{emptyBody}
	}
	f := frame{kind: dataMore, origin: r.self, sent: now}
	if asked(d) {
		f.since = time.Duration(max(1, now-cmp.Or(r.tickedAt, now-int64(r.interval))))
	}
	news := make([]logged, len(bodies))
	for i, body := range bodies {
		f.tick = r.log.last()
		switch {
		case len(d.Slots) == 0:
			f.kind = beacon
		case whole && i == len(bodies)-1:
			f.kind = data
			fallthrough
		default:
			f.tick++
		}
		news[i] = logged{kind: f.kind, tick: f.tick, sent: now, data: f.encode(make([]byte, 0, maxEnvelope+len(body)), body)}
		if f.kind != beacon {
			r.log.add(news[i])
		}
	}
	return news
}

// tell appends the messages for one peer: a snapshot if it cannot follow otherwise, what it lost, and what is new.
func (r *Replica) tell(out []Message, p *peer, news []logged, beat bool, now int64) []Message {
	h := r.heard[p.origin]
	if ackDue := h != nil && h.ackDue; !beat && !ackDue {
		news = nil
	}
	speaks := r.hurried || now-p.heardAt < int64(max(silence, 3*r.interval))
	rto := p.rto(r.interval)
	if r.hurried {
		rto = r.interval
	}
	var lost []logged
	if r.wantsSnapshot(p, speaks, rto, now) {
		out = r.appendSnapshot(out, p, now)
	} else if speaks {
		wait := rto
		if !r.hurried {
			wait = max(rto, h.lead(now))
		}
		lost = p.lost(&r.log, rto, wait, now, maxResend)
		r.stats.Resent += uint64(len(lost))
	}
	return r.appendFrames(out, p.origin, append(lost, news...)...)
}

// wantsSnapshot reports whether the peer lacks frames that are not kept any more, or so many that one snapshot is sooner there, or has had
// no snapshot yet.
func (r *Replica) wantsSnapshot(p *peer, speaks bool, rto time.Duration, now int64) bool {
	if p.snapAt == 0 {
		return true
	}
	retry := max(snapshotRetry, 2*rto)
	if !speaks || !over(now, p.snapAt, retry) {
		return false
	}
	return p.acked.cumulative+1 < r.log.first() || p.acked.cumulative < p.snapTick || r.wasAway(p, now)
}

// wasAway reports whether the peer lacks more old frames than may be sent again in an interval, as after a cut. Sent one by one they would
// come in rounds, as some are lost again. Where the snapshot is so large that it may leave keys out, they are sent all the same.
func (r *Replica) wasAway(p *peer, now int64) bool {
	oldest := r.log.get(p.acked.cumulative + 1)
	if oldest == nil || !over(now, oldest.sent, snapshotRetry) || p.lacks(&r.log) <= maxResend {
		return false
	}
	return len(r.snapshotAt(now)) <= maxSnapshot/2
}

func (r *Replica) appendSnapshot(out []Message, p *peer, now int64) []Message {
	p.snapTick, p.snapAt = r.log.last(), now
	r.stats.Snapshots++
	r.stats.FramesSent++
	data := r.snapshotAt(now)
	r.stats.BytesSent += uint64(len(data))
	return append(out, Message{To: p.origin, Data: data, Reliable: true})
}

// snapshotAt is the snapshot of this Tick.
func (r *Replica) snapshotAt(now int64) []byte {
	if r.snapshot == nil {
		r.snapshot = r.Snapshot(now)
	}
	return r.snapshot
}

// appendFrames appends frames for a peer. One of them acknowledges what came from it, if something did, and a beacon does anyway.
func (r *Replica) appendFrames(out []Message, to counters.Origin, frames ...logged) []Message {
	h, first := r.heard[to], len(out)
	ackDue := h != nil && h.ackDue
	for _, l := range frames {
		ackDue = ackDue || h != nil && l.kind == beacon
		out = append(out, Message{To: to, Data: l.data})
	}
	if ackDue && len(frames) > 0 {
		said := h.ack(to)
		h.stamp(&said, r.tickedAt)
		out = r.acknowledge(out, first, said)
		h.ackDue = false
	}
	for _, m := range out[first:] {
		r.stats.FramesSent++
		r.stats.BytesSent += uint64(len(m.Data))
	}
	return out
}

// acknowledge gives an ack to the first message from the one given on that has room for it, or else to one more: a beacon.
func (r *Replica) acknowledge(out []Message, first int, a ack) []Message {
	said := a.encode()
	i := first
	for i < len(out) && len(out[i].Data)+len(said) > MaxFrame {
		i++
	}
	if i == len(out) {
		f := frame{kind: beacon, origin: r.self, tick: r.log.last(), sent: r.tickedAt}
		out = append(out, Message{To: out[first].To, Data: f.encode(nil, emptyBody)})
	}
	out[i].Data = withAck(out[i].Data, said)
	return out
}

// Snapshot returns a frame with all live slots of all origins, the hottest keys first where there are too many. It is what a
// newcomer takes in with Receive.
func (r *Replica) Snapshot(now int64) []byte {
	return encodeSnapshot(r.self, r.log.last(), r.counts, now)
}

// encodeSnapshot covers the ticks up to the one given. It needs nothing of a replica, so that nobody waits for it.
func encodeSnapshot(self counters.Origin, tick uint64, counts Counts, now int64) []byte {
	f := frame{kind: snapshot, origin: self, tick: tick, sent: now}
	groups := new(arranger).arrange(counts.Snapshot(now, snapshotSlots), nil, self)
	bodies := pack(groups, self, now, maxSnapshot-MaxFrame)
	if len(bodies) == 0 {
		return f.encode(nil, emptyBody)
	}
	return f.encode(nil, bodies[0])
}

// Stats returns the replica's totals.
func (r *Replica) Stats() Stats { return r.stats }
