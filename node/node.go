// Package node is the embeddable runtime of edgelimit: one node that matches requests against rules, decides in its own
// memory, and keeps its counts in agreement with its peers and with the store of its region.
//
// A request goes one way: API -> [Node.Decide] -> rules.Set.Match -> counters.Table -> decision -> API. It never waits
// for replication: Table.DrainDirty -> gossip -> peers -> Table.Merge, and Table -> regions.Reconciler -> store ->
// Table.Merge.
//
//	n, err := node.New(cfg)            // opens what cfg names
//	go n.Run(ctx)                      // until ctx ends, then stops in order
//	d, err := n.Take(ctx, node.Request{Rule: "per_ip", Identity: "192.0.2.1"})
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/admin"
	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/clock"
	"github.com/edgelimit/edgelimit/node/decisionlog"
	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/node/proxy"
	"github.com/edgelimit/edgelimit/node/ratelimit"
	"github.com/edgelimit/edgelimit/node/respapi"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rulestore"
	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/node/telemetry"
	"github.com/edgelimit/edgelimit/regions"
)

// Request is a request to decide on.
type Request = rules.Request

// Decision is the answer to a Request.
type Decision = counters.Decision

// Node is one node of a cluster. New makes it, Run runs it. Take and Decide are safe for concurrent use from New until
// Run has returned; before Run the node is alone.
type Node struct {
	cfg     Config
	log     *slog.Logger
	secret  rules.Secret
	clock   *clock.Clock
	table   *counters.Table
	monitor *telemetry.Monitor
	library *timed // the node as the program asks it

	stats     *ratelimit.Stats  // nil unless Config.Compatibility is rulefile.Ratelimit
	files     *rulefile.Watcher // nil: the rules are not from files
	source    RuleSource        // nil: the rules are from files, or the program
	ruleStore *rulestore.Source // the source where it is a Redis, else nil
	loads     loads
	policy    atomic.Pointer[policy]

	limitsMu sync.Mutex // held while the limits in force change
	adHoc    [adHocAPIs][]*counters.Limit
	limits   atomic.Pointer[map[string]*counters.Limit] // in force and shared by nodes, by their meters' rules
	homes    homes                                      // guarded by limitsMu

	adHocDecisions decisionCounts
	undecided      undecidedCounts
	debts          *counters.Debts // of the keys of Redis' clients, and of what responses cost (owed.go)
	owing          sync.Mutex      // see reportOwing

	pending pendingCounts // requests whose response is still to come
	queues  queues        // requests that wait for their turn

	events  *status.Events
	started time.Time
	rates   rates
	losses  losses

	warningMu sync.Mutex
	warned    map[string]bool // the warnings that hold and were logged

	cluster    *gossip.Cluster
	reconciler *regions.Reconciler // nil without a store
	redis      *regions.Redis      // nil where the store is not Redis

	bans      *bans.Registry
	exporters []*bans.Exporter
	ownAddrs  func() ([]net.Addr, error) // of this machine

	decisions *decisionlog.Log // nil: none
	otlp      OTLPExporter     // nil: nothing is sent to a collector

	pressure atomic.Pointer[pressure] // nil: none was reported
	shadow   atomic.Bool              // all rules are in shadow mode

	budgets      *limits.Budgets             // what clients share
	listeners    map[string]*listen.Listener // by name: http, grpc, resp, proxy, health, admin, prometheus
	certificates *listen.Watcher             // of their TLS files
	secrets      secrets                     // of other files
	access       *admin.Access               // to the listener for operators; nil without it
	requests     *actions.Actions            // describe the requests of /v1/auth
	senders      *actions.Senders            // of the requests of all APIs
	envoy        EnvoyService                // nil: Config.Envoy is
	resp         *respapi.Server             // nil without a listener for the Redis protocol
	proxy        *proxy.Proxy                // nil without a listener for it
	forgottenIDs atomic.Uint64               // request_ids, see httpapi.Options

	begin      sync.Once          // of Run, or of Close without Run
	opened     context.Context    // until Close
	cancelOpen context.CancelFunc // ends opened
	ended      chan struct{}      // closed when Run has returned, or Close without Run
	ready      atomic.Bool
	hasRules   sync.Once     // closes firstRules
	firstRules chan struct{} // closed when the source has brought rules
	serving    chan struct{} // closed when the node is ready for the first time
	unready    chan struct{} // closed when the node begins to stop
	lingering  context.Context
	endLinger  context.CancelFunc // ends lingering
}

