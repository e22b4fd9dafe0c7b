package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

const (
	sampleEvery = 250 * time.Millisecond
	healWithin  = 30 * time.Second
	agreeWithin = 5 * time.Second
	// maxLate is how far behind its schedule the load may fall: what is still to come this long after the duration is
	// not offered.
	maxLate = time.Second
)

// run is a demo under way.
type run struct {
	opt     Options
	rule    *rules.Rule
	cluster *cluster
	tracker *tracker
	watch   func(Sample)
	ctx     context.Context // of the run; its cause is the error of the first node that failed
	stop    context.CancelCauseFunc

	start   time.Time
	samples []Sample
	stall   time.Duration // the longest that this process was kept from running

	mu        sync.Mutex
	partition partition
}

// partition is the one of the demo. A time is zero before it has come, and without a partition.
type partition struct {
	region    string
	began     time.Time
	healed    time.Time     // when the region's links worked again
	recovered time.Time     // when every node had received everything
	took      time.Duration // from healed to recovered; negative: it has not come
}

// Run runs the demo and calls watch with a sample four times a second. A report whose OK is false is no error.
func Run(ctx context.Context, o Options, watch func(Sample)) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r, err := start(ctx, o, watch)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.play()
}

// start starts the cluster.
func start(ctx context.Context, o Options, watch func(Sample)) (*run, error) {
	rule, set, err := ruleFor(&o)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	c, err := startCluster(ctx, &o, set, stop)
	if err != nil {
		stop(nil)
		return nil, err
	}
	return &run{
		opt: o, rule: rule, cluster: c, watch: watch, ctx: ctx, stop: stop,
		tracker: newTracker(rule.Limit, o.Regions*o.Nodes), start: time.Now(),
	}, nil
}

func (r *run) close() {
	r.cluster.close()
	r.stop(nil)
}

// ruleFor makes the one rule of the demo: each client may ask Limit times a Window.
func ruleFor(o *Options) (*rules.Rule, *rules.Set, error) {
	const text = "domain: demo\n" +
		"descriptors: [{key: client, rate_limit: {name: per_client, window: %s, requests_per_unit: %d}}]\n"
	set, err := rulefile.Parse("demo", fmt.Appendf(nil, text, o.Window, o.Limit))
	if err != nil {
		return nil, nil, err
	}
	rule := set.Rules()[0]
	rule.Limit, err = rule.Limit.With(func(c *counters.LimitConfig) { c.OnPartition = o.OnPartition })
	return rule, set, err
}

// play offers the traffic, partitions and heals meanwhile, and at the end waits until the nodes agree.
func (r *run) play() (*Report, error) {
	sampling, endSampling := context.WithCancel(r.ctx)
	defer endSampling()
	var background sync.WaitGroup
	background.Go(func() { r.sample(sampling) })
	background.Go(func() { r.stall = traffic.LongestStall(sampling) })
	background.Go(r.partitionAndHeal)
	offer(r.ctx, &r.opt, r.start, r.take)
	ended, agreeMs := time.Now(), int64(-1)
	if await(r.ctx, agreeWithin, r.cluster.agree) {
		agreeMs = time.Since(ended).Milliseconds()
	}
	endSampling()
	background.Wait()
	if err := context.Cause(r.ctx); err != nil {
		return nil, err
	}
	return r.report(agreeMs), nil
}

// offer calls take for each request at its time, until the duration or ctx is over.
func offer(ctx context.Context, o *Options, start time.Time, take func(node int, client string)) {
	traffic.Play(ctx, start, o.arrivals(), func(a traffic.Arrival, _ time.Time) bool {
		if time.Since(start) > o.Duration+maxLate {
			return false
		}
		take(a.Node, a.Client)
		return true
	})
}

func (r *run) take(i int, client string) {
	req := node.Request{Domain: "demo", Descriptors: [][]rules.Entry{{{Key: "client", Value: client}}}}
	sent := time.Now()
	d, err := r.cluster.members[i].Take(r.ctx, req)
	if err == nil {
		r.tracker.add(i, client, sent, time.Now(), d.Allowed)
	}
}

// partitionAndHeal partitions the second region for as long as asked, and measures how long the cluster takes to
// recover.
func (r *run) partitionAndHeal() {
	begin, heal := r.opt.schedule()
	if heal == 0 || !r.sleepUntil(begin) {
		return
	}
	p := partition{region: regionName(1), took: -1}
	r.cluster.links.Partition(p.region)
	p.began = time.Now()
	r.setPartition(p)
	if !r.sleepUntil(heal) {
		return
	}
	r.cluster.links.Heal()
	p.healed = time.Now()
	if await(r.ctx, healWithin, func() bool { return r.cluster.complete(p.healed) }) {
		p.recovered = time.Now()
		p.took = p.recovered.Sub(p.healed)
	}
	r.setPartition(p)
}

func (r *run) setPartition(p partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.partition = p
}

// sleepUntil sleeps until a time after the start, and reports whether the run still goes on.
func (r *run) sleepUntil(t time.Duration) bool {
	select {
	case <-r.ctx.Done():
		return false
	case <-time.After(time.Until(r.start.Add(t))):
		return true
	}
}

func (r *run) sample(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			s := r.look(now)
			r.samples = append(r.samples, s)
			r.watch(s)
		}
	}
}

func (r *run) look(now time.Time) Sample {
	s := Sample{Elapsed: now.Sub(r.start)}
	var nodes []judge.Requests
	nodes, s.Total, s.Over = r.tracker.read(now)
	for i, m := range r.cluster.members {
		n := NodeSample{
			ID: m.id, Region: m.region, Requests: nodes[i], Peers: len(r.cluster.members) - 1, Stale: m.Staleness(),
			Bound: m.Bound(r.rule.FullName), Unreachable: r.unreachable(m),
		}
		s.Nodes = append(s.Nodes, n)
		s.Bound, s.Stale = max(s.Bound, n.Bound), max(s.Stale, n.Stale)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Phase, s.Partitioned = r.phase(now), r.partition.region
	return s
}

// unreachableAfter is the silence after which a peer counts as unreachable: idle peers send once a second.
const unreachableAfter = 1500 * time.Millisecond

// unreachable returns the peers from which the node has received nothing for a while, or that are not in its
// membership.
func (r *run) unreachable(m *member) (peers []Peer) {
	reached := make(map[Peer]bool)
	for _, p := range m.Members() {
		reached[Peer{p.NodeID, p.Region}] = p.Age <= max(unreachableAfter, 5*r.opt.Interval)
	}
	for _, other := range r.cluster.members {
		if p := (Peer{other.id, other.region}); other != m && !reached[p] {
			peers = append(peers, p)
		}
	}
	return peers
}

func (r *run) phase(now time.Time) Phase {
	p := &r.partition
	switch {
	case !p.began.IsZero() && p.recovered.IsZero():
		return Partitioned
	case !p.recovered.IsZero() && now.Sub(p.recovered) < r.settling():
		return Settling
	case now.Sub(r.start) > r.opt.Duration:
		return Ending
	case now.Sub(r.start) < r.opt.Window:
		return Filling
	}
	return Steady
}

// settling is the time for which a partition still shows after it: in the window, and in the bound, which forgets it
// later.
func (r *run) settling() time.Duration { return r.opt.Window*12/10 + gossip.BoundAfter(r.opt.Interval) }
