package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/scrape"
)

// Observation is what a node reports about itself.
type Observation struct {
	At        time.Time     // of the request, before the answer
	NotReady  string        // why it is not ready; empty: it is
	Members   int           // other nodes that it sees
	Staleness time.Duration // age of its oldest knowledge of another node
	Degraded  bool          // the node's own verdict on that
	// Bound is the largest over-admission bound of its rules, as a part of the limit; Bounds has each rule's by full
	// name. Overs has, in the same unit, what the node estimates to be over the limit of rules that have an estimate.
	Bound         float64
	Bounds, Overs map[string]float64
	// Blocked counts the other nodes to or from which a way seems to be closed, by way, as blocked_peers does.
	Blocked map[string]int
	Started time.Time // of its process
	Version string    // of its build
	// StorePending counts slots that are not yet in the region's Redis, StoreFailed failed calls of it; -1: the node
	// has no store.
	StorePending, StoreFailed int64
	StoreLost                 int64 // how often it found that the region's Redis had lost data
	// Refused counts packets and streams to its gossip ports that were dropped unread, as those of another key.
	Refused int64
	Breaker string // its circuit breaker to Redis: closed, open or half-open; empty: it has no store
}

// requestTimeout bounds an observation of a node, or an answer of a Redis. On one machine only a paused process takes
// long.
const requestTimeout = 3 * time.Second

// Observe reads a node's metrics and readiness.
func (c *Cluster) Observe(ctx context.Context, n Node) (Observation, error) {
	o, err := c.observe(ctx, n)
	if err != nil {
		err = fmt.Errorf("node %s: %w", n.Name, err)
	}
	return o, err
}

func (c *Cluster) observe(ctx context.Context, n Node) (o Observation, err error) {
	if n.Metrics == "" {
		return o, errors.New("it publishes no metrics")
	}
	o.At = time.Now()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	metrics, err := scrape.Get(ctx, c.client, n.Metrics+"/metrics")
	if err == nil {
		err = o.read(metrics)
	}
	if err == nil {
		o.NotReady, err = scrape.NotReady(ctx, c.client, n.Metrics)
	}
	return o, err
}

// read fills in what a node's metrics hold.
func (o *Observation) read(m scrape.Metrics) error {
	if m["edgelimit_staleness_seconds"] == nil {
		return errors.New("metrics: there is no edgelimit_staleness_seconds among them")
	}
	o.Staleness = time.Duration(m.Sum("edgelimit_staleness_seconds") * float64(time.Second))
	o.Degraded = m.Sum("edgelimit_degraded") > 0
	o.Members = int(m.Sum("edgelimit_members"))
	o.Bounds = make(map[string]float64)
	for _, s := range m.Series("edgelimit_over_admission_bound_ratio") {
		o.Bound = max(o.Bound, s.Value)
		o.Bounds[s.Labels["rule"]] = s.Value
	}
	o.Overs, o.Blocked = make(map[string]float64), make(map[string]int)
	for _, s := range m.Series("edgelimit_over_limit_ratio") {
		o.Overs[s.Labels["rule"]] = s.Value
	}
	for _, s := range m.Series("edgelimit_blocked_peers") {
		o.Blocked[s.Labels["way"]] += int(s.Value)
	}
	o.Refused = int64(m.Sum("edgelimit_gossip_refused_packets_total") + m.Sum("edgelimit_gossip_refused_streams_total"))
	seconds, fraction := math.Modf(m.Sum("process_start_time_seconds"))
	o.Started = time.Unix(int64(seconds), int64(fraction*1e9))
	for _, s := range m.Series("edgelimit_build_info") {
		o.Version = s.Labels["version"]
	}
	o.StorePending, o.StoreFailed = -1, -1
	if m["edgelimit_store_pending_slots"] != nil {
		o.StorePending = int64(m.Sum("edgelimit_store_pending_slots"))
		o.StoreFailed = int64(m.Sum("edgelimit_store_failed_calls_total"))
		o.StoreLost = int64(m.Sum("edgelimit_store_lost_total"))
		o.Breaker = regions.BreakerState(m.Sum("edgelimit_store_breaker_state")).String()
	}
	return nil
}

// NodeStatus is a node and its report.
type NodeStatus struct {
	Node
	Observation
	DropsInbound bool  // a one-way partition drops what other regions send it; only Status fills it in
	Err          error // why there is no observation
}

// snapshot is all nodes at about the same moment.
type snapshot []NodeStatus

func (c *Cluster) observeAll(ctx context.Context) (snapshot, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return c.observeEach(ctx, nodes), nil
}

// observeEach observes the nodes that run, concurrently.
func (c *Cluster) observeEach(ctx context.Context, nodes []Node) snapshot {
	s := make(snapshot, len(nodes))
	var requests sync.WaitGroup
	for i, n := range nodes {
		s[i].Node = n
		if !n.container.running() {
			s[i].Err = fmt.Errorf("node %s is not running (%s, exit status %d)", n.Name, n.State,
				n.container.State.ExitCode)
			continue
		}
		requests.Go(func() { s[i].Observation, s[i].Err = c.Observe(ctx, n) })
	}
	requests.Wait()
	return s
}

// unhealthy lists the nodes that do not run, answer, or pass the engine's health check.
func (s snapshot) unhealthy() (missing []string) {
	for _, n := range s {
		health := n.container.State.Health.Status
		switch {
		case n.Err != nil:
			missing = append(missing, n.Err.Error())
		case n.NotReady != "":
			missing = append(missing, fmt.Sprintf("%s is not ready: %s", n.Name, n.NotReady))
		case health != "healthy":
			missing = append(missing, fmt.Sprintf("%s is %s to the engine", n.Name, health))
		}
	}
	return missing
}

// unseen lists the nodes that answer and see fewer members than answer and are reachable.
func (s snapshot) unseen() (missing []string) {
	for _, n := range s {
		if n.Err != nil {
			continue
		}
		others := 0
		for _, o := range s {
			reachable := o.Region == n.Region || !o.Partitioned && !n.Partitioned
			if o.Err == nil && o.Name != n.Name && reachable {
				others++
			}
		}
		if n.Members < others {
			missing = append(missing, fmt.Sprintf("%s sees %d of %d others", n.Name, n.Members, others))
		}
	}
	return missing
}

// Status observes every node and every Redis.
func (c *Cluster) Status(ctx context.Context) ([]NodeStatus, []Redis, error) {
	nodes, err := c.observeAll(ctx)
	if err != nil {
		return nil, nil, err
	}
	redises, err := c.Redises(ctx)
	if err != nil {
		return nil, nil, err
	}
	var requests sync.WaitGroup
	for i := range nodes {
		requests.Go(func() {
			n := &nodes[i]
			rules, _ := c.dropRules(ctx, n.Node)
			n.DropsInbound = rules != ""
			if n.Err != nil && n.container.running() && c.isPaused(ctx, &n.container) {
				n.Err = errPaused
			}
		})
	}
	for i := range redises {
		requests.Go(func() {
			if err := c.pingRedis(ctx, &redises[i].container); err != nil {
				redises[i].Error = err.Error()
			}
		})
	}
	requests.Wait()
	return nodes, redises, nil
}

var errPaused = errors.New("no answer: it is paused")

func (c *Cluster) isPaused(ctx context.Context, ctr *container) bool {
	stopped, err := c.stopped(ctx, ctr)
	return err == nil && stopped
}
