package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Source is what a cluster needs of its node; see counters.Table.
type Source interface {
	Counts
	// DrainDirty returns what changed since the last call.
	DrainDirty(now int64) counters.Drained
	// EarlyFlush signals changes that are better sent before the interval ends; DrainEarly returns them.
	EarlyFlush() <-chan struct{}
	DrainEarly(now int64) counters.Drained
}

// Cluster connects the replica of one node with its peers. Its methods are safe for concurrent use.
//
// Its lock is never held while memberlist is called: memberlist calls back under locks of its own.
type Cluster struct {
	cfg    Config
	self   Member
	source Source
	log    *slog.Logger

	rules     atomic.Uint64                   // the fingerprints that the node sends of itself
	keys      atomic.Pointer[[MaxKeys]uint64] // of its keys
	announced chan struct{}                   // they have changed
	keysMu    sync.Mutex                      // held while the keys change

	pools     []*pool
	outbox    *outbox
	ticks     atomic.Uint64
	malformed logLimit
	flooded   logLimit

	mu      sync.Mutex
	replica *Replica
	dials   dials
	membership
	recency

	gateways
}

// NewCluster opens the pools' sockets. Run joins the pools, and closes the sockets at its end.
func NewCluster(cfg Config, source Source) (*Cluster, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = func() int64 { return time.Now().UnixNano() }
	}
	self := Member{NodeID: cfg.NodeID, Region: cfg.Region, Incarnation: cfg.Incarnation,
		MinVersion: protocolVersion, MaxVersion: protocolVersion, Identity: cfg.Identity}
	c := &Cluster{
		cfg: cfg, self: self, source: source, log: cfg.Logger, announced: make(chan struct{}, 1),
		outbox: newOutbox(cfg.Interval), replica: NewReplica(self.Origin(), cfg.Interval, source),
		membership: newMembership(self), recency: newRecency(), gateways: newGateways(), dials: make(dials),
	}
	c.replica.Describe(self.Origin(), self.describe())
	c.replica.between = c.yield
	c.rules.Store(cfg.Rules)
	c.isGateway.Store(true)
	c.keys.Store(fingerprintsOf(cfg.Keys))
	for _, p := range []struct {
		name string
		cfg  *PoolConfig
	}{{wan, cfg.WAN}, {lan, cfg.LAN}} { // the WAN's address is in the LAN's metadata
		if p.cfg == nil {
			continue
		}
		opened, err := openPool(c, p.name, p.cfg)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("gossip: %s pool at %s: %w", p.name, p.cfg.Bind, err)
		}
		c.pools = append([]*pool{opened}, c.pools...)
	}
	return c, nil
}

// Run joins the pools and sends every interval, until ctx ends; then it sends to its peers what is left, leaves and
// closes.
func (c *Cluster) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	for _, p := range c.pools {
		loops.Go(func() { p.rejoin(ctx) })
		loops.Go(func() { p.rejoinFailed(ctx) })
		loops.Go(func() { p.warnOfStrays(ctx) })
		loops.Go(func() { p.greet(ctx) })
	}
	loops.Go(func() { c.announce(ctx) })
	loops.Go(func() { c.ask(ctx) })
	loops.Go(func() { c.passOn(ctx) })
	pacing, stopPacing := context.WithCancel(context.WithoutCancel(ctx))
	var paced sync.WaitGroup
	paced.Go(func() { c.sendPaced(pacing) })
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	early := time.NewTimer(0)
	defer early.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			c.tick()
		case <-c.source.EarlyFlush():
			early.Reset(c.untilFlush())
		case <-early.C:
			c.flush()
		}
	}
	c.linger(ticker.C)
	stopPacing()
	paced.Wait()
	c.quiet.Store(true)
	c.goodbye()
	var leaving sync.WaitGroup
	for _, p := range c.pools {
		leaving.Go(func() {
			if err := p.ml().Leave(leaveTimeout); err != nil {
				c.log.Warn("gossip: leaving took too long, peers will notice by themselves",
					"pool", p.name, "error", err)
			}
		})
	}
	leaving.Wait()
	c.goodbye() // again, in case the first one was lost
	c.Close()
	loops.Wait() // an attempt under way may last streamTimeout
	return nil
}

// Close closes the sockets of a cluster that never ran: it sends nothing to its peers.
func (c *Cluster) Close() {
	for _, p := range c.pools {
		p.close()
	}
}

