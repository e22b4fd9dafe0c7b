package gossip

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const (
	// wholeWithin is how long after a heal every node is to see every other one.
	wholeWithin = 30 * time.Second
	// counted is how long a count may take to arrive everywhere where its packet may be lost more than once.
	counted = 5 * time.Second
)

func (l *testCluster) twoRegions() (east, west []string) {
	l.t.Helper()
	east, west = []string{"east/n1", "east/n2", "east/n3"}, []string{"west/n4", "west/n5"}
	for _, name := range append(east, west...) {
		l.start(name)
	}
	l.within(wholeWithin, "a fresh cluster", l.sees(l.all()...))
	return east, west
}

// A region partitioned off for longer than memberlist remembers the dead: both sides stay whole inside and go on
// counting, and are one cluster again soon after the heal.
func TestClusterPartitionAndHeal(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		east, west := l.twoRegions()
		l.take("east/n1", 10)
		t.Log("counted after", l.within(counted, "a count", l.counts(10, l.all()...)))

		l.links.Partition("west")
		cut := time.Now()
		l.within(6*time.Minute, "east without west", l.sees(east...))
		l.within(6*time.Minute, "west without east", l.sees(west...))
		t.Log("noticed after", time.Since(cut))
		for range 20 { // memberlist forgets the dead, and the first counts are over
			time.Sleep(10 * time.Second)
			if m := l.sees(east...)() + l.sees(west...)(); m != "" {
				t.Fatal("a side is not whole: ", m)
			}
		}
		for _, c := range []struct {
			at   string
			cost uint64
			side []string
		}{{"east/n2", 100, east}, {"west/n4", 1000, west}, {"west/n5", 2000, west}} {
			before := l.view(c.at)
			l.take(c.at, c.cost)
			l.within(counted, "a count on one side", l.counts(before+c.cost, c.side...))
		}
		if got := l.view("east/n1"); got != 100 {
			t.Errorf("east counts %d, want its own 100", got)
		}
		if age, complete := l.nodes["east/n1"].Staleness(); complete || age < 2*time.Minute {
			t.Errorf("east/n1 believes that it sees the whole cluster as it was %v ago: %v", age, complete)
		}

		l.loss(0) // the second within which all agree is that of networks which lose nothing
		l.links.Heal()
		t.Log("healed after", l.within(wholeWithin, "the healed cluster", l.sees(l.all()...)))
		t.Log("agreed after another", l.within(time.Second, "the counts of both sides", l.counts(3100, l.all()...)))
		l.take("east/n3", 5)
		l.within(counted, "a count after the heal", l.counts(3105, l.all()...))
		time.Sleep(time.Second)
		if age, complete := l.nodes["east/n1"].Staleness(); !complete || age > 2*time.Second {
			t.Errorf("east/n1 sees the whole cluster: %v, as it was %v ago", complete, age)
		}
		for _, name := range l.all() {
			if failed := l.nodes[name].failed(); failed["lan"]+failed["wan"] > 0 {
				t.Errorf("%s still tries to join %v", name, failed)
			}
		}
	})
}

// After a long cut the nodes find each other by themselves, though the seeds are gone.
func TestClusterHealsWithoutSeeds(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		east, west := l.twoRegions()
		l.stop(east[0]) // the seed of its region and of the WAN
		east = east[1:]
		l.links.Partition("west")
		l.within(6*time.Minute, "east without west", l.sees(east...))
		l.within(6*time.Minute, "west without east", l.sees(west...))
		time.Sleep(5 * time.Minute)
		l.links.Heal()
		t.Log("healed after", l.within(wholeWithin, "the healed cluster", l.sees(l.all()...)))
	})
}

// A short cut, within which no membership changes: what was counted meanwhile arrives within a second.
func TestClusterShortCut(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.twoRegions()
		l.links.Partition("west")
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			l.take("east/n1", 1)
			l.take("west/n4", 2)
		}
		if got := l.view("east/n2"); got > 31 {
			t.Errorf("east counts %d beyond the cut", got)
		}
		l.loss(0)
		l.links.Heal()
		t.Log("agreed after", l.within(time.Second, "the counts of both sides", l.counts(90, l.all()...)))
	})
}

func TestClusterGracefulStop(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.loss(0)
		l.twoRegions()
		l.take("east/n1", 10)
		time.Sleep(5 * time.Second)
		stopped := l.nodes["east/n3"]
		l.take("east/n3", 1) // within its last interval
		l.stop("east/n3")
		time.Sleep(200 * time.Millisecond)
		for _, name := range l.all() {
			if m := l.counts(11, name)(); m != "" {
				t.Error("the last counts: ", m)
			}
			n := l.nodes[name]
			if age, complete := n.Staleness(); !complete || age > 2*time.Second {
				t.Errorf("%s: a node that left is in the staleness: %v, %v", name, age, complete)
			}
			for pool, failed := range n.failed() {
				if failed > 0 {
					t.Errorf("%s: %d nodes that left are to be joined again in %s", name, failed, pool)
				}
			}
			if bound := n.Audit(map[string]*counters.Limit{"edge/lab": l.limit}, nil); bound["edge/lab"] > 100 {
				t.Errorf("%s: bound %v", name, bound)
			}
		}
		l.within(5*time.Second, "the others", l.sees(l.all()...))
		if lines := stopped.logs.about("gossip:"); len(lines) > 0 {
			t.Errorf("the node that stopped complains: %q", lines)
		}
		time.Sleep(2 * time.Minute)
		for _, name := range l.all() {
			n := l.nodes[name]
			if age, complete := n.Staleness(); !complete || age > 2*time.Second {
				t.Errorf("%s: a node that left is in the staleness after minutes: %v, %v", name, age, complete)
			}
		}
	})
}

