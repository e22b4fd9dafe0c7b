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

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/bubble"
	"github.com/edgelimit/edgelimit/testnet/multiregion"
	"github.com/edgelimit/edgelimit/testnet/weather"
)

// fakeNet is a testnet without containers, in synctest's time: six nodes with real tables, which tell each other at once what they admitted
// unless a fault keeps them from it. Its flaws are what tests set.
type fakeNet struct {
	set *rules.Set

	mu     sync.Mutex
	nodes  map[string]*fakeNode
	names  []string
	cut    multiregion.Direction // of cutRegion; empty: none
	cutAt  time.Time
	redis  fakeRedis
	losses int64 // of Redis' data, that nodes found
	ups    int

	// Flaws.
	ignores  string // the fault that is not made, though it is said to be
	deaf     bool   // nodes tell each other nothing, ever
	cold     bool   // a node that restarts takes over nothing
	forgets  bool   // Redis is not told again what it lost
	mute     string // a node that tells the others nothing
	generous bool   // inside a cut everything is admitted
	drops    string // a node whose requests fail
	undoes   int    // faults undone
	failHeal error
	broken   bool // Up fails
}

const fakeNodes = 6

type fakeNode struct {
	name, region string
	number       int
	boots        int
	table        *counters.Table
	started      time.Time
	down         bool
	paused       chan struct{} // closed when it goes on; nil: it is not paused
	wan          string
}

type fakeRedis struct {
	down, paused bool
	lost         bool // since the last flush of the nodes
	since        time.Time
}

func inFakeNet(t *testing.T, test func(t *testing.T, f *fakeNet)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		set, err := rules.Load("../compose/rules.yaml")
		if err != nil {
			t.Fatal(err)
		}
		f := &fakeNet{set: set, nodes: make(map[string]*fakeNode)}
		for i, name := range []string{"ap-south-1", "ap-south-2", "eu-west-1", "eu-west-2", "us-east-1", "us-east-2"} {
			f.names = append(f.names, name)
			n := &fakeNode{name: name, region: name[:len(name)-2], number: i, wan: fmt.Sprintf("10.0.0.%d", i)}
			f.nodes[name] = n
			f.boot(n)
		}
		test(t, f)
	})
}

// boot starts a node anew, with what those that it hears know.
func (f *fakeNet) boot(n *fakeNode) {
	n.boots++
	n.down, n.started = false, time.Now()
	n.table = counters.NewTable(counters.Config{Origin: n.origin(), Memory: counters.MinMemory})
	n.table.SetCluster(fakeNodes-1, gossipEvery)
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
		if other != n && other.table != nil && f.hears(n, other) {
			n.table.Merge(other.table.Snapshot(time.Now().UnixNano(), 1<<20), time.Now().UnixNano())
		}
	}
}

func (n *fakeNode) origin() counters.Origin { return counters.Origin(100*n.number + n.boots) }

func (f *fakeNet) hears(n, from *fakeNode) bool {
	inside, fromInside := n.region == cutRegion, from.region == cutRegion
	switch {
	case f.deaf || f.mute == from.name || n.down || from.down || n.paused != nil || from.paused != nil:
		return false
	case inside == fromInside || f.cut == "":
		return true
	case f.cut == multiregion.Out:
		return inside
	case f.cut == multiregion.In:
		return fromInside
	}
	return false
}

// tell has all nodes hear what those know whom they hear.
func (f *fakeNet) tell() {
	now := time.Now().UnixNano()
	for _, from := range f.nodes {
		slots := from.table.Own(now)
		for _, n := range f.nodes {
			if n != from && f.hears(n, from) {
				n.table.Merge(slots, now)
			}
		}
	}
}

// change makes a fault, unless it is the one that does not take hold.
func (f *fakeNet) change(fault string, do func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault == "" || f.ignores != fault {
		do()
		if !f.cold {
			f.tell()
		}
	}
	return nil
}

func (f *fakeNet) Up(context.Context) error {
	if f.broken {
		return errors.New("the testnet is up, but not whole")
	}
	f.ups++
	return nil
}

func (f *fakeNet) Nodes(context.Context) (nodes []multiregion.Node, err error) {
	for _, name := range f.names {
		n := f.nodes[name]
		nodes = append(nodes, multiregion.Node{Name: name, Region: n.region, HTTP: "http://" + name, Metrics: "http://" + name, WAN: n.wan})
	}
	return append(nodes, multiregion.Node{Name: "shop", Region: "us-east", Sidecar: true}), nil
}

