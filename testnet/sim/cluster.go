package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// cluster is a run under way.
type cluster struct {
	opt       Options
	limit     *counters.Limit
	limits    map[string]*counters.Limit // by rule
	now       int64
	startAt   int64 // when requests begin to come
	endAt     int64 // and when no more do
	sampledAt int64 // when it was last looked round
	queue     queue

	nodes      []*node
	frozen     []int // by region: how many faults keep news of members from it and from others
	boots      int32
	anyCrashed bool
	home       map[counters.Origin]*node           // where an origin lives or lived
	tables     map[counters.Origin]*counters.Table // of those who live or lived, where there are stores
	stores     []*store                            // by region
	redis      StoreReport                         // of all stores, so far
	net        *network

	phases, members, flushes *rand.Rand

	keys     []counters.Key // by client
	recorder *recorder
	*staleness
	heals  []time.Duration // by partition: how long after its end every node knew all of every other again, or never
	digest digest
	hooks  hooks
}

// hooks let tests observe and break things. None of them is nil.
type hooks struct {
	counts   func(*node) gossip.Counts                    // what the replica takes for the node's table
	store    func(regions.Store) regions.Store            // what a reconciler takes for the store of its region
	late     func() time.Duration                         // how much later than an interval the next tick comes
	packet   func([]byte) []byte                          // the buffer in which a replica receives a message
	arrives  func(*node, event) bool                      // false: the message is lost
	drained  func(*node, *counters.Drained)               // what a node is about to replicate
	sent     func(*node, gossip.Message)                  // before the network delays or loses it
	received func(n *node, data []byte, err error)        // err: of Replica.Receive
	take     func(*cluster, *node, int) counters.Decision // of a client
	taken    func(n *node, client int, at int64, d counters.Decision)

	ticked, crashed, restarting, restarted func(*node)
}

func noHooks() hooks {
	return hooks{
		counts: func(n *node) gossip.Counts { return n.table }, take: (*cluster).take,
		store: func(s regions.Store) regions.Store { return s }, late: func() time.Duration { return 0 },
		packet:  func(b []byte) []byte { return b },
		arrives: func(*node, event) bool { return true }, drained: func(*node, *counters.Drained) {},
		sent: func(*node, gossip.Message) {}, received: func(*node, []byte, error) {},
		taken: func(*node, int, int64, counters.Decision) {}, ticked: func(*node) {},
		crashed: func(*node) {}, restarting: func(*node) {}, restarted: func(*node) {},
	}
}

// lead is how long the nodes run before the first request comes: they know each other by then.
const lead = 4 * time.Second

func newCluster(o Options, h hooks) (*cluster, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	limit, err := newLimit(&o)
	if err != nil {
		return nil, err
	}
	c := &cluster{
		opt: o, limit: limit, limits: map[string]*counters.Limit{limit.Meter().Rule: limit},
		home: make(map[counters.Origin]*node), tables: make(map[counters.Origin]*counters.Table), net: newNetwork(&o),
		phases: o.stream(drawPhases), members: o.stream(drawMembership), flushes: o.stream(drawFlush), hooks: h,
	}
	for _, l := range o.extraLimits {
		c.limits[l.Meter().Rule] = l
	}
	// Windows are aligned to the epoch; a run begins anywhere in one, unless it is told where.
	c.now = 1_800_000_000*int64(time.Second) + o.stream(drawStart).Int64N(int64(60*time.Second))
	c.startAt = c.now + int64(lead+2*o.WANDelay)
	if o.Start != 0 {
		c.now, c.startAt = o.Start-(c.startAt-c.now), o.Start
	}
	c.endAt = c.startAt + int64(o.Duration)
	c.recorder = newRecorder(c)
	c.staleness = newStaleness(c)
	c.frozen = make([]int, o.Regions)
	for i := range o.clients() {
		c.keys = append(c.keys, clientKey(i))
	}
	c.populate()
	c.staleness.start()
	c.schedule()
	return c, nil
}

// clientKey is the key of a client: hashed, as those of identities are.
func clientKey(client int) counters.Key {
	var d digest
	d.add(uint64(client) + 1)
	return counters.Key(d)
}

// populate starts all nodes; they know each other.
func (c *cluster) populate() {
	skews := c.opt.stream(drawSkew)
	for region := range c.opt.Regions {
		if c.opt.hasStores() {
			c.stores = append(c.stores, newStore(c, region))
		}
		for range c.opt.nodesIn(region) {
			n := &node{place: len(c.nodes), region: region}
			n.describes = gossip.Node{Region: fmt.Sprint("region-", region), Name: fmt.Sprint("node-", n.place)}
			if s := int64(c.opt.Skew); s > 0 {
				n.skew = skews.Int64N(2*s+1) - s
			}
			c.nodes = append(c.nodes, n)
			c.start(n)
		}
	}
	// Replicas keep origins in order: those that come in order are added at the end.
	byOrigin := slices.SortedFunc(slices.Values(c.nodes),
		func(a, b *node) int { return cmp.Compare(a.origin, b.origin) })
	for i, a := range byOrigin {
		for _, b := range byOrigin[:i] {
			c.join(a, b)
		}
	}
}

