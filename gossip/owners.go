package gossip

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// In a cluster of more than meshMost nodes, not every node sends to every other one: owners of keys add up (see
// counters/owners.go for what they send). The protocol is the same; what differs is to whom a slot goes. A small
// cluster is the case in which nothing is added up.
//
// The owner of a partition in a region is the member with the highest weight there (rendezvous hashing): when nodes
// come and go, little but theirs moves. One that owns more than others passes on to the second or third: then the
// busiest of 50 nodes owns 4 or 5 of 128 partitions, and not 8. A limit for each node would be more even, but where its
// size changes with the number of nodes, a third of all partitions would move.
//
// A member that should answer and is silent for suspectAfter intervals is passed over, so that the heaviest other one
// stands in for it, and it is the owner again when a frame of it comes. A new owner is sent again all that others know
// of its keys. Whoever is taken for an owner and is none forwards to whom it takes for the owner.
//
// # How old
//
// A frame says how old what its sender knew was: of its own region, and of the others. A receiver adds the age of the
// frame. So the bound covers both hops: what a sum rose by was unseen since the time through which the sum before was
// complete, or since the owner could not know yet that this node was asked for the key, whichever is earlier.
//
// Among many nodes the frame of one is always late, so a frame also says how old what its sender knows is on average,
// weighted by demand. Rates times that are what is not known yet: the demand that a decision allows for, and what the
// bound adds for sums that do not come.

const (
	// meshMost is the largest cluster in which every node sends to every other one, and meshAgain the size from which a
	// larger one returns to that.
	meshMost  = 16
	meshAgain = 12
	// largeLasts is how long a small cluster behaves as a large one after a member did that knows it to be one.
	largeLasts = 3 * time.Second
	// suspectAfter is in intervals.
	suspectAfter = 5
	// linkLasts is how long after the last slot a link is sent every interval how complete it is; then every second.
	linkLasts = 1200 * time.Millisecond
	// namedWithin is how long a rule may stay unnamed whose demand lasts.
	namedWithin = 1200 * time.Millisecond
	homes       = 2
	candidates  = 3 // for a partition in a region
)

// region is the nodes of one region, and who owns what there.
type region struct {
	name     string
	place    counters.Place
	weight   uint64   // of its name, for the choice of homes
	members  []member // by origin
	owners   [counters.Partitions]counters.Origin
	silent   bool         // too many of its members are: nobody stands in
	empty    bool         // nobody is in it any more
	sum      counters.Sum // over its nodes
	seenAt   int64        // when a frame of any of them came last; of one that is new, later; 0: it has none
	probedAt int64        // when this replica last asked for one
	probed   uint64       // how many members it has asked

	reported [2]map[string]regionDemand // by its owners in reach, and by the others; see addDemands
}

// member is a node of a region, by the hash of its name: a restart changes no owner.
type member struct {
	origin counters.Origin
	name   uint64
}

// newSum is the sum of a kind that a region names.
func newSum(kind, region string) counters.Sum { return counters.NewSum(nameHash(kind, region)) }

// sum is what a group of slots is about.
type sum struct {
	place  counters.Place
	region *region // nil: not a single one
	isSum  bool
}

// sumOf returns which sum an origin is.
func (r *Replica) sumOf(o counters.Origin) (of sum, ok bool) {
	s, partition := o.Sum()
	of, ok = r.sums[s]
	return of, ok && partition < counters.Partitions
}

// owners is the part of a Replica that knows who owns what.
type owners struct {
	regions   []*region // the own one first
	byName    map[string]*region
	sums      map[counters.Sum]sum
	refused   map[counters.Sum]int64 // unknown ones, and since when, see about
	elsewhere counters.Sum
	lost      counters.Sum

	changed  bool // who owns what has to be found again
	large    bool
	few      bool                      // it knows few nodes: it is large only as others are
	largeAt  int64                     // when a frame came last of a node that knows many
	unable   bool                      // a peer is not described
	links    []counters.Origin         // who is sent to regularly
	busy     []counters.Origin         // others for whom something waits
	asking   []counters.Origin         // who has asked whether this node can be reached, see probe
	summedAt int64                     // when sums came last; 0: never
	suspects map[counters.Origin]int64 // members that should have answered, and since when they count as silent
	owned    counters.PartitionSet
	demands  map[string]*demands // by rule
}

