package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/admin"
	"github.com/edgelimit/edgelimit/node/clock"
	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/node/respapi"
	"github.com/edgelimit/edgelimit/node/rlsapi"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/regions"
)

// Request is what is asked of a node.
type Request = rules.Request

// Decision is its answer.
type Decision = counters.Decision

// Node is one node of a cluster. New makes it, Run runs it; Take and Decide may be called from anywhere between the two ends of Run,
// and before it, when the node is still alone.
type Node struct {
	cfg    Config
	log    *slog.Logger
	secret rules.Secret
	policy atomic.Pointer[policy]
	loads  loads
	clock  *clock.Clock
	table  *counters.Table

	files *rules.Watcher // nil where the rules are not those of files

	cluster    *gossip.Cluster
	reconciler *regions.Reconciler // nil without a store
	redis      *regions.Redis      // nil where there is none, or the store is another
	latencies  *latencies
	audit      *audit
	skew       *skewWatch
	pressure   atomic.Pointer[report] // nil until one comes
	shadow     atomic.Bool            // all rules are in shadow mode
	degraded   degradation
	ready      atomic.Bool

	knowing sync.Mutex    // of those who tell the table its limits
	made    [2]madeLimits // limits that clients have made

	http, grpc, resp, health *door
	envoy                    *rlsapi.Service
	redisProtocol            *respapi.Server // nil without a resp door
}

// New opens everything that the configuration names: rules, doors, gossip sockets. The error says what could not be opened. Run has
// to be called to close them again.
func New(cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default()).With("node", cfg.NodeID, "region", cfg.Region)
	keys := loopbackKeys()
	if cfg.Gossip.KeyFile != "" {
		var err error
		if keys, err = ReadKeyFile(cfg.Gossip.KeyFile); err != nil {
			return nil, err
		}
		if info, err := os.Stat(cfg.Gossip.KeyFile); err == nil && info.Mode().Perm()&0o077 != 0 {
			cfg.Logger.Warn("others than its owner can read the key file; chmod 600 it", "file", cfg.Gossip.KeyFile, "mode", info.Mode().Perm().String())
		}
	}
	if cfg.PressureFile != "" {
		if _, err := readPressure(cfg.PressureFile); err != nil {
			return nil, err
		}
	}
	files := cfg.ruleFiles()
	set, err := cfg.ruleSet(files)
	if err != nil {
		return nil, err
	}
	incarnation := uint64(time.Now().UnixNano())
	n := &Node{
		cfg: cfg, log: cfg.Logger, secret: keys.Identity, files: files, latencies: newLatencies(), skew: newSkewWatch(cfg.Logger, cfg.MaxSkew),
		table: counters.NewTable(counters.Config{Origin: gossip.NewOrigin(cfg.NodeID, incarnation), Region: cfg.Region,
			Seed: newSeed(), Memory: int(cfg.Memory)}),
	}
	n.clock = clock.New(n.log, func() (time.Duration, bool) {
		s := n.skew.now()
		return s.Ahead, s.Clocks > 0
	})
	n.Shadow(cfg.Shadow)
	n.enforce(set)
	n.loads.succeed()
	if err := n.open(keys, incarnation); err != nil {
		n.close()
		return nil, err
	}
	n.audit = newAudit(n.cluster)
	return n, nil
}

// newSeed draws the seed by which the table strews keys.
func newSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:])
}

// ruleFiles returns the watcher of the rule files, nil where there are none.
func (c *Config) ruleFiles() *rules.Watcher {
	if c.RuleSet != nil || len(c.Rules) == 0 {
		return nil
	}
	return c.ruleOptions().Watch(c.Rules, c.RulesPoll, c.Logger)
}

func (c *Config) ruleSet(files *rules.Watcher) (*rules.Set, error) {
	if files != nil {
		return files.Load()
	}
	return cmp.Or(c.RuleSet, rules.Sample()), nil
}

// open opens the store and the sockets.
func (n *Node) open(keys Keys, incarnation uint64) error {
	if err := n.openStore(); err != nil {
		return err
	}
	requests, err := actions.New(n.cfg.Requests)
	if err != nil {
		return err
	}
	if err := n.openGRPC(); err != nil {
		return err
	}
	doors := httpapi.New(n, httpapi.Options{Headers: n.cfg.Headers, Actions: requests, Reporter: n, Envoy: n.envoy.JSON, Logger: n.log})
	if n.http, err = n.openDoor("http", n.cfg.HTTP, doors); err != nil {
		return err
	}
	if err := n.openRESP(); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollectors(n)...)
	if n.health, err = n.openDoor("health", n.cfg.Health, admin.Health(n.Ready, registry)); err != nil {
		return err
	}
	cluster := n.cfg.clusterConfig(incarnation, keys)
	cluster.Now = n.clock.Now
	n.cluster, err = gossip.NewCluster(cluster, &flow{Table: n.table, reconciler: n.reconciler})
	return err
}

