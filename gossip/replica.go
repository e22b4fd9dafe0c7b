package gossip

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Counts is what a replica needs of the table whose slots it replicates; see counters.Table.
type Counts interface {
	// MergeRises merges slots and returns how many were news. It records by how much keys rose where rises is not nil.
	MergeRises(slots []counters.Slot, now int64, rises *counters.Rises) (novel int)
	Snapshot(now int64, limit int) []counters.Slot
	// SetWatermark sets the time before which all that the origin admitted is known, or with counters.Gone that it
	// admits nothing any more.
	SetWatermark(o counters.Origin, watermark int64)
	// SetSumWatermarks does so for a sum's partitions.
	SetSumWatermarks(s counters.Sum, of counters.PartitionSet, watermark int64)
	// SetCluster sets the number of peers, and how long it takes until they know what is admitted; SetRegion sets the
	// same for those of the replica's region.
	SetCluster(peers int, horizon time.Duration)
	SetRegion(peers int, horizon time.Duration)
	// SetMember sets whether the origin is in the membership.
	SetMember(o counters.Origin, member bool)
	// SetPlace sets where an origin counts of which slots came while that was unknown.
	SetPlace(o counters.Origin, p counters.Place)
	// SetOwners and Refresh are for clusters in which owners of keys add up; see counters.Owners.
	SetOwners(o *counters.Owners)
	Refresh(partitions counters.PartitionSet)
	Refreshed() bool
}

// Message is a frame to send. Reliable ones are too large for a packet and go over a stream.
// Those that take a detour go over a stream as well, see detours.
type Message struct {
	To       counters.Origin
	Data     []byte
	Reliable bool
	Detour   bool
	Deaf     bool // no packets of the addressee come
}

// Replica is the replication protocol of one node as a state machine: events come in by method calls with the time,
// messages go out as return values. The same calls give the same messages, byte for byte. It is not safe for concurrent
// use.
type Replica struct {
	self     counters.Origin
	interval time.Duration
	counts   Counts

	arranger        arranger
	slots           []counters.Slot // memory of what is being merged
	log             frameLog
	peers           map[counters.Origin]*peer
	inbound         map[counters.Origin]*inbound
	bySender        []*inbound                 // of inbound; nil: to be listed again, see senders
	limits          map[string]*counters.Limit // as of the last audit
	excess          map[string]*excessWindow   // by rule
	forgot          map[string]*Peak           // by rule: the largest count of a key that was evicted, in cost
	strangers       allowance                  // of all together who are no members
	order           []counters.Origin          // of peers, ascending: the order of sending
	startedAt       int64                      // 0: nobody has joined yet
	beaconAt        int64
	tickedAt        int64
	sentAt          int64             // when the last messages went
	foundAt         int64             // see Found
	horizon         time.Duration     // until all know what one admits; see setCluster
	toFar           time.Duration     // usual transit time to other regions
	near, all       []time.Duration   // memory of setCluster
	asked           []counters.Demand // of the last interval
	flushes         int               // that may go early
	snapshot        []byte            // built in this Tick, if a peer wanted one
	resendEveryTick bool
	between         func() // called between parts of a snapshot that is being merged, if set: the state is consistent
	stats           Stats

	owners
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
	Early                      uint64 // frames that are to come again: of the future, or of nodes not known yet
	SnapshotsRefused           uint64 // snapshots that were dropped: their sender sends more than an honest one does
	Unsent                     uint64 // messages that a Cluster dropped because too many waited to be sent
}

const (
	idleBeacon    = time.Second      // between beacons while no request comes
	forgetSilent  = 15 * time.Minute // a peer that is silent for longer is taken to be gone for good
	crashedAfter  = time.Minute      // see forgetDemands
	sendsWithin   = 8 * idleBeacon   // a node that sends is not silent for longer, whatever is lost
	maxResend     = 64               // frames sent again to one peer in an interval
	snapshotRetry = 2 * time.Second
	newcomer      = 5 * snapshotRetry // a replica that started a shorter while ago: members' snapshots are on their way
	// so many take more than half of a snapshot's bytes, and hardly ever more than all
	snapshotSlots = maxSnapshot / 2 / minEntry
	mergedAtOnce  = 256 // slots that come out of a frame before they are merged
)