// New opens all that the configuration names: rules, listeners, gossip sockets. The error says what could not be
// opened. Run closes it all when it ends; a program that does not call Run calls Close.
func New(cfg Config) (*Node, error) {
	if err := cfg.adopt(); err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	events := status.NewEvents(time.Now())
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default()).With("node", cfg.NodeID, "region", cfg.Region)
	cfg.Logger = slog.New(events.Handler(cfg.Logger.Handler()))
	keys, err := ReadKeys(cfg.Gossip.KeyFile)
	if err != nil {
		return nil, err
	}
	cfg.warnOfReaders()
	if cfg.PressureFile != "" {
		if _, err := telemetry.ReadPressure(cfg.PressureFile); err != nil {
			return nil, err
		}
	}
	files, set, rulesErr := cfg.loadRules()
	if set == nil {
		return nil, rulesErr
	}
	incarnation := uint64(time.Now().UnixNano())
	n := &Node{
		cfg: cfg, log: cfg.Logger, events: events, started: time.Now(), secret: keys.Identity, files: files,
		monitor: telemetry.NewMonitor(cfg.Logger, cfg.Memory.String(), cfg.MaxSkew),
		table: counters.NewTable(counters.Config{Origin: gossip.NewOrigin(cfg.NodeID, incarnation), Region: cfg.Region,
			Seed: rand.Uint64(), Memory: int(cfg.Memory)}),
		listeners: make(map[string]*listen.Listener),
		secrets:   newSecrets(), serving: make(chan struct{}), unready: make(chan struct{}),
		ended: make(chan struct{}), firstRules: make(chan struct{}),
	}
	n.library = n.timedBy("library")
	n.senders = actions.NewSenders(func(s actions.Sender) { s.Log(n.log) })
	n.cfg.Requests.Senders, n.cfg.Requests.Derived = n.senders, new(actions.Derived)
	if n.ruleStore, err = cfg.openRuleStore(&keys); err != nil {
		return nil, err
	}
	if n.ruleStore != nil {
		n.source = n.ruleStore
	} else if cfg.RulesXDS.Server != "" {
		n.source = cfg.RulesFrom(RuleSourceOptions{XDS: cfg.RulesXDS, Rules: cfg.ruleOptions(), Logger: n.log})
	}
	n.opened, n.cancelOpen = context.WithCancel(context.Background())
	n.lingering, n.endLinger = context.WithCancel(context.Background())
	n.clock = clock.New(cfg.wallClock, n.log, func() (time.Duration, bool) {
		s := n.monitor.Skew()
		return s.Ahead, s.Clocks > 0
	})
	if n.compatible() {
		n.stats = ratelimit.NewStats(ratelimit.Options{NearLimitRatio: cfg.Ratelimit.NearLimitRatio,
			Loads: n.loads.counts, Logger: n.log})
	}
	if n.debts, err = counters.NewDebts(n.table, debtName, n.learnAdHoc(redisAPI)); err != nil {
		return nil, err
	}
	n.ownAddrs = net.InterfaceAddrs
	n.bans = bans.NewRegistry(n.table, bans.MaxBans, n.clock.Now, n.nameOf, n.log)
	for _, x := range cfg.Bans.Exports {
		n.exporters = append(n.exporters, bans.NewExporter(x, n.bans, n.exports, n.log))
	}
	n.queues.withdraw = func(t *turn) { n.table.Withdraw(t.limit, t.key, t.cost, n.clock.Now()) }
	if err := n.findHomes(); err != nil {
		return nil, err
	}
	n.Shadow(cfg.Shadow)
	n.enforce(set)
	switch {
	case rulesErr != nil:
		n.loaded(nil, rulesErr)
	case n.source == nil:
		n.loads.succeed()
	}
	n.logWarnings()
	if err := n.refuseUnmet(); err != nil {
		return nil, err
	}
	if err := n.open(keys, incarnation); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// loadRules returns the first rules, with the watcher of their files if there are any. There are no rules yet where