func (n *Node) openDoor(name, addr string, h http.Handler) (*door, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := listen(addr)
	if err != nil {
		return nil, fmt.Errorf("open the %s door: %w", name, err)
	}
	d := openedDoor(name, l, n.room(name), n.log)
	d.speakHTTP(h, n.cfg.IdleTimeout)
	return d, nil
}

// doors are those that are open.
func (n *Node) doors() []*door {
	return slices.DeleteFunc([]*door{n.http, n.grpc, n.resp, n.health}, func(d *door) bool { return d == nil })
}

// close undoes what New has opened when it fails half way.
func (n *Node) close() {
	n.closeStore()
	for _, d := range n.doors() {
		_ = d.listener.Close()
		if d.server != nil {
			_ = d.server.Close()
		}
	}
}

// flow is where changes leave the table: to the peers, and to the store of the region.
type flow struct {
	*counters.Table
	reconciler *regions.Reconciler // nil without a store
	told       []counters.Slot     // memory of the last drain, which the next one uses again
}

// mostTold is how many slots' memory is kept from one drain to the next.
const mostTold = 1 << 16

// DrainDirty implements gossip.Source. The cluster calls it once an interval, and keeps no hold of the slots.
func (f *flow) DrainDirty(now int64) counters.Drained {
	d := f.Table.DrainInto(f.told, now)
	if f.told = d.Slots; cap(f.told) > mostTold {
		f.told = nil
	}
	if f.reconciler != nil {
		f.reconciler.Offer(d.Slots)
	}
	return d
}

// DrainUrgent implements gossip.Source.
func (f *flow) DrainUrgent(now int64) counters.Drained {
	d := f.Table.DrainUrgent(now)
	if f.reconciler != nil {
		f.reconciler.Offer(d.Slots)
	}
	return d
}

// Take decides on a request. The decision is that of the layer that governs: of those that denied, the one with the longest wait,
// else the one with the smallest part of its limit left; a request that no limit meets is allowed, by no rule. An error means that
// the request itself is wrong: rules.ErrUnknownRule, rules.ErrInvalidRequest.
func (n *Node) Take(ctx context.Context, req Request) (Decision, error) {
	var stack [4]Decision
	layers, err := n.Decide(ctx, &req, stack[:0])
	if err != nil {
		return Decision{}, err
	}
	v := counters.VerdictOf(layers)
	if v.Governing.Rule == "" {
		return Decision{Allowed: true}, nil
	}
	d := v.Governing
	d.Delay, d.Degraded = v.Delay, v.Degraded
	return d, nil
}

// Decide appends to layers the decision of each layer of the request, in order, and of each parent that elastic rules bring along. The request is allowed if and only if all of them
// are: it is charged in all layers or in none, unless their rules say otherwise. Errors are those of Take.
func (n *Node) Decide(ctx context.Context, req *Request, layers []Decision) ([]Decision, error) {
	return n.DecideMet(ctx, req, layers, nil)
}

// HasDomain reports whether the rules in force have a domain of that name.
func (n *Node) HasDomain(name string) bool { return n.policy.Load().set.HasDomain(name) }

// DecideMet is Decide that also tells which rules the layers met: those of the first len(met) layers are written to met, nil where there is
// none. Rules are shared and must not be written to.
func (n *Node) DecideMet(_ context.Context, req *Request, layers []Decision, met []*rules.Rule) ([]Decision, error) {
	var room [rules.MaxDescriptors]rules.Match
	p := n.policy.Load()
	found, err := p.set.Match(req, n.secret, room[:0])
	if err != nil {
		return layers, err
	}
	for i := range min(len(met), len(found)) {
		met[i] = found[i].Rule
	}
	return n.answer(p, req, found, layers), nil
}

// answer appends to layers the decisions on what the request met.
func (n *Node) answer(p *policy, req *Request, found []rules.Match, layers []Decision) []Decision {
	first := len(layers)
	var room [rules.MaxDescriptors]counters.Charge
	charges := room[:len(found)]
	now, exactly := n.clock.Coarse(), punishes(found)
	if exactly {
		now = n.clock.Now()
	}
	n.charge(req, found, now, charges)
	layers = n.decide(charges, now, layers)
	if exact := n.ended(now, layers[first:]); exact != 0 && !exactly {
		n.charge(req, found, exact, charges)
		layers = n.decide(charges, exact, layers[:first])
	}
	n.account(p, req, found, charges, layers[first:])
	return layers
}

// charge notes in charges what the request is charged in what it met.
func (n *Node) charge(req *Request, found []rules.Match, now int64, charges []counters.Charge) {
	shadow := n.shadow.Load()
	for i := range found {
		charges[i] = found[i].Charge(req, now)
		switch {
		case shadow:
			charges[i].Mode = counters.Shadow
		case charges[i].Mode == counters.Elastic && found[i].IdleAt(n.Pressure()):
			charges[i].Lender = counters.Idle
		}
	}
}