// NewReplica returns the replica of a node that has just started as origin self and will call Tick every interval.
func NewReplica(self counters.Origin, interval time.Duration, counts Counts) *Replica {
	return &Replica{
		self: self, interval: interval, counts: counts, slots: make([]counters.Slot, 0, mergedAtOnce),
		peers: make(map[counters.Origin]*peer), inbound: make(map[counters.Origin]*inbound),
		excess: make(map[string]*excessWindow), forgot: make(map[string]*Peak),
	}
}

// Join adds a member. The replica sends it a snapshot, and from then on what it counts.
func (r *Replica) Join(o counters.Origin, now int64) {
	if o == r.self || o == 0 || r.peers[o] != nil {
		return
	}
	r.startedAt = cmp.Or(r.startedAt, now)
	r.peers[o] = &peer{origin: o, lastSeen: now, log: r.logFor(), snapWanted: true, ways: ways{packetAt: now}}
	r.changed = true
	i, _ := slices.BinarySearch(r.order, o)
	r.order = slices.Insert(r.order, i, o)
	if h := r.inbound[o]; h != nil {
		h.left, h.unlinked, r.peers[o].returned = false, false, true
	} else if len(r.regions) == 0 || !r.large && len(r.peers) <= meshMost { // of the others, see reorganize
		r.inboundOf(o, now)
	}
	r.counts.SetMember(o, true)
}

// Leave removes a member. With graceful set, or if it sent a goodbye, it admits nothing any more; otherwise it may go
// on beyond a partition, and stays in the bound.
func (r *Replica) Leave(o counters.Origin, graceful bool) {
	unlinked := false
	if p := r.peers[o]; p != nil { // it may come back, and its ticks go on
		r.log.tick = max(r.log.tick, p.log.last())
		unlinked = r.large && p.region != nil && p.region != r.firstRegion() && !r.isLink(o)
	}
	delete(r.peers, o)
	r.changed = true
	r.counts.SetMember(o, false)
	if i, ok := slices.BinarySearch(r.order, o); ok {
		r.order = slices.Delete(r.order, i, i+1)
	}
	if h := r.inbound[o]; h != nil {
		if graceful && !h.left {
			r.assume(h, nil, r.tickedAt+int64(r.interval))
			h.leftAt = r.tickedAt
		}
		h.left, h.unlinked = h.left || graceful, h.unlinked || unlinked
		r.setWatermark(o, h)
	}
}

// SnapshotFailed notes that a snapshot could not be sent. The replica tries again.
func (r *Replica) SnapshotFailed(to counters.Origin) {
	if p := r.peers[to]; p != nil {
		p.snapWanted = true
	}
}

// Left reports whether the origin admits nothing any more, as far as is known: it sent a goodbye, or it left
// gracefully.
func (r *Replica) Left(o counters.Origin) bool {
	h := r.inbound[o]
	return h != nil && h.left
}

// ResendEveryTick makes the replica send again in every interval what was not acknowledged, and hand over what it owns:
// it is about to stop.
func (r *Replica) ResendEveryTick() { r.resendEveryTick, r.changed = true, true }

// FullyAcked reports whether every peer that is reachable has acknowledged all frames, and what it is handed over as
// the next owner.
func (r *Replica) FullyAcked(now int64) bool {
	if r.changed || !r.counts.Refreshed() {
		return false
	}
	for _, p := range r.peers {
		waits := !r.large || len(p.log.frames) > 0 // a log may begin late
		if waits && now-p.lastSeen < int64(5*idleBeacon) && p.acked.cumulative < p.log.last() {
			return false
		}
	}
	return true
}

