package gossip

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/counters"
)

// Of a region of more than allGateways nodes, maxGateways are in the WAN pool: those whose names hash lowest among the
// living ones, so that all agree on them, and the next one takes over from one that fails. The others have a socket
// between regions, by which they are reached, and gateways pass rosters of the nodes of other regions on to them.
const (
	allGateways = 4
	maxGateways = 3

	electEvery    = time.Second
	electAtStart  = time.Second      // how long a node that starts waits for others of its region
	stepDownAfter = 30 * time.Second // of not being among the first
	handOver      = 10 * time.Second // from then until it leaves the pool: others know by then

	publishGap    = electEvery / 2  // between two rosters of this node
	fanOut        = 2               // gateways with which a gateway compares rosters, each electEvery
	pullEvery     = 3 * time.Second // how often another node compares its own with those of a gateway
	pullAtStart   = 300 * time.Millisecond
	departedLasts = 2 * time.Minute // in a roster
	maxRosterSent = 4               // streams with rosters under way
	maxRosterLent = 1               // of them, those to nodes that are no members
)

// gateways is a cluster's part in the choice of gateways and in what they pass on.
type gateways struct {
	isGateway atomic.Bool
	elected   chan struct{} // closed when the node knows for the first time whether it is one
	sending   chan struct{} // a place for each stream with rosters
	lending   chan struct{} // a place for each of them that goes to a node that is no member
	replies   atomic.Uint64 // digests that answered one of this node's, over the WAN

	// Only passOn uses these.
	excess   time.Time // since when the node is a gateway too many; zero: it is none
	leaveAt  time.Time // when it leaves the WAN pool; zero: it does not
	pulledAt time.Time

	rostersMu   sync.Mutex // taken before the cluster's; guards what follows
	rosters     rosters
	departed    map[counters.Origin]departedMember
	publishedAt time.Time
}

type departedMember struct {
	Member
	at time.Time
}

func newGateways() gateways {
	return gateways{
		elected: make(chan struct{}), sending: make(chan struct{}, maxRosterSent),
		lending: make(chan struct{}, maxRosterLent), rosters: newRosters(),
		departed: make(map[counters.Origin]departedMember),
	}
}

// pool returns the pool of that name, or nil.
func (c *Cluster) pool(name string) *pool {
	for _, p := range c.pools {
		if p.name == name {
			return p
		}
	}
	return nil
}

// passOn chooses the gateways and compares rosters, until ctx ends.
func (c *Cluster) passOn(ctx context.Context) {
	near, far := c.pool(lan), c.pool(wan)
	for begun := time.Now(); near != nil && c.meets(near) && time.Since(begun) < electAtStart; {
		if !sleep(ctx, 10*time.Millisecond) {
			break
		}
	}
	if near != nil && far != nil {
		c.elect(time.Now())
	}
	close(c.elected)
	if far == nil {
		return
	}
	for wait := time.Duration(0); sleep(ctx, wait); wait = jittered(electEvery) {
		if near != nil {
			c.elect(time.Now())
		}
		c.rostersMu.Lock()
		c.rosters.expire(c.cfg.Now())
		if c.isSparse() {
			c.publish()
		}
		c.settle()
		c.rostersMu.Unlock()
		c.compareRosters(far)
		if far.isBlind() && !far.joins.Load() {
			wait = pullAtStart
		}
	}
}

// meets reports whether others of this region may become members at any moment.
func (c *Cluster) meets(near *pool) bool {
	if near.isAlone() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.awaits()
}

// elect finds whether this node is a gateway, and has it become one or cease to be one.
func (c *Cluster) elect(now time.Time) {
	far := c.pool(wan)
	switch should := c.shouldBeGateway(); {
	case should:
		c.excess, c.leaveAt = time.Time{}, time.Time{}
		if !c.isGateway.Swap(true) {
			c.log.Info("gossip: this node is a gateway of its region")
		}
		if !far.joins.Load() {
			far.enter()
			c.announceSoon()
		}
	case c.isGateway.Load():
		if c.excess.IsZero() {
			c.excess = now
		}
		if joins := far.joins.Load(); joins && now.Sub(c.excess) < stepDownAfter {
			break
		} else if joins {
			c.leaveAt = now.Add(handOver)
		}
		c.isGateway.Store(false)
		c.announceSoon()
	}
	if !c.leaveAt.IsZero() && !now.Before(c.leaveAt) && c.isListedEverywhere(far) {
		c.leaveAt = time.Time{}
		if err := far.leave(); err != nil {
			c.log.Error("gossip: cannot leave the WAN pool", "error", err)
		}
		c.announceSoon()
	}
}

