package gossip

import (
	"context"
	"testing"
	"time"

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
		if err := n.Warm(ctx); err != nil {
			t.Error(err)
		}
		if got := l.view("east/n3"); got != 10 {
			t.Errorf("it starts with %d of the 10 that are counted", got)
		}
	})
}