// lastSeen is when a frame of the origin came last; 0: never.
func (r *Replica) lastSeen(o counters.Origin) int64 {
	if h := r.inbound[o]; h != nil {
		return h.lastSeen
	}
	return 0
}

// Goodbye returns the messages by which this replica announces to all members that it admits nothing any more. They
// follow the last Tick.
func (r *Replica) Goodbye(now int64) []Message {
	var out []Message
	for _, o := range r.order {
		f := frame{kind: goodbye, origin: r.self, tick: r.peers[o].log.last(), sent: now, to: r.toOnly(o)}
		l := logged{kind: goodbye, data: f.encode(nil, emptyBody), tail: len(f.tail())}
		out = r.appendFrames(out, o, l)
	}
	return r.detour(out, now)
}

// toOnly names the addressee of a frame that is for nobody else; 0: the frame may be for all.
func (r *Replica) toOnly(o counters.Origin) uint32 {
	if !r.large {
		return 0
	}
	return toWhom(o)
}

func (r *Replica) inboundOf(o counters.Origin, now int64) *inbound {
	h := r.inbound[o]
	if h == nil {
		h = newInbound(now, r.interval)
		h.origin = o
		if p := r.peers[o]; p != nil {
			h.region = p.region
		}
		r.inbound[o], r.bySender = h, nil
	}
	return h
}

// senders returns the values of inbound in the order of origins: faster than the map, and sums of rates come out alike.
func (r *Replica) senders() []*inbound {
	if r.bySender == nil {
		r.bySender = slices.SortedFunc(maps.Values(r.inbound),
			func(a, b *inbound) int { return cmp.Compare(a.origin, b.origin) })
	}
	return r.bySender
}

// Receive takes in a frame that a peer sent, by packet or stream. A frame that is an error changes nothing.
func (r *Replica) Receive(b []byte, now int64) error {
	if err := r.admit(b, now); err != nil {
		return err
	}
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
	if f.to != 0 && f.to != toWhom(r.self) {
		return nil // its sender does not know yet that this node has started again
	}
	if r.isProbe(f) {
		r.hear(f, now)
		return nil
	}
	if r.peers[f.origin] == nil && r.inbound[f.origin] == nil {
		r.takeCounts(f, now)
		return nil
	}
	h := r.inboundOf(f.origin, now)
	h.follow(f, now)
	h.ended = h.ended && f.sent <= h.newest
	r.disbelieve(f, h, now)
	r.noteSender(f, h, now)
	r.mergeAll(f, h, len(b), now)
	h.there.note(subtract(now, f.sent), now, h.transitPeriod())
	if f.again = f.again || h.comesAgain(f, now); f.again {
		r.stats.Early++
	}
	r.reckon(h, f, now)
	h.note(f, now)
	if f.kind == beacon && f.ages != nil && f.tick > h.cumulative && (!r.large || r.isLink(f.origin)) {
		h.ackDue = true // frames were lost: the sender may wait for an answer
	}
	if r.large && h.ackDue { // also to whom this node would send nothing
		r.busy = append(r.busy, f.origin)
	}
	r.setWatermark(f.origin, h)
	r.setSumWatermarks(f.origin, h)
	if f.ack.origin == r.self && f.ack.timed {
		h.back, h.backKnown = int64(f.ack.transit), true
	}
	r.hear(f, now)
	return nil
}

// mergeAll hands all groups of a frame to the table, and notes that a snapshot came.
func (r *Replica) mergeAll(f *frame, h *inbound, bytes int, now int64) {
	for i := range f.groups {
		novel := r.merge(f, &f.groups[i], h, now)
		isNews := novel > 0 || !h.informed // others may lack what this node has from the regional store
		if isNews && f.kind == snapshot && r.isOrphan(f, &f.groups[i]) && !over(now, r.startedAt, newcomer) {
			r.allWantSnapshots()
		}
	}
	if f.kind == snapshot && f.sent > beforeAll {
		r.stats.SnapshotsReceived++
		h.informed = true
		h.truncated = h.truncated || bytes > maxSnapshot/2 // it may have left something out
	}
}