// schedule enters the faults.
func (c *cluster) schedule() {
	at := func(after time.Duration, do func()) { c.after(time.Duration(c.startAt-c.now)+after, do) }
	for i, p := range c.opt.Partitions {
		at(p.From, func() { c.partition(p, 1) })
		at(p.Until, func() { c.partition(p, -1); c.awaitHeal(i) })
		c.heals = append(c.heals, never)
	}
	for _, f := range c.opt.Pauses {
		at(f.From, func() { c.pause(c.nodes[f.Node], f.Until-f.From) })
	}
	for _, f := range c.opt.Crashes {
		at(f.From, func() { c.crash(c.nodes[f.Node]) })
		at(f.Until, func() { c.restart(c.nodes[f.Node]) })
	}
	for _, f := range c.opt.NodeFaults {
		c.scheduleNodeFault(f, at)
	}
	for _, f := range c.opt.StoreFaults {
		for _, s := range c.stores {
			if f.Region == 0 || f.Region == s.region+1 {
				s.schedule(f, at)
			}
		}
	}
	if len(c.opt.StoreFaults) > 0 {
		at(time.Duration(c.faultsEnd()-c.startAt)+c.opt.Interval, c.expectRepairs)
	}
}

// after has something happen after a while.
func (c *cluster) after(d time.Duration, do func()) { c.later(d, event{do: do}) }

func (c *cluster) later(d time.Duration, e event) { c.queue.push(c.now+int64(d), e) }

// send lets a message go its way.
func (c *cluster) send(n *node, m gossip.Message) {
	to := c.home[m.To]
	c.hooks.sent(n, m)
	c.recorder.sent(c.now, m)
	c.digest.add(uint64(c.now), uint64(n.place)<<32|uint64(to.place))
	c.digest.addBytes(m.Data)
	e := event{kind: packet, node: int32(to.place), from: int32(n.place), data: m.Data}
	if m.Reliable {
		if d, ok := c.net.stream(n.region, to.region); ok {
			e.kind, e.boot = stream, to.boot
			c.later(time.Duration(d), e)
		} else {
			n.replica.SnapshotFailed(m.To)
		}
		return
	}
	c.net.packet(n.region, to.region, func(after int64) { c.later(time.Duration(after), e) })
}

// request is one of a client's.
func (c *cluster) request(a traffic.Arrival) {
	n := c.nodes[a.Node]
	if !n.up || !n.ready || n.paused(c.now) {
		c.recorder.lost++
		return
	}
	client, _ := strconv.Atoi(a.Client)
	d := c.hooks.take(c, n, client)
	c.recorder.decision(client, c.now, d.Allowed)
	c.staleness.decided(n, client, d.Allowed)
	c.digest.add(uint64(c.now), uint64(a.Node)<<1|uint64(client)<<32, d.Remaining)
	c.hooks.taken(n, client, c.now, d)
}

func (c *cluster) take(n *node, client int) counters.Decision {
	d := n.table.Take(c.limit, c.keys[client], 1, c.clock(n))
	c.flushSoon(n)
	return d
}

// flushSoon schedules an early flush if the table asks for one.
func (c *cluster) flushSoon(n *node) {
	select {
	case <-n.table.EarlyFlush():
		if c.opt.Strategy != NoEarlyFlush {
			in := time.Duration(max(0, n.replica.FlushAt()-c.clock(n)))
			c.later(in, event{kind: earlyFlush, node: int32(n.place), boot: n.boot})
		}
	default:
	}
}

// step makes the next event happen.
func (c *cluster) step() {
	at, e := c.queue.pop()
	c.now = at
	if e.kind == call {
		e.do()
		return
	}
	n := c.nodes[e.node]
	if e.boot != 0 && e.boot != n.boot || !n.up {
		return
	}
	if n.paused(c.now) && e.kind != packet && e.kind != stream {
		c.queue.push(n.pausedUntil, e)
		return
	}
	switch e.kind {
	case packet:
		if !c.net.blocks(c.nodes[e.from].region, n.region) {
			c.receive(n, e)
		}
	case stream:
		if from := c.nodes[e.from]; c.net.both(from.region, n.region) {
			c.receive(n, e)
		} else {
			from.replica.SnapshotFailed(n.origin)
		}
	case tick:
		c.tick(n)
	case audit:
		c.audit(n)
	case flush:
		c.flush(n)
	case earlyFlush:
		c.flushEarly(n)
	case resume:
		c.resume(n)
	}
}

// runTo lets the world go on until a time.
func (c *cluster) runTo(end int64) {
	for at, ok := c.queue.next(); ok && at <= end; at, ok = c.queue.next() {
		c.step()
	}
	c.now = max(c.now, end)
}

// offer lets the requests come, until none are left.
func (c *cluster) offer(ctx context.Context, progress func(time.Duration)) error {
	next := arrivals(&c.opt)
	for a, ok := next(); ok; a, ok = next() {
		if err := c.advance(ctx, c.startAt+int64(a.After), progress); err != nil {
			return err
		}
		c.request(a)
	}
	return c.advance(ctx, c.endAt, progress)
}

// advance lets the world go on until a time, and looks round now and then.
func (c *cluster) advance(ctx context.Context, until int64, progress func(time.Duration)) error {
	c.sampledAt = max(c.sampledAt, c.startAt)
	for ; until-c.sampledAt >= int64(progressEvery); c.sampledAt += int64(progressEvery) {
		c.runTo(c.sampledAt)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.recorder.samplePeerAge()
		progress(time.Duration(c.sampledAt - c.startAt))
	}
	c.runTo(until)
	return nil
}

// progressEvery is how much simulated time passes between two words of progress.
const progressEvery = 100 * time.Millisecond

// Run simulates. It calls progress, which may be nil, now and then with how much of the duration has passed, and ends
// with the context's error when that ends. A report whose OK is false is no error.
func Run(ctx context.Context, o Options, progress func(time.Duration)) (*Report, error) {
	c, err := newCluster(o, noHooks())
	if err != nil {
		return nil, err
	}
	defer c.close()
	if progress == nil {
		progress = func(time.Duration) {}
	}
	if err := c.offer(ctx, progress); err != nil {
		return nil, err
	}
	agreed := c.settle()
	c.awaitRepairs()
	return c.report(agreed), nil
}
