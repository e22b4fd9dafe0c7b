package cluster

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// fakeCluster is a cluster without containers: a fake engine, and nodes that answer according to what the engine did to
// them. Time is synctest's.
type fakeCluster struct {
	*fakeEngine
	cluster *Cluster
	log     bytes.Buffer

	mu            sync.Mutex
	nodes         map[string]fakeContainer
	started       map[string]time.Time
	silentSince   map[[2]string]time.Time // since when one receives nothing from the other; absent: it receives
	leaky         map[string]bool         // nodes that go on receiving from all, whatever is partitioned
	alone         map[string]bool         // nodes that see nobody
	blocks        map[string]string       // the way that a node reports as blocked
	mute          map[string]bool         // nodes that all see and that send nothing
	old           map[string]bool         // nodes that report a start long ago
	unready       map[string]string
	idleStaleness time.Duration // of a node that receives from all
}

// withCluster runs a test with a fake cluster that is up.
func withCluster(t *testing.T, test func(t *testing.T, f *fakeCluster)) {
	t.Helper()
	testkit.VirtualTime(t, func(t *testing.T) {
		f := &fakeCluster{
			fakeEngine: &fakeEngine{Images: []string{NodeImage, RedisImage}},
			nodes:      make(map[string]fakeContainer), started: make(map[string]time.Time),
			silentSince: make(map[[2]string]time.Time), leaky: make(map[string]bool), alone: make(map[string]bool),
			blocks: make(map[string]string), mute: make(map[string]bool),
			old: make(map[string]bool), unready: make(map[string]string),
			idleStaleness: 150 * time.Millisecond,
		}
		f.Changed = f.update
		var err error
		f.cluster, err = Open(Options{Root: "../..", Run: f.Run, Progress: &f.log, Patience: 20 * time.Second})
		ok(t, err)
		f.cluster.client = &http.Client{Transport: f}
		time.Sleep(time.Hour) // the nodes were started long ago
		f.addAll()
		time.Sleep(time.Hour)
		test(t, f)
	})
}

var testRegions = []string{"ap-south", "eu-west", "us-east"}

func (f *fakeCluster) addAll() {
	for r, region := range testRegions {
		for i := range 2 {
			host := 10*r + 11 + i
			f.addNode(fmt.Sprintf("%s-%d", region, i+1), region, fmt.Sprintf("10.77.%d.%d", r+1, host),
				fmt.Sprintf("10.77.100.%d", host))
		}
		name := RedisName(region)
		f.Add(&fakeContainer{ID: "id-" + name, Name: name, State: "running", PID: 500 + r, Health: "healthy",
			Labels:   labels(name, region, "redis"),
			Networks: map[string]string{Project + "_" + region: fmt.Sprintf("10.77.%d.9", r+1)}})
	}
}

func labels(service, region, role string) map[string]string {
	return map[string]string{projectLabel: Project, serviceLabel: service, regionLabel: region, roleLabel: role}
}

func (f *fakeCluster) addNode(name, region, lan, wan string) {
	f.Add(&fakeContainer{
		ID: "id-" + name, Name: name, State: "running", Health: "healthy", PID: 100 + len(f.nodes),
		Labels:   labels(name, region, "node"),
		Env:      map[string]string{"EDGELIMIT_ADVERTISE_LAN": lan + ":7946", "EDGELIMIT_ADVERTISE_WAN": wan + ":7947"},
		Networks: map[string]string{Project + "_" + region: lan, wanNetwork: wan},
		Aliases:  make(map[string][]string),
		Ports:    map[string]string{"8080/tcp": name + ":8080", "7948/tcp": name + ":7948"},
	})
}

