package regions_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func nowMillis() int64 { return time.Now().UnixMilli() }

// region has a node that goes and two that live and know of it use a store, beside those that did before.
func region(t *testing.T, store regions.Store, before ...node) []node {
	t.Helper()
	gone := start(t, 1, store, often)
	gone.take(&hour, spread(700)...)
	nodes := append([]node{gone}, before...)
	holds(t, store, nodes...)
	testkit.Must(t, gone.stop())
	for origin := range counters.Origin(2) {
		n := start(t, origin+2, store, often)
		testkit.Must(t, n.Warm(t.Context()))
		n.take(&hour, spread(1500)...)
		nodes = append(nodes, n)
	}
	holds(t, store, nodes...)
	return nodes
}

// Whatever a server loses is made good, of nodes that are gone as well.
func TestRedisLosesData(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*regionstest.Server){
		"flushed":         func(s *regionstest.Server) { s.Do("FLUSHALL") },
		"restarted empty": func(s *regionstest.Server) { s.Restart(regionstest.Empty) },
		"an old copy":     func(s *regionstest.Server) { s.Restart(regionstest.Saved) },
	} {
		t.Run(name, func(t *testing.T) {
			s := regionstest.StartRedis(t)
			r := open(t, patient(single(s)))
			old := start(t, 9, r, often)
			old.take(&hour, spread(50)...)
			holds(t, r, old)
			s.Do("SAVE")
			nodes := region(t, r, old)
			lose(s)
			holds(t, r, nodes...)
			for _, n := range nodes[1:] {
				testkit.Eventually(t, "the loss is noticed", func() bool { return n.Reconciler.Stats().Lost > 0 })
			}
			holds(t, r, nodes...)
		})
	}
}

// Nodes that only read the store when they started make good what it loses afterwards as well, each time, so that a
// node that starts later reads it.
func TestRedisLosesWhatNodesOnlyRead(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *regionstest.Server){
		"FLUSHALL":        func(_ *testing.T, s *regionstest.Server) { s.Do("FLUSHALL") },
		"FLUSHDB":         func(_ *testing.T, s *regionstest.Server) { s.Do("FLUSHDB", "ASYNC") },
		"restarted empty": func(_ *testing.T, s *regionstest.Server) { s.Restart(regionstest.Empty) },
		"an old copy": func(_ *testing.T, s *regionstest.Server) {
			s.Do("FLUSHALL")
			s.Do("SAVE")
			s.Restart(regionstest.Saved)
		},
		"evicted": func(t *testing.T, s *regionstest.Server) {
			before := s.Do("DBSIZE")
			s.Do("CONFIG", "SET", "maxmemory-policy", "volatile-random")
			s.Do("CONFIG", "SET", "maxmemory", "900kb")
			testkit.Eventually(t, "keys are evicted", func() bool { return s.Do("DBSIZE") != before })
			s.Do("CONFIG", "SET", "maxmemory", "0")
		},
		"its clock was set forward": func(_ *testing.T, s *regionstest.Server) { s.SetClock(3 * time.Hour) },
	} {
		for _, count := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d nodes", name, count), func(t *testing.T) {
				t.Parallel()
				s := regionstest.StartRedisWithClock(t, 0)
				gone := start(t, 9, open(t, patient(single(s))), often)
				gone.take(&hour, spread(700)...)
				testkit.Must(t, gone.stop())
				var nodes []node
				for i := range count {
					n := start(t, counters.Origin(i+1), open(t, patient(single(s))), often)
					testkit.Must(t, n.Warm(t.Context()))
					nodes = append(nodes, n)
				}
				for times := range 2 {
					if times > 0 && name == "its clock was set forward" {
						break // it is
					}
					lose(t, s)
					for i, n := range nodes {
						testkit.Eventually(t, fmt.Sprintf("node %d notices", i), func() bool {
							return n.Reconciler.Stats().Lost > uint64(times)
						})
					}
					holds(t, open(t, patient(single(s))), gone)
				}
				cold := start(t, 8, open(t, patient(single(s))), often)
				testkit.Must(t, cold.Warm(t.Context()))
				if got, want := len(cold.counts()), 700; got != want {
					t.Errorf("a node that starts now reads %d counts of %d", got, want)
				}
			})
		}
	}
}

// The same in a cluster, of which one master alone is emptied.
func TestRedisClusterLosesWhatNodesOnlyRead(t *testing.T) {
	t.Parallel()
	c := regionstest.StartRedisCluster(t, 3)
	gone := start(t, 9, open(t, patient(cluster(c))), often)
	gone.take(&hour, spread(700)...)
	testkit.Must(t, gone.stop())
	n := start(t, 1, open(t, patient(cluster(c))), often)
	testkit.Must(t, n.Warm(t.Context()))
	for i, server := range c.Nodes {
		server.Do("FLUSHALL")
		testkit.Eventually(t, "the loss is noticed", func() bool { return n.Reconciler.Stats().Lost > uint64(i) })
		holds(t, open(t, patient(cluster(c))), gone)
	}
}

