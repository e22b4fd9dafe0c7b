package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/admin"
	"github.com/edgelimit/edgelimit/node/httpapi"
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
	table  *counters.Table

	cluster    *gossip.Cluster
	reconciler *regions.Reconciler // nil without a store
	redis      *regions.Redis      // nil where there is none, or the store is another
	latencies  *latencies
	audit      *audit
	degraded   atomic.Bool
	ready      atomic.Bool

	http, health *door
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
	set, err := cfg.ruleSet()
	if err != nil {
		return nil, err
	}
	incarnation := uint64(time.Now().UnixNano())
	n := &Node{
		cfg: cfg, log: cfg.Logger, secret: keys.Identity, latencies: newLatencies(),
		table: counters.NewTable(counters.Config{Origin: gossip.NewOrigin(cfg.NodeID, incarnation), Memory: int(cfg.Memory)}),
	}
	n.enforce(set)
	if err := n.open(keys, incarnation); err != nil {
		n.close()
		return nil, err
	}
	n.audit = newAudit(n.cluster)
	return n, nil
}

func (c *Config) ruleSet() (*rules.Set, error) {
	switch {
	case c.RuleSet != nil:
		return c.RuleSet, nil
	case len(c.Rules) > 0:
		return rules.Load(c.Rules...)
	}
	return rules.Sample(), nil
}

// open opens the store and the sockets.
func (n *Node) open(keys Keys, incarnation uint64) error {
	var err error
	if err := n.openStore(); err != nil {
		return err
	}
	if n.http, err = n.openDoor("http", n.cfg.HTTP, httpapi.New(n, httpapi.Options{Headers: n.cfg.Headers, Logger: n.log})); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollectors(n)...)
	if n.health, err = n.openDoor("health", n.cfg.Health, admin.Health(n.Ready, registry)); err != nil {
		return err
	}
	n.cluster, err = gossip.NewCluster(n.cfg.clusterConfig(incarnation, keys), &flow{Table: n.table, reconciler: n.reconciler})
	return err
}

func (n *Node) openDoor(name, addr string, h http.Handler) (*door, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("open the %s door: %w", name, err)
	}
	return newDoor(l, h, n.log), nil
}

// close undoes what New has opened when it fails half way.
func (n *Node) close() {
	n.closeStore()
	for _, d := range []*door{n.http, n.health} {
		if d != nil {
			_ = d.listener.Close()
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

// Take decides on a request. The decision is that of the layer that governs: of those that denied, the one with the longest wait,
// else the one with the smallest part of its limit left; a request that no limit meets is allowed, by no rule. An error means that
// the request itself is wrong: rules.ErrUnknownRule, rules.ErrInvalidRequest.
func (n *Node) Take(ctx context.Context, req Request) (Decision, error) {
	var stack [4]Decision
	layers, err := n.Decide(ctx, &req, stack[:0])
	if err != nil {
		return Decision{}, err
	}
	i := counters.Governing(layers)
	if i < 0 {
		return Decision{Allowed: true}, nil
	}
	d := layers[i]
	for j := range layers {
		if d.Allowed {
			d.Delay = max(d.Delay, layers[j].Delay) // the request waits for its turn in every queue
		}
	}
	if !d.Allowed {
		d.Delay = 0
	}
	return d, nil
}

// Decide appends to layers the decision of each layer of the request, in order. The request is allowed if and only if all of them
// are: it is charged in all layers or in none. Errors are those of Take.
func (n *Node) Decide(_ context.Context, req *Request, layers []Decision) ([]Decision, error) {
	var matches [rules.MaxDescriptors]rules.Match
	p := n.policy.Load()
	found, err := p.set.Match(req, n.secret, matches[:0])
	if err != nil {
		return layers, err
	}
	var charges [rules.MaxDescriptors]counters.Charge
	for i, m := range found {
		if m.Rule != nil {
			charges[i] = counters.Charge{Limit: m.Rule.Limit, Key: m.Key, Cost: req.EffectiveCost()}
		}
	}
	first := len(layers)
	now := time.Now().UnixNano()
	if len(found) == 1 && charges[0].Limit != nil {
		layers = append(layers, n.table.Take(charges[0].Limit, charges[0].Key, charges[0].Cost, now))
	} else {
		layers = n.table.TakeAll(charges[:len(found)], now, layers)
	}
	n.account(p, req, found, layers[first:])
	return layers, nil
}

// account names the limits in the decisions and counts the rules'.
func (n *Node) account(p *policy, req *Request, found []rules.Match, layers []Decision) {
	degraded := n.degraded.Load()
	allowed := true
	for i := range layers {
		allowed = allowed && layers[i].Allowed
	}
	for i := range layers {
		r := found[i].Rule
		if r == nil {
			continue
		}
		if r.Limit != nil { // an unlimited rule is counted, but it decides nothing: a limit of 0 with 0 left would be told of it
			layers[i].Rule, layers[i].Degraded = r.Name, degraded
			if r.Limit.Refill() != 0 && r.Limit.Max() != 0 { // "q=20;w=12" is the policy of a bucket of 20 that gets 100 a minute back
				layers[i].Window = r.Limit.Lasts()
			}
		}
		switch tally := p.tallies[r]; {
		case req.Peek:
		case !layers[i].Allowed:
			tally.denied.Add(1)
		case allowed:
			tally.allowed.Add(1)
		}
	}
}

// Ready says why the node is not ready to serve, or nil. It needs its rules and its doors; peers and store may be away.
func (n *Node) Ready() error {
	if !n.ready.Load() {
		return errors.New("starting or stopping")
	}
	return nil
}

// Addr is the host:port on which a door ("http", "health") or a gossip pool ("lan", "wan") listens; empty if there is none. It tells
// which port was picked for port 0.
func (n *Node) Addr(name string) string {
	d := map[string]*door{"http": n.http, "health": n.health}[name]
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

// Bound is the over-admission bound that the node exports for a rule (by its full name), as a part of the limit: by how much, at
// most, an admission within the last window can have gone over the limit. The rule need not have one: 0.
func (n *Node) Bound(fullName string) float64 { return n.audit.bound(fullName) }

// Slots returns every count that the node holds and that still counts, of all origins: what nodes that agree have in common.
func (n *Node) Slots() []counters.Slot {
	return n.table.Snapshot(time.Now().UnixNano(), math.MaxInt)
}