// A node that stops has sent all others what it counted when it is gone, though a fifth of the packets are lost; one
// that cannot be heard does not hold it up.
func TestClusterStopReachesEverybody(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.twoRegions()
		l.loss(0.2)
		var want uint64
		for i, name := range []string{"east/n3", "west/n4"} {
			if i == 1 {
				l.kill("east/n2")
			}
			want += 10
			l.take(name, 10)
			l.stop(name)
			if m := l.counts(want, l.all()...)(); m != "" {
				t.Error(m)
			}
		}
	})
}

// A node that has joined is warm: it knows what others know. One that is alone waits for nobody; one whose seeds are
// away, no longer than it is sent to.
func TestClusterWarm(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		alone := l.start("east/n1", func(c *Config) { c.LAN.Seeds, c.WAN.Seeds = nil, nil })
		if err := alone.Warm(t.Context()); err != nil {
			t.Error("a node without seeds: ", err)
		}
		poolless := l.start("north/n9", func(c *Config) { c.LAN, c.WAN = nil, nil })
		if err := poolless.Warm(t.Context()); err != nil {
			t.Error("a node without pools: ", err)
		}
		l.stop("north/n9")
		l.take("east/n1", 10)
		second := l.start("east/n2")
		if err := second.Warm(t.Context()); err != nil || l.view("east/n2") != 10 {
			t.Errorf("the second: %v, it counts %d of 10", err, l.view("east/n2"))
		}
		lost := l.start("west/n3", func(c *Config) {
			c.LAN.Seeds, c.WAN.Seeds = []string{"10.1.1.1:7946"}, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := lost.Warm(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("a node whose seed is away: ", err)
		}
	})
}

// failed returns how many members each pool of the node tries to join again.
func (n *testNode) failed() map[string]int {
	counts := make(map[string]int)
	for _, p := range n.pools {
		counts[p.name] = len(p.failedMembers())
	}
	return counts
}

// A node that is killed and starts again under the same id is another origin at the same place. What it had counted
// stays.
func TestClusterRestart(t *testing.T) {
	for _, test := range []struct {
		name  string
		end   func(*testCluster, string)
		pause time.Duration
	}{
		{"stopped", (*testCluster).stop, 0},
		{"stopped for long", (*testCluster).stop, 2 * time.Minute},
		{"killed", (*testCluster).kill, time.Second},
		{"killed for so long that all noticed", (*testCluster).kill, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				l := newTestCluster(t)
				l.twoRegions()
				for _, name := range []string{"east/n2", "west/n5"} {
					time.Sleep(2 * time.Minute) // nothing of before counts any more
					l.take(name, 10)
					l.within(counted, "a count", l.counts(10, l.all()...))
					old := l.nodes[name].Self().Origin()
					test.end(l, name)
					time.Sleep(test.pause)
					l.start(name)
					l.within(15*time.Second, "a restarted node", l.sees(l.all()...))
					if test.pause < 10*time.Second {
						l.within(counted, "counts of before the restart", l.counts(10, l.all()...))
					}
					time.Sleep(2 * time.Minute)
					l.take(name, 5)
					l.within(counted, "a count after the restart", l.counts(5, l.all()...))
					for _, other := range l.all() {
						n := l.nodes[other]
						n.mu.Lock()
						peers := n.replica.Peers(time.Now().UnixNano())
						n.mu.Unlock()
						for _, p := range peers {
							if p.Origin == old {
								t.Errorf("%s: the boot that is over is in the bound", other)
							}
						}
						if lines := l.nodes[other].logs.about("same id"); len(lines) > 0 {
							t.Errorf("%s: %q", other, lines)
						}
					}
				}
			})
		})
	}
}

