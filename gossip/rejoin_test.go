package gossip

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/bubble"
)

// A seed that is gone without a trace, so that calls of it wait for their time-out, does not keep a node from being told what the
// others know before it serves.
func TestClusterWarmBesideADeadSeed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := newLab(t)
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

// A node that starts while one region is cut off from all others meets some, and none of them can be relied on to tell of those beyond.
func TestClusterStartBesideACut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := newLab(t)
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
			if _, whole := n.Staleness(); whole {
				t.Fatal("it believes that it sees the whole cluster")
			}
			if bound := n.Audit(limits)["edge/lab"]; bound < float64(l.limit.Max()) {
				t.Fatalf("its bound is %v, those beyond the cut may admit %v", bound, l.limit.Max())
			}
		}
		l.links.Heal()
		l.within(wholeWithin, "the healed cluster", l.sees(l.all()...))
		l.within(2*rejoinEvery, "the seed that answers", func() string {
			if _, whole := n.Staleness(); !whole {
				return "it believes that somebody is missing"
			}
			return ""
		})
	})
}