// takeCounts takes in what a frame counts whose sender is no member and was none: nobody knows when it was sent.
func (r *Replica) takeCounts(f *frame, now int64) {
	h := newInbound(now, r.interval)
	h.origin, h.truncated = f.origin, true
	for i := range f.groups {
		if g := &f.groups[i]; g.rise != ofSum {
			r.merge(f, g, h, now)
		}
	}
}

// Answered notes that a member has just answered a question, by its time sent, in the time it took; 0: unknown.
func (r *Replica) Answered(o counters.Origin, took time.Duration, sent, now int64) {
	p := r.peers[o]
	if p == nil {
		return
	}
	p.lastSeen, p.newest, p.isStale = now, max(p.newest, min(sent, now)), false
	switch {
	case took == 0:
	case p.rtt == 0 || took < p.rtt:
		p.rtt = took
	default: // one of the two may have been busy
		p.rtt += (took - p.rtt) / 4
	}
	if p.region != nil {
		p.region.seenAt = now
	}
}

// doubts reports whether frames of a member come that are older than others were: somebody may be playing them again,
// or its clock was set back.
func (r *Replica) doubts(o counters.Origin) bool {
	p := r.peers[o]
	return p != nil && p.isStale
}

// isBlocked reports whether packets do not pass between this node and a member, while streams do.
func (r *Replica) isBlocked(o counters.Origin, now int64) bool {
	p := r.peers[o]
	return p != nil && r.blocked(p, now).Any()
}

// silence is how long nothing comes from a peer until it is sent new frames only.
func (r *Replica) silence() time.Duration { return max(silence, 3*r.interval) }

// hear takes notice that a frame came from a member, and what that acknowledges.
func (r *Replica) hear(f *frame, now int64) {
	p := r.peers[f.origin]
	if p == nil {
		return
	}
	timed := !over(now, p.lastSeen, r.silence()) // an acknowledgement that waited for a way does not show its length
	if f.sent > p.newest || f.kind.numbered() && f.tick > p.tick {
		p.newest, p.tick = max(p.newest, min(f.sent, now)), max(p.tick, f.tick)
		p.lastSeen, p.isStale = now, false
		if f.kind != snapshot { // which comes over a stream
			p.packetAt = now
		}
		if p.region != nil {
			p.region.seenAt = now
		}
	} else {
		p.isStale = over(now, p.lastSeen, idleBeacon)
	}
	if f.ack.origin == r.self {
		p.acknowledge(f.ack, p.log, timed, now)
		if p.log != &r.log {
			p.log.trim(p.acked.cumulative)
		}
	}
	if r.large && f.kind == beacon && f.ages != nil && !r.isLink(f.origin) {
		r.asking = append(r.asking, f.origin)
	}
}

// disbelieve takes back what somebody else said in a member's name, when the member's newest frames show that: it has
// not left, and for longer than a member is silent, its ticks have not come as far. Who has the key may say it again.
func (r *Replica) disbelieve(f *frame, h *inbound, now int64) {
	low := f.kind != snapshot && f.tick+ackWindow < h.cumulative
	if !low {
		h.lowSince = 0
	}
	if f.sent <= h.newest || r.peers[f.origin] == nil {
		return
	}
	if h.left && f.kind != goodbye && over(now, h.leftAt, lastWords) {
		h.left, r.changed = false, true
	}
	switch {
	case !low:
	case h.lowSince == 0:
		h.lowSince = now
	case over(now, h.lowSince, sendsWithin):
		h.lowSince = 0
		h.cumulative, h.highest, h.beacon = f.tick, f.tick, beaconMark{}
		if f.kind.numbered() {
			h.cumulative--
		}
		clear(h.beyond)
	}
}

// isOrphan reports whether the group is of an origin that is gone. Its last frames may have reached only some members,
// and only a node that starts brings those together: it sends them another snapshot when it knows more.
func (r *Replica) isOrphan(f *frame, g *group) bool {
	return g.origin != r.self && g.origin != f.origin && r.peers[g.origin] == nil
}

