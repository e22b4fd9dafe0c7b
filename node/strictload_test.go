package node

import (
	"flag"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

var strictRounds = flag.Int("strict-rounds", 1, "races for a strict limit under load, with and without pauses of Redis")

const loadedRules = `
domain: test
descriptors:
  - {key: one, rate_limit: {name: one, window: 240h, requests_per_unit: 1000, consistency: strict, home_region: home}}
`

// Other processes keep the machine busy while 64 clients of four nodes race for a limit of 1,000, all by default
// settings: exactly that passes, and never more while the Redis is stopped for 300 ms at a time.
func TestStrictUnderLoad(t *testing.T) {
	const nodeCount, clients, tries, limit, busyLoops = 4, 64, 60, 1000, 6
	redis := regionstest.StartRedis(t)
	var nodes []*running
	for i := range nodeCount {
		cfg := quiet(loadedRules)
		cfg.NodeID, cfg.Region, cfg.Redis.URL = fmt.Sprint("n", i), "home", "redis://"+redis.Addr()
		nodes = append(nodes, launch(t, cfg).ready(t))
	}
	for range busyLoops {
		testkit.Start(t, exec.Command("sh", "-c", "while :; do :; done"))
	}
	race := func(client string) (admitted int64) {
		var passed atomic.Int64
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				for range tries {
					req := ask(by("one", client))
					layers, err := nodes[i%nodeCount].Decide(t.Context(), &req, nil)
					if err != nil {
						t.Error(err)
					} else if layers[0].Allowed {
						passed.Add(1)
					}
				}
			})
		}
		all.Wait()
		return passed.Load()
	}
	for round := range *strictRounds {
		if got := race(fmt.Sprint("busy", round)); got != limit {
			t.Errorf("busy: %d of %d passed a limit of %d", got, clients*tries, limit)
		}
	}
	for round := range *strictRounds {
		done := make(chan struct{})
		var got int64
		go func() {
			defer close(done)
			got = race(fmt.Sprint("paused", round))
		}()
		for racing := true; racing; {
			redis.Pause()
			racing = !endsWithin(done, 300*time.Millisecond)
			redis.Resume()
			racing = racing && !endsWithin(done, 100*time.Millisecond)
		}
		t.Logf("paused: %d passed", got)
		if got > limit {
			t.Errorf("paused: %d of %d passed a limit of %d", got, clients*tries, limit)
		}
	}
}

func endsWithin(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}
