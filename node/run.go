package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/node/ratelimit"
	"github.com/edgelimit/edgelimit/node/ratelimit/statsd"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/telemetry"
)

// ErrClosed is what Run returns if the node was closed before.
var ErrClosed = errors.New("the node is closed: make another one with New")

var errRanBefore = errors.New("Run was called before: a node runs once")

// Close closes all that New has opened. It stops a running node in order, as the end of Run's context does, so that Run
// returns nil, and waits for that. On a node that has ended it does nothing. It is safe for concurrent use and returns
// nil.
func (n *Node) Close() error {
	n.cancelOpen()
	n.begin.Do(func() { // it never ran
		n.close()
		close(n.ended)
	})
	<-n.ended
	return nil
}

// Run serves until ctx ends or a part fails, and then stops in order: unready, Config.Linger, listeners drained, the
// last counts sent to the peers and to the store, left. It returns nil after a stop that ctx or Close asked for, and
// ErrClosed after Close. It may be called once.
func (n *Node) Run(ctx context.Context) error {
	asked := ctx
	ctx, stop := context.WithCancelCause(asked)
	defer stop(nil)
	first := false
	n.begin.Do(func() { first = true })
	switch {
	case first:
	case n.opened.Err() != nil:
		return ErrClosed
	default:
		return errRanBefore
	}
	defer close(n.ended)
	defer context.AfterFunc(n.opened, func() { stop(ErrClosed) })()
	fail := func(part string, err error) {
		if err != nil && !errors.Is(err, http.ErrServerClosed) {
			stop(fmt.Errorf("%s: %w", part, err))
		}
	}

	stopClock := start(func(ctx context.Context) { fail("clock", n.clock.Run(ctx)) })
	defer stopClock()
	forOperators := []*listen.Listener{n.listeners["health"], n.listeners["prometheus"], n.listeners["admin"],
		n.listeners["dashboard"]}
	for _, l := range forOperators {
		l.Start(fail)
	}
	stopGossip := start(func(ctx context.Context) { fail("gossip", n.cluster.Run(ctx)) })
	missing := n.warm(ctx)
	// Bans by hand hold from the first request on.
	n.bans.Update()
	if ctx.Err() != nil { // no balancer sends requests here yet
		n.EndLinger()
	}
	sources := telemetry.Sources{Cluster: n.cluster, Table: n.table, Store: n.reconciler, Limits: n.limitsAt,
		Found: n.found, Rules: func() *rules.Set { return n.policy.Load().set }, Now: n.clock.Now,
		Interval: n.cfg.Gossip.Interval}
	n.monitor.Read(&sources, time.Now())
	stopMonitor := start(func(ctx context.Context) { n.monitor.Run(ctx, sources) })
	stopFiles := start(n.watchRules)
	stopCertificates := start(n.watchCertificates)
	stopSecrets := start(n.watchSecrets)
	stopPressure := start(n.followPressure)
	stopRates := start(n.watchRates)
	stopStore := start(n.reconcile)
	stopStatsd := start(n.exportStats)
	stopBans := start(func(ctx context.Context) { n.exportBans(ctx, missing) })
	stopDecisions := start(n.runDecisionLog)
	stopOTLP := start(n.runOTLP)
	n.awaitRules(ctx)
	if missing := n.rulesMissing(); missing != "" && ctx.Err() == nil {
		n.log.Warn("serving without rules", "because", missing)
	}
	forClients := []*listen.Listener{n.listeners["http"], n.listeners["grpc"], n.listeners["resp"],
		n.listeners[proxyListener]}
	stopProxy := start(n.runProxy)
	for _, l := range forClients {
		l.Start(fail)
	}
	n.ready.Store(true)
	close(n.serving)
	n.log.Info("ready", "http", n.Addr("http"), "grpc", n.Addr("grpc"), "resp", n.Addr("resp"),
		"proxy", n.Addr(proxyListener), "health", n.Addr("health"), "admin", n.Addr("admin"),
		"dashboard", n.Addr("dashboard"), "gossip", n.Addr("lan"), "gossip_wan", n.Addr("wan"),
		"rules", len(n.policy.Load().set.Rules()))

	<-ctx.Done()
	n.ready.Store(false)
	close(n.unready)
	n.log.Info("stopping", "linger", n.cfg.Linger)
	if asked.Err() != nil { // a node that failed has nothing to serve
		n.linger()
	}
	drainEnd := time.Now().Add(n.cfg.Drain)
	var drained sync.WaitGroup
	for _, l := range forClients {
		drained.Go(func() { l.Stop(min(keepAliveEnd, n.cfg.Drain), n.cfg.Drain) })
	}
	drained.Wait()
	stopProxy()
	n.closeProxy()
	stopDecisions()
	n.closeDecisionLog()
	stopOTLP()
	n.flushOTLP(drainEnd)
	stopStatsd() // it sends the last statistics
	stopFiles()
	stopSecrets()
	stopMonitor()
	stopPressure()
	stopRates()
	stopBans()
	stopGossip() // its last tick gives the last counts to the store
	stopStore()
	n.closeStore()
	n.closeHomes()
	stopCertificates()
	n.events.Close() // ends their streams
	for _, l := range slices.Backward(forOperators) {
		l.Stop(0, 500*time.Millisecond)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, ErrClosed) && !errors.Is(cause, context.Cause(asked)) {
		return cause
	}
	return nil
}