// allWantSnapshots has every peer sent a snapshot.
func (r *Replica) allWantSnapshots() {
	for _, p := range r.peers {
		p.snapWanted = true
	}
}

// setWatermark passes to the table the time before which it knows all of the origin.
func (r *Replica) setWatermark(o counters.Origin, h *inbound) {
	switch {
	case h.left || h.ended:
		r.counts.SetWatermark(o, counters.Gone)
	case h.watermark != 0:
		r.counts.SetWatermark(o, min(h.watermark, h.watermarkAt))
	}
}

// merge hands the slots of a group to the table, some at a time: so a frame takes no memory in proportion to them. It
// returns how many were news.
func (r *Replica) merge(f *frame, g *group, h *inbound, now int64) (novel int) {
	s := counters.Slot{Meter: g.meter, Origin: g.origin, SentAt: f.sent, Sender: f.origin}
	of, known, again := r.about(f, g, h, now)
	f.again = f.again || again
	if !known {
		return 0
	}
	if of.isSum {
		r.summedAt = now
	}
	s.Place, s.SentAt = of.place, r.demandAt(f, of)
	if !h.truncated && f.kind.numbered() {
		s.CompleteThrough = r.completeThrough(f, g, h, of)
	}
	var rises *counters.Rises // of snapshots the bound reckons itself
	if f.kind != snapshot {
		rises = &counters.Rises{Since: max(r.seenThrough(f, h, of), now-int64(BoundAfter(r.interval)))}
	}
	index := g.meter.Index(f.sent)
	for e := (entries{rest: g.entries}); len(e.rest) > 0; {
		slots := r.slots[:0]
		for len(slots) < cap(slots) {
			if !e.next(&s, index) {
				break
			}
			slots = append(slots, s)
		}
		novel += r.counts.MergeRises(slots, now, rises)
		if f.kind == snapshot && r.between != nil {
			r.between()
		}
	}
	if rises != nil {
		r.reckonRises(f, g, h, of, rises, now)
	}
	r.stats.SlotsNovel += uint64(novel)
	return novel
}

// Tick ends an interval: it takes what changed since the last one and returns the messages to send, those to one peer
// in a row.
func (r *Replica) Tick(d counters.Drained, now int64) []Message {
	r.reorganize(now)
	r.beginDetours(now)
	r.asked = d.Demand
	r.admitted(d.Demand, cmp.Or(r.tickedAt, now-int64(r.interval)), now)
	r.forgotten(d.Forgotten, now)
	before := r.tickedAt
	r.tickedAt, r.sentAt, r.snapshot = now, now, nil
	_, saved := r.flushLimits()
	r.flushes = min(r.flushes+1, saved)
	r.setCluster()
	beat := asked(d) || over(now, r.beaconAt, idleBeacon)
	if beat {
		r.beaconAt = now
	}
	var out []Message
	if r.large {
		out = r.sendOwned(d, true, beat, before, now)
	} else {
		d.Slots = forAll(d.Slots)
		news := r.newFrames(&r.log, r.arranger.arrange(d.Slots, d.Demand, r.self),
			frame{since: r.since(d, before, now)}, len(d.Slots) > 0, true, now)
		for _, o := range r.order {
			out = r.messagesFor(out, r.peers[o], news, beat, now)
		}
	}
	for _, h := range r.senders() {
		h.tick(now)
		// One that left is remembered as well: what it sent before may come after its goodbye.
		if now-max(h.lastSeen, h.since) > int64(forgetSilent) && r.peers[h.origin] == nil {
			delete(r.inbound, h.origin)
			r.bySender = nil
			r.counts.SetWatermark(h.origin, counters.Gone)
		}
	}
	r.forgetDemands(now)
	r.forgetRegions(now)
	return r.detour(out, now)
}

