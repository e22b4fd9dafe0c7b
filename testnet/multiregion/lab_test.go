package multiregion

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

	"github.com/edgelimit/edgelimit/testnet/bubble"
	"github.com/edgelimit/edgelimit/testnet/docker"
	"github.com/edgelimit/edgelimit/testnet/docker/dockertest"
	"github.com/edgelimit/edgelimit/testnet/images"
)

// lab is a testnet without containers: a fake engine, and nodes that answer for what the engine did to them. Time is synctest's.
type lab struct {
	*dockertest.Host
	net  *Testnet
	said bytes.Buffer

	mu      sync.Mutex
	nodes   map[string]dockertest.Container
	started map[string]time.Time
	heard   map[[2]string]time.Time // until when one has heard the other; absent: it hears it now
	leaky   map[string]bool         // nodes that go on hearing everybody, whatever is cut
	alone   map[string]bool         // nodes that see nobody
	stuck   map[string]bool         // nodes that all see and nobody hears of
	old     map[string]bool         // nodes that say that they were started long ago
	unready map[string]string
	rest    time.Duration // staleness of who hears everybody
}

// inLab runs a test in a lab whose testnet is up.
func inLab(t *testing.T, test func(t *testing.T, l *lab)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		l := &lab{
			Host:  &dockertest.Host{Images: []string{images.Edgelimit, images.Redis}},
			nodes: make(map[string]dockertest.Container), started: make(map[string]time.Time), heard: make(map[[2]string]time.Time),
			leaky: make(map[string]bool), alone: make(map[string]bool), stuck: make(map[string]bool), old: make(map[string]bool),
			unready: make(map[string]string), rest: 150 * time.Millisecond,
		}
		l.Host.Changed = l.changed
		var err error
		if l.net, err = Open(Options{Root: "../..", Run: l.Host, Progress: &l.said, Patience: 20 * time.Second}); err != nil {
			t.Fatal(err)
		}
		l.net.compose.Dir = t.TempDir() // for the key file
		l.net.web = &http.Client{Transport: l}
		time.Sleep(time.Hour) // the nodes have long been there
		l.addAll()
		time.Sleep(time.Hour)
		test(t, l)
	})
}

var labRegions = []string{"ap-south", "eu-west", "us-east"}

func (l *lab) addAll() {
	for r, region := range labRegions {
		for i := range 2 {
			l.addNode(fmt.Sprintf("%s-%d", region, i+1), region, fmt.Sprintf("10.77.%d.%d", r+1, 10*r+11+i), fmt.Sprintf("10.77.100.%d", 10*r+11+i))
		}
		name := RedisName(region)
		l.Add(&dockertest.Container{ID: "id-" + name, Name: name, State: "running", PID: 500 + r, Health: "healthy",
			Labels: labels(name, region, "redis"), Networks: map[string]string{Project + "_" + region: fmt.Sprintf("10.77.%d.9", r+1)}})
	}
}

func labels(service, region, role string) map[string]string {
	return map[string]string{projectLabel: Project, serviceLabel: service, regionLabel: region, roleLabel: role}
}

func (l *lab) addNode(name, region, lan, wan string) {
	l.Add(&dockertest.Container{ID: "id-" + name, Name: name, State: "running", Health: "healthy", PID: 100 + len(l.nodes), Labels: labels(name, region, "node"),
		Env:      map[string]string{"EDGELIMIT_ADVERTISE_LAN": lan + ":7946", "EDGELIMIT_ADVERTISE_WAN": wan + ":7947"},
		Networks: map[string]string{Project + "_" + region: lan, wanNetwork: wan}, Aliases: make(map[string][]string),
		Ports: map[string]string{"8080/tcp": name + ":8080", "9100/tcp": name + ":9100"}})
}

// changed looks who hears whom after the engine has done something.
func (l *lab) changed(all []*dockertest.Container) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	clear(l.nodes)
	for _, c := range all {
		if c.Labels[roleLabel] != "node" {
			continue
		}
		l.nodes[c.Name] = *c
		if c.State != "running" {
			delete(l.started, c.Name)
		} else if l.started[c.Name].IsZero() {
			l.started[c.Name] = now
		}
	}
	for _, a := range l.nodes {
		for _, b := range l.nodes {
			pair := [2]string{a.Name, b.Name}
			if _, silent := l.heard[pair]; l.hears(a, b) {
				delete(l.heard, pair)
			} else if !silent {
				l.heard[pair] = now
			}
		}
	}
}

func (l *lab) hears(a, b dockertest.Container) bool {
	if b.State != "running" || b.Paused || l.stuck[b.Name] {
		return false
	}
	if a.Labels[regionLabel] == b.Labels[regionLabel] || l.leaky[a.Name] {
		return true
	}
	return a.Networks[wanNetwork] != "" && b.Networks[wanNetwork] != "" && !strings.Contains(a.Table, b.Networks[wanNetwork])
}

// RoundTrip lets a node answer.
func (l *lab) RoundTrip(r *http.Request) (*http.Response, error) {
	name := r.URL.Hostname()
	l.mu.Lock()
	n := l.nodes[name]
	status, body := http.StatusOK, ""
	switch {
	case n.State != "running":
		l.mu.Unlock()
		return nil, fmt.Errorf("dial tcp: connection refused")
	case n.Paused:
		l.mu.Unlock()
		<-r.Context().Done()
		return nil, r.Context().Err()
	case r.URL.Path == "/readyz" && l.unready[name] != "":
		status, body = http.StatusServiceUnavailable, l.unready[name]
	case r.URL.Path == "/metrics":
		body = l.metrics(name)
	}
	l.mu.Unlock()
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func (l *lab) metrics(name string) string {
	now := time.Now()
	stale, members, started := l.rest, 0, l.started[name]
	if l.old[name] {
		started = now.Add(-time.Hour)
	}
	for other := range l.nodes {
		if other == name {
			continue
		}
		if until, silent := l.heard[[2]string{name, other}]; silent {
			stale = max(stale, now.Sub(until)+l.rest)
			if !l.stuck[other] {
				continue
			}
		}
		if !l.alone[name] {
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
# TYPE process_start_time_seconds gauge
process_start_time_seconds %f
`, stale.Seconds(), members-1, float64(started.UnixMilli())/1000)
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

func (l *lab) cutOff(t *testing.T) (names []string) {
	t.Helper()
	nodes, err := l.net.Nodes(t.Context())
	ok(t, err)
	for _, n := range nodes {
		if n.Cut {
			names = append(names, n.Name)
		}
	}
	return names
}

func (l *lab) deaf(t *testing.T) (names []string) {
	t.Helper()
	for _, region := range labRegions {
		for _, name := range []string{region + "-1", region + "-2"} {
			if l.Get(name).Table != "" {
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

var _ docker.Runner = (*lab)(nil)