// they come from a RuleSource, and where the error is one to start with all the same.
func (c *Config) loadRules() (files *rulefile.Watcher, set *rules.Set, err error) {
	sourced := c.RulesXDS.Server != "" || c.RuleServer().URL != ""
	if !sourced && (c.RuleSet != nil || len(c.Rules) == 0) {
		return nil, cmp.Or(c.RuleSet, rulefile.Sample()), nil
	}
	if !sourced {
		files = c.ruleOptions().Watch(c.Rules, c.RulesPoll, c.Logger)
		if set, err = files.Load(); err == nil || !c.StartWithoutRules {
			return files, set, err
		}
	}
	set, _ = c.ruleOptions().ParseFiles() // of no files: no error
	return files, set, err
}

// open opens the store and the sockets.
func (n *Node) open(keys Keys, incarnation uint64) (err error) {
	if err := n.openStore(); err != nil {
		return err
	}
	if n.requests, err = actions.New(n.cfg.Requests); err != nil {
		return err
	}
	n.budgets = limits.NewBudgets(n.exempt, n.log)
	n.queues.requests = n.budgets.New("", "queue", int64(n.cfg.Queues.MaxRequests)).Lacking(deniedAtOnce)
	n.queues.headers = n.budgets.New("", "queue_headers", int64(n.cfg.Queues.MaxHeaderBytes)).Lacking(deniedAtOnce)
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(newCollectors(n)...)
	if err := n.openOTLP(metrics); err != nil {
		return err
	}
	if err := n.openGRPC(); err != nil {
		return err
	}
	api := httpapi.Options{Headers: n.cfg.Headers, OnFailure: n.cfg.OnFailure, Reporter: n,
		Forgotten: &n.forgottenIDs, Budgets: n.budgets, Logger: n.log}
	if n.cfg.Auth {
		api.Actions = n.requests
	}
	if n.envoy != nil {
		api.Envoy = n.envoy.JSON
	}
	if n.compatible() {
		api.Ready = n.Ready
	}
	health := admin.Health(n.Ready, n.Degraded, metrics)
	if n.compatible() {
		health = ratelimit.Debug(health, n.stats, func() []*rules.Rule { return n.policy.Load().set.Rules() })
	}
	for _, open := range []func() error{
		func() error { return n.serveHTTP("http", n.traced(httpapi.New(n.timedBy("http"), api))) },
		n.openRESP,
		n.openProxy,
		n.openDecisionLog,
		func() error { return n.serveHTTP("health", health) },
		func() error { return n.openPrometheus(metrics) },
		n.openAdmin,
		n.openDashboard,
	} {
		if err := open(); err != nil {
			return err
		}
	}
	n.certificates = listen.NewWatcher(slices.Collect(maps.Values(n.listeners)))
	cluster := n.cfg.clusterConfig(incarnation, keys)
	cluster.Now = n.clock.Now
	n.secrets.add("gossip.key_file", n.cfg.Gossip.KeyFile, n.loadKeys)
	cluster.Rules, cluster.Identity = n.policy.Load().fingerprint, keys.Fingerprint()
	if n.cluster, err = gossip.NewCluster(cluster, &drainTee{Table: n.table, reconciler: n.reconciler}); err != nil {
		return n.cfg.gossipError(err)
	}
	return nil
}

// close closes what New has opened so far, of a node that never ran.
func (n *Node) close() {
	n.closeStore()
	n.closeHomes()
	if n.ruleStore != nil {
		n.ruleStore.Close()
	}
	if n.cluster != nil {
		n.cluster.Close()
	}
	for _, l := range n.listeners {
		l.Abandon()
	}
	n.closeProxy()
	n.closeDecisionLog()
}

// compatible reports whether the node is envoyproxy/ratelimit for its clients and those who watch it.
func (n *Node) compatible() bool { return n.cfg.Compatibility == rulefile.Ratelimit }

// drainTee hands what the table drains to the peers and to the region's store.
type drainTee struct {
	*counters.Table
	reconciler *regions.Reconciler // nil without a store
	slots      []counters.Slot     // of the last drain, reused
}

// maxReused is the largest number of slots whose memory is kept from one drain to the next.
const maxReused = 1 << 16

// DrainDirty implements gossip.Source. The cluster calls it once an interval and does not keep the slots.
func (t *drainTee) DrainDirty(now int64) counters.Drained {
	d := t.Table.DrainInto(t.slots, now)
	if t.slots = d.Slots; cap(t.slots) > maxReused {
		t.slots = nil
	}
	t.enqueue(d)
	return d
}

// DrainEarly implements gossip.Source.
func (t *drainTee) DrainEarly(now int64) counters.Drained {
	d := t.Table.DrainEarly(now)
	t.enqueue(d)
	return d
}

