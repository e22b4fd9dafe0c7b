package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// fakeCluster is a testnet without containers, in synctest's time: six nodes with real tables, which replicate to
// each other at once what they admitted unless a fault keeps them from it. Tests set its flaws.
type fakeCluster struct {
	set *rules.Set

	mu            sync.Mutex
	nodes         map[string]*fakeNode
	names         []string
	way           cluster.Direction // of the partition of faultRegion; empty: none
	partitionedAt time.Time
	blocked       bool // a protocol is, and counts go by the other one
	redis         fakeRedis
	losses        int64 // of Redis' data, that nodes found
	ups           int
	logs          map[string]string // what nodes have logged, by name
	keys          fakeKeys

	// Flaws.
	ignores  string // the fault that is not made, though it is said to be
	noGossip bool   // nodes send each other nothing, ever
	cold     bool   // a node that restarts takes over nothing
	forgets  bool   // nodes do not write to Redis again what it lost
	mute     string // a node that sends the others nothing
	generous bool   // during a partition everything is admitted
	drops    string // a node whose requests fail
	undoes   int    // faults undone
	failHeal error
	abrupt   bool   // nodes that stop answer no requests while they linger, and seem ready
	loses    string // a node that logs a loss whenever another one restarts
	lone     string // a node that sees nobody
	garbles  string // a node that cannot read a frame of a node that was replaced
	refuses  string // a client that is denied within its limit
	broken   bool   // Up fails

	flickers  bool // nodes are degraded every other time that they are asked
	surprised bool // nodes estimate more than they guarantee
	asked     int
}

const fakeNodes = 6

var sidecars = []string{"shop"}

type fakeNode struct {
	name, region string
	number       int
	boots        int
	table        *counters.Table
	started      time.Time
	down         bool
	unready      bool
	paused       chan struct{} // closed when it goes on; nil: it is not paused
	wan          string
	version      string
}

type fakeRedis struct {
	down, paused bool
	lost         bool // since the last flush of the nodes
	since        time.Time
}

func withFakeCluster(t *testing.T, test func(t *testing.T, f *fakeCluster)) {
	t.Helper()
	testkit.VirtualTime(t, func(t *testing.T) {
		set, err := rulefile.Load("../compose/rules")
		if err != nil {
			t.Fatal(err)
		}
		f := &fakeCluster{set: set, nodes: make(map[string]*fakeNode), logs: make(map[string]string)}
		f.keys.held = make(map[string][]string)
		for i, name := range []string{"ap-south-1", "ap-south-2", "eu-west-1", "eu-west-2", "us-east-1", "us-east-2"} {
			f.names = append(f.names, name)
			n := &fakeNode{name: name, region: name[:len(name)-2], number: i, wan: fmt.Sprintf("10.0.0.%d", i)}
			f.nodes[name] = n
			f.boot(n)
		}
		f.keys.begin(f.names)
		test(t, f)
	})
}

// boot starts a node anew, with what the nodes that reach it count.
func (f *fakeCluster) boot(n *fakeNode) {
	n.boots++
	n.down, n.unready, n.started = false, false, time.Now()
	n.table = counters.NewTable(counters.Config{Origin: n.origin(), Memory: counters.MinMemory})
	n.table.SetCluster(fakeNodes-1, gossipInterval)
	var limits []*counters.Limit
	for _, r := range f.set.Rules() {
		if r.Limit != nil {
			limits = append(limits, r.Limit)
		}
	}
	n.table.Know(limits)
	if f.cold {
		return
	}
	for _, other := range f.nodes {
		if other != n && other.table != nil && f.receives(n, other) {
			n.table.Merge(other.table.Snapshot(time.Now().UnixNano(), 1<<20), time.Now().UnixNano())
		}
	}
}

func (n *fakeNode) origin() counters.Origin { return counters.Origin(100*n.number + n.boots) }

func (f *fakeCluster) receives(n, from *fakeNode) bool {
	inside, fromInside := n.region == faultRegion, from.region == faultRegion
	switch {
	case f.noGossip || f.mute == from.name || n.down || from.down || n.paused != nil || from.paused != nil:
		return false
	case inside == fromInside || f.way == "":
		return true
	case f.way == cluster.Out:
		return inside
	case f.way == cluster.In:
		return fromInside
	}
	return false
}

// gossip merges into each node what the nodes that reach it count.
func (f *fakeCluster) gossip() {
	now := time.Now().UnixNano()
	for _, from := range f.nodes {
		slots := from.table.Own(now)
		for _, n := range f.nodes {
			if n != from && f.receives(n, from) {
				n.table.Merge(slots, now)
			}
		}
	}
}

// change makes a fault, unless it is the one that does not take hold.
func (f *fakeCluster) change(fault string, do func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault == "" || f.ignores != fault {
		do()
		if !f.cold {
			f.gossip()
		}
	}
	return nil
}

func (f *fakeCluster) Up(context.Context) error {
	if f.broken {
		return errors.New("the testnet is up, but not complete")
	}
	f.ups++
	return nil
}