// How long a stop may take: until the peers have acknowledged the last counts, for which some intervals are allowed,
// and until they know that the node left.
const (
	minLinger       = 1500 * time.Millisecond
	maxLinger       = 3 * time.Second
	lingerIntervals = 6
	leaveTimeout    = 1500 * time.Millisecond
)

// linger sends the last counts until all peers that are reachable have acknowledged them.
func (c *Cluster) linger(next <-chan time.Time) {
	deadline := time.After(min(max(lingerIntervals*c.cfg.Interval, minLinger), maxLinger))
	c.mu.Lock()
	c.replica.ResendEveryTick()
	c.mu.Unlock()
	for {
		c.tick()
		c.mu.Lock()
		acked := c.replica.FullyAcked(c.cfg.Now())
		c.mu.Unlock()
		if acked {
			return
		}
		select {
		case <-next:
		case <-deadline:
			c.log.Warn("gossip: not all peers have acknowledged the last counts; what they lack may be in the " +
				"regional store")
			return
		}
	}
}

// Warm waits until the node has received what others know and all its seeds have answered, so that it decides with
// everybody's counts and an honest bound from its first request on. It returns at once when there is nobody to expect,
// and the context's error when somebody did not come: then it knows what those who did know. Run has to be under way.
func (c *Cluster) Warm(ctx context.Context) error {
	ticker := time.NewTicker(c.cfg.Interval / 2)
	defer ticker.Stop()
	for !c.warm() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("gossip: not all seeds have answered: %w", ctx.Err())
		}
	}
	return nil
}

func (c *Cluster) warm() bool {
	c.mu.Lock()
	informed := !c.awaits() && (len(c.routes) == 0 || c.replica.hasBegun())
	c.mu.Unlock()
	blind, _ := c.Blind()
	return informed && !blind && !c.awaitsStrays()
}

// awaitsStrays reports whether nodes of this region that only the WAN pool knows may be about to join the LAN: a node
// that has just started at the address of a seed waits for those that try it.
func (c *Cluster) awaitsStrays() bool {
	return len(c.pools) > 1 && time.Since(c.pools[0].opened) < introduction && len(c.pools[0].strays()) > 0
}

func (c *Cluster) tick() {
	now := c.cfg.Now()
	drained := c.source.DrainDirty(now)
	c.send(func() []Message { return c.replica.Tick(drained, now) }, false)
	c.ticks.Add(1)
}

// Ticks returns how many ticks of replication have ended since Run.
func (c *Cluster) Ticks() uint64 { return c.ticks.Load() }

// untilFlush is how long an early flush has to wait.
func (c *Cluster) untilFlush() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(max(0, c.replica.FlushAt()-c.cfg.Now()))
}

// flush sends what does not wait for the interval to end.
func (c *Cluster) flush() {
	now := c.cfg.Now()
	drained := c.source.DrainEarly(now)
	c.send(func() []Message { return c.replica.Flush(drained, now) }, true)
}

// goodbye announces to the peers that this node admits nothing any more: memberlist does not say of a member whether it
// left or failed.
func (c *Cluster) goodbye() {
	c.send(func() []Message { return c.replica.Goodbye(c.cfg.Now()) }, true)
}

func (c *Cluster) receive(pool string, b []byte) {
	if isRosters(b) {
		c.receiveRosters(pool, b)
		return
	}
	if isQuestion(b) {
		if err := c.receiveQuestion(b); err != nil && c.malformed.admit(c.log) {
			c.log.Warn("gossip: dropped a question that cannot be read", "pool", pool, "bytes", len(b))
		}
		return
	}
	take := c.replica.Receive
	if isDetour(b) {
		take = c.replica.ReceiveDetour
	}
	c.mu.Lock()
	err := take(b, c.cfg.Now()) // see yield
	c.mu.Unlock()
	if errors.Is(err, errFlood) {
		if c.flooded.admit(c.log) {
			from, _ := senderOf(b)
			c.log.Warn("gossip: dropped a snapshot: a peer sends more of them than an honest one does; if it is not "+
				"yours, rotate the gossip key, as whoever holds it can speak in any node's name",
				"pool", pool, "peer", c.nameOf(from), "bytes", len(b))
		}
		return
	}
	if err != nil && c.malformed.admit(c.log) {
		c.log.Warn("gossip: dropped a frame that cannot be read", "pool", pool, "bytes", len(b), "error", err)
	}
}