// keepAliveEnd is how long the listeners go on serving while each answer ends its connection: far longer than a request
// travels on a connection that was idle, and little of the ten seconds that a node has to end.
const keepAliveEnd = 250 * time.Millisecond

// linger waits for Config.Linger, or until EndLinger: the node is unready, and serves as before.
func (n *Node) linger() {
	if n.cfg.Linger == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(n.lingering, n.cfg.Linger)
	defer cancel()
	<-ctx.Done()
	text := "the linger is over, closing the listeners"
	if n.lingering.Err() != nil {
		text = "the linger was cut short, closing the listeners"
	}
	n.log.Info(text)
}

// EndLinger cuts the linger of a stop short, also of one that is still to come. It is safe for concurrent use.
func (n *Node) EndLinger() { n.endLinger() }

// maxWarm is how long a starting node waits for the counts of the regional store and of its peers, before it serves
// without them.
const maxWarm = 3 * time.Second

// warmer fetches what others have counted until its context ends.
type warmer interface{ Warm(context.Context) error }

// warm fetches what is counted elsewhere, so that a node which starts again does not begin at zero. It returns those
// that did not answer.
func (n *Node) warm(ctx context.Context) (missing []warmer) {
	ctx, cancel := context.WithTimeout(ctx, maxWarm)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex // of missing
	fetch := func(from warmer, otherwise string) {
		all.Go(func() {
			if err := from.Warm(ctx); err != nil {
				n.log.Warn(otherwise, "error", err)
				mu.Lock()
				defer mu.Unlock()
				missing = append(missing, from)
			}
		})
	}
	fetch(n.cluster, "starting without some of the peers; their counts come when they do")
	if n.reconciler != nil {
		fetch(n.reconciler, "the regional store could not be read, starting without it")
	}
	all.Wait()
	return missing
}

func (n *Node) followPressure(ctx context.Context) {
	if n.cfg.PressureFile != "" {
		telemetry.FollowPressure(ctx, n.cfg.PressureFile, n.SetPressure, n.log)
	}
}

func (n *Node) reconcile(ctx context.Context) {
	if n.reconciler == nil {
		return
	}
	if err := n.reconciler.Run(ctx); err != nil {
		n.log.Warn("the last counts could not be written to the regional store", "error", err)
	}
}

// exportBans follows the bans in force. It exports them once there are rules, and the peers and the regional store have
// answered: without what these know, the bans of before would go from files and sets. missing have not answered yet.
func (n *Node) exportBans(ctx context.Context, missing []warmer) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { n.bans.Run(ctx) })
	if len(n.exporters) == 0 {
		return
	}
	n.awaitBans(ctx, missing)
	if n.source != nil {
		select {
		case <-n.firstRules:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return
	}
	n.bans.Update() // the bans that came before
	for _, x := range n.exporters {
		parts.Go(func() { x.Run(ctx) })
	}
}

// maxExportWait is how long the first export of bans waits, after maxWarm, for peers and a store that do not answer:
// not for ever, as new bans wait as well.
const maxExportWait = 30 * time.Second

// awaitBans waits until all that are missing have answered, for maxExportWait at most.
func (n *Node) awaitBans(ctx context.Context, missing []warmer) {
	limited, cancel := context.WithTimeout(ctx, maxExportWait)
	defer cancel()
	var all sync.WaitGroup
	for _, source := range missing {
		all.Go(func() {
			for source.Warm(limited) != nil {
				select {
				case <-limited.Done():
					return
				case <-time.After(time.Second):
				}
			}
		})
	}
	all.Wait()
	if limited.Err() != nil && ctx.Err() == nil {
		n.log.Warn("bans are exported though some peers or the regional store have not answered: whom only these know "+
			"as banned is let out until they do", "waited", maxExportWait)
	}
}

// exportStats sends statistics with the names of envoyproxy/ratelimit, if the configuration says where.
func (n *Node) exportStats(ctx context.Context) {
	if cfg := n.cfg.Ratelimit.Statsd; n.stats != nil && cfg.Address != "" {
		ignore := func(string, uint64) {}
		statsd.New(cfg, statsd.Source{
			Counters: func(f func(name string, total uint64)) {
				n.stats.Each(f)
				ratelimit.EachOfProcess(f, ignore)
			},
			Times:  n.stats.Times,
			Gauges: func(f func(name string, value uint64)) { ratelimit.EachOfProcess(ignore, f) },
		}, n.log).Run(ctx)
	}
}

// start runs a part of the node. stop ends it and waits for that.
func start(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { run(ctx) })
	return func() {
		cancel()
		done.Wait()
	}
}