// forAll returns the slots that every node is to know, without those that an owner has for somebody: they come once
// more when the cluster has just become a small one, where nobody would take a sum for one.
func forAll(slots []counters.Slot) []counters.Slot {
	return slices.DeleteFunc(slots, func(s counters.Slot) bool { return s.To != 0 })
}

// forgetDemands has the table forget what nodes were asked for that are silent for crashedAfter and no members any
// more, while most of their region sends: they crashed, and their clients are others' by now. One that only its peers
// cannot reach goes on to take its own share. Where most of a region is silent, it may be a partition, and a part of
// each limit is left to the other side.
func (r *Replica) forgetDemands(now int64) {
	var crashed []*inbound
	send := map[*region]int{r.firstRegion(): 1} // this node; less those that do not
	for _, h := range r.senders() {
		switch silent := now - max(h.lastSeen, h.since); {
		case h.left || h.ended || h.region == nil || r.large && !r.reports(h):
		case h.watermark != 0 && silent < int64(sendsWithin):
			send[h.region]++
		default:
			send[h.region]--
			if silent > int64(crashedAfter) && r.peers[h.origin] == nil {
				crashed = append(crashed, h)
			}
		}
	}
	for _, h := range crashed {
		if send[h.region] > 0 {
			r.counts.SetWatermark(h.origin, now)
		}
	}
}

// asked reports whether requests came.
func asked(d counters.Drained) bool { return len(d.Slots)+len(d.Demand) > 0 }

// since is the time that what was drained reports: since the last tick.
func (r *Replica) since(d counters.Drained, before, now int64) time.Duration {
	if !asked(d) {
		return 0
	}
	return time.Duration(max(1, now-cmp.Or(before, now-int64(r.interval))))
}

// newFrames packs groups into frames, like f, and adds them to a log. Where nothing rose, the frame is a beacon, which
// is not in the log. With complete set it is all that changed until now.
func (r *Replica) newFrames(log *frameLog, groups []group, f frame, rose, complete bool, now int64) []logged {
	size := maxBody
	if f.to != 0 {
		size -= maxTo
	}
	bodies := pack(groups, r.self, now, size)
	if len(bodies) == 0 {
		bodies = [][]byte{emptyBody}
	}
	f.kind, f.origin, f.sent = dataMore, r.self, now
	tail := len(f.tail())
	news := make([]logged, len(bodies))
	for i, body := range bodies {
		f.tick = log.last()
		switch {
		case !rose:
			f.kind = beacon
		case complete && i == len(bodies)-1:
			f.kind = data
			fallthrough
		default:
			f.tick++
		}
		news[i] = logged{
			kind: f.kind, tick: f.tick, sent: now, data: f.encode(make([]byte, 0, maxEnvelope+len(body)), body),
			tail: tail,
		}
		if f.kind != beacon {
			log.add(news[i])
		}
	}
	return news
}

// messagesFor appends the messages for one peer: a snapshot if it needs one, else what it lost; and what is new.
func (r *Replica) messagesFor(out []Message, p *peer, news []logged, beat bool, now int64) []Message {
	h := r.inbound[p.origin]
	if ackDue := h != nil && h.ackDue; !beat && !ackDue {
		news = nil
	}
	reachable := r.resendEveryTick || !over(now, p.lastSeen, r.silence())
	rto := p.rto(r.interval)
	switch {
	case r.resendEveryTick:
		rto = r.interval
	case p.srtt == 0:
		rto = r.firstRTO(p, rto)
	}
	var lost []logged
	if r.wantsSnapshot(p, reachable, rto, now) {
		out = r.appendSnapshot(out, p, now)
	} else if reachable {
		wait := rto
		if !r.resendEveryTick {
			wait = max(rto, h.lead(now))
		}
		lost = p.lost(p.log, rto, wait, now, maxResend)
		r.stats.Resent += uint64(len(lost))
	}
	return r.appendFrames(out, p.origin, append(lost, news...)...)
}