// update derives who receives from whom after the engine has changed something.
func (f *fakeCluster) update(all []*fakeContainer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	clear(f.nodes)
	for _, c := range all {
		if c.Labels[roleLabel] != "node" {
			continue
		}
		f.nodes[c.Name] = *c
		if c.State != "running" {
			delete(f.started, c.Name)
		} else if f.started[c.Name].IsZero() {
			f.started[c.Name] = now
		}
	}
	for _, a := range f.nodes {
		for _, b := range f.nodes {
			pair := [2]string{a.Name, b.Name}
			if _, silent := f.silentSince[pair]; f.receives(a, b) {
				delete(f.silentSince, pair)
			} else if !silent {
				f.silentSince[pair] = now
			}
		}
	}
}

func (f *fakeCluster) receives(a, b fakeContainer) bool {
	if b.State != "running" || b.Paused || f.mute[b.Name] {
		return false
	}
	if a.Labels[regionLabel] == b.Labels[regionLabel] || f.leaky[a.Name] {
		return true
	}
	return a.Networks[wanNetwork] != "" && b.Networks[wanNetwork] != "" &&
		(strings.Contains(a.Table, "l4proto") || !strings.Contains(a.Table, b.Networks[wanNetwork]))
}

// RoundTrip lets a node answer.
func (f *fakeCluster) RoundTrip(r *http.Request) (*http.Response, error) {
	name := r.URL.Hostname()
	f.mu.Lock()
	n := f.nodes[name]
	status, body := http.StatusOK, ""
	switch {
	case n.State != "running":
		f.mu.Unlock()
		return nil, fmt.Errorf("dial tcp: connection refused")
	case n.Paused:
		f.mu.Unlock()
		<-r.Context().Done()
		return nil, r.Context().Err()
	case r.URL.Path == "/readyz" && f.unready[name] != "":
		status, body = http.StatusServiceUnavailable, f.unready[name]
	case r.URL.Path == "/metrics":
		body = f.metrics(name)
	}
	f.mu.Unlock()
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func (f *fakeCluster) metrics(name string) string {
	now := time.Now()
	stale, members, started := f.idleStaleness, 0, f.started[name]
	if f.old[name] {
		started = now.Add(-time.Hour)
	}
	for other := range f.nodes {
		if other == name {
			continue
		}
		if since, silent := f.silentSince[[2]string{name, other}]; silent {
			stale = max(stale, now.Sub(since)+f.idleStaleness)
			if !f.mute[other] {
				continue
			}
		}
		if !f.alone[name] {
			members++
		}
	}
	return fmt.Sprintf(`# TYPE edgelimit_staleness_seconds gauge
edgelimit_staleness_seconds %f
# TYPE edgelimit_members gauge
edgelimit_members{region="a"} 1
edgelimit_members{region="b"} %d
# TYPE edgelimit_degraded gauge
edgelimit_degraded 1
# TYPE edgelimit_over_admission_bound_ratio gauge
edgelimit_over_admission_bound_ratio{rule="x"} 0.25
edgelimit_over_admission_bound_ratio{rule="y"} 0.5
# TYPE edgelimit_over_limit_ratio gauge
edgelimit_over_limit_ratio{rule="x"} 0.125
# TYPE edgelimit_blocked_peers gauge
edgelimit_blocked_peers{region="a",way=%[3]q} 1
edgelimit_blocked_peers{region="b",way=%[3]q} 1
# TYPE process_start_time_seconds gauge
process_start_time_seconds %[4]f
`, stale.Seconds(), members-1, f.blocks[name], float64(started.UnixMilli())/1000)
}

// ok fails the test on an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fails fails the test unless the error says all the words.
func fails(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v, want one with %q", err, w)
		}
	}
}

func (f *fakeCluster) partitioned(t *testing.T) (names []string) {
	t.Helper()
	nodes, err := f.cluster.Nodes(t.Context())
	ok(t, err)
	for _, n := range nodes {
		if n.Partitioned {
			names = append(names, n.Name)
		}
	}
	return names
}

func (f *fakeCluster) dropping(t *testing.T) (names []string) {
	t.Helper()
	for _, region := range testRegions {
		for _, name := range []string{region + "-1", region + "-2"} {
			if f.Get(name).Table != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