func (f *fakeNet) Observe(_ context.Context, n multiregion.Node) (multiregion.Observation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := f.nodes[n.Name]
	if node.down || node.paused != nil {
		return multiregion.Observation{}, errors.New("no answer")
	}
	o := multiregion.Observation{Members: -1, Breaker: "closed", Started: node.started, Bounds: map[string]float64{}}
	for _, other := range f.nodes {
		if !other.down {
			o.Members++
		}
	}
	o.StoreLost = f.losses
	for _, r := range f.set.Rules() {
		o.Bounds[r.FullName] = .02
		if f.cut != "" {
			o.Bounds[r.FullName] = 3
		}
	}
	if inside := node.region == cutRegion; f.cut == multiregion.Both || f.cut == multiregion.Out && !inside || f.cut == multiregion.In && inside {
		o.Staleness = time.Since(f.cutAt)
	}
	if n.Region == faultRegion && (f.redis.down || f.redis.paused) && time.Since(f.redis.since) > 800*time.Millisecond {
		o.Breaker = "open"
	}
	return o, nil
}

func (f *fakeNet) Partition(_ context.Context, _ string, way multiregion.Direction) error {
	time.Sleep(3 * time.Second)
	return f.change("partition", func() { f.cut, f.cutAt = way, time.Now() })
}

func (f *fakeNet) Heal(context.Context) error {
	f.undoes++
	time.Sleep(time.Second)
	if f.failHeal != nil {
		return f.failHeal
	}
	return f.change("", func() { f.cut = "" })
}

func (f *fakeNet) Kill(_ context.Context, name string) error {
	return f.change("kill", func() { f.nodes[name].down = true })
}

func (f *fakeNet) Stop(_ context.Context, name string) error {
	return f.change("stop", func() {
		if n := f.nodes[name]; n != nil {
			n.down = true
		} else {
			f.redis = fakeRedis{down: true, since: time.Now()}
		}
	})
}

func (f *fakeNet) Restart(_ context.Context, name string) error {
	f.undoes++
	time.Sleep(time.Second)
	return f.change("", func() {
		if n := f.nodes[name]; n != nil {
			f.boot(n)
		} else {
			f.redis = fakeRedis{lost: true, since: time.Now()}
		}
	})
}

func (f *fakeNet) Move(ctx context.Context, name string) (multiregion.Node, error) {
	time.Sleep(2 * time.Second)
	err := f.change("move", func() {
		n := f.nodes[name]
		f.boot(n)
		n.wan = "10.0.0.101"
	})
	return multiregion.Node{Name: name, WAN: f.nodes[name].wan}, err
}

func (f *fakeNet) Pause(_ context.Context, name string) error {
	return f.change("pause", func() {
		if n := f.nodes[name]; n != nil {
			n.paused = make(chan struct{})
		} else {
			f.redis = fakeRedis{paused: true, since: time.Now()}
		}
	})
}

func (f *fakeNet) Unpause(_ context.Context, name string) error {
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

func (f *fakeNet) FlushRedis(context.Context, string) error {
	return f.change("flush", func() { f.redis.lost, f.redis.since = true, time.Now(); f.losses++ })
}

// RedisCounts tells what the region's nodes have admitted themselves, at most 700 ms after it was lost.
func (f *fakeNet) RedisCounts(_ context.Context, region string, rule *rules.Rule, identity string) (map[string]uint64, error) {
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

func (f *fakeNet) Said(context.Context, string) (string, error) {
	return "time=1999-01-01T00:00:00.000Z level=INFO msg=stopping node=x\na line\ntime=1999-01-02T00:00:00.000Z level=INFO msg=stopping node=x\n", nil
}

func (f *fakeNet) Weather() (weather.WAN, error) { return weather.WAN{}, nil }

func (f *fakeNet) RulesFile() string { return "../compose/rules.yaml" }

func (f *fakeNet) key(rule, identity string) (counters.Key, error) {
	m, err := f.set.Match(&rules.Request{Rule: rule, Identity: identity}, rules.Secret{}, nil)
	if err != nil {
		return 0, err
	}
	return m[0].Key, nil
}

// RoundTrip lets a node answer.
func (f *fakeNet) RoundTrip(r *http.Request) (*http.Response, error) {
	n := f.nodes[r.URL.Host]
	for {
		f.mu.Lock()
		paused, down := n.paused, n.down
		f.mu.Unlock()
		if down {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
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

func (f *fakeNet) check(n *fakeNode, body io.Reader) (string, error) {
	var c struct {
		Rule, Identity string
		Cost           uint64
		Peek           bool
	}
	if err := json.NewDecoder(body).Decode(&c); err != nil {
		return "", err
	}
	if f.drops == n.name && !c.Peek {
		return "", errors.New("EOF")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
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
		if other != n && f.hears(n, other) {
			n.table.Heard(other.origin(), now)
		}
	}
	d := n.table.Take(m[0].Rule.Limit, m[0].Key, cost, now)
	d.Allowed = d.Allowed || f.generous && f.cut != ""
	if !c.Peek {
		slots := n.table.DrainDirty(now).Slots
		for _, other := range f.nodes {
			if other != n && f.hears(other, n) {
				other.table.Merge(slots, now)
			}
		}
	}
	return fmt.Sprintf(`{"allowed":%v,"limit":%d,"remaining":%d}`, d.Allowed, d.Limit, d.Remaining), nil
}

var _ Net = (*fakeNet)(nil)