// A server that saved everything and was restarted lost nothing; it is sent everything all the same, which changes
// nothing.
func TestRedisRestartsWithItsData(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t)
	r := open(t, patient(single(s)))
	nodes := region(t, r)
	s.Do("SAVE")
	before := mustMerge(t, r).Epoch
	s.Restart(regionstest.Saved)
	testkit.Eventually(t, "the epoch changes", func() bool {
		merged, err := r.Merge(t.Context(), nil, wall())
		return err == nil && merged.Epoch != "" && merged.Epoch != before
	})
	holds(t, r, nodes...)
}

// The replica that becomes the master lacks all that was sent since it was partitioned off.
func TestRedisFailsOverToAStaleReplica(t *testing.T) {
	t.Parallel()
	s := regionstest.StartSentinel(t)
	cfg := patient(regions.DefaultRedisConfig(s.Sentinel.Addr()))
	cfg.MasterName = s.Name
	r := open(t, cfg)
	old := start(t, 9, r, often)
	old.take(&hour, spread(50)...)
	holds(t, r, old)
	s.Detach()
	nodes := region(t, r, old)
	s.Master.Kill()
	testkit.Eventually(t, "the replica is the master", func() bool {
		return s.Replica.Reply("role:master", "INFO", "replication")
	})
	began := nowMillis()
	holds(t, r, nodes...)
	t.Logf("whole %d ms after the failover", nowMillis()-began)
	holds(t, open(t, patient(single(s.Replica))), nodes...)
}

// Without one of its masters a cluster serves nobody, and is left alone; what comes back without its data is made
// whole.
func TestRedisClusterLosesAMaster(t *testing.T) {
	t.Parallel()
	c := regionstest.StartRedisCluster(t, 3)
	r := open(t, patient(cluster(c)))
	nodes := region(t, r)
	epoch := mustMerge(t, r).Epoch
	if n := strings.Count(epoch, "/"); n != 3 {
		t.Errorf("the epoch of three masters is of %d processes", n)
	}
	c.Nodes[1].Kill()
	for _, n := range nodes[1:] {
		n.take(&hour, spread(2000)...)
		n.is(t, regions.BreakerOpen)
	}
	c.Nodes[1].Restart(regionstest.Empty)
	holds(t, r, nodes...)
	testkit.Eventually(t, "the epoch changes", func() bool {
		merged, err := r.Merge(t.Context(), nil, wall())
		return err == nil && merged.Epoch != "" && merged.Epoch != epoch
	})
}

// While a slot moves its keys are on both sides, and when it has moved they are elsewhere: no call fails for that.
func TestRedisClusterMovesASlot(t *testing.T) {
	t.Parallel()
	c := regionstest.StartRedisCluster(t, 3)
	r := open(t, patient(cluster(c)))
	load := start(t, 3, r, often) // under load
	load.take(&hour, spread(500)...)

	var slots []counters.Slot // all of one bucket, and so of one cluster slot
	for i := range counters.Key(200) {
		slots = append(slots, mine(i, 1, 5))
	}
	mustMerge(t, r, slots[:100]...)
	slot := c.Nodes[0].Do("CLUSTER", "KEYSLOT", "{000}")
	n, err := strconv.Atoi(slot)
	testkit.Must(t, err)
	from, to := c.Nodes[n*3/regionstest.ClusterSlots], c.Nodes[(n*3/regionstest.ClusterSlots+1)%3]
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.ID())
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.ID())
	migrate := func(capacity int) {
		names := strings.Fields(strings.Trim(from.Do("CLUSTER", "GETKEYSINSLOT", slot, capacity), "[]"))
		host, port, _ := strings.Cut(to.Addr(), ":")
		args := []any{"MIGRATE", host, port, "", 0, 30_000, "KEYS"}
		for _, name := range names {
			args = append(args, name)
		}
		from.Do(args...)
	}
	migrate(50)
	merged := mustMerge(t, r, slots...) // of these, 50 have moved, 50 have not, and 100 are new
	for i, before := range merged.Before {
		if want := uint64(5); i < 100 && before != want || i >= 100 && before != 0 {
			t.Fatalf("while its slot moved key %d was at %d", i, before)
		}
	}
	migrate(1000)
	for _, s := range []*regionstest.Server{to, from, c.Nodes[(n*3/regionstest.ClusterSlots+2)%3]} {
		s.Do("CLUSTER", "SETSLOT", slot, "NODE", to.ID())
	}
	merged = mustMerge(t, r, slots...)
	for i, before := range merged.Before {
		if before != 5 {
			t.Fatalf("after its slot had moved key %d was at %d, want 5", i, before)
		}
	}
	if left := from.Do("CLUSTER", "COUNTKEYSINSLOT", slot); left != "0" {
		t.Errorf("%s keys are left where the slot was", left)
	}
	all := loaded(t, r)
	for _, s := range slots {
		if all[s.Key] < 5 {
			t.Fatalf("key %d stands at %d, want at least 5", s.Key, all[s.Key])
		}
	}
	load.take(&hour, spread(500)...)
	testkit.Eventually(t, "nothing is pending", func() bool { return load.Reconciler.Stats().Pending == 0 })
	if s := load.Reconciler.Stats(); s.Lost != 0 {
		t.Errorf("a slot that moved was taken for a loss: %+v", s)
	}
}