func (t *drainTee) enqueue(d counters.Drained) {
	if t.reconciler != nil {
		t.reconciler.Enqueue(d.Slots)
	}
}

// Shadow turns shadow mode of all rules on or off: nothing is denied, and everything is counted as before.
func (n *Node) Shadow(on bool) {
	if was := n.shadow.Swap(on); was != on {
		n.log.Warn("shadow mode of all rules", "on", on)
		n.bans.Refresh() // what denies nothing is not exported
	}
}

// Ready returns why the node is not ready to serve, or nil. It needs listeners that accept connections, and, unless
// Config.StartWithoutRules, its rules, neither peers nor store.
func (n *Node) Ready() error {
	if !n.ready.Load() {
		return errors.New("starting or stopping")
	}
	for name, l := range n.listeners {
		if err := l.Failing(); err != nil {
			return fmt.Errorf("listener %s: %w", name, err)
		}
	}
	return nil
}

// Actions returns what makes the descriptors of requests as Config.Requests says, with statistics of its own: those of
// /v1/auth are exported. Middleware uses it.
func (n *Node) Actions() *actions.Actions {
	a, _ := actions.New(n.cfg.Requests) // it was validated
	return a
}

// Senders returns the probable proxies among the peers of requests that are not configured as proxies.
func (n *Node) Senders() *actions.Senders { return n.senders }

// Serving returns a channel that is closed when the node is ready for the first time.
func (n *Node) Serving() <-chan struct{} { return n.serving }

// Ticks returns how often the node has sent its peers what it admitted, reachable or not. It grows by one every
// gossip interval while the node runs, also without peers.
func (n *Node) Ticks() uint64 { return n.cluster.Ticks() }

// Degraded returns why the node's decisions are degraded; nothing while they are not.
func (n *Node) Degraded() []string {
	reasons := slices.Concat(n.staleRules(), n.monitor.Degraded(), n.awayHomes())
	if missing := n.rulesMissing(); missing != "" {
		return append([]string{missing}, reasons...)
	}
	return reasons
}

// Addr returns the host:port, or the path, of a listener ("http", "grpc", "resp", "proxy", "health", "admin",
// "prometheus"), or the host:port of a gossip pool ("lan", "wan"), with the port that was chosen for port 0; empty if
// there is none.
func (n *Node) Addr(name string) string {
	if l := n.listeners[name]; l != nil {
		return l.Addr().String()
	}
	return n.cluster.Addr(name)
}

// Connections returns how many clients are connected to the node's listeners.
func (n *Node) Connections() (open int) {
	for _, l := range n.listeners {
		open += l.Stats().Open
	}
	return open
}

// Members returns the other nodes in the membership.
func (n *Node) Members() []gossip.MemberStatus { return n.cluster.Members() }

// Staleness returns the time since the last counts of the peer that is the furthest behind.
func (n *Node) Staleness() time.Duration {
	age, _ := n.cluster.Staleness()
	return age
}

// Bound returns the over-admission bound of a rule, by its name, as a part of its limit: the most by which all nodes
// together can have gone over the limit within the last window, on one key that this node admits or denies. It is 0 for
// a rule without a limit, or of scope node, and for a strict one while its store decides.
func (n *Node) Bound(rule string) float64 {
	if r, _ := n.policy.Load().set.Lookup(rule, ""); r != nil {
		return n.boundOf(r)
	}
	return 0
}

// boundOf returns the over-admission bound of a rule: the largest of its own and of its overrides.
func (n *Node) boundOf(r *rules.Rule) float64 {
	bound, _ := n.excessOf(r)
	return bound
}

// excessOf is boundOf, and what of it the counts show that have arrived; nil where they do not tell.
func (n *Node) excessOf(r *rules.Rule) (bound float64, shown *float64) {
	if r.Limit == nil || r.Strict && n.homeOf(n.policy.Load(), r).decides() {
		return 0, nil
	}
	bound, counted := n.monitor.Excess(r.Limit.Meter().Rule)
	if countsTell(r) {
		shown = &counted
	}
	for _, l := range r.OwnMeters() {
		bound = max(bound, n.monitor.Bound(l.Meter().Rule))
	}
	return bound, shown
}

// Slots returns every count that the node holds and that still counts, of all origins, except those of scope node: what
// the nodes of a region that agree have in common.
func (n *Node) Slots() []counters.Slot { return n.table.Snapshot(n.clock.Now(), math.MaxInt) }