// decide has the table decide on charges.
func (n *Node) decide(charges []counters.Charge, now int64, layers []Decision) []Decision {
	if len(charges) == 1 && charges[0].Limit != nil && charges[0].Mode != counters.Shadow && charges[0].Lender == 0 {
		return append(layers, n.table.Take(charges[0].Limit, charges[0].Key, charges[0].Cost, now))
	}
	return n.table.TakeAll(charges, now, layers)
}

// punishes reports whether a denial by one of the rules lasts, so that the coarse time, which may be behind, is not good enough for it.
func punishes(found []rules.Match) bool {
	for i := range found {
		if r := found[i].Rule; r != nil && (r.Ban > 0 || r.CountRejected) {
			return true
		}
	}
	return false
}

// ended returns the exact time if by that a denial, decided at the coarse time, has ended already; else 0.
func (n *Node) ended(coarse int64, layers []Decision) int64 {
	if wait := denialEnds(layers); wait > 0 {
		if exact := n.clock.Now(); exact-coarse >= int64(wait) {
			return exact
		}
	}
	return 0
}

// denialEnds is how long after its decision a request would no more be denied; 0 if it was not, or if that never ends.
func denialEnds(layers []Decision) (wait time.Duration) {
	for i := range layers {
		switch d := &layers[i]; {
		case d.Allowed:
		case d.RetryAfter == counters.Never:
			return 0
		default:
			wait = max(wait, d.RetryAfter)
		}
	}
	return wait
}

// nearShare is the part of a limit, one in so many, of which less is left when a request counts as near the limit.
const nearShare = 5

// account has the decisions say what the rules say, and counts the rules'.
func (n *Node) account(p *policy, req *Request, found []rules.Match, charges []counters.Charge, layers []Decision) {
	allowed := true
	for i := range layers {
		d := &layers[i]
		found[i].Tell(req, &charges[i], d)
		scope := counters.Global
		if found[i].Rule != nil {
			scope = found[i].Rule.Scope
		}
		d.Degraded = d.Rule != "" && n.degraded.in(scope)
		allowed = allowed && d.Allowed
	}
	for i := range layers {
		if found[i].Rule == nil || found[i].Asked(req) == 0 {
			continue
		}
		switch tally := p.tallies[found[i].Rule]; {
		case !layers[i].Allowed && layers[i].Banned:
			tally.banned.Add(1)
		case !layers[i].Allowed:
			tally.denied.Add(1)
		case layers[i].Waived:
			tally.waived.Add(1)
		case allowed || charges[i].Each:
			tally.allowed.Add(1)
			if layers[i].Remaining*nearShare < layers[i].Limit {
				tally.near.Add(1)
			}
		}
	}
}

// Shadow puts all rules in shadow mode, or ends that: nothing is denied then, and all is counted as before.
func (n *Node) Shadow(on bool) {
	if was := n.shadow.Swap(on); was != on {
		n.log.Warn("shadow mode of all rules", "on", on)
	}
}

// Ready says why the node is not ready to serve, or nil. It needs its rules and its doors; peers and store may be away.
func (n *Node) Ready() error {
	if !n.ready.Load() {
		return errors.New("starting or stopping")
	}
	return nil
}

// Addr is the host:port, or the path, on which a door ("http", "grpc", "resp", "health") listens, or the host:port of a gossip pool ("lan", "wan");
// empty if there is none. It tells which port was picked for port 0.
func (n *Node) Addr(name string) string {
	d := map[string]*door{"http": n.http, "grpc": n.grpc, "resp": n.resp, "health": n.health}[name]
	if d != nil {
		return d.listener.Addr().String()
	}
	return n.cluster.Addr(name)
}

// Members are the other nodes in the membership.
func (n *Node) Members() []gossip.MemberStatus { return n.cluster.Members() }

// Staleness is the largest age of what this node knows of another one.
func (n *Node) Staleness() time.Duration {
	age, _ := n.cluster.Staleness()
	return age
}

// Skew is how far the node's clock is from those of its peers and of the region's store. Beyond Config.MaxSkew its decisions are degraded:
// it means other windows than they do.
func (n *Node) Skew() Skew { return n.skew.now() }

// Bound is the over-admission bound that the node exports for a rule (by its full name), as a part of the limit: by how much, at
// most, an admission within the last window can have gone over the limit. It is 0 of a rule without a limit, and of one that each node
// keeps alone.
func (n *Node) Bound(fullName string) float64 {
	if r := n.policy.Load().set.Rule(fullName); r != nil && r.Limit != nil {
		return n.audit.bound(r.Limit.Meter().Rule)
	}
	return 0
}

// Slots returns every count that the node holds and that still counts, of all origins, but for those that it keeps alone: what nodes of
// one region that agree have in common.
func (n *Node) Slots() []counters.Slot {
	return n.table.Snapshot(n.clock.Now(), math.MaxInt)
}