// wantsSnapshot reports whether the peer is to be sent a snapshot now: one is due, or the peer has not acknowledged the
// last one, or lacks frames that are not kept any more, or so many that a snapshot arrives sooner.
func (r *Replica) wantsSnapshot(p *peer, reachable bool, rto time.Duration, now int64) bool {
	if r.large || !reachable || !over(now, p.snapAt, max(snapshotRetry, 2*rto)) {
		return false
	}
	return p.snapWanted || p.acked.cumulative < p.snapTick || p.acked.cumulative+1 < p.log.first() || r.wasAway(p, now)
}

// wasAway reports whether the peer lacks more old frames than may be sent again in an interval, as after a partition,
// and the snapshot is not so large that it may leave keys out.
func (r *Replica) wasAway(p *peer, now int64) bool {
	oldest := p.log.get(p.acked.cumulative + 1)
	if oldest == nil || !over(now, oldest.sent, snapshotRetry) || p.lacks(p.log) <= maxResend {
		return false
	}
	return len(r.latestSnapshot(now)) <= maxSnapshot/2
}

func (r *Replica) appendSnapshot(out []Message, p *peer, now int64) []Message {
	p.snapTick, p.snapAt, p.snapWanted = p.log.last(), now, false
	r.stats.Snapshots++
	r.stats.FramesSent++
	data := r.latestSnapshot(now)
	r.stats.BytesSent += uint64(len(data))
	return append(out, Message{To: p.origin, Data: data, Reliable: true})
}

// latestSnapshot returns the snapshot of this Tick.
func (r *Replica) latestSnapshot(now int64) []byte {
	if r.snapshot == nil {
		r.snapshot = r.Snapshot(now)
	}
	return r.snapshot
}

// appendFrames appends frames for a peer. One of them acknowledges what came from it, if something did, and a beacon
// does anyway.
func (r *Replica) appendFrames(out []Message, to counters.Origin, frames ...logged) []Message {
	h, first := r.inbound[to], len(out)
	ackDue := h != nil && h.ackDue
	for _, l := range frames {
		ackDue = ackDue || h != nil && l.kind == beacon
		out = append(out, Message{To: to, Data: l.data})
	}
	if ackDue && len(frames) > 0 {
		out = r.acknowledge(out, first, h.ack(to, r.tickedAt), frames)
		h.ackDue = false
	}
	for _, m := range out[first:] {
		r.stats.FramesSent++
		r.stats.BytesSent += uint64(len(m.Data))
	}
	return out
}

// acknowledge adds an ack to the first message after index first that has room for it, or else to a beacon.
func (r *Replica) acknowledge(out []Message, first int, a ack, frames []logged) []Message {
	encoded, tail := a.encode(), 0
	i := first
	for i < len(out) && len(out[i].Data)+len(encoded) > MaxFrame {
		i++
	}
	if i == len(out) {
		f := frame{kind: beacon, origin: r.self, tick: r.peers[a.origin].log.last(), sent: r.tickedAt,
			to: r.toOnly(a.origin)}
		tail = len(f.tail())
		out = append(out, Message{To: out[first].To, Data: f.encode(nil, emptyBody)})
	} else {
		tail = frames[i-first].tail
	}
	out[i].Data = withAck(out[i].Data, encoded, tail)
	return out
}

// Snapshot returns a frame with all live slots of all origins, the hottest keys first where there are too many. It is
// what a newcomer takes in with Receive.
func (r *Replica) Snapshot(now int64) []byte {
	f := frame{kind: snapshot, origin: r.self, tick: r.log.last(), sent: now}
	groups := new(arranger).arrange(r.counts.Snapshot(now, snapshotSlots), nil, r.self)
	bodies := pack(groups, r.self, now, maxSnapshot-MaxFrame)
	if len(bodies) == 0 {
		return f.encode(nil, emptyBody)
	}
	return f.encode(nil, bodies[0])
}

// Stats returns the replica's totals.
func (r *Replica) Stats() Stats { return r.stats }