// A node that is killed, or taken away, and comes back at another address is a member again at once, and nobody takes
// the two boots for two nodes.
func TestClusterRestartElsewhere(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Second, 20 * time.Second, 5 * time.Minute} {
		t.Run(pause.String(), func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				l := newTestCluster(t)
				l.twoRegions()
				for i, name := range []string{"west/n5", "east/n2"} {
					region, id, _ := strings.Cut(name, "/")
					l.kill(name)
					time.Sleep(pause)
					l.startAt(region, id, fmt.Sprintf("10.99.%%d.%d:7946", i+1))
					t.Log("whole after", l.within(15*time.Second, "a node that moved", l.sees(l.all()...)))
					want := l.view("east/n1") + 5
					l.take(name, 5)
					l.within(counted, "a count", l.counts(want, l.all()...))
				}
				time.Sleep(5 * time.Minute)
				if m := l.sees(l.all()...)(); m != "" {
					t.Error(m)
				}
				for _, name := range l.all() {
					n := l.nodes[name]
					if lines := n.logs.about("same id"); len(lines) > 0 {
						t.Errorf("%s: %q", name, lines)
					}
					if failed := n.failed(); failed["lan"]+failed["wan"] > 0 {
						t.Errorf("%s still tries to join %v", name, failed)
					}
					if age, complete := n.Staleness(); !complete || age > 5*time.Second {
						t.Errorf("%s sees the whole cluster: %v, as it was %v ago", name, complete, age)
					}
				}
			})
		})
	}
}

// A node that starts in a region which is partitioned off has never received from those beyond: it knows that it does
// not see them, and its bound has room for what they admit.
func TestClusterStartInsideAPartition(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.twoRegions()
		l.links.Partition("west")
		l.kill("west/n4")
		n := l.start("west/n4")
		limits := map[string]*counters.Limit{"edge/lab": l.limit}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := n.Warm(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("it takes itself for warm: ", err)
		}
		// It may have their names from its own region's nodes, but hears nothing from them.
		n.Audit(limits, nil)
		l.within(10*time.Second, "a bound with room for those beyond", func() string {
			l.take("west/n4", 1)
			if bound := n.Audit(limits, nil)["edge/lab"]; bound < float64(l.limit.Max()) {
				return fmt.Sprintf("its bound is %v, others may admit %v", bound, l.limit.Max())
			}
			return ""
		})
		if age, complete := n.Staleness(); complete && age < 5*time.Second {
			t.Errorf("it believes that it sees the whole cluster, as it was %v ago", age)
		}
		time.Sleep(time.Minute)
		l.links.Heal()
		l.within(wholeWithin, "the healed cluster", l.sees(l.all()...))
		time.Sleep(5 * time.Second)
		if _, complete := n.Staleness(); !complete {
			t.Error("after the heal it believes that somebody is missing")
		}
		n.Audit(limits, nil)
		if bound := n.Audit(limits, nil)["edge/lab"]; bound > 100 {
			t.Errorf("after the heal its bound is %v", bound)
		}
	})
}

// Two nodes of one id: everybody tells the operator, and no count suffers, whichever of the two started first.
func TestClusterTwins(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.twoRegions()
		first := l.nodes["east/n2"]
		second := l.startAt("east", "n2", "10.99.%d.2:7946")
		l.nodes["east/n2 the second"], l.nodes["east/n2"] = second, first
		l.within(time.Minute, "a cluster with twins", l.sees(l.all()...))
		for _, name := range l.all() {
			if lines := l.nodes[name].logs.about("same id"); len(lines) == 0 {
				t.Errorf("%s does not complain about two nodes of one id: %q", name, l.nodes[name].logs.about(""))
			}
		}
		l.take("east/n2", 3)
		l.take("east/n2 the second", 4)
		l.within(counted, "the counts of both", l.counts(7, l.all()...))
		time.Sleep(20 * time.Minute)
		if m := l.sees(l.all()...)(); m != "" {
			t.Error("later: ", m)
		}
		l.kill("east/n2")
		l.within(6*time.Minute, "the second alone", l.sees(l.all()...))
	})
}

// The first node of a region has no seed but itself. When it starts again, the others find it at once, whenever they
// last tried it, and it serves with what they count.
func TestClusterSeedRestarts(t *testing.T) {
	for after := range 6 {
		testkit.VirtualTime(t, func(t *testing.T) {
			l := newTestCluster(t)
			l.loss(0)
			l.twoRegions()
			time.Sleep(time.Duration(after) * rejoinEvery / 6)
			l.stop("west/n4")
			l.take("west/n5", 10) // the only node of its region
			n := l.start("west/n4")
			if err := n.Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
			if sees := len(n.Members()); sees != 4 {
				t.Errorf("the seed is warm and sees %d of 4", sees)
			}
			if m := l.counts(10, "west/n4")(); m != "" {
				t.Errorf("the seed is warm: %s", m)
			}
		})
	}
}

// A cluster starts in any order: nodes whose seeds are not there yet find each other as soon as they are.
func TestClusterLateSeed(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.seeds["east"], l.seeds["wan"] = fmt.Sprintf("10.%d.1.1:7946", 'e'), fmt.Sprintf("10.%d.2.1:7946", 'e')
		l.start("east/n2")
		l.start("east/n3")
		l.start("west/n4")
		time.Sleep(time.Minute)
		if lines := l.nodes["east/n2"].logs.about("seed does not answer"); len(lines) == 0 ||
			strings.Contains(lines[0], "error occurred") {
			t.Errorf("of a seed that does not answer is told %q, want one error", lines)
		}
		l.start("east/n1")
		l.within(wholeWithin, "the cluster", l.sees(l.all()...))
	})
}