// shouldBeGateway reports whether this node is among the gateways of its region.
func (c *Cluster) shouldBeGateway() bool {
	type candidate struct {
		rank   uint64
		origin counters.Origin
	}
	before := func(a, b candidate) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.origin, b.origin)) }
	self := candidate{nameHash("gateway", c.self.name()), c.self.Origin()}
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes, ahead := 1, 0
	for o, r := range c.routes {
		m := r.member
		if r.pool.name != lan || !m.WAN.IsValid() {
			continue
		}
		nodes++
		if before(candidate{nameHash("gateway", m.name()), o}, self) < 0 {
			ahead++
		}
	}
	return nodes <= allGateways || ahead < maxGateways
}

// isSparse reports whether there are nodes that are no gateways, which need rosters, or may be some.
func (c *Cluster) isSparse() bool {
	if !c.isGateway.Load() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.routes {
		if !r.member.Gateway && r.member.WAN.IsValid() {
			return true
		}
	}
	for _, q := range c.candidates {
		if q.listed {
			return true
		}
	}
	return false
}

// publish makes this gateway's roster anew. rostersMu is held.
func (c *Cluster) publish() {
	if !c.isGateway.Load() || !c.self.WAN.IsValid() || time.Since(c.publishedAt) < publishGap {
		return
	}
	c.publishedAt = time.Now()
	now := c.cfg.Now()
	members := c.regionMembers()
	known := c.rosters.byPublisher[c.self.Origin()]
	c.noteDeparted(known, members)
	departed := make([]Member, 0, len(c.departed))
	for _, d := range c.departed {
		departed = append(departed, d.Member)
	}
	slices.SortFunc(departed, func(a, b Member) int { return cmp.Compare(a.Origin(), b.Origin()) })
	own := newRoster(members, departed, now)
	news := known == nil || known.hash != own.hash
	if !news && now-known.renewed < int64(rosterBeat) && now >= known.renewed {
		return
	}
	if known != nil {
		own.stamp = max(now, known.stamp+1)
	}
	own.stamp = max(own.stamp, c.rosters.ended[own.publisher]+1)
	if _, err := c.rosters.put(own, now); err != nil {
		if c.malformed.admit(c.log) {
			c.log.Warn("gossip: cannot publish the members of this region", "error", err)
		}
		return
	}
	if news {
		c.push(own, true)
	}
}

// regionMembers returns the members of this region, this node first.
func (c *Cluster) regionMembers() []Member {
	self := c.Self()
	c.mu.Lock()
	members := make([]Member, 0, len(c.routes))
	for _, o := range slices.Sorted(maps.Keys(c.routes)) {
		if r := c.routes[o]; r.member.Region == self.Region && !r.listed {
			members = append(members, r.member)
		}
	}
	c.mu.Unlock()
	members = slices.DeleteFunc(members, func(m Member) bool { return !m.WAN.IsValid() || m.WAN.Port() == 0 })
	return append([]Member{self}, members[:min(len(members), maxRosterMembers-1)]...)
}

// noteDeparted records who was in the roster before, is a member no more, and sent a goodbye.
func (c *Cluster) noteDeparted(before *roster, members []Member) {
	now := time.Now()
	if before != nil {
		for i, m := range before.members {
			stays := slices.ContainsFunc(members, m.isSameBoot)
			if o := before.origins[i]; !stays && c.left(o) {
				c.departed[o] = departedMember{m, now}
			}
		}
	}
	for o, d := range c.departed {
		if now.Sub(d.at) > departedLasts || len(c.departed) > maxRosterMembers {
			delete(c.departed, o)
		}
	}
}

