package node

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
)

const leasedRules = `
domain: test
descriptors:
  - key: account
    rate_limit: {name: account, unit: minute, requests_per_unit: 100, consistency: strict, scope: region, lease: 20}
`

// Two nodes lease from one limit. They never admit more, use nearly all of it, and decide on most requests by
// themselves.
func TestNodesLeaseFromOneLimit(t *testing.T) {
	server := regionstest.StartRedis(t)
	var nodes []*running
	for range 2 {
		cfg := withListeners(quiet(leasedRules))
		cfg.Region, cfg.Redis.URL = "home", "redis://"+server.Addr()
		cfg.Strict.MinTimeout, cfg.Strict.MaxTimeout = 5*time.Second, 5*time.Second // the machine may be busy
		nodes = append(nodes, launch(t, cfg).ready(t))
	}
	var admitted, asked atomic.Int64
	decide := func(n *running) {
		req := ask(by("account", "v"))
		layers, err := n.Decide(t.Context(), &req, nil)
		if err != nil || counters.VerdictOf(layers).Degraded {
			t.Errorf("%+v, %v", layers, err)
		} else if asked.Add(1); layers[0].Allowed {
			admitted.Add(1)
		}
	}
	began := time.Now()
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			for admitted.Load() < 97 && time.Since(began) < 20*time.Second { // what one does not use the other gets
				decide(nodes[i%2])
			}
			for range 50 {
				decide(nodes[i%2])
			}
		})
	}
	clients.Wait()
	if n := admitted.Load(); n < 97 || n > 100 {
		t.Errorf("%d admitted within %v, want 97 to 100", n, time.Since(began))
	}
	local := 0.0
	for i, n := range nodes {
		_, series := scrape(t, n.Addr("health"))
		mine := series["edgelimit_strict_local_decisions_total home_region=home"]
		if mine == 0 {
			t.Errorf("node %d decided on none by itself", i)
		}
		local += mine
	}
	if all := float64(asked.Load()); local < all/2 {
		t.Errorf("%v of %v were decided without a call", local, all)
	}
}
