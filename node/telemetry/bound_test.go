package telemetry

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// boundNode is a node of a small cluster: its counts, its replica, and its two figures.
type boundNode struct {
	table   *counters.Table
	replica *gossip.Replica
	bounds
}

const boundNodes = 3

func boundCluster(now int64) (nodes []*boundNode) {
	for o := counters.Origin(1); o <= boundNodes; o++ {
		table := counters.NewTable(counters.Config{Origin: o, Memory: counters.MinMemory})
		n := &boundNode{table, gossip.NewReplica(o, gossip.DefaultInterval, table),
			newBounds()}
		for other := counters.Origin(1); other <= boundNodes; other++ {
			if other != o {
				n.replica.Join(other, now)
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// look is what Monitor.Read does of bounds.
func (n *boundNode) look(limits map[string]*counters.Limit, keys []counters.Key, now int64) {
	at := time.Unix(0, now)
	found := make(map[string]uint64)
	for rule, l := range limits {
		for _, k := range keys {
			found[rule] = max(found[rule], n.table.View(l, k, now))
		}
	}
	n.replica.Found(found, now)
	n.read(limits, found, n.replica.Audit(limits, now), at)
}

// What is guaranteed is never below what is estimated, at any node: under any load, loss and partition, of windows and
// buckets, and when limits change.
func TestTheBoundHoldsWhatTheCountsShow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		meter := counters.NewMeter("r", counters.SlidingWindow, 2*time.Second)
		bucket := counters.NewMeter("b", counters.TokenBucket, 2*time.Second)
		limitsOf := func(most uint64) map[string]*counters.Limit {
			window, err := counters.NewLimit(meter, most)
			if err != nil {
				t.Fatal(err)
			}
			debts, err := counters.LimitConfig{Meter: bucket, Max: most, Refill: most}.New()
			if err != nil {
				t.Fatal(err)
			}
			return map[string]*counters.Limit{"r": window, "b": debts}
		}
		limits := limitsOf(20)
		now := at(0).UnixNano()
		nodes, keys := boundCluster(now), []counters.Key{1, 2}
		var sides [boundNodes]int
		for range rapid.IntRange(1, 60).Draw(t, "intervals") {
			now += int64(gossip.DefaultInterval)
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				for i := range sides {
					sides[i] = rapid.IntRange(0, 1).Draw(t, "side")
				}
			case 1:
				limits = limitsOf(rapid.Uint64Range(1, 40).Draw(t, "limit"))
			case 2:
				delete(limits, "r")
			}
			for _, n := range nodes {
				for _, l := range limits {
					for _, k := range keys {
						for range rapid.IntRange(0, 12).Draw(t, "requests") {
							n.table.Take(l, k, 1, now)
						}
					}
				}
			}
			for i, n := range nodes {
				for _, m := range n.replica.Tick(n.table.DrainDirty(now), now) {
					if to := int(m.To) - 1; sides[i] == sides[to] && rapid.IntRange(0, 4).Draw(t, "lost") > 0 {
						if err := nodes[to].replica.Receive(m.Data, now); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			for i, n := range nodes {
				n.look(limits, keys, now)
				for _, rule := range []string{"r", "b"} {
					if bound, shown := n.Excess(rule); shown > bound+1e-9 {
						t.Fatalf("node %d, rule %s: %.3f is guaranteed, the counts show %.3f", i, rule, bound, shown)
					}
				}
			}
		}
	})
}

// A limit that was lowered is exceeded by what was admitted before. Once it is raised again it is not, at once.
func TestTheBoundIsAboutTheLimitInForce(t *testing.T) {
	meter := counters.NewMeter("r", counters.SlidingWindow, time.Minute)
	limits := func(most uint64) map[string]*counters.Limit {
		l, err := counters.NewLimit(meter, most)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]*counters.Limit{"r": l}
	}
	now := at(0).UnixNano()
	n := boundCluster(now)[0]
	for i, step := range []struct {
		limit uint64
		want  float64
	}{{100, 0}, {25, 3}, {100, 0}, {50, 1}, {1000, 0}} {
		now += int64(gossip.DefaultInterval) // no peer is silent yet
		l := limits(step.limit)
		for n.table.Take(l["r"], 1, 1, now).Allowed && i == 0 {
		}
		n.look(l, []counters.Key{1}, now)
		if bound, shown := n.Excess("r"); bound != step.want || shown != step.want {
			t.Errorf("step %d, a limit of %d with 100 used: bound %v, shown %v, want %v", i, step.limit, bound, shown,
				step.want)
		}
	}
}