func (f *fakeCluster) Nodes(context.Context) (nodes []cluster.Node, err error) {
	for _, name := range f.names {
		n := f.nodes[name]
		url := "http://" + name
		nodes = append(nodes, cluster.Node{Name: name, Region: n.region, HTTP: url, Metrics: url, WAN: n.wan})
	}
	for _, name := range sidecars {
		nodes = append(nodes, cluster.Node{Name: name, Region: "us-east", Sidecar: true})
	}
	return nodes, nil
}

func (f *fakeCluster) Observe(_ context.Context, n cluster.Node) (cluster.Observation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := f.nodes[n.Name]
	if node.down || node.paused != nil {
		return cluster.Observation{}, errors.New("no answer")
	}
	o := cluster.Observation{Members: len(sidecars) - 1, Refused: f.keys.refused[n.Name],
		Breaker: "closed", Started: node.started, Version: node.version, Bounds: map[string]float64{}}
	for _, other := range f.nodes {
		if !other.down {
			o.Members++
		}
	}
	if f.lone == n.Name {
		o.Members = 0
	}
	o.StoreLost = f.losses
	for _, r := range f.set.Rules() {
		o.Bounds[r.Name] = .02
		if f.way != "" {
			o.Bounds[r.Name] = 3
		}
	}
	f.asked++
	o.At, o.Degraded = time.Now(), f.flickers && f.asked%2 == 0
	if f.surprised {
		o.Overs = map[string]float64{"edge#per_ip": .5}
	}
	if inside := node.region == faultRegion; f.way == cluster.Both || f.way == cluster.Out && !inside ||
		f.way == cluster.In && inside {
		o.Staleness = time.Since(f.partitionedAt)
	}
	if n.Region == faultRegion && (f.redis.down || f.redis.paused) && time.Since(f.redis.since) > 800*time.Millisecond {
		o.Breaker = "open"
	}
	return o, nil
}

func (f *fakeCluster) Partition(_ context.Context, _ string, way cluster.Direction) error {
	time.Sleep(3 * time.Second)
	return f.change("partition", func() { f.way, f.partitionedAt = way, time.Now() })
}

func (f *fakeCluster) Block(context.Context, string, cluster.Protocol, cluster.Direction) error {
	if f.ignores == "block" {
		return errors.New("not every node names what is blocked")
	}
	time.Sleep(3 * time.Second)
	return f.change("block", func() { f.blocked = true })
}

func (f *fakeCluster) Heal(context.Context) error {
	f.undoes++
	time.Sleep(time.Second)
	if f.failHeal != nil {
		return f.failHeal
	}
	return f.change("", func() { f.way, f.blocked = "", false })
}

func (f *fakeCluster) Kill(_ context.Context, name string) error {
	return f.change("kill", func() { f.nodes[name].down = true })
}

func (f *fakeCluster) Stop(_ context.Context, name string) error {
	if n := f.nodes[name]; n != nil && f.ignores != "stop" {
		f.mu.Lock()
		if n.unready = !f.abrupt; f.abrupt {
			f.drops = name
		}
		for _, other := range f.names {
			if other != name {
				f.logLoss(other, name)
			}
		}
		if f.loses != "" && f.loses != name {
			f.logLoss(f.loses, "us-east-2")
		}
		f.mu.Unlock()
		time.Sleep(time.Second)
	}
	return f.change("stop", func() {
		if n := f.nodes[name]; n != nil {
			n.down = true
		} else {
			f.redis = fakeRedis{down: true, since: time.Now()}
		}
	})
}

func (f *fakeCluster) Restart(_ context.Context, name string) error {
	f.undoes++
	time.Sleep(time.Second)
	return f.change("", func() {
		if n := f.nodes[name]; n != nil && f.ignores == "stop" {
			return // it runs
		} else if n != nil {
			f.boot(n)
		} else {
			f.redis = fakeRedis{lost: true, since: time.Now()}
		}
	})
}

func (f *fakeCluster) Replace(_ context.Context, v cluster.Version, names ...string) error {
	f.undoes++
	time.Sleep(time.Second)
	return f.change("", func() {
		for _, name := range names {
			if f.ignores == "stop" {
				return // it runs
			}
			if f.ignores == "replace" {
				v = cluster.Before // whatever was asked for
			}
			n := f.nodes[name]
			n.version = map[cluster.Version]string{cluster.Before: cluster.BeforeLabel, cluster.Now: "v9"}[v]
			f.logs[name] = "" // with the container
			f.boot(n)
		}
		if f.garbles != "" {
			f.logs[f.garbles] += `level=WARN msg="gossip: dropped a frame that cannot be read" bytes=9` + "\n"
		}
	})
}

func (f *fakeCluster) Move(ctx context.Context, name string) (cluster.Node, error) {
	time.Sleep(2 * time.Second)
	err := f.change("move", func() {
		n := f.nodes[name]
		f.boot(n)
		n.wan = "10.0.0.101"
	})
	return cluster.Node{Name: name, WAN: f.nodes[name].wan}, err
}