// Node is what a replica needs to know of a node to find who owns what.
type Node struct {
	Region, Name string
}

// Describe records what node an origin is: first of all the replica's own, then each that it joins. While one is not
// described, every node sends to every other one.
func (r *Replica) Describe(o counters.Origin, n Node) {
	if r.byName == nil {
		r.byName, r.sums = make(map[string]*region), make(map[counters.Sum]sum)
		r.refused = make(map[counters.Sum]int64)
		r.demands = make(map[string]*demands)
		r.suspects = make(map[counters.Origin]int64)
	}
	g := r.byName[n.Region]
	if g == nil {
		g = r.addRegion(n.Region)
	}
	i, known := slices.BinarySearchFunc(g.members, o,
		func(m member, o counters.Origin) int { return cmp.Compare(m.origin, o) })
	if !known {
		g.members = slices.Insert(g.members, i, member{o, nameHash("node", n.Name)})
	}
	r.changed = true
	if p := r.peers[o]; p != nil {
		p.region = g
		r.counts.SetPlace(o, g.place)
		if h := r.inbound[o]; h != nil {
			h.region = g
		}
	}
}

func (r *Replica) addRegion(name string) *region {
	g := &region{name: name, place: counters.Near, weight: nameHash("region", name)}
	if len(r.regions) > 0 {
		g.place = counters.Far(len(r.regions) - 1)
	}
	g.sum = newSum("sum", name)
	r.sums[g.sum] = sum{g.place.Sum(), g, true}
	if len(r.regions) == 0 {
		r.elsewhere, r.lost = newSum("elsewhere", name), newSum("lost", name)
		r.sums[r.elsewhere] = sum{counters.Elsewhere, nil, true}
		r.sums[r.lost] = sum{counters.Lost, nil, true}
	}
	delete(r.refused, g.sum)
	r.regions, r.byName[name] = append(r.regions, g), g
	return g
}

// nameHash is the same on every node.
func nameHash(what, name string) uint64 {
	h := sha256.Sum256([]byte(what + "\x00" + name))
	return binary.LittleEndian.Uint64(h[:])
}