// yield lets others have the lock: a snapshot takes long to merge, and memberlist waits for the lock.
func (c *Cluster) yield() {
	c.mu.Unlock()
	c.mu.Lock()
}

// nameOf is the region and node id of a member, or that it is none.
func (c *Cluster) nameOf(o counters.Origin) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.routes[o]; r != nil {
		return r.member.Region + "/" + r.member.NodeID
	}
	return "not a member"
}

// left reports whether the origin sent a goodbye.
func (c *Cluster) left(o counters.Origin) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replica.Left(o)
}

// Audit is Replica.Audit after Replica.Found, and counts the nodes behind seeds that never answered, as when the node
// starts on the wrong side of a partition, as one more that admits a whole limit.
func (c *Cluster) Audit(limits map[string]*counters.Limit, found map[string]uint64) map[string]float64 {
	c.mu.Lock()
	now := c.cfg.Now()
	c.replica.Found(found, now)
	excess := c.replica.Audit(limits, now)
	c.mu.Unlock()
	all, region := c.Blind()
	for rule, l := range limits {
		if l.Scope() == counters.Global && all || l.Scope() == counters.Region && region {
			excess[rule] += float64(l.Largest())
		}
	}
	return excess
}

// Blind reports whether there may be nodes that this one has never received anything of, because seeds do not answer:
// of the cluster, and of the node's own region, all of which is in the first pool (the LAN's if there is one).
func (c *Cluster) Blind() (anywhere, inRegion bool) { // without the lock: pools take it under their own
	return slices.ContainsFunc(c.pools, (*pool).isBlind), len(c.pools) > 0 && c.pools[0].isBlind()
}

// Alone reports whether this node knows nobody of other regions, and of its own region, though it has seeds there: they
// were not tried yet, or one does not answer. The first node of a region that knows others is not alone in the cluster.
func (c *Cluster) Alone() (anywhere, inRegion bool) {
	if len(c.pools) == 0 {
		return false, false
	}
	near, far := c.pools[0], c.pools[len(c.pools)-1]
	inRegion = near.isAlone()
	return far.isAlone() || inRegion && !far.hasMet(), inRegion
}

// AddsUp reports whether the cluster is so large that owners add up what nodes count: a node knows of most others in
// sums only.
func (c *Cluster) AddsUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replica.large
}

// Demand returns the cost per second that each node is asked for its hottest key of each limit, by the limit's meter's
// rule: this node of the last interval, and the others as they last reported it. Where owners add up, only some are
// there.
func (c *Cluster) Demand() map[counters.Origin]map[string]float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replica.Demand()
}

// Stats returns the totals of the replica, and of what the cluster did not send.
func (c *Cluster) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.replica.Stats()
	s.Unsent = c.outbox.dropped.Load()
	return s
}

// Self is what this node sends of itself.
func (c *Cluster) Self() Member {
	m := c.self
	m.Rules, m.Keys, m.Gateway = c.rules.Load(), *c.keys.Load(), c.isGateway.Load()
	return m
}

// AnnounceRules sends another fingerprint of this node's rules to the other nodes, while Run runs. It does not wait.
func (c *Cluster) AnnounceRules(fingerprint uint64) {
	if c.rules.Swap(fingerprint) != fingerprint {
		c.announceSoon()
	}
}

func (c *Cluster) announceSoon() {
	select {
	case c.announced <- struct{}{}:
	default: // another one is about to be sent
	}
}

// announceTimeout is how long memberlist may take to send new metadata to the first other nodes. The rest get it from
// these, or when lists of members are compared.
const announceTimeout = time.Second

// announce sends the node's metadata whenever it has changed.
func (c *Cluster) announce(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.announced:
		}
		for _, p := range c.pools {
			if err := p.ml().UpdateNode(announceTimeout); err != nil {
				c.log.Debug("gossip: new metadata is still being sent", "pool", p.name, "error", err)
			}
		}
	}
}

// Addr is the host:port under which the node is known in a pool ("lan" or "wan"); empty if it is not in it.
func (c *Cluster) Addr(pool string) string {
	for _, p := range c.pools {
		if p.name == pool {
			_, self := p.others()
			return self
		}
	}
	return ""
}