func (f *fakeCluster) Pause(_ context.Context, name string) error {
	return f.change("pause", func() {
		if n := f.nodes[name]; n != nil {
			n.paused = make(chan struct{})
		} else {
			f.redis = fakeRedis{paused: true, since: time.Now()}
		}
	})
}

func (f *fakeCluster) Unpause(_ context.Context, name string) error {
	f.undoes++
	return f.change("", func() {
		if n := f.nodes[name]; n == nil {
			f.redis = fakeRedis{}
		} else if n.paused != nil {
			close(n.paused)
			n.paused = nil
		}
	})
}

func (f *fakeCluster) FlushRedis(context.Context, string) error {
	return f.change("flush", func() { f.redis.lost, f.redis.since = true, time.Now(); f.losses++ })
}

// RedisCounts returns what the region's nodes have admitted themselves, also 700 ms after it was lost.
func (f *fakeCluster) RedisCounts(_ context.Context, region string, rule *rules.Rule, identity string) (
	map[string]uint64, error,
) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := make(map[string]uint64)
	if f.redis.lost && (f.forgets || time.Since(f.redis.since) < 700*time.Millisecond) {
		return counts, nil
	}
	key, err := f.key(rule.FullName, identity)
	if err != nil {
		return nil, err
	}
	now := time.Now().UnixNano()
	for _, n := range f.nodes {
		if n.region != region {
			continue
		}
		for _, s := range n.table.Snapshot(now, 1<<20) {
			if int(s.Origin)/100 == n.number && s.Key == key && s.Meter.Rule == rule.FullName {
				counts[fmt.Sprint(s.Origin)] += s.Count
			}
		}
	}
	return counts, nil
}

// logLoss has a node log that another one is gone. The lock is held.
func (f *fakeCluster) logLoss(node, peer string) {
	f.logs[node] += fmt.Sprintf("time=%s level=INFO msg=\"gossip: member gone\" node=%s peer=%s graceful=true\n",
		time.Now().Format(time.RFC3339Nano), node, peer)
}

func (f *fakeCluster) Logs(_ context.Context, name string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return "time=1999-01-01T00:00:00.000Z level=INFO msg=stopping node=x\na line\n" +
		"time=1999-01-02T00:00:00.000Z level=INFO msg=stopping node=x\n" + f.logs[name], nil
}

func (f *fakeCluster) WAN() (netem.Link, error) { return netem.Link{}, nil }

func (f *fakeCluster) Rules() string { return "../compose/rules" }

func (f *fakeCluster) key(rule, identity string) (counters.Key, error) {
	m, err := f.set.Match(&rules.Request{Rule: rule, Identity: identity}, rules.Secret{}, nil)
	if err != nil {
		return 0, err
	}
	return m[0].Key, nil
}

// RoundTrip lets a node answer.
func (f *fakeCluster) RoundTrip(r *http.Request) (*http.Response, error) {
	n := f.nodes[r.URL.Host]
	for {
		f.mu.Lock()
		paused, down, unready := n.paused, n.down, n.unready
		f.mu.Unlock()
		if down {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		if unready && r.URL.Path == "/readyz" {
			return &http.Response{Status: "503 Service Unavailable",
				StatusCode: http.StatusServiceUnavailable, Body: http.NoBody, Request: r}, nil
		}
		if paused == nil {
			break
		}
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-paused:
		}
	}
	body := "ready"
	if r.URL.Path == "/v1/check" {
		var err error
		if body, err = f.check(n, r.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func (f *fakeCluster) check(n *fakeNode, body io.Reader) (string, error) {
	var c struct {
		Rule, Identity string
		Cost           uint64
		Peek           bool
	}
	if err := json.NewDecoder(body).Decode(&c); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.drops == n.name && !c.Peek {
		return "", errors.New("EOF")
	}
	m, err := f.set.Match(&rules.Request{Rule: c.Rule, Identity: c.Identity}, rules.Secret{}, nil)
	if err != nil {
		return "", err
	}
	cost := max(c.Cost, 1)
	if c.Peek {
		cost = 0
	}
	now := time.Now().UnixNano()
	for _, other := range f.nodes {
		if other != n && f.receives(n, other) {
			n.table.SetWatermark(other.origin(), now)
		}
	}
	d := n.table.Take(m[0].Rule.Limit, m[0].Key, cost, now)
	d.Allowed = d.Allowed || f.generous && f.way != ""
	d.Allowed = d.Allowed && (f.refuses == "" || c.Cost > 1 || !strings.HasSuffix(c.Identity, f.refuses))
	if !c.Peek {
		slots := n.table.DrainDirty(now).Slots
		for _, other := range f.nodes {
			if other != n && f.receives(other, n) {
				other.table.Merge(slots, now)
			}
		}
	}
	return fmt.Sprintf(`{"allowed":%v,"limit":%d,"remaining":%d}`, d.Allowed, d.Limit, d.Remaining), nil
}

var _ Cluster = (*fakeCluster)(nil)