// mix spreads a weight and a partition over 64 bits (the finalizer of SplitMix64).
func mix(weight uint64, partition int) uint64 {
	z := weight + uint64(partition+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// reorganize finds who owns what, where that may have changed.
func (r *Replica) reorganize(now int64) {
	if len(r.regions) == 0 {
		return
	}
	r.suspect(now)
	r.replace(now)
	if r.changed {
		r.unable = false
		for _, p := range r.peers {
			r.unable = r.unable || p.region == nil
		}
	}
	turns := r.isLarge(now) != r.large
	if turns {
		r.large, r.changed = !r.large, true
		r.turn(now)
	}
	if !r.changed {
		return
	}
	r.changed = false
	r.dropMembers(now)
	if !r.large {
		for _, o := range r.order { // Join leaves some out
			r.inboundOf(o, now)
		}
		return
	}
	known, linked, moved := r.assign()
	r.relink(linked, !turns, now)
	r.counts.SetOwners(known)
	for _, p := range r.peers {
		if p.returned {
			p.returned = false
			r.addConcerns(&moved, p)
		}
	}
	r.counts.Refresh(moved)
}

// dropMembers takes those out of their regions who are no peers any more.
func (r *Replica) dropMembers(now int64) {
	for _, g := range r.regions {
		g.members = slices.DeleteFunc(g.members,
			func(m member) bool { return m.origin != r.self && r.peers[m.origin] == nil })
		if g.seenAt = cmp.Or(g.seenAt, now+int64(introduced)); len(g.members) == 0 {
			g.seenAt = 0
		}
	}
}

// assign finds the owners of all partitions in all regions. It returns what the table is to know of them, who is sent
// to regularly then, and the partitions of which an owner changed that this node sends to.
func (r *Replica) assign() (known *counters.Owners, linked map[counters.Origin]bool, moved counters.PartitionSet) {
	home := r.homes()
	known = &counters.Owners{Region: r.regions[0].sum, Elsewhere: r.elsewhere, Lost: r.lost, Regions: len(r.regions)}
	linked = make(map[counters.Origin]bool)
	for i, g := range r.regions {
		known.Members = append(known.Members, len(g.members))
		before := g.owners
		r.findOwners(g)
		for p, o := range g.owners {
			switch {
			case i == 0 && o == r.self:
				known.Owned.Add(p)
			case i > 0 && known.Owned.Has(p) && o != 0:
				linked[o] = true
			}
			if o != before[p] && (i == 0 || known.Owned.Has(p)) {
				moved.Add(p)
			}
		}
	}
	for p := range counters.Partitions {
		n := 0
		for _, g := range home[p] {
			switch {
			case g == r.regions[0] && known.Owned.Has(p):
				known.Home.Add(p)
			case g != nil && g != r.regions[0]:
				known.Homes[p][n] = g.sum
				n++
			}
		}
	}
	r.owned = known.Owned
	for _, m := range r.regions[0].members {
		linked[m.origin] = m.origin != r.self
		if m.origin != r.self {
			known.Others = append(known.Others, m.origin)
		}
	}
	for o := range r.suspects { // so that both sides learn when the other is back
		linked[o] = true
	}
	return known, linked, moved
}

// relink has the links be the peers that are linked now. With await set, new ones have yet to send.
func (r *Replica) relink(linked map[counters.Origin]bool, await bool, now int64) {
	for _, o := range r.links {
		switch h := r.inbound[o]; {
		case h == nil || linked[o] || r.peers[o] == nil:
		case h.lastSeen == 0:
			delete(r.inbound, o)
			r.bySender = nil
		default:
			h.forget()
		}
	}
	before := r.links
	r.links = nil
	for o, isLink := range linked {
		p := r.peers[o]
		if !isLink || p == nil {
			continue
		}
		r.links = append(r.links, o)
		h := r.inboundOf(o, now)
		if _, was := slices.BinarySearch(before, o); !was && await && !r.isSuspect(o) {
			h.await(now)
			p.packetAt = now
		}
	}
	slices.Sort(r.links)
}

// isLarge reports whether owners add up. A large cluster remains one while a node waits for others that are no members
// any more: what it knows of them it has from owners, and a small one takes account of single nodes alone.
func (r *Replica) isLarge(now int64) bool {
	n := len(r.peers) + 1
	if n > meshAgain { // those that said goodbye are members until the others have noticed
		for o := range r.peers {
			if h := r.inbound[o]; h != nil && h.left {
				n--
			}
		}
	}
	if r.large && n <= meshAgain {
		for o, h := range r.inbound {
			if r.peers[o] == nil && !h.isGone() {
				n++
			}
		}
	}
	if r.few = n <= meshMost && (!r.large || n <= meshAgain); !r.few && !r.unable {
		r.largeAt = now // it is to turn when the others do
	}
	return !r.unable && (!r.few || r.largeAt != 0 && now-r.largeAt < int64(largeLasts))
}

// logFor is the log of a new peer: one for all in a small cluster. Otherwise its ticks begin behind all that any peer
// had, as it may be one that comes back.
func (r *Replica) logFor() *frameLog {
	if !r.large {
		return &r.log
	}
	return &frameLog{tick: r.log.tick}
}

// turn changes between a log for all peers and one for each.
func (r *Replica) turn(now int64) {
	if r.large {
		r.flushes = ownersMaxSaved
		for _, p := range r.peers {
			own := r.log
			own.frames = slices.Clone(own.frames)
			p.log = &own
			p.log.trim(p.acked.cumulative)
		}
		r.log.frames = nil
		maps.DeleteFunc(r.inbound, func(_ counters.Origin, h *inbound) bool { return h.lastSeen == 0 })
		r.bySender = nil
		for o, h := range r.inbound { // who is out of reach remains a link, and in the bound, until it answers
			if p := r.peers[o]; p != nil && !h.idle && p.isLate(now, r.interval) {
				r.suspects[o] = now
			}
		}
		return
	}
	for o := range r.peers {
		if h := r.inboundOf(o, now); !r.isLink(o) {
			h.await(now)
			r.peers[o].packetAt = now
		}
	}
	last := r.log.last()
	for _, p := range r.peers {
		last = max(last, p.log.last())
	}
	r.log = frameLog{tick: last} // a snapshot covers what each peer lacks
	for _, p := range r.peers {
		p.log, p.snapAt, p.snapWanted = &r.log, 0, true
	}
	r.counts.SetOwners(nil)
	r.counts.Refresh(allPartitions())
}

// suspect finds the peers that should have answered.
func (r *Replica) suspect(now int64) {
	maps.DeleteFunc(r.suspects, func(o counters.Origin, _ int64) bool { return r.peers[o] == nil })
	for _, o := range r.links {
		if p := r.peers[o]; p != nil && !r.isSuspect(o) && p.isSilent(now, r.interval) {
			r.suspects[o], r.changed = now, true // until a frame of it comes
		}
	}
}

// isSuspect reports whether a member is taken to be silent, so that others stand in for it.
func (r *Replica) isSuspect(o counters.Origin) bool {
	_, is := r.suspects[o]
	return is
}

// replace forgets what silent members added up once others have reported it who stand in for them: what is not known
// then is what those admit themselves, and those who were out of their reach.
func (r *Replica) replace(now int64) {
	for o, since := range r.suspects {
		h := r.inbound[o]
		if h == nil || h.region == nil || h.region.silent || !over(now, h.lastSeen, BoundAfter(r.interval)) {
			continue
		}
		if slices.ContainsFunc(r.senders(), func(other *inbound) bool {
			return other.region == h.region && other.hereAt > since && !r.isSuspect(other.origin)
		}) {
			h.sums[ofRegion], h.sums[ofElsewhere] = nil, nil
		}
	}
}

// isSilent reports whether the peer has not answered a frame for so long that somebody has to stand in for it.
func (p *peer) isSilent(now int64, interval time.Duration) bool {
	return p.isLate(now, interval) && len(p.log.frames) > 0 && now-p.log.frames[0].sent > p.patience(interval)
}

// isLate reports whether nothing came from the peer for as long as it may take to answer.
func (p *peer) isLate(now int64, interval time.Duration) bool {
	return now-p.lastSeen > p.patience(interval)
}

func (p *peer) patience(interval time.Duration) int64 { return int64(suspectAfter*interval + p.srtt) }

// isAlive reports whether a member of a region may own something.
func (r *Replica) isAlive(o counters.Origin) bool {
	if o == r.self {
		return !r.resendEveryTick
	}
	h := r.inbound[o]
	return !r.isSuspect(o) && (h == nil || !h.left)
}

// mayBeSilent reports whether a peer of another region, others of which send, owes this replica nothing: another member
// stands in for it, or it had nothing to report when its newest frame came. Of a thousand links that rest, some always
// lose two frames in a row.
func (r *Replica) mayBeSilent(o counters.Origin) bool {
	p, h := r.peers[o], r.inbound[o]
	if !r.large || p == nil || h == nil || p.region == nil || p.region == r.firstRegion() || p.region.silent {
		return false
	}
	return r.isSuspect(o) || h.idle
}

// forgetRegions has the table forget what regions are asked for that nobody is in any more, and nobody is waited for:
// no owner of theirs will ever report less.
func (r *Replica) forgetRegions(now int64) {
	for i, g := range r.regions {
		was := g.empty
		g.empty = i > 0 && len(g.members) == 0 && (was || !slices.ContainsFunc(r.senders(), func(h *inbound) bool {
			return !h.left && (h.region == g || h.region == nil && r.peers[h.origin] == nil)
		}))
		switch {
		case g.empty:
			r.counts.SetSumWatermarks(g.sum, allPartitions(), counters.Gone)
		case was:
			r.counts.SetSumWatermarks(g.sum, allPartitions(), now)
		}
	}
}

func allPartitions() (all counters.PartitionSet) {
	for p := range counters.Partitions {
		all.Add(p)
	}
	return all
}

// maxSuspects is how many members of another region may be silent until all of it is taken to be out of reach. Then the
// owners remain as they are.
const maxSuspects = 3

// findOwners finds who owns what in a region.
func (r *Replica) findOwners(g *region) {
	silent := 0
	alive := func(i int) bool { return r.isAlive(g.members[i].origin) }
	for i := range g.members {
		if !alive(i) {
			silent++
		}
	}
	g.silent = silent == len(g.members) || g != r.regions[0] && silent >= maxSuspects
	owned := make([]int, len(g.members))
	for p := range g.owners {
		best := g.heaviest(p, candidates, nil)
		if len(best) == 0 {
			g.owners[p] = 0
			continue
		}
		first, owner := best[0], best[0]
		for _, i := range best {
			if owned[i] < owned[owner] && owned[i]+1 < owned[first] {
				owner = i
			}
		}
		owned[owner]++
		if !g.silent && !alive(owner) {
			owner = g.heaviest(p, 1, alive)[0]
		}
		g.owners[p] = g.members[owner].origin
	}
}

// heaviest returns the numbers of the n members with the highest weights for a partition, of those that may own it; nil
// is all.
func (g *region) heaviest(partition, n int, may func(int) bool) []int {
	best := make([]int, 0, n+1)
	for i := range g.members {
		if may != nil && !may(i) {
			continue
		}
		w := mix(g.members[i].name, partition)
		at := len(best)
		for at > 0 && w > mix(g.members[best[at-1]].name, partition) {
			at--
		}
		if at < n {
			best = slices.Insert(best, at, i)
			best = best[:min(n, len(best))]
		}
	}
	return best
}

// homes returns the regions that are homes of each partition.
func (r *Replica) homes() (at [counters.Partitions][homes]*region) {
	for p := range at {
		for _, g := range r.regions {
			if len(g.members) == 0 {
				continue
			}
			for i := range at[p] {
				if other := at[p][i]; other == nil || mix(g.weight, p) > mix(other.weight, p) {
					at[p][i], g = g, other
				}
				if g == nil {
					break
				}
			}
		}
	}
	return at
}

// hasBegun reports whether a replica that has joined others knows what they count: in a small cluster by a snapshot.
func (r *Replica) hasBegun() bool {
	if r.large || r.largeAt != 0 {
		return r.Informed()
	}
	return r.stats.SnapshotsReceived > 0
}

// Informed reports whether all who send to this replica of themselves have sent all that they knew when they did.
func (r *Replica) Informed() bool {
	for _, o := range r.linked() {
		if h := r.inbound[o]; h == nil || h.watermark == 0 {
			return false
		}
	}
	return true
}

// linked returns the peers that this replica sends to of itself.
func (r *Replica) linked() []counters.Origin {
	if r.large {
		return slices.DeleteFunc(slices.Clone(r.links), func(o counters.Origin) bool { return r.peers[o] == nil })
	}
	return r.order
}
