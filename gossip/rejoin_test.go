package gossip

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A seed that is gone without a trace, so that calls of it wait for their time-out, does not keep a node from being
// told what the others know before it serves.
func TestClusterWarmBesideADeadSeed(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.start("east/n1")
		l.start("east/n2")
		l.within(wholeWithin, "a fresh cluster", l.sees(l.all()...))
		l.take("east/n1", 10)
		l.within(counted, "a count", l.counts(10, l.all()...))
		l.links.Register("10.9.9.9:7946", "void")
		l.links.Partition("void")
		n := l.start("east/n3", func(c *Config) {
			c.LAN.Seeds = append([]string{"10.9.9.9:7946"}, c.LAN.Seeds...)
			c.WAN = nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := n.Warm(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("it takes itself for warm, and cannot know who is behind the seed: ", err)
		}
		if got := l.view("east/n3"); got != 10 {
			t.Errorf("it starts with %d of the 10 that are counted", got)
		}
	})
}

// A node that starts while one region is partitioned off from all others meets some, and none of them can be relied on
// to tell of those beyond.
func TestClusterStartBesideAPartition(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.twoRegions()
		l.start("mid/n6")
		l.within(wholeWithin, "a fresh cluster", l.sees(l.all()...))
		l.links.Partition("east")
		time.Sleep(2 * forgetSilent)
		l.kill("west/n4")
		n := l.start("west/n4", func(c *Config) { c.WAN.Seeds = append(c.WAN.Seeds, l.nodes["mid/n6"].Addr("wan")) })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := n.Warm(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("it takes itself for warm: ", err)
		}
		limits := map[string]*counters.Limit{"edge/lab": l.limit}
		for range 10 {
			time.Sleep(10 * time.Second)
			if _, complete := n.Staleness(); complete {
				t.Fatal("it believes that it sees the whole cluster")
			}
			if bound := n.Audit(limits, nil)["edge/lab"]; bound < float64(l.limit.Max()) {
				t.Fatalf("its bound is %v, those beyond the cut may admit %v", bound, l.limit.Max())
			}
		}
		l.links.Heal()
		l.within(wholeWithin, "the healed cluster", l.sees(l.all()...))
		l.within(2*rejoinEvery, "the seed that answers", func() string {
			if _, complete := n.Staleness(); !complete {
				return "it believes that somebody is missing"
			}
			return ""
		})
	})
}

// Members that gave each other up are together again within 2 s of the heal, however long the partition was.
func TestClusterRejoinsAtOnce(t *testing.T) {
	for _, lasts := range []time.Duration{time.Minute, 77 * time.Second, 10 * time.Minute} {
		testkit.VirtualTime(t, func(t *testing.T) {
			l := newTestCluster(t)
			l.loss(0)
			l.twoRegions()
			l.within(wholeWithin, "the whole cluster", l.sees(l.all()...))
			l.links.Partition("west")
			time.Sleep(lasts)
			if l.sees(l.all()...)() == "" {
				t.Errorf("after %v the regions have not given each other up", lasts)
			}
			l.links.Heal()
			l.within(2*time.Second, "the healed cluster", l.sees(l.all()...))
		})
	}
}

// Hundreds of members that are gone for good do not delay the seeds. Each is tried within a minute and some, by far not
// as often as the last few, and all but these are forgotten within the hour.
func TestClusterRejoinBesideManyDead(t *testing.T) {
	const dead = 300
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.loss(0)
		n := l.start("east/n1", func(c *Config) {
			c.WAN = nil
			c.LAN.Seeds = []string{"10.101.1.2:7946"} // of n2, which is yet to come
		})
		p := n.pools[0]
		failed := func(i int) failedMember {
			addr := fmt.Sprintf("10.9.%d.%d:7946", i/200, 1+i%200)
			l.links.Register(addr, "void")
			m := Member{NodeID: fmt.Sprint("dead-", i), Region: "east", Incarnation: uint64(1000 + i)}
			return failedMember{poolMember: poolMember{m, addr}, boot: m.NodeID, since: time.Now()}
		}
		p.mu.Lock()
		for i := range dead {
			p.noteFailed(failed(i))
		}
		p.mu.Unlock()
		l.links.Partition("void")
		time.Sleep(time.Minute)
		l.start("east/n2", func(c *Config) { c.WAN, c.LAN.Seeds = nil, nil })
		l.within(2*rejoinEvery, "the seed", l.sees(l.all()...))

		time.Sleep(5 * time.Minute) // a dial takes 5 s here
		p.mu.Lock()
		for _, f := range p.failed {
			if age := time.Since(f.tried); age > 2*retryMost {
				t.Errorf("%s was not tried for %v", f.boot, age)
			}
		}
		before := p.triesOf()
		p.mu.Unlock()
		if len(before) != dead {
			t.Errorf("%d are still to be tried", len(before))
		}
		time.Sleep(5 * time.Minute)
		p.mu.Lock()
		seldom := 0
		for boot, tries := range p.triesOf() {
			if tries-before[boot] <= 10 {
				seldom++
			}
		}
		p.mu.Unlock()
		if seldom != dead-lastFailed {
			t.Errorf("%d of %d are tried at most ten times in five minutes", seldom, dead)
		}
		time.Sleep(failedMemory)
		if left := len(p.failedMembers()); left != lastFailed {
			t.Errorf("%d are still to be tried, want the last %d", left, lastFailed)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for i := range 2 * maxFailed {
			p.noteFailed(failedMember{boot: fmt.Sprint("more-", i), since: time.Now()})
		}
		if len(p.failed) != maxFailed {
			t.Errorf("%d are kept, at most %d", len(p.failed), maxFailed)
		}
	})
}

// triesOf returns how often each failed member was tried. The lock is held.
func (p *pool) triesOf() map[string]int {
	tries := make(map[string]int)
	for boot, f := range p.failed {
		tries[boot] = f.tries
	}
	return tries
}