// settle has the members of other regions be those whom rosters list, and those in the WAN pool. rostersMu is held.
func (c *Cluster) settle() {
	far := c.pool(wan)
	members, departed := c.rosters.members(c.self.Region)
	gateway, self := far.joins.Load() && c.isGateway.Load(), c.self.Origin()
	var left []*route
	var graceful []bool
	c.mu.Lock()
	for o := range c.givenUp {
		if m, listed := members[o]; !listed || !gateway || !m.Gateway {
			delete(c.givenUp, o)
		}
	}
	for o, l := range c.listed {
		if _, listed := members[o]; listed {
			continue
		}
		delete(c.listed, o)
		if q := c.candidates[o]; q != nil && q.route == l {
			delete(c.candidates, o)
		}
		if r := c.routes[o]; r == l {
			_, bye := departed[o]
			if removed, g := c.remove(o, bye); removed {
				left, graceful = append(left, r), append(graceful, g)
			}
		}
	}
	for o, m := range members {
		l := c.listed[o]
		if o == self || c.givenUp[o] || l != nil && l.member == m {
			continue
		}
		r := &route{member: m, pool: far, node: nodeAt(m.WAN), addr: m.WAN.String(), listed: true}
		c.listed[o] = r
		before := c.routes[o]
		if q := c.candidates[o]; q != nil {
			before = q.route
		}
		if before == nil || before.listed {
			c.report(r)
		}
	}
	c.mu.Unlock()
	for i, r := range left {
		c.logGone(r.member, r.pool, graceful[i])
	}
	if gateway && c.isSparse() {
		c.joinGateways(far)
	}
}

// nodeAt is a node at an address, as memberlist sends to it.
func nodeAt(addr netip.AddrPort) memberlist.Node {
	return memberlist.Node{Addr: addr.Addr().AsSlice(), Port: addr.Port(), PMin: memberlist.ProtocolVersionMin,
		PMax: memberlist.ProtocolVersionMax, PCur: memberlist.ProtocolVersion2Compatible}
}

// joinGateways has the gateways that are not in the WAN pool yet joined.
func (c *Cluster) joinGateways(far *pool) {
	var missing []Member
	add := func(r *route) {
		if r.member.Gateway && r.member.WAN.IsValid() && (r.listed || r.pool.name == lan) {
			missing = append(missing, r.member)
		}
	}
	c.mu.Lock()
	for _, r := range c.routes {
		add(r)
	}
	for _, q := range c.candidates { // each may have to join first, to know this node and answer it
		add(q.route)
	}
	c.mu.Unlock()
	far.mu.Lock()
	defer far.mu.Unlock()
	there := make(map[string]bool, len(far.members))
	for _, m := range far.members {
		there[m.name()] = true
	}
	for _, m := range missing {
		name := m.poolName()
		if _, failed := far.failed[name]; !there[m.name()] && !failed {
			far.noteFailed(failedMember{poolMember: poolMember{m, m.WAN.String()}, boot: name, since: time.Now()})
		}
	}
}

// isListed reports whether a member of another region stays one though it left the WAN pool.
func (c *Cluster) isListed(m Member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.listed[m.Origin()]
	return l != nil && l.member.Region == m.Region && !l.member.Gateway
}

// isListedEverywhere reports whether rosters list all members of other regions that are in the pool.
func (c *Cluster) isListedEverywhere(far *pool) bool {
	members, _ := far.others()
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(members, func(m poolMember) bool {
		return m.Region != c.self.Region && c.listed[m.Origin()] == nil
	})
}

// isListedAt reports whether rosters list a member at an address.
func (c *Cluster) isListedAt(addr string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.listed {
		if l.member.WAN.String() == addr && !l.member.Gateway && c.routes[l.member.Origin()] != nil {
			return true
		}
	}
	return false
}

// enter has the node join the pool, of which gateways have passed on what they know: if they lack nobody, it does not
// matter whether this node's seeds answer.
func (p *pool) enter() {
	p.mu.Lock()
	if !p.uninformed && !p.gatewayBlind {
		p.met, p.unasked = true, false
		for _, seed := range p.cfg.Seeds {
			p.reached[seed] = true
		}
	}
	p.uninformed, p.gatewayBlind = false, false
	p.mu.Unlock()
	p.joins.Store(true)
	p.awake()
}

// leave leaves the pool. The node's socket goes on to serve.
func (p *pool) leave() error {
	old := p.ml()
	p.mu.Lock()
	others := len(p.members)
	p.mu.Unlock()
	if others > 0 {
		if err := old.Leave(leaveTimeout); err != nil {
			p.cluster.log.Debug("gossip: leaving the pool took too long", "pool", p.name, "error", err)
		}
	}
	p.joins.Store(false)
	_ = old.Shutdown()
	p.mu.Lock()
	members := p.members
	p.members, p.failed, p.missing = make(map[string]poolMember), make(map[string]failedMember), nil
	p.mu.Unlock()
	for _, m := range members {
		if p.carries(m.Member) {
			p.cluster.gone(m.Member, p)
		}
	}
	return p.create()
}

// inform notes that a gateway has passed on all that it knows, and whether it may lack nodes.
func (p *pool) inform(blind bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uninformed, p.gatewayBlind = false, blind
}
