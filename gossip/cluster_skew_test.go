package gossip

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Within ten seconds, all nodes of a cluster know whose clock is off and by how much; those of the others are right.
func TestClusterKnowsWhoseClockIsOff(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		const off, name = 1200 * time.Millisecond, "west/n5"
		for _, other := range []string{"east/n1", "east/n2", "east/n3", "west/n4"} {
			l.start(other)
		}
		l.start(name, func(c *Config) { c.Now = func() int64 { return time.Now().Add(off).UnixNano() } })
		l.within(wholeWithin, "a fresh cluster", l.sees(l.all()...))
		t.Log("known after", l.within(10*time.Second, "the skew", func() string {
			for _, n := range l.nodes {
				for _, m := range n.Members() {
					want := time.Duration(0)
					if m.NodeID == "n5" {
						want = off
					}
					if n == l.nodes[name] {
						want = -off
					}
					if !m.Timed || (m.Ahead-want).Abs() > 20*time.Millisecond { // ways differ by up to 20 ms each
						return fmt.Sprintf("to %s the clock of %s is %v ahead (known: %v), want %v", n.Self().NodeID,
							m.NodeID, m.Ahead, m.Timed, want)
					}
				}
			}
			return ""
		}))
	})
}
