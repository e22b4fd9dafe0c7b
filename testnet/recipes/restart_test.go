package recipes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// restartLinger is longer than haproxy-nodes.cfg takes to notice that a node is unready, 1 s, by what a busy machine
// adds.
const restartLinger = 3 * time.Second

// TestRollingRestart restarts the nodes behind a balancer one after the other under a steady load. No request is lost.
// The balancer does not send a request again here, so that nothing but the linger keeps it.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	l := newSite(t)
	hosts := []string{randomHost(), randomHost()}
	l.recipe("rules.yaml")
	config := l.recipe("edgelimit.yaml")
	run := func(host string) *testkit.Process {
		return startEdgelimit(t, l.dir, host+":7948", 0, "serve", "--config", config, "--node-id", host,
			"--http", host+":8080", "--health", host+":7948", "--linger", restartLinger.String())
	}
	nodes := []*testkit.Process{run(hosts[0]), run(hosts[1])}
	// the checks are to be as frequent as they say; answers may take as long as a busy machine needs
	l.recipeTimeouts = true
	haproxy := l.start("haproxy", "-db", "-f", l.recipe("haproxy-nodes.cfg",
		"one 127.0.0.2", "one "+hosts[0], "two 127.0.0.3", "two "+hosts[1], "retries 2", "retries 0",
		"timeout connect 100ms", "timeout connect 60s", "timeout server 1s", "timeout server 60s"))

	load := startLoad(t, "http://"+l.proxy()+"/v1/check")
	for i, host := range hosts {
		name := []string{"one", "two"}[i]
		before := len(haproxy.String())
		logged := func(what string) func() bool {
			return func() bool { return strings.Contains(haproxy.String()[before:], "Server nodes/"+name+" is "+what) }
		}
		sent := load.answered.Load()
		nodes[i].Signal(syscall.SIGTERM)
		testkit.Eventually(t, "HAProxy notices that "+name+" is unready", logged("DOWN"))
		if err := nodes[i].Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		nodes[i] = run(host)
		testkit.Eventually(t, "HAProxy sends to "+name+" again", logged("UP"))
		if n := load.answered.Load() - sent; n < 200 {
			t.Errorf("%d requests were answered while %s was restarted: too few to tell", n, name)
		}
	}
	if lost, sent := load.stop(), load.answered.Load(); len(lost) > 0 {
		t.Errorf("%d requests of %d were lost, the first: %s", len(lost), sent+int64(len(lost)), lost[0])
	}
}

// load is a steady load of checks.
type load struct {
	answered atomic.Int64
	end      context.CancelFunc
	running  sync.WaitGroup

	mu   sync.Mutex
	lost []string
}

// startLoad sends a check every 5 ms, each whether those before are answered or not, until stop.
func startLoad(t *testing.T, url string) *load {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	client := &http.Client{Transport: transport, Timeout: patience}
	ctx, end := context.WithCancel(context.Background())
	l := &load{end: end}
	l.running.Go(func() {
		defer transport.CloseIdleConnections()
		var checks sync.WaitGroup
		defer checks.Wait()
		for ticker := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
				checks.Go(func() { l.check(client, url) })
			}
		}
	})
	t.Cleanup(func() { l.stop() })
	return l
}

func (l *load) check(client *http.Client, url string) {
	resp, err := client.Post(url, "application/json",
		bytes.NewReader([]byte(`{"rule":"per_ip","identity":"192.0.2.1"}`)))
	if err == nil {
		var body []byte
		body, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Status, body)
		}
	}
	if err == nil {
		l.answered.Add(1)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = append(l.lost, err.Error())
}

// stop ends the load and returns what became of the requests that were lost.
func (l *load) stop() []string {
	l.end()
	l.running.Wait()
	return l.lost
}
